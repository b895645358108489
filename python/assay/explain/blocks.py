"""Groups of hosts that are slow together: a leaf switch, a cabinet's uplink, a path between two.

The topology is not known here, but ranks are numbered along it, so a group is a contiguous run of
ranks: one part of a division of all hosts into equal parts. A group is to blame, and not its hosts,
when they are slow to the others and not among themselves. Between groups only like is compared with
like, paths across with paths across: that they are slower than paths within is oversubscription, not a
fault.
"""

from __future__ import annotations

import numpy as np

from assay.explain.matrix import PairMatrix, host_of
from assay.explain.polish import SCALE_FLOOR, Fit, Floats, sample, spread
from assay.explain.suspect import CHANCE, CONSISTENT, NORMAL, Suspect

LEAST_EFFECT = float(np.log(0.80))
MOST_PARTS = 64  # more groups than this are too small to be told from their hosts
MOST_BLOCKS = 4
MOST_OF_A_GROUP = 0.75  # of its hosts have to be suspects before the group is


def _group_sizes(count: int) -> list[int]:
    """Sizes of equal groups, the largest first: from halves down to pairs."""
    return [count // parts for parts in range(2, min(count // 2, MOST_PARTS) + 1) if count % parts == 0]


def merge_neighbours(
    matrix: PairMatrix, model: Fit, sides: list[Suspect]
) -> tuple[list[Suspect], list[Suspect]]:
    """Suspected hosts that are a group: (the suspects that remain, the blocks that replace the others)."""
    hosts = matrix.hosts
    blocks: list[Suspect] = []
    for side, ends in (("transmit", matrix.source), ("receive", matrix.target)):
        effect = {one.hosts[0]: one for one in sides if one.side == side}
        for size in _group_sizes(len(hosts)) if len(effect) > 1 else []:
            for first in range(0, len(hosts), size):
                group = hosts[first : first + size]
                bad = [effect[host] for host in group if host in effect]
                is_one_machine = len({host_of(host) for host in group}) == 1
                if is_one_machine or len(bad) < max(2, MOST_OF_A_GROUP * size):
                    continue
                mean = float(np.mean([one.effect for one in bad]))
                is_within = (matrix.source // size == first // size) & (
                    matrix.target // size == first // size
                )
                shown = {hosts.index(one.hosts[0]): one.effect for one in bad}
                own = model.residual[is_within] + [shown.get(int(end), 0.0) for end in ends[is_within]]
                if own.size and np.median(own) < mean / 2:
                    continue  # slow among themselves too: each of them is at fault
                others = tuple(host for host in hosts if host not in group)
                senders, receivers = (tuple(group), others) if side == "transmit" else (others, tuple(group))
                z, chance = min(one.z for one in bad), min(one.chance for one in bad)
                blocks.append(Suspect("block", senders, receivers, mean, z, chance))
                for host in group:
                    effect.pop(host, None)
        gone = {one.hosts for one in sides if one.side == side} - {one.hosts for one in effect.values()}
        sides = [one for one in sides if one.side != side or one.hosts not in gone]
    return sides, blocks


def uneven_blocks(matrix: PairMatrix, value: Floats) -> list[Suspect]:
    """Paths from one group to another that are slower than the other paths across groups.

    ``value`` are the cells without the effects of suspected hosts. Of all divisions the one that shows the
    effect best is taken.
    """
    sigma = max(spread(value), SCALE_FLOOR)
    best: list[Suspect] = []
    for size in _group_sizes(len(matrix.hosts)):
        found = _in_division(matrix, value, size, sigma)
        best = min(best, found, key=lambda blocks: min((one.z for one in blocks), default=0.0))
    return sorted(best, key=lambda one: one.effect)[:MOST_BLOCKS]


def _in_division(matrix: PairMatrix, value: Floats, size: int, sigma: float) -> list[Suspect]:
    hosts = matrix.hosts
    some = sample(value.size)
    source, target, value = matrix.source[some], matrix.target[some], value[some]
    parts = len(hosts) // size
    part = (np.arange(len(hosts)) // size).astype(np.int32)
    block = part[source] * parts + part[target]
    cells = np.bincount(block, minlength=parts * parts)
    is_across = (np.arange(parts * parts) % (parts + 1) != 0) & (cells >= size)
    if is_across.sum() < 2:
        return []
    mean = np.bincount(block, value, minlength=parts * parts) / np.maximum(cells, 1)
    across = mean[is_across]
    reference, scatter = (np.median(across), spread(across)) if parts > 2 else (across.max(), 0.0)
    effect = np.where(is_across, mean - reference, 0.0)
    z = effect / np.maximum(np.maximum(sigma / np.sqrt(np.maximum(cells, 1)), scatter), SCALE_FLOOR)
    tests = int(is_across.sum())
    limit = NORMAL.inv_cdf(CHANCE / tests)
    found = []
    for bad in np.flatnonzero((effect < LEAST_EFFECT) & (z < limit)):
        own = value[block == bad] - reference
        if np.mean(own < effect[bad] / 2) > CONSISTENT:
            first, last = (int(part) * size for part in divmod(bad, parts))
            senders, receivers = tuple(hosts[first : first + size]), tuple(hosts[last : last + size])
            chance = tests * NORMAL.cdf(float(z[bad]))
            found.append(
                Suspect("block", senders, receivers, float(effect[bad]), float(z[bad]), chance, parts == 2)
            )
    return found
