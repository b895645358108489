"""Rules of other programs that find slow hosts and paths, implemented from their descriptions. The benchmark chooses
the threshold of each so that the rule does best on the tuning cases.

    slowest pairs    mpiGraph lists the bandwidth of each pair, and those far below the rest. Here: pairs below a share
                     of the mean.
    retested pairs   LinkTest lists the slowest pairs, and measures them again, one after another. Here: those of the
                     list that are still below a share of the mean of pairs measured alone.
    variance         SuperBench compares each node's figure with a baseline: a loss above a limit fails. Here: the mean
                     of a host's side against the median of all hosts.
    z-score          Reports a host's side whose mean is a number of standard deviations below the mean of all hosts.

The first two rules list pairs. If most of the listed pairs have a host's side in common, that side is reported instead
of these pairs, so that these rules can name hosts, too. A side is a host's transmit or receive direction.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from netcases import Case, Label
from netfabric import Floats

from assay.explain.retest import retested_pairs
from assay.records.schema import AnyRecord, Pairs

SIDES = ("transmit", "receive")
SHARES = [0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98]
SCORES = [2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0]
LISTS = [10, 50, 200]  # slowest pairs that are measured again

Cells = list[tuple[int, int]]


@dataclass
class Observed:
    """What a run measured: matrices [source, target] in B/s, NaN for pairs that were not measured. ``case`` is for
    retests."""

    case: Case
    sweep: Floats
    one_way: Floats

    @classmethod
    def from_records(cls, case: Case, records: list[AnyRecord]) -> Observed:
        index = {host: i for i, host in enumerate(case.hosts)}
        dense = {
            name: np.full((len(index), len(index)), np.nan)
            for name in ("network.all_to_all", "network.one_way")
        }
        for row in records:
            if isinstance(row, Pairs):
                dense[row.name][index[str(row.subject.host)], [index[peer] for peer in row.peers]] = (
                    row.values
                )
        return cls(case, dense["network.all_to_all"], dense["network.one_way"])

    def matrix(self, source: str) -> Floats:
        return self.sweep if source == "sweep" else self.one_way


def _shared_sides_then_pairs(cells: Cells, matrix: Floats) -> list[Label]:
    """Replaces pairs by a host's side that they share, the most frequent side first; the other pairs follow.

    A side is reported if it is in at least three of the remaining pairs, and these are half of the remaining pairs or
    half of the pairs that were measured on this side.
    """
    measured = (np.isfinite(matrix).sum(axis=1), np.isfinite(matrix).sum(axis=0))
    remaining, named = list(cells), []
    while remaining:
        count = Counter((end, cell[end]) for cell in remaining for end in (0, 1))
        (end, host), most = count.most_common(1)[0]
        if most < 3 or (2 * most < len(remaining) and 2 * most < measured[end][host]):
            break
        named.append((SIDES[end], (f"n{host}",), ()))
        remaining = [cell for cell in remaining if cell[end] != host]
    return named + [("pair", (f"n{a}",), (f"n{b}",)) for a, b in remaining]


def slowest_pairs(observed: Observed, source: str, share: float) -> list[Label]:
    matrix = observed.matrix(source)
    bad = np.argwhere(matrix < share * np.nanmean(matrix))
    return _shared_sides_then_pairs([(int(a), int(b)) for a, b in bad], matrix)


def retest_slowest_pairs(observed: Observed, source: str, length: int) -> Callable[[float], list[Label]]:
    """Retests the ``length`` slowest pairs and 20 random ones alone. Returns a function from threshold to labels."""
    matrix = observed.matrix(source)
    order = np.argsort(np.where(np.isfinite(matrix), matrix, np.inf), axis=None)
    order = order[: min(length, int(np.isfinite(matrix).sum()))]
    cells = [(int(a), int(b)) for a, b in zip(*np.unravel_index(order, matrix.shape), strict=True)]
    rng = np.random.default_rng((observed.case.seed, 3))
    measured = np.argwhere(np.isfinite(matrix))
    others = [
        (int(a), int(b))
        for a, b in measured[rng.choice(len(measured), min(20, len(measured)), replace=False)]
    ]
    hosts = observed.case.hosts
    retested = retested_pairs(observed.case.alone([(hosts[a], hosts[b]) for a, b in [*cells, *others]]))
    rate = {(a, b): retested[hosts[a], hosts[b]][0].median for a, b in [*cells, *others]}
    healthy_rate = float(np.mean([rate[pair] for pair in others]))
    return lambda share: _shared_sides_then_pairs(
        [pair for pair in cells if rate[pair] < share * healthy_rate], matrix
    )


def _means(matrix: Floats) -> Iterator[tuple[str, Floats]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a host without a figure
        yield "transmit", np.nanmean(matrix, axis=1)
        yield "receive", np.nanmean(matrix, axis=0)


def variance(observed: Observed, source: str, share: float) -> list[Label]:
    return [
        (side, (f"n{host}",), ())
        for side, mean in _means(observed.matrix(source))
        for host in np.flatnonzero(mean < share * np.nanmedian(mean))
    ]


def z_score(observed: Observed, source: str, score: float) -> list[Label]:
    return [
        (side, (f"n{host}",), ())
        for side, mean in _means(observed.matrix(source))
        for host in np.flatnonzero(mean < np.nanmean(mean) - score * np.nanstd(mean))
    ]


def settings(rule: str) -> list[tuple[str, float, int]]:
    """All (matrix, threshold, length of the list) with which a rule is tried."""
    thresholds = SCORES if rule == "z-score" else SHARES
    lengths = LISTS if rule == "retested pairs" else [0]
    return [(source, t, k) for source in ("sweep", "one way") for k in lengths for t in thresholds]


def labels_by_rule(rule: str, observed: Observed, chosen: list[tuple[str, float, int]]) -> list[list[Label]]:
    """The labels of a rule for each of the settings."""
    if rule == "retested pairs":
        by_list = {
            (source, k): retest_slowest_pairs(observed, source, k) for source, _, k in dict.fromkeys(chosen)
        }
        return [by_list[source, k](t) for source, t, k in chosen]
    function = {"slowest pairs": slowest_pairs, "variance": variance, "z-score": z_score}[rule]
    return [function(observed, source, t) for source, t, _ in chosen]


RULES = ("slowest pairs", "retested pairs", "variance", "z-score")
