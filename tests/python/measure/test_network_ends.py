"""How ``assay net`` ends in a lab when a rank dies, a host becomes unreachable, or the user presses Ctrl-C.

Where the end comes while hosts are measured, the figures until then are judged, which depend on the machine: these
tests belong to acceptance. How an end is noticed and named, and that records are kept, is tested with planted engines:
``test_supervise.py`` and ``test_direct_launch.py`` in ``tests/python/launch``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_network_lab import LIMIT_S, MULTI_HOST_LAUNCHERS, SWEEP, command, planted_fault

from assay.lab import Fault, Lab
from assay.lab.namespaces import find_processes
from assay.records.run import Run
from assay.records.schema import Failure, Finding, Pairs

in_acceptance = pytest.mark.acceptance("network")


@pytest.fixture(scope="module")
def lab(make_lab) -> Lab:
    return make_lab(8, 2, host_rate="100mbit")


def test_a_host_without_a_network_is_named_before_anything_starts(lab: Lab, tmp_path: Path) -> None:
    with planted_fault(lab, "h4", Fault(down=True)):
        done = subprocess.run(
            command(lab, tmp_path / "run", SWEEP), capture_output=True, text=True, timeout=LIMIT_S
        )
    assert done.returncode == 2
    assert done.stderr.startswith("assay: h4: does not answer") and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@contextmanager
def running(lab: Lab, run_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`assay net --lab` in the background, until its first size is recorded."""
    process = subprocess.Popen(
        command(lab, run_path, arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        records = run_path / "records.jsonl"
        while not (records.exists() and b'"pairs"' in records.read_bytes()):
            assert process.poll() is None and time.monotonic() < deadline, "no record came"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


SIZES = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,2MiB,4MiB"
LONG = ["--sizes", SIZES, "--budget", "40s", "--confidence", "0.01%", "--timeout", "5s"]


def engines_in(lab: Lab, host: str = "") -> list[int]:
    """Process ids of engines in a host of the lab, or in all."""
    return [
        pid
        for pid, (_, node) in find_processes(lab.name).items()
        if host in ("", node) and b"assay-probe" in _cmdline(pid).split(b"\0")[0]
    ]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def check_not_judged(run: Run, code: int) -> None:
    """A run that ended early cannot pass. It fails if a host was slow until then. The noise of a busy machine may look
    like a slow host, so a failure is accepted only if Assay reports that the machine was busy."""
    faults = [r for r in run.records if isinstance(r, Finding) and r.severity == "fault"]
    expected = (1, "FAIL") if faults and run.info.busy else (2, "INCONCLUSIVE")
    assert (code, run.info.outcome, run.info.state) == (*expected, "partial"), faults


@in_acceptance
@pytest.mark.parametrize("launcher", MULTI_HOST_LAUNCHERS)
def test_a_dead_rank_is_named_and_the_measurements_are_kept(lab: Lab, tmp_path: Path, launcher: str) -> None:
    run_path = tmp_path / "run"
    with running(lab, run_path, *LONG, "--launcher", launcher) as process:
        # Kills the measuring process, as the kernel does when memory is short. Its guardian process survives.
        measuring_and_guardian = engines_in(lab, "h2")
        (measuring,) = [pid for pid in measuring_and_guardian if _parent(pid) in measuring_and_guardian]
        os.kill(measuring, signal.SIGKILL)
        _, stderr = process.communicate(timeout=90)
    run = Run.load(run_path)
    assert "Traceback" not in stderr
    check_not_judged(run, process.returncode)
    (failure,) = [r for r in run.records if isinstance(r, Failure)]
    assert failure.problem.startswith("rank 2 on h2 was ended by signal 9")
    assert any(isinstance(r, Pairs) for r in run.records)
    assert (run_path / "report.html").exists()
    assert engines_in(lab) == []


@in_acceptance
def test_an_unreachable_host_is_named_within_the_timeout(lab: Lab, tmp_path: Path) -> None:
    run_path = tmp_path / "run"
    with running(lab, run_path, *LONG) as process, planted_fault(lab, "h6", Fault(down=True)):
        process.communicate(timeout=90)
    run = Run.load(run_path)
    check_not_judged(run, process.returncode)
    (failure,) = [r for r in run.records if isinstance(r, Failure)]
    assert "h6" in failure.problem
    assert any(isinstance(r, Pairs) for r in run.records)
    assert engines_in(lab) == []


@in_acceptance
def test_ctrl_c_leaves_a_readable_partial_run_and_no_process(lab: Lab, tmp_path: Path) -> None:
    run_path = tmp_path / "run"
    with running(lab, run_path, *LONG, "--json") as process:
        process.send_signal(signal.SIGINT)
        out, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in stderr
    run = Run.load(run_path)
    assert (run.info.state, run.info.reason) == ("partial", "interrupted")
    assert any(isinstance(r, Pairs) for r in run.records)
    assert json.loads(out)["run"]["state"] == "partial"
    assert (run_path / "report.html").exists()
    assert engines_in(lab) == []
