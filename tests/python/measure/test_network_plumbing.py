"""One complete ``assay net`` in a lab with a planted fault: hosts, records, bytes and exit code are right at any speed.

Who is named depends on figures. ``test_network_lab.py`` tests it in acceptance, and ``tests/python/explain`` on planted
records.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from assay.errors import EXIT_OF
from assay.lab import Fault, Lab
from assay.records.run import Run
from assay.records.schema import Context, Corruption, Failure, Finding, Measurement, Pairs, Verdict

pytestmark = pytest.mark.programs

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 240  # against hangs
SIZES, REPEATS = (1024, 65536), 10


def measured_in(
    lab: Lab, folder: Path, launcher: str, *arguments: str
) -> tuple[Run, subprocess.CompletedProcess[str]]:
    """``assay net`` in a lab with the sizes and repeats of this file."""
    chosen = ["--sizes", ",".join(map(str, SIZES)), "--repeats", str(REPEATS), *arguments]
    command = [ASSAY, "net", "--lab", lab.name, "--launcher", launcher, *chosen, "-o", folder / "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return Run.load(folder / "run"), done


def test_a_lab_with_a_slow_host_is_measured_judged_and_shown(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab(4, 2, host_rate="100mbit")
    lab.fault(["h2"], Fault(tx=lab.fault_rate("50%", "tx")))
    run, done = measured_in(lab, tmp_path, "openmpi", "--timeout", "200s")
    assert [r for r in run.records if isinstance(r, Failure | Corruption)] == [], done.stderr
    assert (run.info.state, run.info.hosts) == ("complete", lab.hosts)
    assert done.returncode == EXIT_OF[run.info.outcome]
    hosts = {r.subject.host for r in run.records if isinstance(r, Context) and not r.subject.device}
    assert hosts == set(lab.hosts)
    measured = [r for r in run.records if isinstance(r, Measurement) and r.name == "network.all_to_all"]
    counted = {r.params["size"]: r.median for r in measured if r.metric == "bytes"}
    assert counted == {size: 4 * 3 * REPEATS * size for size in SIZES}
    assert {r.median for r in measured if r.metric == "corrupted"} == {0}
    rows = [r for r in run.records if isinstance(r, Pairs) and r.params["size"] == SIZES[-1]]
    assert {(r.subject.host, peer) for r in rows for peer in r.peers} == set(permutations(lab.hosts, 2))
    wire = [
        r
        for r in run.records
        if isinstance(r, Measurement) and (r.name, r.metric) == ("network.wire", "share")
    ]
    assert {r.subject.host for r in wire} == set(lab.hosts) and min(r.median for r in wire) >= 1.0
    faults = [r for r in run.records if isinstance(r, Finding) and r.severity == "fault"]
    assert bool(faults) == (run.info.outcome == "FAIL")
    assert any(isinstance(r, Verdict) for r in run.records)
    assert (tmp_path / "run/report.html").stat().st_size > 100_000


@pytest.mark.parametrize("launcher", ["openmpi", "mpich-wheel"])
@pytest.mark.parametrize("adapters", ["eth1", "eth1:eth0"])
def test_servers_use_the_adapters_that_are_asked_for(
    make_lab: Callable[..., Lab], tmp_path: Path, launcher: str, adapters: str
) -> None:
    """The counters of the hosts prove it, and a binding that fails is a finding."""
    lab = make_lab(2, host_rate="200mbit", adapters=2)
    run, _ = measured_in(
        lab, tmp_path, launcher, "--servers", "h0", "--clients", "h1", "--servers-hcas", adapters
    )
    assert [r for r in run.records if isinstance(r, Finding) and r.rule == "hca_binding"] == []
    sent = {
        r.subject.device: r.median
        for r in run.records
        if isinstance(r, Measurement)
        and (r.name, r.metric, r.subject.host) == ("network.counters", "tx_bytes", "h0")
        and not r.params
    }
    asked = adapters.split(":")
    assert sum(sent[adapter] for adapter in asked) > 0.9 * sum(sent.values()) > REPEATS * sum(SIZES)
