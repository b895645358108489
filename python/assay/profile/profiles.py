"""The heap profiles of a run, loaded once for its records, its advice, its report and the terminal."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from assay.profile.heap import HeapProfile, load_profile
from assay.profile.ranks import merge_ranks, mpi_ranks


class Profiles:
    """Nothing is read before it is asked for."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @cached_property
    def processes(self) -> list[HeapProfile]:
        """The one that allocated most first. Raises UserError for a file that is no analysis."""
        return load_profiles(self.run)

    @cached_property
    def dumps(self) -> list[HeapProfile]:
        """Profiles that were written while the program ran, in time order."""
        return load_dumps(self.run)

    @cached_property
    def ranks(self) -> list[HeapProfile]:
        """Of the largest MPI program; empty where there is none."""
        return mpi_ranks(self.processes)

    @cached_property
    def merged(self) -> HeapProfile | None:
        """The ranks as one profile."""
        return merge_ranks(self.ranks) if self.ranks else None

    @property
    def main(self) -> HeapProfile | None:
        """The merged ranks of an MPI program, or else the largest process; None in a run without profiles."""
        return self.merged or next(iter(self.processes), None)


def load_profiles(run: Path) -> list[HeapProfile]:
    """The analysed processes of a run, the one that allocated most first."""
    profiles = [
        load_profile(path) for path in sorted((run / "heap").glob("*.json")) if ".dump" not in path.name
    ]
    return sorted(profiles, key=lambda profile: -profile.totals.bytes)


def load_dumps(run: Path) -> list[HeapProfile]:
    return [load_profile(path) for path in sorted((run / "heap").glob("*.dump*.json"))]
