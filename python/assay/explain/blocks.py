"""Groups of hosts that are slow together: behind a leaf switch, a cabinet's uplink, or a path between two groups.

The topology is unknown here, but ranks are usually numbered along it. A group is therefore a contiguous run of ranks:
one part of a division of all hosts into equal parts. A group is at fault, rather than its hosts, if they are slow to
other hosts and not among themselves. Paths between groups are compared only with other paths between groups: that they
are slower than paths within a group is oversubscription, not a fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix, host_of
from assay.explain.polish import MEDIAN_ERROR, SCALE_FLOOR, Floats, Groups, sample, spread
from assay.explain.suspect import CHANCE, CONSISTENT, NORMAL, Suspect
from assay.records.statistics import median

MIN_EFFECT = float(np.log(0.94))  # of a group on all its paths, which are many cells
MIN_PATH_EFFECT = float(np.log(0.80))  # of the path between two groups
MIN_GROUPS = 3  # with two groups it cannot be decided which is slow
MIN_HOSTS = 3  # of a group
MAX_PARTS = 64  # with more parts, groups are too small to tell from single hosts
MAX_BLOCKS = 4
MIN_SHARE_OF_GROUP = 0.75  # share of a group's hosts, and of its paths, that show at least half of its effect


def divisions(count: int) -> list[int]:
    """Sizes of equal groups, the largest first: from halves to pairs."""
    return [count // parts for parts in range(2, min(count // 2, MAX_PARTS) + 1) if count % parts == 0]


@dataclass
class Division:
    """All hosts divided into equal parts of contiguous ranks."""

    size: int  # hosts of a part
    parts: int
    source: NDArray[np.integer]  # [cell] part of the sender
    target: NDArray[np.integer]  # [cell] part of the receiver
    mean: Floats  # [part, part] median of a part's sampled cells to another; NaN for fewer than three
    cells: NDArray[np.int64]  # [part, part] number of sampled cells

    @classmethod
    def of(cls, matrix: PairMatrix, value: Floats, size: int) -> Division:
        parts = len(matrix.hosts) // size
        source, target = matrix.source // size, matrix.target // size
        sampled = sample(value.size)
        groups = Groups(source[sampled] * parts + target[sampled], parts * parts)
        mean = np.where(groups.size >= 3, groups.median(value[sampled]), np.float32(np.nan))
        return cls(size, parts, source, target, mean.reshape(parts, parts), groups.size.reshape(parts, parts))

    def members(self, part: int) -> slice:
        return slice(part * self.size, (part + 1) * self.size)


def slow_groups(matrix: PairMatrix, value: Floats, sigma: float) -> list[Suspect]:
    """Groups that send to, or receive from, all other groups slowly. ``value``: the cells' logarithms; ``sigma``: the
    standard deviation of a cell. Of all divisions the one that explains most is used."""
    best: list[Suspect] = []
    max_explained = 0.0
    for size in divisions(len(matrix.hosts)):
        if size < MIN_HOSTS or len(matrix.hosts) // size < MIN_GROUPS:
            continue
        if len({host_of(host) for host in matrix.hosts[:size]}) == 1:
            continue  # ranks of one machine
        suspects_of_size, explained = _groups_of(matrix, value, sigma, size)
        if explained > 1.05 * max_explained:
            best, max_explained = suspects_of_size, explained
    return best


def _groups_of(matrix: PairMatrix, value: Floats, sigma: float, size: int) -> tuple[list[Suspect], float]:
    """Returns the slow groups of a division, and by how much they reduce the sum of squares of the cells."""
    division = Division.of(matrix, value, size)
    unexplained = division.mean.copy()
    inside = unexplained.diagonal().copy()
    np.fill_diagonal(unexplained, np.nan)
    suspects_of_size: list[Suspect] = []
    explained = 0.0
    while len(suspects_of_size) < MAX_BLOCKS:
        candidates = [
            candidate for side in (0, 1) for part in range(division.parts)
            if (candidate := _candidate(division, unexplained, sigma, side, part)) is not None
        ]  # fmt: skip
        candidates = [c for c in candidates if _is_group(matrix, value, division, inside, *c[:3])]
        if not candidates:
            break
        effect, side, part, z, median_rate = min(candidates)
        suspects_of_size.append(_group_suspect(matrix, division, side, part, effect, z))
        ends, other_ends = (
            (division.source, division.target) if side == 0 else (division.target, division.source)
        )
        crossing = value[(ends == part) & (other_ends != part)] - median_rate
        explained += float(np.sum(2 * effect * crossing - effect**2))
        _row_or_column(unexplained, side, part)[:] = np.nan
    return suspects_of_size, explained


def _row_or_column(table: Floats, side: int, part: int) -> Floats:
    """The row of a part as sender (``side`` 0), its column as receiver (``side`` 1)."""
    return table[part] if side == 0 else table[:, part]


def _candidate(
    division: Division, unexplained: Floats, sigma: float, side: int, part: int
) -> tuple[float, int, int, float, float] | None:
    """Returns (effect, side, part, z, median of the other groups' paths) of a group that is slow on most of its paths
    to other groups."""
    group_values = _row_or_column(unexplained, side, part)
    group_values = group_values[np.isfinite(group_values)]
    others = unexplained.copy()
    # A host that sends slowly also receives late while it waits: the group's other side is no reference either.
    others[part] = others[:, part] = np.nan
    reference = others[np.isfinite(others)]
    if group_values.size < MIN_GROUPS - 1 or reference.size < 2:
        return None
    median_rate = median(reference)
    effect = median(group_values) - median_rate
    cells = float(np.mean(division.cells[part] if side == 0 else division.cells[:, part]))
    scale = max(spread(reference), MEDIAN_ERROR * sigma / np.sqrt(max(cells, 1.0)), SCALE_FLOOR)
    z = effect / scale
    tests = 2 * division.parts
    if effect >= MIN_EFFECT or z >= NORMAL.inv_cdf(CHANCE / tests):
        return None
    return (
        (effect, side, part, z, median_rate)
        if np.mean(group_values - median_rate < effect / 2) >= MIN_SHARE_OF_GROUP
        else None
    )


def _is_group(
    matrix: PairMatrix, value: Floats, division: Division, inside: Floats, effect: float, side: int, part: int
) -> bool:
    """Whether most hosts of the group show the effect to others, and not among themselves."""
    others = inside[np.arange(division.parts) != part]
    if np.isfinite(others).any() and inside[part] - np.nanmedian(others) < effect / 2:
        return False
    ends, other_ends = (division.source, division.target) if side == 0 else (division.target, division.source)
    crossing = (ends == part) & (other_ends != part)
    member = (matrix.source if side == 0 else matrix.target)[crossing] - part * division.size
    elsewhere = (division.source != division.target) & (ends != part) & (other_ends != part)
    median_rate = median(value[elsewhere])
    medians = Groups(member, division.size).median(value[crossing]) - median_rate
    measured = medians[np.isfinite(medians)]
    return measured.size >= 2 and bool(np.mean(measured < effect / 2) >= MIN_SHARE_OF_GROUP)


def _group_suspect(
    matrix: PairMatrix, division: Division, side: int, part: int, effect: float, z: float
) -> Suspect:
    members = division.members(part)
    group = tuple(matrix.hosts[members])
    others = tuple(matrix.hosts[: members.start] + matrix.hosts[members.stop :])
    senders, receivers = (group, others) if side == 0 else (others, group)
    return Suspect("block", senders, receivers, effect, z, 2 * division.parts * NORMAL.cdf(z))


def uneven_blocks(matrix: PairMatrix, value: Floats) -> list[Suspect]:
    """Paths from one group to another that are slower than the other paths across groups.

    ``value`` holds the cells without the effects of suspected hosts. Of all divisions the one with the most
    significant effect is used.
    """
    sigma = max(spread(value), SCALE_FLOOR)
    best: list[Suspect] = []
    for size in divisions(len(matrix.hosts)):
        blocks = _slow_paths_of(matrix, value, size, sigma)
        best = min(best, blocks, key=lambda blocks: min((block.z for block in blocks), default=0.0))
    return sorted(best, key=lambda block: block.effect)[:MAX_BLOCKS]


def _slow_paths_of(matrix: PairMatrix, value: Floats, size: int, sigma: float) -> list[Suspect]:
    """Slow paths between the parts of a division. ``size``: hosts of a part; ``sigma``: deviation of a cell."""
    hosts = matrix.hosts
    sampled = sample(value.size)
    source, target, value = matrix.source[sampled], matrix.target[sampled], value[sampled]
    parts = len(hosts) // size
    part = (np.arange(len(hosts)) // size).astype(np.int32)
    block = part[source] * parts + part[target]
    cells = np.bincount(block, minlength=parts * parts)
    is_across = (np.arange(parts * parts) % (parts + 1) != 0) & (cells >= size)
    if is_across.sum() < 2:
        return []
    mean = np.bincount(block, value, minlength=parts * parts) / np.maximum(cells, 1)
    across = mean[is_across]
    reference, scatter = (median(across), spread(across)) if parts > 2 else (across.max(), 0.0)
    effect = np.where(is_across, mean - reference, 0.0)
    z = effect / np.maximum(np.maximum(sigma / np.sqrt(np.maximum(cells, 1)), scatter), SCALE_FLOOR)
    tests = int(is_across.sum())
    limit = NORMAL.inv_cdf(CHANCE / tests)
    suspects = []
    for bad in np.flatnonzero((effect < MIN_PATH_EFFECT) & (z < limit)):
        cell_effects = value[block == bad] - reference
        if np.mean(cell_effects < effect[bad] / 2) > CONSISTENT:
            first, last = (int(part) * size for part in divmod(bad, parts))
            senders, receivers = tuple(hosts[first : first + size]), tuple(hosts[last : last + size])
            chance = tests * NORMAL.cdf(float(z[bad]))
            suspects.append(
                Suspect("block", senders, receivers, float(effect[bad]), float(z[bad]), chance, parts == 2)
            )
    return suspects
