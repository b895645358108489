"""Programs into which the recorder's library cannot be loaded run unchanged under ``assay numa``, and are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_touch import numa
from unloadable_programs import KINDS, unloadable_program

pytestmark = pytest.mark.programs

MPIRUN = ["mpirun.mpich", "-n", "1"]  # a launcher may end the other ranks when one has failed


@pytest.fixture(params=KINDS)
def unloadable(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    return unloadable_program(request.param, tmp_path)


@pytest.mark.parametrize("place", ["command", "rank", "child"])
def test_programs_that_cannot_be_recorded_run_unchanged(
    place: str, unloadable: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    program, reason = unloadable
    command = {
        "command": [program],
        "rank": [*MPIRUN, program],
        "child": ["sh", "-c", f"{program}; {program}; exit 7"],
    }[place]
    done = numa(tmp_path / "run", *command)
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stdout.count("ran with ''\n") == (2 if place == "child" else 1)
    told = [line for line in done.stderr.splitlines() if line.startswith("assay-numa:")]
    assert len(told) == 1 and reason in told[0] and str(program) in told[0], done.stderr
    assert "runs unrecorded" in told[0]
