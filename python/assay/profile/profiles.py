"""The profiles of a run, loaded once for its records, its advice, its report and the terminal."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from assay.profile import numa
from assay.profile.heap import HeapProfile, load_profile
from assay.profile.numa import NumaProfile
from assay.profile.numa_ranks import merge_ranks as merge_numa_ranks
from assay.profile.numa_ranks import mpi_ranks as mpi_numa_ranks
from assay.profile.ranks import merge_ranks, mpi_ranks


class Profiles:
    """Reads each profile when it is first used. ``numa...`` are the NUMA profiles, the others the heap profiles."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @cached_property
    def processes(self) -> list[HeapProfile]:
        """The process that allocated most first. Raises UserError for a file that is no analysis."""
        return load_profiles(self.run)

    @cached_property
    def unrecorded(self) -> list[str]:
        """Programs that the processes started and that are not recorded: "PATH REASON"."""
        return sorted({line for profile in self.processes for line in profile.trace.unrecorded})

    @cached_property
    def dumps(self) -> list[HeapProfile]:
        """Profiles that were written while the program ran, in time order."""
        return load_dumps(self.run)

    @cached_property
    def ranks(self) -> list[HeapProfile]:
        """The ranks of the largest MPI program; empty where there is none."""
        return mpi_ranks(self.processes)

    @cached_property
    def merged(self) -> HeapProfile | None:
        """The ranks as one profile."""
        return merge_ranks(self.ranks) if self.ranks else None

    @property
    def main(self) -> HeapProfile | None:
        """The merged ranks of an MPI program, or else the largest process; None in a run without profiles."""
        return self.merged or next(iter(self.processes), None)

    @cached_property
    def numa(self) -> list[NumaProfile]:
        """Profiles with accesses first, then those with most. Raises UserError for a file that is no profile."""
        return load_numa_profiles(self.run)

    @cached_property
    def numa_ranks(self) -> list[NumaProfile]:
        """The ranks of the largest MPI program; empty where there is none."""
        return mpi_numa_ranks(self.numa)

    @cached_property
    def numa_merged(self) -> NumaProfile | None:
        """The ranks as one profile."""
        return merge_numa_ranks(self.numa_ranks) if self.numa_ranks else None

    @property
    def numa_main(self) -> NumaProfile | None:
        """The merged ranks of an MPI program, or else the first process; None in a run without NUMA profiles."""
        return self.numa_merged or next(iter(self.numa), None)


def load_profiles(run: Path) -> list[HeapProfile]:
    """The analysed processes of a run, the one that allocated most first."""
    profiles = [
        load_profile(path) for path in sorted((run / "heap").glob("*.json")) if ".dump" not in path.name
    ]
    return sorted(profiles, key=lambda profile: -profile.totals.bytes)


def load_dumps(run: Path) -> list[HeapProfile]:
    return [load_profile(path) for path in sorted((run / "heap").glob("*.dump*.json"))]


NUMA_FOLDER = "numa/profiles"  # within a run


def load_numa_profiles(run: Path) -> list[NumaProfile]:
    """The processes of a run: those that count accesses first, then by their accesses or touched bytes."""
    profiles = [numa.load_profile(path) for path in sorted((run / NUMA_FOLDER).glob("*.json"))]
    return sorted(profiles, key=lambda profile: (not profile.is_exact, -numa.total(profile.matrix)))
