"""A heap profile: the analysis of one process by ``assay-heap analyse``, as defined in assay.records.heap."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import UserError
from assay.profile.tree import CallTree, Figures, Group, process_title
from assay.records import heap
from assay.records.decode import decoder
from assay.records.files import read_regular

# The metrics that users can choose, with their labels.
METRICS: dict[str, str] = {metric.key: metric.label for metric in heap.METRICS if metric.listed}
COUNTED = frozenset(metric.key for metric in heap.METRICS if metric.unit == "1")  # metrics without a unit


class HeapProfile(heap.HeapProfile, dict=True):
    @cached_property
    def calls(self) -> CallTree:
        """Raises ValueError for a tree that contradicts itself."""
        return CallTree(self.tree, heap.METRICS)

    @property
    def program(self) -> str:
        return self.process.program

    @property
    def title(self) -> str:
        """A title that differs from those of the run's other processes."""
        return process_title(self.process.program, self.process.pid, self.process.rank)

    @property
    def has_python(self) -> bool:
        """Whether the stacks hold Python functions."""
        return any(location.is_python for location in self.calls.locations)

    @property
    def gap(self) -> str:
        """What the recording lacks, so that its figures are doubtful; "" if nothing."""
        if self.trace.lost_events:
            return f"{self.trace.lost_events} events could not be recorded"
        if self.trace.damaged_bytes or self.trace.unreadable_chunks:
            return "the trace is damaged"
        return ""

    def by(self, metric: str, group: Group) -> list[Figures]:
        """The figures of each function or line, in descending order of the exclusive figure."""
        return self.calls.by(metric, group)


_decode = decoder(HeapProfile)


def load_profile(path: Path) -> HeapProfile:
    """Reads an analysis. Raises UserError if the file cannot be read or is not an analysis."""
    try:
        profile: HeapProfile = _decode(read_regular(path))
        _check(profile)
        return profile
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise UserError(
            f"{path} is not the analysis of a heap trace: {error}",
            "delete it and run: assay heap show RUN",
        ) from None


def _check(profile: HeapProfile) -> None:
    """Raises ValueError where a section refers to a location that the tree lacks, or tables contradict each other."""
    tree = profile.calls.tables
    sites = [thread.deepest_site for thread in profile.threads]
    sites += [*(profile.touches.site if profile.touches else [])]
    sites += profile.fragmentation.pin_site if profile.fragmentation else []
    functions = [int(key) for key in profile.histograms]
    if any(not 0 <= site < len(tree.locations.function) for site in (*sites, *functions)):
        raise ValueError("it refers to a location that its call tree lacks")
    tables: list[list[list[Any]]] = [
        [profile.frequent_size, profile.frequent_count],
        [profile.timeline.live, profile.timeline.count, profile.timeline.bytes],
        [profile.timeline.seconds, profile.timeline.virtual, profile.timeline.resident],
    ]
    if touches := profile.touches:
        tables.append([touches.line_function, touches.line_file, touches.line, touches.line_pages])
        tables.append([touches.site, touches.site_pages, touches.site_with_huge])
        tables.append([touches.thread, touches.thread_pages])
    if fragmentation := profile.fragmentation:
        tables.append([fragmentation.pin_site, fragmentation.pin_bytes, fragmentation.pin_blocks])
    if any(len(column) != len(table[0]) for table in tables for column in table):
        raise ValueError("columns of different lengths in one table")
