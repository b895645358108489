"""Finds suspects: hosts, sides, pairs or blocks that look slow in a pair matrix.

A suspect's effect is both large (a host: below -5 %) and rare: chance alone is expected to produce 0.5 suspects in
the whole matrix. For 8 hosts that is three median absolute deviations, for 256 five, for 10,000 six. The deviation is
the larger of that of the effects and that which the residuals imply, and has a lower bound, so that small
differences among very equal hosts do not count.

A suspect is not a fault yet: ``assay.explain.retest`` measures it again, alone. So this test may be too sensitive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.explain.blocks import merge_neighbours, uneven_blocks
from assay.explain.matrix import PairMatrix
from assay.explain.polish import FEWEST, SCALE_FLOOR, Fit, Floats, fit, sample, spread
from assay.explain.suspect import CHANCE, CONSISTENT, NORMAL, Suspect

LEAST_EFFECT = float(np.log(0.95))  # a host within 5 % is not suspected,
LEAST_PAIR_EFFECT = float(np.log(0.80))  # nor is a single pair, seen once, within 20 %
PAIRS_WITH_ENDS = 2  # pairs whose ends are suspected too; each costs time to measure again
MOST_PAIRS = 4  # more bad pairs have a common cause; the worst suffice to find it


def suspects(matrix: PairMatrix) -> list[Suspect]:
    """Returns everything in the matrix that looks slow: hosts, then blocks, then pairs, the worst of each first.

    With two or three hosts only pairs are returned: which end is slow is undecidable.
    """
    if len(matrix.hosts) < FEWEST:
        return _few(matrix)
    model = fit(matrix)
    sides, blocks = merge_neighbours(
        matrix, model, _side(matrix, model, "transmit") + _side(matrix, model, "receive")
    )
    rest = _without(matrix, model, sides)
    blocks = blocks or uneven_blocks(matrix, rest)
    pairs = [] if blocks else _pairs(matrix, rest, max(spread(rest), model.sigma))
    # A bad pair may be the only sign of a slow host under load: its ends are measured with others too.
    if pairs:
        worst = pairs[:PAIRS_WITH_ENDS]
        sides += _side(matrix, model, "transmit", [matrix.hosts.index(suspect.hosts[0]) for suspect in worst])
        sides += _side(matrix, model, "receive", [matrix.hosts.index(suspect.peers[0]) for suspect in worst])
    return sorted(sides, key=lambda suspect: suspect.effect) + blocks + pairs


def _side(
    matrix: PairMatrix, model: Fit, side: Literal["transmit", "receive"], named: Sequence[int] = ()
) -> list[Suspect]:
    """Returns the hosts whose ``side`` is slow; with ``named``, those of the named hosts that are not."""
    tests, limit = threshold(model)
    ends = matrix.source if side == "transmit" else matrix.target
    slow = []
    for members, effect, scale in scaled_effects(matrix, model, side):
        has_majority = len(members) >= FEWEST
        z = effect / scale
        is_slow = (effect < LEAST_EFFECT) & (z < limit)
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
        has_majority = len(members) >= FEWEST
        effect = effects[members] - (np.median if has_majority else np.max)(effects[members])
        # A median of n has 1.25 times the error of a mean of n.
        error = np.maximum(1.2533 * model.sigma / np.sqrt(cells[members]), SCALE_FLOOR)
        yield members, effect, np.maximum(error, spread(effect) if has_majority else 0.0)


def one_way_suspects(matrix: PairMatrix) -> list[Suspect]:
    """Returns the sides of hosts that are slow although nothing loads the other side, the worst first."""
    if len(matrix.hosts) < FEWEST:
        return []
    model = fit(matrix)
    sides = _side(matrix, model, "transmit") + _side(matrix, model, "receive")
    return [replace(side, one_way=True) for side in sorted(sides, key=lambda suspect: suspect.effect)]


def all_suspects(both_ways: PairMatrix, one_way: PairMatrix) -> list[Suspect]:
    """Returns the suspects of both matrices. Of a side that is in both, the one without traffic in the other
    direction is kept, and comes first where there is time for few retests: a limit on both directions together can
    make a slow side look fast."""
    alone = one_way_suspects(one_way)
    known = {(suspect.side, suspect.hosts) for suspect in alone}
    return alone + [s for s in suspects(both_ways) if (s.side, s.hosts) not in known]


def _without(matrix: PairMatrix, model: Fit, sides: list[Suspect]) -> Floats:
    """Returns the cells relative to their component's median, without the effects of suspected hosts.

    These are not the residuals: in a row of two cells a single bad cell disturbs both residuals.
    """
    index = {host: number for number, host in enumerate(matrix.hosts)}
    explained = np.zeros((2, len(matrix.hosts)), np.float32)
    for suspect in sides:
        explained[int(suspect.side == "receive"), index[suspect.hosts[0]]] = suspect.effect
    value: Floats = model.value - explained[0, matrix.source] - explained[1, matrix.target]
    components = np.unique(model.component)
    for component in components:
        members = model.component[matrix.source] == component if len(components) > 1 else slice(None)
        member_values = value[members]
        value[members] -= np.median(member_values[sample(member_values.size)]) if member_values.size else 0.0
    return value


def _pairs(matrix: PairMatrix, value: Floats, sigma: float) -> list[Suspect]:
    """Returns the worst single cells: a path, or a cable inside the network, that only few pairs use."""
    z = value / sigma
    limit = NORMAL.inv_cdf(CHANCE / value.size)
    bad = np.flatnonzero((value < LEAST_PAIR_EFFECT) & (z < limit))
    return [
        _pair(matrix, cell, float(value[cell]), float(z[cell]), value.size * NORMAL.cdf(float(z[cell])))
        for cell in bad[np.argsort(value[bad])][:MOST_PAIRS]
    ]


def _few(matrix: PairMatrix) -> list[Suspect]:
    """With two or three hosts: returns the pairs that are slower than the fastest."""
    if not matrix.value.size:
        return []
    effect = matrix.value - matrix.value.max()
    bad = np.flatnonzero(effect < LEAST_PAIR_EFFECT)
    worst_first = bad[np.argsort(effect[bad])]
    return [
        replace(_pair(matrix, cell, float(effect[cell]), 0.0, 1.0), with_best=True) for cell in worst_first
    ]


def _pair(matrix: PairMatrix, cell: np.intp, effect: float, z: float, chance: float) -> Suspect:
    source, target = matrix.hosts[matrix.source[cell]], matrix.hosts[matrix.target[cell]]
    return Suspect("pair", (source,), (target,), effect, z, chance)
