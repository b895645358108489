"""Each engine of exact mode counts the known accesses of loops (``fixtures/numa/loops.c``), also of loops that the
compiler unrolls or the program leaves early."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_exact import ROOT, assay

from assay.measure.numa import FOLDER, load_profiles

pytestmark = pytest.mark.programs

SOURCE = ROOT / "tests" / "fixtures" / "numa" / "loops.c"
COUNT, ROWS, COLUMNS, END_INDEX = 20000, 37, 113, 12345
TRIANGLE = 200 * 199 // 2
# Reads and writes by function.
TRUTH = {
    "forward": (COUNT, COUNT),
    "backward": (0, COUNT),
    "strided": (2 * COUNT // 10, COUNT // 10),
    "nested": (2 * ROWS * COLUMNS, ROWS * COLUMNS),
    "gather": (2 * COUNT, COUNT),
    "early_exit": (END_INDEX + 1, 0),
    "conditional_store": (COUNT, COUNT // 4),
    "ended_by_longjmp": (0, END_INDEX),
    "triangle": (TRIANGLE, TRIANGLE),
}
ENGINES = {
    "gcc": ["-O1"],
    "clang-14": ["-O1"],
    "unrolled": ["-O2", "-fno-vectorize", "-fno-slp-vectorize"],  # by clang
}


def counts(run: Path) -> dict[str, tuple[int, int]]:
    """Reads and writes of each function of ``TRUTH``."""
    [profile] = [p for p in load_profiles(run / FOLDER) if p.is_exact]
    assert profile.recording.end is not None and profile.recording.end.lost == 0
    totals = dict.fromkeys(TRUTH, (0, 0))
    for row in profile.recording.accesses:
        name = profile.site(row.stack).function
        if name in totals:
            totals[name] = (totals[name][0] + row.reads, totals[name][1] + row.writes)
    return totals


def check(run: Path, truth: dict[str, tuple[int, int]]) -> None:
    counted = counts(run)
    for name, expected in truth.items():
        assert counted[name] == pytest.approx(expected, rel=0.005, abs=20), name


@pytest.mark.parametrize(
    "engine", ["gcc", "clang-14", pytest.param("unrolled", marks=pytest.mark.acceptance("numa"))]
)
def test_compiled_programs_count_each_access(engine: str, tmp_path: Path) -> None:
    program = tmp_path / "loops"
    compiler = "gcc" if engine == "gcc" else "clang-14"
    done = assay("cc", *ENGINES[engine], SOURCE, "-o", program, CC=compiler)
    assert done.returncode == 0, done.stderr
    done = assay("--pages-only", "-o", tmp_path / "run", "--", program)
    assert done.returncode == 0, done.stderr
    check(tmp_path / "run", TRUTH)


def test_the_emulator_counts_each_access(tmp_path: Path) -> None:
    program = tmp_path / "loops"
    subprocess.run(["gcc", "-g", "-O1", str(SOURCE), "-o", str(program)], check=True, timeout=300)
    done = assay("--every-access", "-o", tmp_path / "run", "--", program)
    assert done.returncode == 0, done.stderr
    # Each call writes its return address.
    check(tmp_path / "run", TRUTH | {"ended_by_longjmp": (0, 2 * END_INDEX)})
