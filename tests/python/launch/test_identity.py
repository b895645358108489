"""Each host has one name: lists with aliases, domains and names of other adapters are matched with the machines'
names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.launch.identity import HostRenamer, match_names
from assay.records.schema import Context, Failure, Flows, Machine, Measurement, Pairs, Ranks, Subject


def no_addresses(_name: str) -> set[str]:
    return set()


def report(*hosts: Machine, host_index: list[int] | None = None) -> Ranks:
    """The engine's report of its ranks. ``host_index``: by rank, the index of its machine; None: a rank a machine."""
    host_index = list(range(len(hosts))) if host_index is None else host_index
    several = {k for k in host_index if host_index.count(k) > 1}
    labels = [
        f"{hosts[k].host}:{host_index[:rank].count(k)}" if k in several else hosts[k].host
        for rank, k in enumerate(host_index)
    ]
    return Ranks(labels, host_index, list(hosts))


def labels(listed: list[str], ranks: Ranks, resolve: object = no_addresses) -> list[str]:
    names = HostRenamer(listed, resolve)  # type: ignore[arg-type]
    names.match_ranks(ranks)
    return names.labels


@pytest.mark.parametrize(
    ("listed", "own_names"),
    [
        (["n1", "n2"], ["n1.site", "n2.site"]),
        (["n1.site", "n2.site"], ["n1", "n2"]),
        (["N1", "n2"], ["n1.Site", "n2"]),
        (["a", "b"], ["b", "a"]),  # the launcher may start the ranks in another order
    ],
)
def test_domains_and_the_order_of_ranks_do_not_matter(listed: list[str], own_names: list[str]) -> None:
    found = labels(listed, report(*map(Machine, own_names)))
    listed_name_of = {name.partition(".")[0].lower(): name for name in listed}
    assert found == [listed_name_of[host.partition(".")[0].lower()] for host in own_names]


def test_the_name_of_another_adapter_is_matched_by_its_address() -> None:
    addresses = {"n1-ib": {"10.1.0.1"}, "n2-ib": {"10.1.0.2"}}
    ranks = report(
        Machine("node-b", addresses=["172.17.0.1", "10.1.0.2"]),
        Machine("node-a", addresses=["172.17.0.1", "10.1.0.1"]),
    )
    names = HostRenamer(["n1-ib", "n2-ib"], lambda name: addresses[name] | {"172.17.0.1"})
    contexts = names.match_ranks(ranks)
    assert names.labels == ["n2-ib", "n1-ib"]
    assert [(c.subject.host, c.facts["host.own_name"], c.facts["host.recognised_by"]) for c in contexts] == [
        ("n2-ib", "node-b", "address"),
        ("n1-ib", "node-a", "address"),
    ]


def test_slurms_name_of_a_node_is_matched() -> None:
    ranks = report(Machine("ip-10-0-0-2", ["c2"]), Machine("ip-10-0-0-1", ["c1"]))
    assert labels(["c1", "c2"], ranks) == ["c2", "c1"]


@pytest.mark.parametrize("own_names", [["nid00028", "nid00029"], ["nid00029.site", "nid00028.site"]])
def test_the_number_of_a_node_is_matched(own_names: list[str]) -> None:
    names = HostRenamer(["28", "29"], no_addresses)
    contexts = names.match_ranks(report(*map(Machine, own_names)))
    assert names.labels == [name.partition(".")[0].removeprefix("nid000") for name in own_names]
    assert {context.facts["host.recognised_by"] for context in contexts} == {"number"}


@pytest.mark.parametrize("own_names", [["vm2", "vm3"], ["a-2", "b-2"], ["vm", "vm1"], ["web-2", "db-1"]])
def test_numbers_that_are_not_those_of_the_machines_are_matched_by_rank(own_names: list[str]) -> None:
    assert labels(["1", "2"], report(*map(Machine, own_names))) == ["1", "2"]


def test_unknown_names_are_matched_by_the_order_of_ranks() -> None:
    assert labels(["x", "y"], report(Machine("vm7"), Machine("vm8"))) == ["x", "y"]
    # The ranks of n1 and y run on one machine, z: it is unknown which name is z's, so z keeps its own name.
    names = HostRenamer(["n1", "n1", "y"], no_addresses)
    contexts = names.match_ranks(report(Machine("n1"), Machine("z"), host_index=[0, 1, 1]))
    assert names.labels == ["n1", "z:0", "z:1"]
    assert [c.facts for c in contexts if c.subject.host == "z"] == [{"host.unlisted": True}]


def test_a_second_name_of_a_machine_is_recorded_as_an_alias() -> None:
    ranks = report(Machine("n1", addresses=["10.1.0.1"]), Machine("n2"), host_index=[0, 0, 1])
    names = HostRenamer(["n1", "n1-ib", "n2"], lambda _name: {"10.1.0.1"})
    (context,) = names.match_ranks(ranks)
    assert names.labels == ["n1:0", "n1:1", "n2"]
    assert context == Context(subject=Subject(host="n1"), facts={"host.aliases": "n1-ib"})


@pytest.mark.parametrize("listed", [["w.1.x", "w.2.x"], ["n1", "n1-ib"], ["n1", "10.1.0.1", "n1"]])
def test_names_that_are_all_one_machine_are_refused(listed: list[str]) -> None:
    ranks = report(Machine("n1", addresses=["10.1.0.1"]), host_index=[0] * len(listed))
    with pytest.raises(UserError, match="are one machine, n1") as refused:
        HostRenamer(listed, no_addresses).match_ranks(ranks)
    assert "once" in refused.value.fix


def test_several_ranks_of_a_host_keep_their_numbers() -> None:
    ranks = report(Machine("s1.site"), Machine("c1.site"), host_index=[0, 0, 1])
    assert labels(["s1", "s1", "c1"], ranks) == ["s1:0", "s1:1", "c1"]


def test_every_kind_of_record_is_renamed() -> None:
    names = HostRenamer(["n1", "n2"], no_addresses)
    names.match_ranks(report(Machine("n1.site"), Machine("n2.site")))
    pair = Subject(host="n1.site", peer="n2.site")
    row = names.rename(Pairs(name="x", metric="m", unit="B/s", subject=pair, peers=["n2.site"], values=[1.0]))
    assert isinstance(row, Pairs) and (row.subject.host, row.peers) == ("n1", ["n2"])
    flows = names.rename(Flows(name="x", metric="m", unit="B/s", sources=["n1.site"], targets=["n2.site"]))
    assert isinstance(flows, Flows) and (flows.sources, flows.targets) == (["n1"], ["n2"])
    single = names.rename(Measurement(name="x", metric="m", unit="B/s", subject=pair))
    assert isinstance(single, Measurement) and single.subject == Subject(host="n1", peer="n2")
    lost = names.rename(Measurement(name="x", metric="m", unit="1", params={"lost": "n1.site,n2.site"}))
    assert isinstance(lost, Measurement) and lost.params["lost"] == "n1,n2"
    failure = names.rename(Failure(problem="n1.site: no answer from n2.site", subject=pair))
    assert isinstance(failure, Failure) and failure.problem == "n1: no answer from n2"


def test_without_a_list_the_hosts_keep_their_names() -> None:
    assert labels([], report(Machine("vm"), host_index=[0, 0])) == ["vm:0", "vm:1"]


def test_a_report_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(UserError, match="contradicts itself"):
        HostRenamer(["a"], no_addresses).match_ranks(Ranks(["a"], [3], [Machine("a")]))


hosts = st.lists(st.sampled_from(["n1", "n2", "n1.s", "n2.s", "n1-ib", "10.0.0.1"]), min_size=1, max_size=6)


@settings(deadline=None, derandomize=True)
@given(listed=hosts, own_names=hosts, data=st.data())
def test_no_two_machines_get_the_same_name(
    listed: list[str], own_names: list[str], data: st.DataObject
) -> None:
    machines = [Machine(name, addresses=[f"10.0.0.{k}"]) for k, name in enumerate(dict.fromkeys(own_names))]
    of = data.draw(st.lists(st.integers(0, len(machines) - 1), min_size=len(listed), max_size=len(listed)))
    resolved = {name: {f"10.0.0.{k % 3}"} for k, name in enumerate(dict.fromkeys(listed))}
    matches = match_names(listed, machines, of, lambda name: resolved[name])
    assigned_names = [name for match in matches for name in match.names]
    assert len(assigned_names) == len(set(assigned_names)) and set(assigned_names) <= set(listed)
