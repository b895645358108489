"""Finds slow cables inside the network by their pattern in the pair matrix. Routing by destination sends all flows of a
group of hosts to some destinations up one cable, and all flows from other groups to one host down one cable.

Groups are contiguous runs of ranks, as in ``assay.explain.blocks``. With the routes of an InfiniBand fabric, ``assay
fabric blame`` names the cable itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from assay.explain.blocks import divisions
from assay.explain.matrix import PairMatrix
from assay.explain.polish import MEDIAN_ERROR, Floats
from assay.explain.suspect import NORMAL, Suspect
from assay.records.statistics import median

# A cell is slow if it is at least this far below the usual rate, and by this many standard deviations.
MIN_EFFECT = float(np.log(0.94))
MIN_Z = 2.5
FULL = 0.75  # share of the cells of a group and a destination that are slow
MIN_CELLS = 3  # of a group and a destination
MIN_HOSTS = 3  # of a group
MAX_SUSPECTS = 4


def slow_cables(matrix: PairMatrix, value: Floats, sigma: float) -> list[Suspect]:
    """Paths from a group to some destinations that are slow for all of its hosts. ``value`` holds the cells without
    the effects of other suspects, 0 at the usual rate. Of all divisions the one that explains most slow cells is
    used."""
    is_slow = (value < MIN_EFFECT) & (value < -MIN_Z * sigma)
    if np.count_nonzero(is_slow) < MIN_CELLS:
        return []
    best: list[Suspect] = []
    max_explained = 0
    for size in divisions(len(matrix.hosts)):
        if size >= MIN_HOSTS:
            suspects, explained = _cables_of(matrix, value, is_slow, sigma, size)
            if explained > max_explained:
                best, max_explained = suspects, explained
    return sorted(best, key=lambda suspect: suspect.effect)[:MAX_SUSPECTS]


def _cables_of(
    matrix: PairMatrix, value: Floats, is_slow: NDArray[np.bool_], sigma: float, size: int
) -> tuple[list[Suspect], int]:
    """Returns the cables of a division and the slow cells that they explain."""
    count = len(matrix.hosts)
    parts = count // size
    cell_number = (matrix.source // size) * count + matrix.target
    cells = np.bincount(cell_number, minlength=parts * count)
    slow = np.bincount(cell_number[is_slow], minlength=parts * count)
    is_full = (slow >= MIN_CELLS) & (slow >= FULL * cells)
    table = is_full.reshape(parts, count)
    for part in range(parts):
        table[part, part * size : (part + 1) * size] = False
    suspects: list[Suspect] = []
    explained = 0
    for part in range(parts):
        targets = np.flatnonzero(table[part])
        if not 0 < targets.size < count / 2:  # more: the group itself is slow
            continue
        group = np.arange(part * size, (part + 1) * size)
        suspect, covered_cells = _suspect(matrix, value, sigma, group, targets)
        suspects.append(suspect)
        explained += int(np.count_nonzero(is_slow & covered_cells))
    return suspects, explained


def _suspect(
    matrix: PairMatrix, value: Floats, sigma: float, sources: NDArray[np.intp], targets: NDArray[np.intp]
) -> tuple[Suspect, NDArray[np.bool_]]:
    cells: NDArray[np.bool_] = np.isin(matrix.source, sources) & np.isin(matrix.target, targets)
    effect = median(value[cells])
    z = effect / (MEDIAN_ERROR * sigma / float(np.sqrt(np.count_nonzero(cells))))
    senders, receivers = (tuple(matrix.hosts[i] for i in ends) for ends in (sources, targets))
    chance = value.size * NORMAL.cdf(max(z, -37.0))
    return Suspect("block", senders, receivers, effect, z, chance), cells


def replace_sides_by_paths(
    matrix: PairMatrix, value: Floats, sigma: float, sides: Sequence[Suspect]
) -> list[Suspect]:
    """Replaces the slow side of a host that is as fast as others within its group by the path between the host and the
    other groups: the path is at fault, not the host. ``value`` includes the sides' effects."""
    return [_path_to_others(matrix, value, sigma, side) or side for side in sides]


def _path_to_others(matrix: PairMatrix, value: Floats, sigma: float, side: Suspect) -> Suspect | None:
    host = matrix.hosts.index(side.hosts[0])
    ends, others = (
        (matrix.source, matrix.target) if side.side == "transmit" else (matrix.target, matrix.source)
    )
    of_host = ends == host
    partners, rates = others[of_host], value[of_host]
    best: tuple[float, Suspect] | None = None
    for size in divisions(len(matrix.hosts)):
        is_near = partners // size == host // size
        if np.count_nonzero(is_near) < 2 or np.count_nonzero(~is_near) < 3:
            continue
        inside, outside = median(rates[is_near]), median(rates[~is_near])
        gap = outside - inside
        error = (
            MEDIAN_ERROR
            * sigma
            * float(np.sqrt(1 / np.count_nonzero(is_near) + 1 / np.count_nonzero(~is_near)))
        )
        if inside < 0.3 * outside or np.mean(rates[is_near] > outside / 2) < FULL or gap > -5 * error:
            continue
        if gap > MIN_EFFECT or np.mean(rates[~is_near] < outside / 2) < FULL:
            continue
        other_hosts = tuple(name for i, name in enumerate(matrix.hosts) if i // size != host // size)
        senders, receivers = (
            (side.hosts, other_hosts) if side.side == "transmit" else (other_hosts, side.hosts)
        )
        path = replace(side, side="block", hosts=senders, peers=receivers, effect=outside)
        if best is None or gap / error < best[0]:
            best = (gap / error, path)
    return best[1] if best else None
