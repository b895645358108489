"""Both modes on two real nodes: those of a guest, of which one boot runs every program (``numa_in_guest.py``)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Protocol

import pytest
from test_exact import COMPILERS, COUNT, REPEATS, array_counts, counting
from test_touch import check_placement

from assay.measure.numa import FOLDER, load_profiles
from assay.numa.advice import advise
from assay.numa.profile import Profile

INSIDE = Path(__file__).with_name("numa_in_guest.py")


class RunInGuest(Protocol):
    def __call__(self, *arguments: str) -> CompletedProcess[str]: ...


@pytest.fixture(scope="module")
def runs(in_guest: RunInGuest, placed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs: ``serial``, ``parallel``, and ``before`` and ``after`` with the number of a compiler."""
    folder = tmp_path_factory.mktemp("nodes")
    counted = [counting(compiler, folder / compiler) for compiler in COMPILERS]
    hardware = ["--cpus", "4", "--numa", "2", "--share", str(folder)]
    program = [sys.executable, str(INSIDE), str(folder), str(placed), *map(str, counted)]
    done = in_guest(*hardware, "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    codes = json.loads((folder / "codes").read_text())
    assert len(codes) == 2 + 2 * len(COMPILERS)
    assert set(codes.values()) == {7}, (codes, done.stderr)  # the programs' own
    return folder


def profile_of(run: Path) -> Profile:
    profile = load_profiles(run / FOLDER)[0]
    assert profile.recording.process.emulated == 0 and sorted(profile.recording.nodes) == [0, 1]
    return profile


@pytest.mark.parametrize("how", ["serial", "parallel"])
def test_pages_lie_where_they_were_first_touched(runs: Path, how: str) -> None:
    check_placement(profile_of(runs / how), how == "parallel")


@pytest.mark.parametrize("number", range(len(COMPILERS)), ids=COMPILERS)
def test_accesses_are_counted_and_advice_is_proved(runs: Path, number: int) -> None:
    before, after = (profile_of(runs / f"{when}{number}") for when in ("before", "after"))
    assert abs(array_counts(before).cells[1, 0] - COUNT * REPEATS) <= 512 * 20
    [advice] = advise(before)
    measured = array_counts(after).remote_share
    assert measured is not None and measured < 0.05
    assert measured == pytest.approx(advice.predicted, abs=0.02)
