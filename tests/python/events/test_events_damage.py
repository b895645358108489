"""Event building over a network that damages, loses or throttles: what the run says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_event_transports import rank_process

from assay.events.figures import buildings
from assay.explain import explain
from assay.lab import Fault, Lab
from assay.records.run import Run
from assay.records.schema import Finding

pytestmark = pytest.mark.acceptance("events")

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ["h0", "h1", "h2", "h3"]
LIMIT_S = 120
# One packet in two thousand gets another byte, and the right checksum for it: only the receiver's program can tell.
DAMAGE = """table ip damage {
  chain out {
    type filter hook output priority 0;
    ip length > 1000 numgen inc mod 2000 == 0 @nh,4000,8 set 85
  }
}
"""


@pytest.fixture(scope="module")
def lab(make_lab) -> Lab:
    return make_lab(4, host_rate="200mbit")


@pytest.fixture
def damaging(lab: Lab) -> Iterator[None]:
    subprocess.run(lab.enter("h1", ["nft", "-f", "-"]), input=DAMAGE, text=True, timeout=LIMIT_S, check=True)
    yield
    subprocess.run(lab.enter("h1", ["nft", "delete", "table", "ip", "damage"]), timeout=LIMIT_S, check=True)


def build(lab: Lab, run: Path, *options: str) -> tuple[int, str, list[Finding]]:
    """Returns exit code, output and findings of event building without the MPI measurements."""
    command = [str(ROOT / "assay"), "eb", "-w", "h[0-3]", "--lab", lab.name, "--alone", "--budget", "6s"]
    done = subprocess.run(
        [*command, "-o", str(run), *options], capture_output=True, text=True, timeout=LIMIT_S
    )
    loaded = Run.load(run)
    findings = explain(loaded.records, HOSTS, loaded.info.options)
    return done.returncode, done.stdout + done.stderr, findings


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_damaged_fragments_never_pass_and_name_the_host_that_sent_them(
    lab: Lab, damaging: None, transport: str, tmp_path: Path
) -> None:
    code, output, findings = build(lab, tmp_path / "run", "--transport", transport, "--policy", "mark")
    assert code == 1, output
    corruption = [finding for finding in findings if finding.rule == "corruption"]
    assert [finding.subject.host for finding in corruption] == ["h1"], output
    assert any(finding.rule == "event_ledger" and "wrong bytes" in finding.cause for finding in findings)
    assert output.count("\n") < 60  # one line for each kind, not for each fragment


def test_packets_that_the_transport_sent_again_are_told(lab: Lab, tmp_path: Path) -> None:
    lab.fault(["h1"], Fault(tx_loss=0.01))
    try:
        code, output, findings = build(lab, tmp_path / "run", "--transport", "tcp")
    finally:
        lab.fault(["h1"], None)
    assert code == 0, output
    (finding,) = [finding for finding in findings if finding.rule == "event_resends"]
    assert finding.subject.host is None  # all flows through the queue are slower, so no host is accused
    assert "packets were sent again" in output


def test_a_filter_unit_that_limits_all_is_named_and_no_link_is_accused(lab: Lab, tmp_path: Path) -> None:
    options = ["--transport", "tcp", "--filters", "1", "--filter-rate", "2MB/s"]
    code, output, findings = build(lab, tmp_path / "run", *options)
    assert code == 0, output
    (finding,) = findings
    assert finding.cause.startswith("the filter units are the limit")
    assert finding.cause in output
    rate = next(building.throughput for building in buildings(Run.load(tmp_path / "run").records))
    assert 1e6 < rate < 4e6  # the unit takes 2 MB/s; a slice has a few events of 1.5 MB


def test_under_policy_wait_a_killed_rank_is_named_and_its_fragments_are_lost(tmp_path: Path) -> None:
    """On one machine. Its events wait for it until the limit of the run, and then lack its fragments."""
    mark, run = uuid.uuid4().hex, tmp_path / "run"
    command = [str(ROOT / "assay"), "eb", "--transport", "tcp", "-n", "4", "--alone", "--policy", "wait"]
    with subprocess.Popen(
        [*command, "--budget", "6s", "--slice", "0.2s", "-o", str(run)],
        env={**os.environ, "ASSAY_TEST_MARK": mark},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        records, deadline = run / "records.jsonl", time.monotonic() + LIMIT_S
        while not (records.is_file() and b"events.slices" in records.read_bytes()):
            assert time.monotonic() < deadline and process.poll() is None, "no event was built"
            time.sleep(0.05)
        victim = rank_process(mark, 2)
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        output = process.communicate(timeout=LIMIT_S)[0]
    assert process.returncode == 1, output
    assert "rank 2 on" in output and "was lost" in output
    (building,) = [b for b in buildings(Run.load(run).records) if b.params]
    assert len(building.resumes) == 1 and (building.count("fragments_lost") or 0) > 0, output
