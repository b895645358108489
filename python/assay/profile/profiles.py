"""The profiles of a run, loaded once for its records, its advice, its report and the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from assay.profile import numa
from assay.profile.heap import HeapProfile, load_profile
from assay.profile.numa import NumaProfile, total
from assay.profile.numa_ranks import merge_ranks as merge_numa_ranks
from assay.profile.ranks import merge_ranks

P = TypeVar("P", HeapProfile, NumaProfile)


def mpi_ranks(profiles: Sequence[P], program: Callable[[P], object], size: Callable[[P], float]) -> list[P]:
    """The ranks of the largest MPI program, by number; empty if no program has several ranks. The first process of a
    rank is its largest: a launcher's shell and the children that a rank forks have its number too."""
    programs: dict[object, dict[str, P]] = {}
    for profile in profiles:
        if profile.process.rank:
            programs.setdefault(program(profile), {}).setdefault(profile.process.rank, profile)
    largest = max(programs.values(), key=lambda ranks: sum(map(size, ranks.values())), default={})
    by_number = sorted(largest.items(), key=lambda item: (len(item[0]), item[0]))
    return [profile for _, profile in by_number] if len(by_number) > 1 else []


class Profiles:
    """Reads each profile when it is first used. Names with ``numa`` are NUMA profiles, the others heap profiles."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @cached_property
    def processes(self) -> list[HeapProfile]:
        """Heap profiles in descending order of allocated bytes. Raises UserError for a file that is not an analysis."""
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
        """The ranks of the MPI program that allocated most; empty if no program has several ranks."""
        return mpi_ranks(
            self.processes, lambda profile: profile.process.program, lambda profile: profile.totals.bytes
        )

    @cached_property
    def merged(self) -> HeapProfile | None:
        """The ranks, merged into one profile."""
        return merge_ranks(self.ranks) if self.ranks else None

    @property
    def main(self) -> HeapProfile | None:
        """The merged ranks of an MPI program, or else the largest process; None in a run without profiles."""
        return self.merged or next(iter(self.processes), None)

    @cached_property
    def numa(self) -> list[NumaProfile]:
        """NUMA profiles in the order of load_numa_profiles(). Raises UserError for a file that is not a profile."""
        return load_numa_profiles(self.run)

    @cached_property
    def numa_ranks(self) -> list[NumaProfile]:
        """The ranks of the largest MPI program; empty if no program has several ranks."""
        return mpi_ranks(
            self.numa,
            lambda profile: (profile.process.program, profile.process.mode),
            lambda profile: total(profile.matrix),
        )

    @cached_property
    def numa_merged(self) -> NumaProfile | None:
        """The ranks, merged into one profile."""
        return merge_numa_ranks(self.numa_ranks) if self.numa_ranks else None

    @property
    def numa_main(self) -> NumaProfile | None:
        """The merged ranks of an MPI program, or else the first process; None in a run without NUMA profiles."""
        return self.numa_merged or next(iter(self.numa), None)


def load_profiles(run: Path) -> list[HeapProfile]:
    """The heap profiles of a run in descending order of allocated bytes."""
    profiles = [
        load_profile(path) for path in sorted((run / "heap").glob("*.json")) if ".dump" not in path.name
    ]
    return sorted(profiles, key=lambda profile: -profile.totals.bytes)


def load_dumps(run: Path) -> list[HeapProfile]:
    return [load_profile(path) for path in sorted((run / "heap").glob("*.dump*.json"))]


NUMA_FOLDER = "numa/profiles"  # within a run


def load_numa_profiles(run: Path) -> list[NumaProfile]:
    """The NUMA profiles of a run: first those that count every access, then those with samples or first touches.

    Each group is in descending order of its totals.
    """
    profiles = [numa.load_profile(path) for path in sorted((run / NUMA_FOLDER).glob("*.json"))]
    return sorted(profiles, key=lambda profile: (not profile.is_exact, -numa.total(profile.matrix)))
