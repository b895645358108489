"""``assay net`` on a lab with planted faults.

The lab has two cabinets of four hosts with 100 Mbit/s in each direction, 160 Mbit/s for both directions together, and
300 Mbit/s between the cabinets. It is oversubscribed, so congestion occurs and must not count as a host's fault.
The rules that name hosts are tested on planted records in ``tests/python/explain``, and one run in
``test_network_plumbing.py``.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.lab import Fault, Lab, Rates
from assay.records.run import Run
from assay.records.schema import Finding, Measurement, Pairs, Verdict

pytestmark = [
    pytest.mark.lab,
    pytest.mark.acceptance("network"),
    pytest.mark.statistical(
        "1 in 200, assumed: a fault of 50 % or none is over 5 MAD from the limit on an idle machine; one of 20 %, 3"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root (network namespaces)"),
]

ASSAY = Path(__file__).parents[3] / "assay"
MBIT = 1e6 / 8
LIMIT_S = 240
MULTI_HOST_LAUNCHERS = ["openmpi", "mpich-wheel"]
SWEEP = ["--sizes", "1KiB,64KiB,512KiB", "--budget", "24s", "--timeout", "10s"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    rates = Rates(up=100 * MBIT, down=100 * MBIT, duplex=160 * MBIT, cabinet=300 * MBIT)
    cluster = Lab.up(8, 2, rates, name=f"net-{os.getpid()}")
    try:
        yield cluster
    finally:
        cluster.down()


@contextmanager
def planted_fault(lab: Lab, host: str, fault: Fault) -> Iterator[None]:
    lab.fault([host], fault)
    try:
        yield
    finally:
        lab.fault([host], None)


def net(lab: Lab, run_path: Path, *arguments: str) -> tuple[int, Run]:
    """`assay net --lab`, its exit code and its run."""
    done = subprocess.run(command(lab, run_path, arguments), capture_output=True, text=True, timeout=LIMIT_S)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, Run.load(run_path)


def command(lab: Lab, run_path: Path, arguments: Sequence[str]) -> list[str]:
    return [str(ASSAY), "net", "--lab", lab.name, "-o", str(run_path), *arguments]


def findings(run: Run) -> list[Finding]:
    return [r for r in run.records if isinstance(r, Finding)]


@pytest.mark.parametrize("launcher", MULTI_HOST_LAUNCHERS)
def test_a_healthy_lab_has_no_findings_and_its_bytes_use_the_network(
    lab: Lab, tmp_path: Path, launcher: str
) -> None:
    status, run = net(lab, tmp_path / "run", *SWEEP, "--launcher", launcher)
    assert findings(run) == []
    assert (status, run.info.outcome, run.info.state) == (0, "PASS", "complete")
    shares = {r.subject.host: r.summary.median for r in run.records
              if isinstance(r, Measurement) and r.name == "network.wire" and r.summary}  # fmt: skip
    assert sorted(shares) == lab.hosts
    assert min(shares.values()) >= 1.0
    rows = [r for r in run.records if isinstance(r, Pairs) and r.params["size"] == 512 * 1024]
    directed = {(r.subject.host, peer) for r in rows for peer in r.peers}
    assert len(directed) == 8 * 7, "both directions of every pair"
    # No pair is faster than its link, apart from the burst that the shaper lets pass.
    assert max(value for r in rows for value in r.values) < 1.35 * 100 * MBIT


@pytest.mark.parametrize(
    ("launcher", "host", "fault", "side"),
    [
        ("openmpi", "h3", Fault(tx=50 * MBIT), "transmit"),
        ("mpich-wheel", "h6", Fault(tx=50 * MBIT), "transmit"),
        ("openmpi", "h5", Fault(rx=50 * MBIT), "receive"),
    ],
)
def test_a_slow_side_of_one_host_is_named(
    lab: Lab, tmp_path: Path, launcher: str, host: str, fault: Fault, side: str
) -> None:
    with planted_fault(lab, host, fault):
        status, run = net(lab, tmp_path / "run", *SWEEP, "--launcher", launcher)
    named = [(f.subject.host, f.side, f.severity) for f in findings(run)]
    assert named == [(host, side, "fault")]
    (finding,) = findings(run)
    assert finding.effect == pytest.approx(-0.5, abs=0.15)
    assert finding.evidence and finding.details and finding.fix
    assert (status, run.info.outcome) == (1, "FAIL")
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.startswith("<!") and len(page) > 100_000


def test_equally_slow_hosts_are_found(lab: Lab, tmp_path: Path) -> None:
    """Each host sends at a fifth of its planted rate, so comparing hosts finds nothing."""
    lab.fault(lab.hosts, Fault(tx=20 * MBIT))
    try:
        status, run = net(lab, tmp_path / "run", "--sizes", "512KiB", "--budget", "12s", "--timeout", "10s")
    finally:
        lab.fault(lab.hosts, None)
    (finding,) = [f for f in findings(run) if f.rule == "slow_network"]
    assert (finding.severity, status, run.info.outcome) == ("fault", 1, "FAIL")
    assert finding.effect == pytest.approx(0.2 / 0.6 - 1, abs=0.1)
    assert any("100.00 Mbit/s" in step or "0.10 Gbit/s" in step for step in finding.details)


@pytest.mark.parametrize("launcher", MULTI_HOST_LAUNCHERS)
def test_clients_and_servers_exchange_in_both_directions(lab: Lab, tmp_path: Path, launcher: str) -> None:
    status, run = net(
        lab, tmp_path / "run", "--servers", "h[0-1]", "--clients", "h[2-5]", "--launcher", launcher,
        "--sizes", "1KiB,256KiB", "--budget", "6s",
    )  # fmt: skip
    assert status == 0, run.info.reason
    measured = {(r.params["op"], r.params["size"]) for r in run.records
                if isinstance(r, Measurement) and r.metric == "bandwidth"}  # fmt: skip
    assert measured == {(op, size) for op in ("send", "put", "get") for size in (1024, 256 * 1024)}
    pairs = {(r.params["op"], r.subject.host, peer)
             for r in run.records if isinstance(r, Pairs) for peer in r.peers}  # fmt: skip
    to_server = {("put", c, s) for c in ("h2", "h3", "h4", "h5") for s in ("h0", "h1")}
    from_server = {("get", s, c) for _, c, s in to_server}
    assert to_server | from_server <= pairs
    # No server sends to a server, no client to a client.
    assert not any((a in ("h0", "h1")) == (b in ("h0", "h1")) for _, a, b in pairs)


@pytest.fixture(scope="module")
def slow_lab() -> Iterator[Lab]:
    """A lab with rates that a busy machine sustains, so its figures scatter little."""
    cluster = Lab.up(
        6, 1, Rates(up=20 * MBIT, down=20 * MBIT, duplex=32 * MBIT), name=f"net-slow-{os.getpid()}"
    )
    try:
        yield cluster
    finally:
        cluster.down()


def detectable_share(run: Run) -> float:
    """The share of its peers' rate at which a slow host would have been found, as the verdict states it."""
    (verdict,) = [r for r in run.records if isinstance(r, Verdict) and "fault" in r.criterion]
    match = re.search(r"at ([\d.]+) % of its peers' rate would have been found", verdict.reason)
    assert match, verdict.reason
    return float(match[1]) / 100


@pytest.mark.parametrize(
    ("fault", "side"), [(Fault(tx=16 * MBIT), "transmit"), (Fault(rx=16 * MBIT), "receive")]
)
def test_a_side_that_the_duplex_limit_hides_is_found(
    slow_lab: Lab, tmp_path: Path, fault: Fault, side: str
) -> None:
    """With traffic in both directions every host reaches 16 Mbit/s each way, so the sweep cannot show the fault."""
    with planted_fault(slow_lab, "h4", fault):
        status, run = net(slow_lab, tmp_path / "run", "--sizes", "64KiB,256KiB", "--budget", "30s")
    found = [f for f in findings(run) if f.severity == "fault"]
    if not found:
        # The figures of a busy machine scatter. The verdict then says that it cannot detect a fault of this size.
        assert detectable_share(run) < 0.8
        return
    (finding,) = found
    assert (finding.rule, finding.subject.host, finding.side) == ("slow_host", "h4", side)
    assert finding.effect == pytest.approx(-0.2, abs=0.06)
    assert status == 1


def test_lossy_hosts_are_named_with_their_sides(slow_lab: Lab, tmp_path: Path) -> None:
    """One host loses sent packets and another loses received packets, in the same run."""
    with (
        planted_fault(slow_lab, "h1", Fault(tx_loss=0.02)),
        planted_fault(slow_lab, "h3", Fault(rx_loss=0.02)),
    ):
        status, run = net(slow_lab, tmp_path / "run", "--sizes", "64KiB,256KiB", "--budget", "30s")
    lossy = sorted((f.subject.host or "", f.side) for f in findings(run) if f.rule == "packet_loss")
    assert lossy == [("h1", "transmit"), ("h3", "receive")] and status == 1


def test_two_simultaneous_runs_notice_each_other(slow_lab: Lab, tmp_path: Path) -> None:
    arguments = ["--sizes", "64KiB", "--budget", "10s"]
    first = subprocess.Popen(
        command(slow_lab, tmp_path / "first", arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        status, second = net(slow_lab, tmp_path / "second", *arguments)
        first.wait(timeout=LIMIT_S)
    finally:
        first.kill()
        first.wait()
    for run in (second, Run.load(tmp_path / "first")):
        assert [f.severity for f in findings(run) if f.rule == "shared_network"] == ["warning"]
    if status == 0:
        assert 0 < detectable_share(second) < 1


def test_a_check_of_a_lab_measures_its_network(lab: Lab, tmp_path: Path) -> None:
    arguments = [str(ASSAY), "check", "--lab", lab.name, "--budget", "3s", "-o", str(tmp_path / "run")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S)
    run = Run.load(tmp_path / "run")
    assert (done.returncode, run.info.outcome) == (0, "PASS"), done.stdout
    assert {r.name for r in run.records if isinstance(r, Pairs)} == {"network.all_to_all", "network.one_way"}
