"""Groups of hosts that are slow together: behind a leaf switch, a cabinet's uplink, or a path between two groups.

The topology is unknown here, but ranks are usually numbered along it. A group is therefore a contiguous run of ranks:
one part of a division of all hosts into equal parts. A group is at fault, rather than its hosts, if they are slow to
other hosts and not among themselves. Paths between groups are compared only with other paths between groups: that they
are slower than paths within a group is oversubscription, not a fault.
"""

from __future__ import annotations

import numpy as np

from assay.explain.matrix import PairMatrix, host_of
from assay.explain.polish import SCALE_FLOOR, Fit, Floats, sample, spread
from assay.explain.suspect import CHANCE, CONSISTENT, NORMAL, Suspect

MIN_EFFECT = float(np.log(0.80))
MAX_PARTS = 64  # with more parts, groups are too small to tell from single hosts
MAX_BLOCKS = 4
MIN_SUSPECT_SHARE = 0.75  # of a group's hosts must be suspects for the group to be one


def _group_sizes(count: int) -> list[int]:
    """Sizes of equal groups, the largest first: from halves to pairs."""
    return [count // parts for parts in range(2, min(count // 2, MAX_PARTS) + 1) if count % parts == 0]


def merge_neighbours(
    matrix: PairMatrix, model: Fit, sides: list[Suspect]
) -> tuple[list[Suspect], list[Suspect]]:
    """Merges suspected hosts that form a group. Returns (remaining suspects, blocks that replace the others)."""
    hosts = matrix.hosts
    blocks: list[Suspect] = []
    for side, ends in (("transmit", matrix.source), ("receive", matrix.target)):
        effect = {suspect.hosts[0]: suspect for suspect in sides if suspect.side == side}
        for size in _group_sizes(len(hosts)) if len(effect) > 1 else []:
            for first in range(0, len(hosts), size):
                group = hosts[first : first + size]
                slow = [effect[host] for host in group if host in effect]
                is_one_machine = len({host_of(host) for host in group}) == 1
                if is_one_machine or len(slow) < max(2, MIN_SUSPECT_SHARE * size):
                    continue
                mean = float(np.mean([suspect.effect for suspect in slow]))
                is_within = (matrix.source // size == first // size) & (
                    matrix.target // size == first // size
                )
                effect_of_host = {hosts.index(suspect.hosts[0]): suspect.effect for suspect in slow}
                within = model.residual[is_within] + [
                    effect_of_host.get(int(end), 0.0) for end in ends[is_within]
                ]
                if within.size and np.median(within) < mean / 2:
                    continue  # slow among themselves too: the hosts are at fault
                others = tuple(host for host in hosts if host not in group)
                senders, receivers = (tuple(group), others) if side == "transmit" else (others, tuple(group))
                z, chance = min(suspect.z for suspect in slow), min(suspect.chance for suspect in slow)
                blocks.append(Suspect("block", senders, receivers, mean, z, chance))
                for host in group:
                    effect.pop(host, None)
        merged = {suspect.hosts for suspect in sides if suspect.side == side} - {
            suspect.hosts for suspect in effect.values()
        }
        sides = [suspect for suspect in sides if suspect.side != side or suspect.hosts not in merged]
    return sides, blocks


def uneven_blocks(matrix: PairMatrix, value: Floats) -> list[Suspect]:
    """Paths from one group to another that are slower than the other paths across groups.

    ``value`` holds the cells without the effects of suspected hosts. The division with the most significant
    effect is taken.
    """
    sigma = max(spread(value), SCALE_FLOOR)
    best: list[Suspect] = []
    for size in _group_sizes(len(matrix.hosts)):
        blocks = _in_division(matrix, value, size, sigma)
        best = min(best, blocks, key=lambda blocks: min((block.z for block in blocks), default=0.0))
    return sorted(best, key=lambda block: block.effect)[:MAX_BLOCKS]


def _in_division(matrix: PairMatrix, value: Floats, size: int, sigma: float) -> list[Suspect]:
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
    reference, scatter = (np.median(across), spread(across)) if parts > 2 else (across.max(), 0.0)
    effect = np.where(is_across, mean - reference, 0.0)
    z = effect / np.maximum(np.maximum(sigma / np.sqrt(np.maximum(cells, 1)), scatter), SCALE_FLOOR)
    tests = int(is_across.sum())
    limit = NORMAL.inv_cdf(CHANCE / tests)
    suspects = []
    for bad in np.flatnonzero((effect < MIN_EFFECT) & (z < limit)):
        cell_effects = value[block == bad] - reference
        if np.mean(cell_effects < effect[bad] / 2) > CONSISTENT:
            first, last = (int(part) * size for part in divmod(bad, parts))
            senders, receivers = tuple(hosts[first : first + size]), tuple(hosts[last : last + size])
            chance = tests * NORMAL.cdf(float(z[bad]))
            suspects.append(
                Suspect("block", senders, receivers, float(effect[bad]), float(z[bad]), chance, parts == 2)
            )
    return suspects
