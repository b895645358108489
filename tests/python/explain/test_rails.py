"""Slow links of hosts with two adapters, on a planted fabric: a leaf switch for each rail, below one spine. The rail
that a message used comes from the run's records. Without any, the path of each rail is a candidate, and is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from small_fabrics import dual_rail

from assay.cli import main
from assay.errors import UserError
from assay.explain import Evidence
from assay.explain.links import Blame, blame
from assay.fabric import Routes, tables
from assay.fabric.read import read_fabric
from assay.records.run import Run
from assay.records.schema import AnyRecord, Measurement, Pairs, Scalar, Subject, Summary

HOSTS = [f"n{k}" for k in range(1, 7)]
SLOW = "n1 mlx5_1[1] -> isw2[1]"  # the cable of n1's second adapter, planted at half its rate
SAME_PAIRS = "n1 mlx5_0[1] -> isw1[1]"
Options = Mapping[str, Scalar | list[str] | None]


@pytest.fixture
def routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Routes:
    monkeypatch.chdir(tmp_path)
    Path("net.txt").write_text(dual_rail(HOSTS))
    fabric = read_fabric("net.txt")
    return Routes(fabric, tables.compute(fabric, "min-hop"))


def rows(slow: str = "n1", ranks: list[str] = HOSTS) -> list[AnyRecord]:
    """The bandwidth of each pair of ranks; what ``slow`` sends has half the rate."""
    return [
        Pairs(
            name="network.all_to_all", metric="bandwidth", unit="B/s", better="higher", subject=Subject(host=rank),
            peers=(peers := [peer for peer in ranks if peer.partition(":")[0] != rank.partition(":")[0]]),
            values=[5e9 if rank == slow else 10e9] * len(peers),
        )
        for rank in ranks
    ]  # fmt: skip


def carried(host: str, device: str, amount: float) -> Measurement:
    return Measurement(
        name="network.counters", metric="port_xmit_data", unit="B", subject=Subject(host=host, device=device),
        summary=Summary(n=1, median=amount),
    )  # fmt: skip


def blamed(routes: Routes, records: list[AnyRecord], options: Options | None = None) -> Blame:
    result = blame(Evidence(records, HOSTS, {"schedule": "circle", **(options or {})}), routes)
    assert result is not None
    return result


def devices(result: Blame) -> list[str | None]:
    return [finding.subject.device for finding in result.findings]


def test_the_named_rail_is_the_one_whose_path_is_judged(routes: Routes) -> None:
    result = blamed(routes, rows(), {"rail": "mlx5_1"})
    assert devices(result) == [SLOW]
    assert result.findings[0].severity == "fault"
    assert result.uncertain == 0


@pytest.mark.parametrize("rail", ["", "mlx5_0,mlx5_1", "mlx5_0:1,mlx5_1:1"])
def test_without_a_record_the_links_of_both_rails_are_candidates_and_that_is_said(
    routes: Routes, rail: str
) -> None:
    result = blamed(routes, rows(), {"rail": rail})
    (found,) = result.findings
    assert SLOW in found.cause and SAME_PAIRS in found.cause
    assert (found.severity, found.confidence) == ("warning", 0.95 / 2)
    assert "no record says which of them a message used" in "".join(found.details)
    assert "measure n1 mlx5_1 -> n2 mlx5_1: of these links it crosses " + SLOW + " alone" in found.details
    assert "30 of the pairs may have used several rails" in "".join(result.lines())


def test_the_bytes_that_adapters_counted_tell_the_rail(routes: Routes) -> None:
    counters = [carried(host, "mlx5_0:1", 1e6) for host in HOSTS]
    counters += [carried(host, "mlx5_1:1", 1e11) for host in HOSTS]
    result = blamed(routes, [*rows(), *counters])
    assert devices(result) == [SLOW]
    assert (result.findings[0].severity, result.uncertain) == ("fault", 0)


def test_where_both_adapters_carried_bytes_both_stay_candidates(routes: Routes) -> None:
    counters = [carried(host, f"mlx5_{rail}:1", 1e11) for host in HOSTS for rail in (0, 1)]
    result = blamed(routes, [*rows(), *counters])
    assert result.uncertain == 30
    assert [finding.severity for finding in result.findings] == ["warning"]


def test_ranks_of_a_server_are_on_the_adapters_to_which_they_were_bound(routes: Routes) -> None:
    ranks = [f"{host}:{rail}" for host in HOSTS for rail in (0, 1)]
    options: Options = {"servers": ["n[1-6]"], "servers_hcas": ["mlx5_0", "mlx5_1"]}
    result = blamed(routes, rows("n1:1", ranks), options)
    assert devices(result) == [SLOW]
    assert result.uncertain == 0


def test_rails_that_no_cable_joins_are_judged_each(routes: Routes) -> None:
    """Each rail is a subnet of its own: a message cannot change over."""
    text = Path("net.txt").read_text()
    alone = "\n".join(
        line for line in text.splitlines() if "top" not in line and not line.startswith(('[1] "S', '[2] "S'))
    )
    Path("alone.txt").write_text(alone + "\n")
    fabric = read_fabric("alone.txt")
    (found,) = blamed(Routes(fabric, tables.compute(fabric, "min-hop")), rows()).findings
    assert SLOW in found.cause and SAME_PAIRS in found.cause
    assert "measure n1 mlx5_1 -> n2 mlx5_1: of these links it crosses " + SLOW + " alone" in found.details


def test_healthy_rails_have_no_slow_link(routes: Routes) -> None:
    assert blamed(routes, rows(slow="none")).findings == []


def test_conflicts_of_a_shift_are_not_corrected_where_the_rail_is_unknown(routes: Routes) -> None:
    """What a conflict costs depends on the rails. So pairs with one are left out, and links that have no other pairs
    are not judged."""
    result = blamed(routes, rows(slow="none"), {"schedule": "shift"})
    assert result.findings == []
    assert "conflicts of the shift not taken into account" in result.lines()[0]
    assert "pairs with conflicts are left out" in result.lines()[1]


def test_a_rail_that_a_host_lacks_is_refused(routes: Routes) -> None:
    with pytest.raises(UserError, match=r"n1 has 2 ports .* 0 of them are mlx5_7"):
        blamed(routes, rows(), {"rail": "mlx5_7"})


def test_blame_reads_the_rails_of_a_run(routes: Routes, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create("net", ["assay", "net"], path=Path("run"))
    run.info.hosts, run.info.options = HOSTS, {"schedule": "circle"}
    for record in rows():
        run.append(record)
    run.finish("complete")
    command = ["fabric", "blame", "run", "--fabric", "net.txt", "--routing", "min-hop"]
    assert main(command) == 1
    text = capsys.readouterr().out
    assert "one of 2 links carries 50 %" in text
    assert (
        "30 of the pairs may have used several rails: all of their paths are candidates; --rail names" in text
    )
    assert main([*command, "--rail", "mlx5_1"]) == 1
    assert f"the link {SLOW} carries 50 %" in capsys.readouterr().out
