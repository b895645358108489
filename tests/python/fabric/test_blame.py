"""The slow link of a network run, end to end. A fabric with a planted slow cable is simulated, measured by ``assay
net`` and joined with its forwarding tables. In a lab the cable of a host is slowed down."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import SIX, db_csv, snapshot

from assay.cli import main
from assay.errors import UserError
from assay.explain.links import _as_if_alike, _pairs_to_judge, _path_rates
from assay.fabric import Routes, synthetic, tables
from assay.fabric.platform import platform_text
from assay.fabric.read import files_of
from assay.lab import Fault, Lab, Rates
from assay.records.run import Run
from assay.records.schema import Finding, Pairs

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 300
RATE = 12.5e9
NET = ["--sizes", "1MiB", "--repeats", "3", "--no-retest"]


def write_platform_and_dumps(folder: Path, text: str, link: str, share: float) -> None:
    """A platform whose ``link`` has ``share`` of its rate, and the dumps of the fabric."""
    fabric = synthetic.build(synthetic.parse(text))
    routing = tables.compute(fabric, "d-mod-k")
    platform = platform_text(Routes(fabric, routing), RATE)
    name = link.replace(">", "&gt;")
    healthy_link = f'<link id="{name}" bandwidth="{RATE:.6g}Bps"'
    assert share == 1 or platform.count(healthy_link) == 1
    (folder / "p.xml").write_text(
        platform.replace(healthy_link, f'<link id="{name}" bandwidth="{RATE * share:.6g}Bps"')
    )
    (folder / "dumps").mkdir()
    (folder / "dumps" / "snapshot.xml").write_text(snapshot(fabric, routing))


def slow_links_of_run(folder: Path) -> list[Finding]:
    """The slow links that ``assay net --fabric DIR`` names, and ``assay fabric blame`` too."""
    command = [ASSAY, "simulate", folder / "p.xml", "--", "net", *NET]
    done = subprocess.run(
        [*command, "--fabric", folder / "dumps", "-o", folder / "run"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=folder,
    )
    assert "pairs of" in done.stderr and "conflicts of the shift taken into account" in done.stderr, (
        done.stderr
    )
    findings = [
        r for r in Run.load(folder / "run").records if isinstance(r, Finding) and r.rule == "slow_link"
    ]
    assert main(["fabric", "blame", str(folder / "run")]) == (1 if findings else 0)  # every link has pairs
    return findings


needs_simgrid = pytest.mark.skipif(not shutil.which("smpirun"), reason="smpirun is not installed")


@pytest.mark.programs
@needs_simgrid
@pytest.mark.parametrize("link", ["leaf1[5] -> spine0[2]", "spine2[3] -> leaf2[7]", "node03[1] -> leaf0[4]"])
def test_a_planted_cable_is_named(link: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_platform_and_dumps(tmp_path, "radix=8,nodes=12", link, 0.5)
    (found,) = slow_links_of_run(tmp_path)
    assert (found.subject.device, found.severity) == (link, "fault")
    assert -0.6 < found.effect < -0.4
    assert found.evidence
    assert f"the link {link} carries" in capsys.readouterr().out


@pytest.mark.programs
@needs_simgrid
def test_a_healthy_fabric_has_no_slow_link(tmp_path: Path) -> None:
    write_platform_and_dumps(tmp_path, "radix=8,nodes=12", "leaf1[5] -> spine0[2]", 1.0)
    assert slow_links_of_run(tmp_path) == []


@pytest.mark.programs
@needs_simgrid
def test_links_that_share_all_their_pairs_are_not_told_apart(tmp_path: Path) -> None:
    """The only host of its leaf switch is reached over one cable. The same pairs use this cable and the host's
    cable."""
    write_platform_and_dumps(tmp_path, "radix=8,nodes=9,levels=2", "spine0[3] -> leaf2[5]", 0.5)
    (found,) = slow_links_of_run(tmp_path)
    assert found.severity == "warning"
    assert "spine0[3] -> leaf2[5]" in found.cause and "leaf2[1] -> node8[1]" in found.cause
    assert any(
        line.startswith("no pair of these hosts crosses spine0[3] -> leaf2[5]") for line in found.details
    )


@pytest.mark.parametrize(
    ("values", "rates", "alike"),
    [
        ([8, 8, 4, 4], [2, 2, 1, 1], [8, 8, 8, 8]),  # cables that were built slower hold their pairs back
        ([8, 8, 8, 8], [2, 2, 1, 1], [8, 8, 8, 8]),  # something else does
        ([8, 8, 4, 1], [2, 2, 1, 1], [8, 8, 8, 2]),  # a fault beside that
        ([8, 8, 2, 7, 7], [2, 2, 2, 1, 1], [8, 8, 2, 8, 8]),  # not above the median of the fastest cables
        ([8, 8, 4, 4], [np.inf] * 4, [8, 8, 4, 4]),  # the dump has no rates
    ],
)
def test_pairs_of_slower_cables_are_judged_as_if_all_were_alike(
    values: list[float], rates: list[float], alike: list[float]
) -> None:
    judged = np.ones(len(values), np.bool_)
    raised = np.exp(_as_if_alike(np.log(values), np.array(rates, float), judged))
    assert raised == pytest.approx(np.array(alike, float))


def test_a_path_is_as_fast_as_its_slowest_cable() -> None:
    crossed = np.array([[0, 1, -1], [0, 2, 1], [3, -1, -1]], np.int32)
    rates = np.array([4.0, 2.0, 1.0, 0.0])  # 0: not known
    assert _path_rates(crossed, rates).tolist() == [2, 1, np.inf]


@pytest.fixture
def lab() -> Iterator[Lab]:
    cluster = Lab.up(8, 1, Rates(up=100e6 / 8, down=100e6 / 8), name=f"blame-{os.getpid()}")
    try:
        yield cluster
    finally:
        cluster.down()


@pytest.mark.lab
@pytest.mark.acceptance("fabric")
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root (network namespaces)")
def test_a_slow_cable_of_a_lab_is_named(lab: Lab, tmp_path: Path) -> None:
    """Eight hosts of a lab, which the dumps cable to two leaf switches. The sending rate of h4 is limited. Since h4
    also sends the acknowledgements of what it receives, its receiving rate may be low as well."""
    fabric = synthetic.build(synthetic.parse("radix=8,nodes=8"))
    fabric = replace(
        fabric, host_names=[f"h{k}" for k in range(8)], switch_names=["a", "b", *fabric.switch_names[2:]]
    )
    (tmp_path / "fabric.db_csv").write_text(db_csv(fabric))
    lab.fault(["h4"], Fault(tx=0.5 * 100e6 / 8))
    arguments = ["--sizes", "512KiB,1MiB", "--budget", "8s", "--no-retest", "-o", tmp_path / "run"]
    source = ["--fabric", tmp_path / "fabric.db_csv", "--routing", "d-mod-k"]
    done = subprocess.run(
        [ASSAY, "net", "--lab", lab.name, *arguments, *source],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    found = [
        r for r in Run.load(tmp_path / "run").records if isinstance(r, Finding) and r.rule == "slow_link"
    ]
    assert found, done.stdout + done.stderr
    assert found[0].subject.device == "h4[1] -> b[1]"
    assert all("h4[1]" in str(f.subject.device) for f in found)
    assert found[0].subject.host == "h4"
    assert any(
        "the cable, the adapter and the host itself have the same pairs" in line for line in found[0].details
    )


@pytest.mark.programs
@needs_simgrid
def test_the_planned_exchange_is_faster_than_a_shift(tmp_path: Path) -> None:
    """With schedule.txt of ``assay fabric schedule`` no two flows share a link, so every pair reaches the full rate."""
    text = "radix=8,nodes=11"
    write_platform_and_dumps(tmp_path, text, "leaf0[5] -> spine0[1]", 1.0)
    assert main(["fabric", "schedule", "--fat-tree", text, "--into", str(tmp_path / "made")]) == 0
    slowest = {}
    for name, schedule in {
        "shift": [],
        "planned": ["--schedule-file", tmp_path / "made" / "schedule.txt"],
    }.items():
        command = [ASSAY, "simulate", tmp_path / "p.xml", "--", "net", *NET, *schedule, "-o", tmp_path / name]
        subprocess.run(command, capture_output=True, timeout=LIMIT_S, cwd=tmp_path, check=True)
        run = Run.load(tmp_path / name)
        pairs = [r for r in run.records if isinstance(r, Pairs) and r.metric == "bandwidth"]
        assert sum(len(r.values) for r in pairs) == 11 * 10
        slowest[name] = min(min(r.values) for r in pairs) / max(max(r.values) for r in pairs)
    assert run.info.options["schedule"] == "file"
    assert slowest["shift"] < 0.6 and slowest["planned"] > 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fat-tree", "radix=8,nodes=4", "-w", "x1,x2"], "no host 'x1' in the fabric"),
        (["--routing", "min-hop"], "without a fabric"),
        (["--fabric", "missing", "--tables", "t"], "missing: cannot be read"),
        (["-n", "3", "--schedule-file", str(SIX / "fts.txt")], "opensm-lfts.dump), not a schedule"),
        (["-n", "3", "--schedule-file", "x", "--schedule", "xor"], "both given"),
        (
            ["--fat-tree", "radix=8,nodes=4", "--servers", "node0", "--clients", "node1"],
            "analysed with all to all only",
        ),
    ],
)
def test_wrong_input_is_one_line_and_starts_nothing(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["net", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_a_folder_of_dumps_are_found(tmp_path: Path) -> None:
    for name in ("topology.txt", "fts.txt", "opensm-subnet.lst", "opensm.fdbs"):
        shutil.copy(SIX / name, tmp_path / name)
    assert files_of(tmp_path) == (tmp_path / "topology.txt", tmp_path / "fts.txt")
    shutil.copy(SIX / "topology.txt", tmp_path / "yesterday.txt")
    with pytest.raises(UserError, match=r"topology\.txt and yesterday\.txt are both of ibnetdiscover"):
        files_of(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no topology of a fabric in it"):
        files_of(tmp_path / "empty")


def test_pairs_with_a_conflict_count_only_for_links_without_other_pairs() -> None:
    """Link 0 has three pairs without a conflict and one with a conflict. Link 1 has only one pair, with a conflict."""
    crossed = np.array([[0, 2], [0, 3], [0, 4], [0, 5], [1, 6]])
    lost = np.array([0.0, 0.0, 0.0, np.log(2), np.log(2)])
    clear = _pairs_to_judge(crossed, lost, 7)
    assert clear[:3].all() and clear[4]
    assert not _pairs_to_judge(crossed[:, :1], lost, 7)[3] and _pairs_to_judge(crossed[:, :1], lost, 7)[4]
