"""The retest: suspects are measured again, pair by pair, each alone on the network.

A suspect that is still slow has a fault of hardware or configuration; one that has recovered was slowed by congestion,
which is not a fault. Controls, a few pairs that are not suspected, are measured in the same way, because a pair alone
is faster than a pair among many. A suspected pair is measured first and once more at the end, since one disturbance
slows one measurement. A group behind a shared path is slow only when its hosts send together:
``assay.explain.group_retest``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix
from assay.explain.polish import MEDIAN_ERROR
from assay.explain.suspect import Suspect, covered
from assay.records.schema import AnyRecord, Measurement
from assay.records.statistics import median, robust_sigma

MEASUREMENT = "network.pairs"
MAX_SUSPECTS = 40  # the worst; more have a common cause, and each costs time to measure
OWN_PAIRS, CONTROL_PAIRS = 4, 8  # pairs of a suspect and pairs for comparison, where time is short
MORE_OWN_PAIRS, MORE_CONTROL_PAIRS = 8, 12  # where there is time
# A suspect is confirmed if its effect alone is at least:
MIN_EFFECT = math.log(0.90)  # this loss
MIN_SHARE = 0.2  # this share of the effect under load
MIN_Z = 3.5  # this many standard deviations beyond the controls
# A host that was as fast as the others under load (an effect above FAST) needs more, and so does a single pair, which
# one disturbance slows.
FAST = math.log(0.95)
MIN_WEAK_EFFECT, MIN_PAIR_EFFECT = math.log(0.82), math.log(0.70)
MIN_WEAK_Z = 5.0
# A side that was slow without traffic in the other direction needs less: congestion does not explain it.
MIN_ONE_WAY_EFFECT, MIN_ONE_WAY_Z = math.log(0.94), 4.0
MIN_TWICE_EFFECT, MIN_TWICE_Z = math.log(0.93), 3.5  # for a pair that was measured twice alone
SCALE_FLOOR = 0.02  # least relative deviation that is assumed; no short transfer repeats better
# With at least MIN_RANKED pairs a rank test decides too: the chance that a healthy host has as many slow pairs. It
# also works where single figures vary widely.
MIN_RANKED, CHANCE_OF_RANKS = 6, 0.0005
TRIMMED_RATIO = 1.2  # standard deviation of normal values over that without the largest

Pair = tuple[str, str]
Logs = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """The result of a retest. ``effect``: logarithm of the suspect's median rate over that of the controls.

    ``is_group``: the flows of a group were measured all at once, not single pairs.
    """

    effect: float
    persists: bool
    suspected: float  # median bandwidths, B/s
    control: float
    pairs: int
    controls: int
    evidence: list[int]
    is_group: bool = False


def plan_retest(
    suspects: Sequence[Suspect],
    matrix: PairMatrix,
    max_suspects: int = MAX_SUSPECTS,
    own_pairs: int = MORE_OWN_PAIRS,
    control_pairs: int = MORE_CONTROL_PAIRS,
) -> list[Pair]:
    """Returns the pairs (source, target) to measure one after another: those of suspects and controls.

    Only pairs that the run has measured, with partners that are suspected as little as possible. A pair that is a
    suspect itself comes twice, and so does an only control. Empty without suspects or without controls.
    """
    if not suspects:
        return []
    worst = list(suspects)[:max_suspects]
    masks = np.stack([covered(suspect, matrix) for suspect in suspects])
    suspect_counts = masks.sum(axis=0)
    controls = _evenly_spaced(np.flatnonzero(suspect_counts == 0), control_pairs)
    if not controls.size:
        return []
    once: list[int] = []
    twice: list[int] = []
    for suspect, mask in zip(worst, masks, strict=False):
        if not mask.any():  # the sweep did not measure it
            continue
        # A suspected partner says little about this suspect, but is better than none.
        cells_of_suspect = np.flatnonzero(mask & (suspect_counts == suspect_counts[mask].min()))
        (twice if suspect.side == "pair" else once).extend(
            _evenly_spaced(cells_of_suspect, own_pairs).tolist()
        )
    twice = [*dict.fromkeys([*twice, *(controls.tolist() if twice and controls.size == 1 else [])])]
    once = [*dict.fromkeys(cell for cell in [*once, *controls.tolist()] if cell not in twice)]
    cells = [*twice, *_interleave(once), *twice]
    return [(matrix.hosts[matrix.source[cell]], matrix.hosts[matrix.target[cell]]) for cell in cells]


def _interleave(cells: list[int]) -> list[int]:
    """Returns the cells in an even mixture, so that a load that comes and goes slows suspects and controls alike."""
    golden = (math.sqrt(5) - 1) / 2
    return [cell for _, cell in sorted((number * golden % 1, cell) for number, cell in enumerate(cells))]


def _evenly_spaced(cells: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Returns at most ``limit`` of the cells, evenly spaced, so that near and far partners are among them."""
    if len(cells) > limit:
        cells = cells[np.linspace(0, len(cells) - 1, limit).round().astype(int)]
    return cells


def retested_pairs(records: Iterable[AnyRecord]) -> dict[Pair, list[Measurement]]:
    """Returns the bandwidths measured alone, by pair, in the order of measuring."""
    by_pair: dict[Pair, list[Measurement]] = {}
    for record in records:
        if (
            isinstance(record, Measurement)
            and (record.name, record.metric, record.status) == (MEASUREMENT, "bandwidth", "ok")
            and record.subject.host
            and record.subject.peer
            and record.summary
            and record.summary.median > 0
        ):
            by_pair.setdefault((record.subject.host, record.subject.peer), []).append(record)
    return by_pair


def outcome_of(
    suspect: Suspect, suspects: Sequence[Suspect], alone: Mapping[Pair, list[Measurement]]
) -> Outcome | None:
    """Returns the result of a suspect's retest; None if it was not retested or there are no controls.

    A single pair that is a suspect itself shows nothing of the sides of its two ends.
    """
    suspect_counts = {pair: sum(other.covers(*pair) for other in suspects) for pair in alone}
    suspected = [pair for pair in alone if suspect.covers(*pair)]
    suspected = [
        pair
        for pair in suspected
        if suspect_counts[pair] == min(suspect_counts[other] for other in suspected)
    ]
    controls = [pair for pair in alone if suspect_counts[pair] == 0]
    if (
        not suspected
        or not controls
        or (len(suspected) == 1 and _is_of_pair(suspect, suspected[0], suspects))
    ):
        return None
    suspected_records, control_records = (
        [record for pair in pairs for record in alone[pair]] for pairs in (suspected, controls)
    )
    suspected_logs, control_logs = (
        np.array([math.log(record.median) for record in group])
        for group in (suspected_records, control_records)
    )
    effect = median(suspected_logs) - median(control_logs)
    persists = _is_slow_by_effect(suspect, suspected_logs, control_logs) or _is_slow_by_rank(
        suspect, suspected_logs, control_logs
    )
    evidence = [record.id for record in suspected_records + control_records]
    medians = [float(np.exp(median(logs))) for logs in (suspected_logs, control_logs)]
    return Outcome(effect, persists, medians[0], medians[1], len(suspected), len(controls), evidence)


def _is_of_pair(side: Suspect, pair: Pair, suspects: Sequence[Suspect]) -> bool:
    return side.side != "pair" and any(other.side == "pair" and other.covers(*pair) for other in suspects)


def _is_slow_by_effect(suspect: Suspect, suspected_logs: Logs, control_logs: Logs) -> bool:
    """Whether all of the suspect's pairs are slow, beyond the scatter of both groups. Both are given as
    logarithms of rates."""
    # For a pair the better of its measurements counts: a single disturbance is not a fault.
    effect = float(
        (suspected_logs.max() if suspect.side == "pair" else median(suspected_logs)) - median(control_logs)
    )
    scatter = max(_scatter(suspected_logs, control_logs), robust_sigma(control_logs))
    error = (
        max(scatter, SCALE_FLOOR) * MEDIAN_ERROR * math.sqrt(1 / len(suspected_logs) + 1 / len(control_logs))
    )
    min_effect, min_z = _required_effect(suspect, len(suspected_logs), len(control_logs))
    return bool(
        effect < min_effect
        and effect < MIN_SHARE * suspect.effect
        and effect < -min_z * error
        and suspected_logs.max() < np.quantile(control_logs, 0.25)
    )


def _required_effect(suspect: Suspect, suspect_count: int, control_count: int) -> tuple[float, float]:
    """The effect, and its size in standard deviations, that a retest must show to confirm a suspect."""
    if min(suspect_count, control_count) == 1:
        return MIN_PAIR_EFFECT, MIN_WEAK_Z
    if suspect.side == "pair":
        return (MIN_PAIR_EFFECT if control_count == 2 else MIN_TWICE_EFFECT), MIN_TWICE_Z
    if suspect.one_way:
        return MIN_ONE_WAY_EFFECT, MIN_ONE_WAY_Z
    return (MIN_WEAK_EFFECT, MIN_WEAK_Z) if suspect.effect > FAST else (MIN_EFFECT, MIN_Z)


def _is_slow_by_rank(suspect: Suspect, suspected_logs: Logs, control_logs: Logs) -> bool:
    """Whether the suspect's pairs are slower than the controls by a rank test (Mann and Whitney, 1947), which also
    works if the suspect's rates vary widely."""
    if min(len(suspected_logs), len(control_logs)) < MIN_RANKED or suspect.effect > FAST:
        return False
    effect = median(suspected_logs) - median(control_logs)
    if effect >= MIN_EFFECT or effect >= MIN_SHARE * suspect.effect:
        return False
    from scipy.stats import mannwhitneyu  # slow to import, rarely needed

    return bool(
        mannwhitneyu(suspected_logs, control_logs, alternative="less", method="exact").pvalue
        < CHANCE_OF_RANKS
    )


def _scatter(suspected_logs: Logs, control_logs: Logs) -> float:
    """Returns the standard deviation of both groups around their medians. If there are enough values, the largest
    deviation, which may be a disturbance, is left out. A median absolute deviation would often be far too small with so
    few values."""
    squares = np.sort(
        np.concatenate([suspected_logs - median(suspected_logs), control_logs - median(control_logs)]) ** 2
    )
    full = float(np.sqrt(squares.sum() / max(1, len(squares) - 2)))
    if len(squares) < CONTROL_PAIRS + 2:
        return full
    return min(full, TRIMMED_RATIO * float(np.sqrt(squares[:-1].sum() / (len(squares) - 3))))
