"""Programs into which the recorder's library cannot be loaded run unchanged under ``assay numa``, and are named."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from test_touch import numa

pytestmark = pytest.mark.programs

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const char* preloaded = getenv("LD_PRELOAD");
    printf("ran with '%s'\n", preloaded ? preloaded : "");
    return 7;
}
"""
MPIRUN = ["mpirun.mpich", "-n", "1"]  # a launcher may end the other ranks when one has failed


@pytest.fixture(params=["address_sanitizer", "static", "musl"])
def unloadable(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A program that no library can be loaded into, and what is said about it."""
    if request.param == "musl" and not shutil.which("musl-gcc"):
        pytest.skip("no musl-gcc")
    compiler, options, reason = {
        "address_sanitizer": ("gcc", ["-fsanitize=address"], "is built with AddressSanitizer"),
        "static": ("gcc", ["-static"], "is statically linked"),
        "musl": ("musl-gcc", [], "uses the C library musl"),
    }[request.param]
    (tmp_path / "program.c").write_text(SOURCE)
    program = tmp_path / "program"
    subprocess.run([compiler, *options, "-o", program, tmp_path / "program.c"], check=True, timeout=300)
    return program, reason


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
