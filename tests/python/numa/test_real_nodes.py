"""Touch and exact mode on a guest with real nodes: four with a processor each and one of memory alone. One boot runs
every program (``numa_in_guest.py``)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Protocol

import pytest
from test_exact import COMPILERS, COUNT, REPEATS, array_counts, build_counting
from test_touch import ARRAY_PAGES, array_of, check_placement

from assay.measure.numa import FOLDER, load_profiles
from assay.numa.advice import advise
from assay.numa.profile import Profile, by_object

pytestmark = pytest.mark.acceptance("numa")  # boots a guest

INSIDE = Path(__file__).with_name("numa_in_guest.py")


class RunInGuest(Protocol):
    def __call__(self, *arguments: str) -> CompletedProcess[str]: ...


@pytest.fixture(scope="module")
def runs(in_guest: RunInGuest, placed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs: ``serial``, ``parallel``, ``far``, and ``before`` and ``after`` with the number of a
    compiler."""
    folder = tmp_path_factory.mktemp("nodes")
    counted = [build_counting(compiler, folder / compiler) for compiler in COMPILERS]
    hardware = ["--cpus", "4", "--numa", "4", "--memory-nodes", "1", "--memory", "1280MiB"]
    hardware += ["--share", str(folder)]
    program = [sys.executable, str(INSIDE), str(folder), str(placed), *map(str, counted)]
    done = in_guest(*hardware, "--", *program)
    assert done.returncode == 0, done.stdout + done.stderr
    codes = json.loads((folder / "codes").read_text())
    assert len(codes) == 3 + 2 * len(COMPILERS)
    assert set(codes.values()) == {7}, (codes, done.stderr)  # the programs' own
    return folder


def profile_of(run: Path) -> Profile:
    profile = load_profiles(run / FOLDER)[0]
    assert profile.recording.process.emulated == 0 and sorted(profile.recording.nodes) == [0, 1, 2, 3, 4]
    assert [len(profile.recording.nodes[node].processors) for node in range(5)] == [1, 1, 1, 1, 0]
    return profile


@pytest.mark.parametrize("mode", ["serial", "parallel"])
def test_pages_lie_where_they_were_first_touched(runs: Path, mode: str) -> None:
    check_placement(profile_of(runs / mode), mode == "parallel", nodes=4)


def test_all_accesses_to_a_node_of_memory_alone_are_remote(runs: Path) -> None:
    profile = profile_of(runs / "far")
    counts = by_object(profile)[array_of(profile)]
    assert counts.known >= ARRAY_PAGES - 4 and counts.remote == counts.known
    assert {page for _, page in counts.cells} == {4}
    assert {thread for thread, _ in counts.cells} == {0, 1, 2, 3}


@pytest.mark.parametrize("number", range(len(COMPILERS)), ids=COMPILERS)
def test_accesses_are_counted_and_applied_advice_is_followed(runs: Path, number: int) -> None:
    before, after = (profile_of(runs / f"{when}{number}") for when in ("before", "after"))
    for node in (1, 2, 3):
        assert abs(array_counts(before).cells[node, 0] - COUNT * REPEATS / 2) <= 512 * 20
    [advice] = advise(before)
    measured = array_counts(after).remote_share
    assert measured is not None and measured < 0.05
    assert measured == pytest.approx(advice.predicted, abs=0.02)
