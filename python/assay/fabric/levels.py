"""The levels of a fabric's switches, from the graph of its cables alone.

A leaf switch is one where hosts hang in bulk. A host may also hang on a spine (a login node, storage, the subnet
manager), so hosts alone make no leaf. In a tree no two leaf switches are neighbours. Of two neighbours with hosts, the
one that joins several others with more hosts is therefore inner. Where that would take too many hosts from the leaves
(rings, meshes: all switches have hosts), there is no such order, and every switch with hosts is a leaf.

A switch's level is its distance to the nearest leaf switch. Neighbours of one level (a core that joins leaf switches
and pods alike) are told apart by their mean distance to all leaf switches: the nearer one to the middle is higher.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
UNREACHED = np.iinfo(np.int32).max
# The hosts on inner switches are fewer than this share of the hosts of a connected part. In a ring or a mesh every
# order takes a third of the hosts or more.
INNER_SHARE = 1 / 4


def find_leaves(neighbours: list[set[int]], hosts: NDArray[np.integer]) -> Ints:
    """The leaf switches, ascending. ``neighbours``: the switches that each switch is cabled to, without itself;
    ``hosts`` [S]: hosts on each."""
    leaves: set[int] = set()
    for part in connected_parts(neighbours):
        candidates = {switch for switch in part if hosts[switch] > 0}
        kept = _without_inner(candidates, neighbours, hosts)
        inner = sum(int(hosts[switch]) for switch in candidates - kept)
        total = sum(int(hosts[switch]) for switch in candidates)
        leaves |= kept if inner < INNER_SHARE * total else candidates
    return np.array(sorted(leaves), np.int32)


def _without_inner(candidates: set[int], neighbours: list[set[int]], hosts: NDArray[np.integer]) -> set[int]:
    """Takes away, one after another, the switch whose neighbours among the candidates have the most hosts beyond its
    own, while it joins two of them at least."""
    kept = set(candidates)
    excess = {
        switch: sum(int(hosts[near]) for near in neighbours[switch] & kept) - int(hosts[switch])
        for switch in candidates
    }
    while True:
        joining = [switch for switch in kept if excess[switch] > 0 and len(neighbours[switch] & kept) > 1]
        if not joining:
            return kept
        inner = max(joining, key=lambda switch: (excess[switch], -switch))
        kept.remove(inner)
        for near in neighbours[inner] & kept:
            excess[near] -= int(hosts[inner])


def connected_parts(neighbours: list[set[int]]) -> list[list[int]]:
    """The switches of each connected part, by the lowest number in it."""
    parts: list[list[int]] = []
    seen = [False] * len(neighbours)
    for start in range(len(neighbours)):
        if seen[start]:
            continue
        seen[start], part = True, [start]
        for switch in part:
            for near in neighbours[switch]:
                if not seen[near]:
                    seen[near] = True
                    part.append(near)
        parts.append(part)
    return parts


def find_levels(neighbours: list[set[int]], leaves: NDArray[np.integer]) -> Ints:
    """[S] levels: 0 for leaf switches, UNREACHED where no path leads to one."""
    level = _distances(neighbours, leaves)
    same = [
        (a, b)
        for a, near in enumerate(neighbours)
        for b in near
        if a < b and level[a] == level[b] != UNREACHED
    ]
    empty = [
        switch
        for switch, near in enumerate(neighbours)
        if UNREACHED != level[switch] > 1 and all(level[other] < level[switch] for other in near)
    ]
    if same or empty:
        mean = _mean_distances(neighbours, leaves)
        _lower_empty_leaves(level, neighbours, empty, mean)
        _raise_nearer(level, neighbours, same, mean)
    return level


def _distances(neighbours: list[set[int]], sources: NDArray[np.integer]) -> Ints:
    """[S] steps to the nearest source."""
    distance = np.full(len(neighbours), UNREACHED, np.int32)
    distance[sources] = 0
    frontier = [int(source) for source in sources]
    for switch in frontier:
        for near in neighbours[switch]:
            if distance[near] == UNREACHED:
                distance[near] = distance[switch] + 1
                frontier.append(near)
    return distance


def _mean_distances(neighbours: list[set[int]], leaves: NDArray[np.integer]) -> NDArray[np.float64]:
    """[S] mean steps to the leaf switches of the same connected part."""
    from scipy.sparse import csr_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import shortest_path

    rows = np.repeat(np.arange(len(neighbours)), [len(near) for near in neighbours])
    columns = np.array([other for near in neighbours for other in near], np.int64)
    graph = csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(len(neighbours),) * 2)
    steps = shortest_path(graph, unweighted=True, indices=leaves)  # [leaves, S]
    reached = np.isfinite(steps)
    total = np.where(reached, steps, 0).sum(axis=0)
    return np.asarray(total / np.maximum(reached.sum(axis=0), 1), np.float64)


def _lower_empty_leaves(
    level: Ints, neighbours: list[set[int]], empty: list[int], mean: NDArray[np.float64]
) -> None:
    """A leaf switch without hosts lies below its neighbours: it is farther from all leaf switches by a whole step,
    while a spine is nearer."""
    for switch in empty:
        if all(mean[switch] > mean[near] + 0.5 for near in neighbours[switch]):
            level[switch] = min(level[near] for near in neighbours[switch]) - 1


def _raise_nearer(
    level: Ints, neighbours: list[set[int]], same: list[tuple[int, int]], mean: NDArray[np.float64]
) -> None:
    """Of two neighbours of one level, the one nearer to the middle rises above the other, and so on upwards. It ends,
    since the mean distance falls along every chain of raises."""
    pending = [pair if mean[pair[0]] < mean[pair[1]] else pair[::-1] for pair in same]
    for higher, lower in pending:
        if level[higher] > level[lower] or not mean[higher] < mean[lower]:
            continue
        before, level[higher] = level[higher], level[lower] + 1
        pending += [(near, higher) for near in neighbours[higher] if before < level[near] <= level[higher]]
