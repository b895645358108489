"""The ranks of an MPI program among the recorded processes: each counts once, whatever it forks."""

from __future__ import annotations

from pathlib import Path

import make_heap
import msgspec
import pytest
from msgspec.structs import replace

from assay.profile.profiles import Profiles


def run_of(folder: Path, ranks: list[str]) -> Profiles:
    """A run with a process of each of these ranks; the later ones allocated less."""
    (folder / "heap").mkdir()
    made = make_heap.make_profile(50)
    for pid, rank in enumerate(ranks, 1):
        process = replace(made.process, pid=pid, rank=rank)
        profile = replace(made, process=process, totals=replace(made.totals, bytes=1000 - pid))
        (folder / f"heap/{pid}.json").write_bytes(msgspec.json.encode(profile))
    return Profiles(folder)


@pytest.mark.parametrize(
    ("ranks", "pids"), [(["10", "9", "10"], [2, 1]), (["0", "0"], []), (["0", ""], []), ([], [])]
)
def test_the_children_that_a_rank_forks_are_no_ranks(
    ranks: list[str], pids: list[int], tmp_path: Path
) -> None:
    profiles = run_of(tmp_path, ranks)
    assert [profile.process.pid for profile in profiles.ranks] == pids
    assert (profiles.merged is None) == (not pids)
