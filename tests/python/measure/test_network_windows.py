"""One-sided operations in a container whose shared memory has no room for MPI's windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch.engines import probe
from assay.records.run import Run
from assay.records.schema import Context, Failure, Measurement

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 240
ROOM = "64m"  # as container engines give


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount needs root")
@pytest.mark.parametrize("launcher", ["openmpi", "mpich", "mpich-wheel"])
@pytest.mark.parametrize("op", ["put", "send,get"])
def test_windows_that_shared_memory_has_no_room_for_are_private(
    launcher: str, op: str, tmp_path: Path
) -> None:
    try:
        probe(launcher)
    except UserError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "assay", "net", "-n", "2", "--launcher", launcher, "--op", op]
    command += ["--size", "16MiB", "--budget", "1s", "-o", str(tmp_path / "run")]
    mount = f'mount -t tmpfs -o size={ROOM} tmpfs /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    run = Run.load(tmp_path / "run")
    output = done.stdout + done.stderr
    failures = [record.problem for record in run.records if isinstance(record, Failure)]
    bandwidths = [r for r in run.records if isinstance(r, Measurement) and r.metric == "bandwidth"]
    assert run.info.state == "complete" and not failures, output
    assert bandwidths and all(r.summary for r in bandwidths), output
    facts = [record.facts for record in run.records if isinstance(record, Context)]
    assert any("mpi.windows" in fact for fact in facts)
