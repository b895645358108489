"""Inventories: the components that a specification expects, compared with planted hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import UserError
from assay.judge import judge, load_specification, overall
from assay.judge.inventory import DeviceLine, Inventory
from assay.judge.inventory_file import inventory_of, not_counted, to_toml
from assay.records.devices import names_in_records
from assay.records.schema import AnyRecord, Context, Measurement, Scalar, Subject, Summary, Verdict

GBIT = 1e9 / 8


def host(name: str, **facts: Scalar) -> Context:
    return Context(subject=Subject(host=name), facts={key.replace("__", "."): v for key, v in facts.items()})


def port(
    device: str, rate: float, host_name: str = "n1", state: str = "ACTIVE", layer: str = "InfiniBand"
) -> Context:
    facts: dict[str, Scalar] = {"rdma.state": state, "rdma.rate": rate * GBIT, "rdma.link_layer": layer}
    return Context(subject=Subject(host=host_name, device=device), facts=facts)


def gpu(pci: str) -> Context:
    facts: dict[str, Scalar] = {"pcie.class": "display", "pcie.vendor": "10de"}
    return Context(subject=Subject(host="n1", device=pci), facts=facts)


def link(pci: str, rate: float) -> Measurement:
    return Measurement(
        name="node.gpu_copy", metric="link", unit="B/s", subject=Subject(host="n1", device="gpu0"),
        params={"pci": pci}, summary=Summary(n=1, median=rate),
    )  # fmt: skip


def verdicts(
    tmp_path: Path, inventory: str, records: list[AnyRecord], hosts: tuple[str, ...] = ("n1",)
) -> list[Verdict]:
    path = tmp_path / "site.toml"
    path.write_text(f"[inventory]\n{inventory}\n")
    return judge(load_specification(path), records, hosts)


def test_a_specification_may_be_an_inventory_alone(tmp_path: Path) -> None:
    (verdict,) = verdicts(tmp_path, "sockets = 2", [host("n1", cpu__packages=2)])
    assert (verdict.criterion, verdict.outcome, verdict.specification) == (
        "inventory: 2 sockets",
        "PASS",
        "site",
    )


@pytest.mark.parametrize(("memory", "outcome"), [(64 * 2**30, "PASS"), (64 * 2**30 - 1, "FAIL")])
def test_memory_is_a_minimum(tmp_path: Path, memory: int, outcome: str) -> None:
    (verdict,) = verdicts(tmp_path, 'memory = "64 GiB"', [host("n1", memory__bytes=memory)])
    assert (verdict.outcome, verdict.required_text) == (outcome, "64 GiB")


def test_every_host_is_compared_and_a_host_without_facts_is_inconclusive(tmp_path: Path) -> None:
    both: list[AnyRecord] = [host("n1", cpu__packages=2), host("n2", cpu__packages=1)]
    (verdict,) = verdicts(tmp_path, "sockets = 2", both, ("n1", "n2"))
    assert (verdict.outcome, verdict.subject.host, verdict.reason) == ("FAIL", "n2", "n2 has 1, not 2")
    (verdict,) = verdicts(tmp_path, "sockets = 2", both[:1], ("n1", "n2"))
    assert (verdict.outcome, verdict.reason) == ("INCONCLUSIVE", "the settings of n2 were not read")
    (verdict,) = verdicts(tmp_path, "sockets = 2", [host("n1")])
    assert (verdict.outcome, verdict.reason) == ("INCONCLUSIVE", "n1 has no cpu.packages")
    assert overall(verdicts(tmp_path, "sockets = 2", [])) == "INCONCLUSIVE"


def test_a_device_counts_once_and_demanding_lines_choose_first(tmp_path: Path) -> None:
    lines = 'rdma_ports = [{count = 2, rate = "25 Gbit/s"}, {count = 1, rate = "100 Gbit/s"}]'
    records: list[AnyRecord] = [host("n1"), port("a:1", 100), port("b:1", 25)]
    slow, fast = verdicts(tmp_path, lines, records)
    assert (slow.outcome, slow.reason) == ("FAIL", "n1 has 1 of 2: no other is there")
    assert fast.outcome == "PASS"
    assert overall(verdicts(tmp_path, lines, [*records, port("c:1", 100)])) == "PASS"


def test_devices_that_do_not_fit_are_named(tmp_path: Path) -> None:
    line = 'rdma_ports = {count = 2, rate = "100 Gbit/s", link_layer = "InfiniBand"}'
    records: list[AnyRecord] = [host("n1"), port("a:1", 100), port("b:1", 100, state="DOWN"), port("c:1", 10)]
    (verdict,) = verdicts(tmp_path, line, records)
    assert verdict.reason == "n1 has 1 of 2: b:1 is DOWN; c:1 is ACTIVE at 10.00 Gbit/s, InfiniBand"
    assert verdict.subject.device == "b:1" and "b:1" in verdict.fix
    (verdict,) = verdicts(tmp_path, line + '\nignore = ["b:1"]', records)
    assert "b:1" not in verdict.reason


def test_a_gpu_counts_if_it_was_measured_with_the_expected_link(tmp_path: Path) -> None:
    line = 'gpus = {count = 1, link = "126 Gbit/s"}'
    on_bus: list[AnyRecord] = [host("n1"), gpu("0000:03:00.0")]
    (verdict,) = verdicts(tmp_path, line, on_bus)
    assert (verdict.outcome, verdict.reason) == (
        "INCONCLUSIVE",
        "n1: copies to and from its GPUs were not measured",
    )
    (verdict,) = verdicts(tmp_path, line, [*on_bus, link("0000:03:00.0", 15.753846e9)])
    assert verdict.outcome == "PASS"
    (verdict,) = verdicts(tmp_path, line, [*on_bus, link("0000:03:00.0", 7.88e9)])
    assert (verdict.outcome, "PCIe link of 7.88 GB/s" in verdict.reason) == ("FAIL", True)
    (verdict,) = verdicts(
        tmp_path, "gpus = {count = 2}", [*on_bus, gpu("0000:83:00.0"), link("0000:03:00.0", 1e9)]
    )
    assert verdict.outcome == "FAIL" and "0000:83:00.0 was not measured" in verdict.reason


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("sockets = 0", 2, "not a count"),
        ("sockets = true", 2, "not a count"),
        ('sockets = "2"', 2, "not a count"),
        ("ports = 2", 2, "unknown key 'ports'"),
        ('memory = "64 Gbit/s"', 2, "does not fit"),
        ("memory = 64", 2, "does not fit"),
        ("gpus = 2", 2, "not a table"),
        ("gpus = {}", 2, "has no count"),
        ("gpus = {count = 2, rate = '1 GB/s'}", 2, "unknown key 'rate'"),
        ("sockets = 1\nrdma_ports = {count = 1, link_layer = 'Omni'}", 3, "link_layer = 'Omni'"),
        ("ethernet_ports = [{count = 1, speed = '10 GiB'}]", 2, "does not fit"),
        ("ethernet_ports = [{count = 1, speed = '10 Gbps'}]", 2, "unknown unit 'Gbps'"),
        ("sockets = 1\nignore = 'eth0'", 3, "not a list"),
        ("ignore = ['eth0']", 1, "is empty"),
        ("", 1, "is empty"),
    ],
)
def test_a_wrong_inventory_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f"[inventory]\n{text}\n")
    with pytest.raises(UserError, match=message) as refused:
        load_specification(path)
    assert f"site.toml:{line}:" in str(refused.value) and "\n" not in str(refused.value)


counts = st.integers(1, 64)
rates = st.sampled_from([0.0, GBIT, 10 * GBIT, 12.5 * GBIT, 100 * GBIT, 12345678901.0])
lines = st.one_of(
    st.builds(DeviceLine, st.just("gpus"), counts, rates),
    st.builds(
        DeviceLine, st.just("rdma_ports"), counts, rates, link_layer=st.sampled_from(["", "InfiniBand"])
    ),
    st.builds(DeviceLine, st.just("ethernet_ports"), counts, rates, mtu=st.sampled_from([0, 1500, 9000])),
)


@given(
    counts,
    st.one_of(st.none(), counts),
    st.one_of(st.none(), st.integers(1, 4096)),
    st.lists(lines, max_size=6),
)
def test_a_written_inventory_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    sockets: int,
    nodes: int | None,
    gibibytes: int | None,
    devices: list[DeviceLine],
) -> None:
    memory = None if gibibytes is None else gibibytes * 2.0**30
    written = Inventory(sockets, nodes, memory, devices=tuple(devices))
    path = tmp_path_factory.getbasetemp() / "written.toml"
    path.write_text(to_toml(written, ["a comment"]))
    read = load_specification(path).inventory
    key = lambda line: (line.kind, line.count, line.rate, line.link_layer, line.mtu)  # noqa: E731
    assert sorted(map(key, read.devices)) == sorted(map(key, written.devices))
    assert (read.sockets, read.numa_nodes, read.memory) == (sockets, nodes, memory)


def test_a_host_meets_the_inventory_written_of_it(tmp_path: Path) -> None:
    ethernet: dict[str, Scalar] = {"interface.kind": "physical", "interface.state": "up", "interface.mtu": 9000,
                                   "interface.speed": 25 * GBIT}  # fmt: skip
    records: list[AnyRecord] = [
        host("n1", cpu__packages=1, numa__nodes=1, memory__bytes=25276518400),
        port("a:1", 100),
        port("b:1", 100, state="DOWN"),
        Context(subject=Subject(host="n1", device="eth0"), facts=ethernet),
        Context(subject=Subject(host="n1", device="eth1"), facts={**ethernet, "interface.master": "bond0"}),
        Context(subject=Subject(host="n1", device="br0"), facts={"interface.kind": "virtual"}),
    ]
    path = tmp_path / "written.toml"
    path.write_text(to_toml(inventory_of(records, "n1")))
    verdicts_of_host = judge(load_specification(path), records, ["n1"])
    assert len(verdicts_of_host) == 5 and overall(verdicts_of_host) == "PASS"
    assert not_counted(records, "n1") == [
        "b:1 is DOWN",
        "eth1 is up at 25.00 Gbit/s, MTU 9000 B, part of bond0",
    ]


@pytest.mark.parametrize(
    ("seen", "wanted", "names"),
    [
        (["n1", "n2"], ["n2", "n1"], {"n2": "n2", "n1": "n1"}),
        (["n1", "sender"], ["n1.site.org"], {"n1.site.org": "n1"}),
        (["n1.site.org"], ["n1"], {"n1": "n1.site.org"}),
        (["n1", "sender"], ["10.0.0.7"], {"10.0.0.7": "n1"}),
        (["n1", "sender"], ["n1", "n2"], {"n1": "n1", "n2": ""}),
        ([], ["n1"], {"n1": ""}),
        (["10.0.0.8"], ["10.0.0.7", "10.0.0.9"], {"10.0.0.7": "10.0.0.8", "10.0.0.9": ""}),
    ],
)
def test_listed_names_are_matched_with_names_in_records(
    seen: list[str], wanted: list[str], names: dict[str, str]
) -> None:
    assert names_in_records([host(name) for name in seen], wanted) == names
