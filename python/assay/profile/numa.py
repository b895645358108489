"""Loads and checks a NUMA profile, as defined in assay.records.numa, and looks figures up in it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import msgspec

from assay.errors import UserError
from assay.profile.tree import CallTree, Figures, Group, Location, process_title
from assay.records import numa
from assay.records.decode import decoder
from assay.records.files import read_regular
from assay.records.numa import NumaCells, NumaObject

METRICS: dict[str, str] = {metric.key: metric.label for metric in numa.METRICS if metric.listed}
UNITS: dict[str, str] = {metric.key: metric.unit for metric in numa.METRICS}
UNKNOWN_NODE = -1


class NumaProfile(numa.NumaProfile, dict=True):
    @cached_property
    def calls(self) -> CallTree:
        """Raises ValueError for a tree that contradicts itself."""
        return CallTree(self.tree, numa.METRICS)

    @property
    def program(self) -> str:
        return self.process.program

    @property
    def title(self) -> str:
        """Tells the process from the others of its run."""
        return process_title(self.process.program, self.process.pid, self.process.rank)

    @property
    def is_exact(self) -> bool:
        """Whether accesses were counted, not only first touches."""
        return self.accesses is not None

    @property
    def matrix(self) -> NumaCells:
        """Accesses, or in a profile without them bytes that were touched first."""
        return self.touched if self.accesses is None else self.accesses

    def counts(self, part: NumaObject | numa.NumaThread) -> NumaCells:
        """As ``matrix``, of an object or thread."""
        return part.touched if part.accesses is None else part.accesses

    def location(self, number: int) -> Location | None:
        return self.calls.locations[number] if number >= 0 else None

    def by(self, metric: str, group: Group) -> list[Figures]:
        """The functions or lines with a figure, the largest exclusive one first."""
        return self.calls.by(metric, group)


def total(cells: NumaCells) -> int:
    return sum(cells.count)


def known(cells: NumaCells) -> int:
    """Counts of which both nodes are known."""
    return sum(count for a, b, count in rows(cells) if UNKNOWN_NODE not in (a, b))


def remote(cells: NumaCells) -> int:
    return sum(count for a, b, count in rows(cells) if UNKNOWN_NODE not in (a, b) and a != b)


def remote_share(cells: NumaCells) -> float | None:
    """Remote over known counts; None if none are known."""
    return remote(cells) / known(cells) if known(cells) else None


def rows(cells: NumaCells) -> list[tuple[int, int, int]]:
    """Node of the thread, node of the page, count."""
    return list(zip(cells.thread_node, cells.page_node, cells.count, strict=True))


def by_node(cells: NumaCells, of_pages: bool) -> dict[int, int]:
    """Counts by the node of the page, or of the thread."""
    sums: dict[int, int] = {}
    for thread_node, page_node, count in rows(cells):
        node = page_node if of_pages else thread_node
        sums[node] = sums.get(node, 0) + count
    return sums


_decode = decoder(NumaProfile)


def load_profile(path: Path) -> NumaProfile:
    """Raises UserError for a file that cannot be read or is no NUMA profile."""
    try:
        profile: NumaProfile = _decode(read_regular(path))
        check(profile)
        return profile
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise UserError(
            f"{path} is not a NUMA profile: {error}", f"delete it and run: assay numa show {path.parents[2]}"
        ) from None


def check(profile: NumaProfile) -> None:
    """Raises ValueError where a section refers to a location, thread, object or node that does not exist."""
    locations = len(profile.calls.tables.locations.function)
    touches = profile.first_touches
    sites = [row.site for row in profile.objects] + [advice.toucher for advice in profile.advice]
    _check(sites, -1, locations, "location")
    _check(touches.location, 0, locations, "location")
    _check(touches.thread, 0, len(profile.threads), "thread")
    _check(touches.object + [advice.object for advice in profile.advice], 0, len(profile.objects), "object")
    columns = (touches.location, touches.thread, touches.bytes, touches.huge)
    if any(len(column) != len(touches.object) for column in (*columns, touches.policy)):
        raise ValueError("columns of different lengths in one table")
    nodes = {node.id for node in profile.nodes} | {UNKNOWN_NODE}
    if len(nodes) != len(profile.nodes) + 1 or any(node.id < 0 for node in profile.nodes):
        raise ValueError("two nodes with one number")
    cells = [profile.matrix, profile.touched]
    for row in profile.objects:
        cells += [row.touched, profile.counts(row)]
    for thread in profile.threads:
        cells += [thread.touched, profile.counts(thread)]
    for matrix in cells:
        if not len(matrix.thread_node) == len(matrix.page_node) == len(matrix.count):
            raise ValueError("columns of different lengths in a matrix")
        if not nodes.issuperset(matrix.thread_node) or not nodes.issuperset(matrix.page_node):
            raise ValueError("a node that does not exist")
        if any(count < 0 for count in matrix.count):
            raise ValueError("a negative count")
    if any(len(values) != len(profile.timeline.seconds) for values in profile.timeline.resident):
        raise ValueError("columns of different lengths over time")
    slices = profile.timeline.slices
    columns_over_time = (slices.local, slices.remote, slices.unknown)
    if any(len(values) != len(slices.seconds) for values in columns_over_time):
        raise ValueError("columns of different lengths over time")
    sampling = profile.sampling
    if sampling and len(sampling.sources) != len(sampling.samples_by_source):
        raise ValueError("columns of different lengths of the data sources")
    width = len(profile.nodes)
    for row in profile.objects:
        if len(row.resident) != width + 1 or (row.parts and len(row.parts) != width):
            raise ValueError("an object with figures of other nodes")


def _check(numbers: list[int], low: int, high: int, noun: str) -> None:
    if any(not low <= number < high for number in numbers):
        raise ValueError(f"a {noun} that does not exist")
