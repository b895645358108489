"""Finds suspects: hosts, sides, pairs or blocks that look slow in a pair matrix.

A suspect's effect is both large (a host: below -5 %) and rare: chance alone is expected to produce 0.5 suspects in
the whole matrix. For 8 hosts the threshold is three median absolute deviations, for 256 five, for 10,000 six. The
deviation is the larger of two: the spread of the effects, and the error that the residuals imply. It has a lower bound,
so that small differences among nearly equal hosts do not count.

A suspect is not a fault yet: ``assay.explain.retest`` measures it again, alone. So this test may be too sensitive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.explain.blocks import slow_groups, uneven_blocks
from assay.explain.cables import replace_sides_by_paths, slow_cables
from assay.explain.matrix import PairMatrix
from assay.explain.polish import MEDIAN_ERROR, MIN_MEMBERS, SCALE_FLOOR, Fit, Floats, fit, sample, spread
from assay.explain.suspect import CHANCE, CONSISTENT, NORMAL, Suspect, covered
from assay.records.statistics import median

MIN_EFFECT = float(np.log(0.95))  # a host within 5 % of its peers is not suspected
MIN_PAIR_EFFECT = float(np.log(0.92))  # a single pair within 8 % is not suspected
MIN_EFFECT_OF_FEW = float(np.log(0.80))  # the same, with two or three hosts
FEW = 32  # hosts: with more, a slow host shows in many pairs
PAIRS_WITH_ENDS = 2  # pairs whose ends are suspected too; each costs time to measure again
CHANCE_OF_PAIRS = 0.01  # smaller than CHANCE: there are many pairs, and each costs time to measure again
MAX_PAIRS = 32  # suspected at most; most slow pairs are single disturbances
SIDES: tuple[Literal["transmit"], Literal["receive"]] = ("transmit", "receive")


def suspects(matrix: PairMatrix) -> list[Suspect]:
    """Returns everything in the matrix that looks slow: hosts, then blocks, then pairs, the worst of each first, and
    then the ends of pairs, if they are fast with others.

    With two or three hosts only pairs are returned: which end is slow is undecidable.
    """
    if len(matrix.hosts) < MIN_MEMBERS:
        return _suspects_of_few_hosts(matrix)
    model = fit(matrix)
    # If a group sends and receives slowly, most pairs of a shift may be slow: its median then hides the group.
    groups = slow_groups(matrix, model.value, model.sigma) or slow_groups(matrix, matrix.value, model.sigma)
    if groups:
        matrix = replace(matrix, value=_without(matrix, matrix.value, groups))
        model = fit(matrix)
    sides = _slow_sides(matrix, model, "transmit") + _slow_sides(matrix, model, "receive")
    paths: list[Suspect] = []
    if not groups:
        sides = replace_sides_by_paths(matrix, _without_effects(matrix, model, []), model.sigma, sides)
        paths = [side for side in sides if side.side == "block"]
        sides = [side for side in sides if side.side != "block"]
        remaining = _without_effects(matrix, model, [*sides, *paths])
        paths = paths or max(
            slow_cables(matrix, remaining, model.sigma),
            uneven_blocks(matrix, remaining),
            key=lambda candidates: _explained(matrix, remaining, candidates),
        )
    remaining = _without_effects(matrix, model, [*sides, *paths])
    pairs = _slow_pairs(matrix, remaining, max(spread(remaining), model.sigma))
    ends = _sides_of_pairs(matrix, model, pairs, {(side.side, side.hosts) for side in sides})
    sides += [end for end in ends if end.effect < MIN_EFFECT]
    fast = [end for end in ends if end.effect >= MIN_EFFECT]
    return sorted(sides, key=lambda suspect: suspect.effect) + groups + paths + pairs + fast


def _sides_of_pairs(
    matrix: PairMatrix, model: Fit, pairs: Sequence[Suspect], known: Collection[tuple[str, tuple[str, ...]]]
) -> list[Suspect]:
    """Returns sides of hosts to measure with other partners too: those that several slow pairs share, and with few
    hosts the ends of the worst pairs, as a slow pair may be the only sign of a slow host under load. ``known``: sides
    that are suspected already."""
    sides: list[Suspect] = []
    for side in SIDES:
        of_end: dict[int, list[float]] = defaultdict(list)
        for pair in pairs:
            end = pair.hosts[0] if side == "transmit" else pair.peers[0]
            of_end[matrix.hosts.index(end)].append(pair.effect)
        shared = {host: effects for host, effects in of_end.items() if len(effects) > 1}
        few = list(of_end)[:PAIRS_WITH_ENDS] if len(matrix.hosts) <= FEW else []
        for suspect in _slow_sides(matrix, model, side, [*dict.fromkeys([*shared, *few])] or [-1]):
            effects = shared.get(matrix.hosts.index(suspect.hosts[0]))
            if (side, suspect.hosts) not in known:
                sides.append(replace(suspect, effect=median(effects)) if effects else suspect)
    return sides


def _explained(matrix: PairMatrix, value: Floats, candidates: Sequence[Suspect]) -> float:
    """By how much the suspects reduce the sum of squares of the cells."""
    return sum(
        float(np.sum(2 * suspect.effect * value[covered(suspect, matrix)] - suspect.effect**2))
        for suspect in candidates
    )


def _slow_sides(
    matrix: PairMatrix, model: Fit, side: Literal["transmit", "receive"], named: Sequence[int] = ()
) -> list[Suspect]:
    """Returns the hosts whose ``side`` is slow; or, with ``named`` (indices of hosts), those of the named hosts whose
    side is not slow."""
    tests, limit = threshold(model)
    ends = matrix.source if side == "transmit" else matrix.target
    slow = []
    for members, effect, scale in scaled_effects(matrix, model, side):
        has_majority = len(members) >= MIN_MEMBERS
        z = effect / scale
        is_slow = (effect < MIN_EFFECT) & (z < limit)
        is_end = np.isin(members, named)
        for index in np.flatnonzero(is_end & ~is_slow if named else is_slow):
            rates = model.residual[ends == members[index]] + effect[index]
            if is_end[index] or np.mean(rates < effect[index] / 2) > CONSISTENT:
                name, chance = matrix.hosts[members[index]], tests * NORMAL.cdf(float(z[index]))
                suspect = Suspect(
                    side, (name,), (), float(effect[index]), float(z[index]), chance, not has_majority
                )
                slow.append(suspect)
    return slow


def threshold(model: Fit) -> tuple[int, float]:
    """Returns the number of sides, and the z below which chance alone is expected to put ``CHANCE`` of them."""
    tests = int(np.isfinite(model.transmit).sum() + np.isfinite(model.receive).sum())
    return tests, NORMAL.inv_cdf(CHANCE / tests)


def scaled_effects(
    matrix: PairMatrix, model: Fit, side: Literal["transmit", "receive"]
) -> Iterator[tuple[NDArray[np.intp], Floats, Floats]]:
    """Yields (hosts, their effects, the standard deviations of these) for each set of comparable hosts.

    An effect is relative to the median of the set, to the best of a set without a majority.
    """
    count = len(matrix.hosts)
    is_transmit = side == "transmit"
    effects, ends = (model.transmit, matrix.source) if is_transmit else (model.receive, matrix.target)
    component = model.component[:count] if is_transmit else model.component[count:]
    cells = np.bincount(ends, minlength=count)
    for label in np.unique(component[cells > 0]):
        members = np.flatnonzero((component == label) & (cells > 0))
        has_majority = len(members) >= MIN_MEMBERS
        effect = effects[members] - (median if has_majority else np.max)(effects[members])
        error = np.maximum(MEDIAN_ERROR * model.sigma / np.sqrt(cells[members]), SCALE_FLOOR)
        yield members, effect, np.maximum(error, spread(effect) if has_majority else 0.0)


def one_way_suspects(matrix: PairMatrix) -> list[Suspect]:
    """Returns the sides of hosts that are slow although nothing loads the other side, and then pairs, the worst of each
    first."""
    if len(matrix.hosts) < MIN_MEMBERS:
        return []
    model = fit(matrix)
    sides = _slow_sides(matrix, model, "transmit") + _slow_sides(matrix, model, "receive")
    remaining = _without_effects(matrix, model, sides)
    pairs = _slow_pairs(matrix, remaining, max(spread(remaining), model.sigma))
    return [replace(s, one_way=True) for s in [*sorted(sides, key=lambda suspect: suspect.effect), *pairs]]


def all_suspects(both_ways: PairMatrix, one_way: PairMatrix) -> list[Suspect]:
    """Returns the suspects of both matrices: ``join_suspects``."""
    return join_suspects(suspects(both_ways), one_way_suspects(one_way))


def join_suspects(loaded: Sequence[Suspect], one_way: Sequence[Suspect]) -> list[Suspect]:
    """Returns first the suspects of ``one_way``, measured without traffic in the other direction: a limit on both
    directions together can make a slow side look fast. A side that is suspected in both is returned once, from
    ``one_way``."""
    known = {(suspect.side, suspect.hosts, suspect.peers) for suspect in one_way}
    return [*one_way] + [
        s for s in loaded if (s.side, s.hosts, s.peers) not in known and not _is_of_host(s, one_way)
    ]


def _is_of_host(path: Suspect, sides: Sequence[Suspect]) -> bool:
    """Whether a path to or from a single host is slow because the host itself is slow."""
    return path.side == "block" and any(
        (side.side == "transmit" and path.hosts == side.hosts)
        or (side.side == "receive" and path.peers == side.hosts)
        for side in sides
    )


def _without(matrix: PairMatrix, value: Floats, explained: Sequence[Suspect]) -> Floats:
    value = value.copy()
    for suspect in explained:
        value[covered(suspect, matrix)] -= np.float32(suspect.effect)
    return value


def _without_effects(matrix: PairMatrix, model: Fit, explained: Sequence[Suspect]) -> Floats:
    """Returns the cells relative to their component's median, without the effects of suspected hosts and paths.

    These are not the residuals: in a row of two cells a single bad cell disturbs both residuals.
    """
    value = _without(matrix, model.value, explained)
    components = np.unique(model.component)
    for component in components:
        members = model.component[matrix.source] == component if len(components) > 1 else slice(None)
        member_values = value[members]
        value[members] -= median(member_values[sample(member_values.size)]) if member_values.size else 0.0
    return value


def _slow_pairs(matrix: PairMatrix, value: Floats, sigma: float) -> list[Suspect]:
    """Returns the worst single cells: a path, or a cable inside the network, that only few pairs use."""
    z = value / sigma
    limit = NORMAL.inv_cdf(CHANCE_OF_PAIRS / value.size)
    bad = np.flatnonzero((value < MIN_PAIR_EFFECT) & (z < limit))
    return [
        _pair(matrix, cell, float(value[cell]), float(z[cell]), value.size * NORMAL.cdf(float(z[cell])))
        for cell in bad[np.argsort(value[bad])][:MAX_PAIRS]
    ]


def _suspects_of_few_hosts(matrix: PairMatrix) -> list[Suspect]:
    """With two or three hosts: returns the pairs that are slower than the fastest."""
    if not matrix.value.size:
        return []
    effect = matrix.value - matrix.value.max()
    bad = np.flatnonzero(effect < MIN_EFFECT_OF_FEW)
    worst_first = bad[np.argsort(effect[bad])]
    return [
        replace(_pair(matrix, cell, float(effect[cell]), 0.0, 1.0), with_best=True) for cell in worst_first
    ]


def _pair(matrix: PairMatrix, cell: np.intp, effect: float, z: float, chance: float) -> Suspect:
    source, target = matrix.hosts[matrix.source[cell]], matrix.hosts[matrix.target[cell]]
    return Suspect("pair", (source,), (target,), effect, z, chance)
