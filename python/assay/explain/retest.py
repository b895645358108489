"""The retest: suspects are measured again, pair by pair, each alone on the network.

What is still slow is a fault of hardware or configuration; what has recovered was congestion, which is no fault.
Controls, a few pairs that are not suspected, are measured in the same way, because a pair alone is faster than a
pair among many. A suspected pair that is still slow is measured once more later, since one disturbance slows one
measurement.
A group behind a shared path is slow only when its hosts send together: ``assay.explain.together``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix
from assay.explain.suspect import Suspect, covered
from assay.records.schema import AnyRecord, Measurement
from assay.records.statistics import robust_sigma

MEASUREMENT = "network.pairs"
MOST_SUSPECTS = 40  # the worst; more have a common cause, and each costs time to measure
OWN_PAIRS, CONTROL_PAIRS = 4, 8  # at least,
MORE_OWN_PAIRS, MORE_CONTROL_PAIRS = 8, 12  # and where there is time
LEAST_EFFECT = math.log(0.90)  # what has to be left of the effect,
LEAST_SHARE = 0.2  # which share of the effect under load,
LEAST_Z = 3.5  # and how many standard deviations beyond the controls;
# more of a host that was as fast as the others under load, and of a single pair, which one disturbance slows.
FAST = math.log(0.95)
# Less of a side that was slow without traffic in the other direction: congestion is no explanation there.
LEAST_ONE_WAY_EFFECT, LEAST_ONE_WAY_Z = math.log(0.94), 4.0
LEAST_TWICE_EFFECT, LEAST_TWICE_Z = math.log(0.93), 3.5  # of a pair that was measured twice
LEAST_WEAK_EFFECT, LEAST_PAIR_EFFECT = math.log(0.82), math.log(0.70)
LEAST_WEAK_Z = 5.0
SCALE_FLOOR = 0.02  # relative; no short transfer alone repeats better
# Of many pairs: the chance that as many of a healthy host's were as slow. It holds where single figures jump.
LEAST_RANKED, CHANCE_OF_RANKS = 6, 0.0005
TRIMMED = 1.2  # standard deviation of normal values over that without the largest

Pair = tuple[str, str]
Logs = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """The result of a retest. ``effect``: logarithm of the suspect's median rate over that of the controls.

    ``together``: of all flows of a group at once, not of single pairs.
    """

    effect: float
    persists: bool
    suspected: float  # median bandwidths, B/s
    control: float
    pairs: int
    controls: int
    evidence: list[int]
    together: bool = False


def plan_retest(
    suspects: Sequence[Suspect],
    matrix: PairMatrix,
    most_suspects: int = MOST_SUSPECTS,
    own_pairs: int = MORE_OWN_PAIRS,
    control_pairs: int = MORE_CONTROL_PAIRS,
) -> list[Pair]:
    """Returns the pairs (source, target) to measure one after another: those of suspects and controls.

    Only pairs that the run has measured, with partners that are suspected as little as possible. Empty without
    suspects or without controls.
    """
    if not suspects:
        return []
    worst = list(suspects)[:most_suspects]
    masks = np.stack([covered(suspect, matrix) for suspect in suspects])
    times = masks.sum(axis=0)
    controls = _spaced(np.flatnonzero(times == 0), control_pairs)
    if not controls.size:
        return []
    chosen: list[int] = []
    for mask in masks[: len(worst)]:
        if not mask.any():  # the sweep did not measure it
            continue
        # A suspected partner says little about this suspect, but is better than none.
        cells_of_suspect = np.flatnonzero(mask & (times == times[mask].min()))
        chosen += _spaced(cells_of_suspect, own_pairs).tolist()
    cells = _mixed([*dict.fromkeys([*chosen, *controls.tolist()])])
    return [(matrix.hosts[matrix.source[cell]], matrix.hosts[matrix.target[cell]]) for cell in cells]


def _mixed(cells: list[int]) -> list[int]:
    """Returns the cells in an even mixture, so that a load that comes and goes slows suspects and controls alike."""
    golden = (math.sqrt(5) - 1) / 2
    return [cell for _, cell in sorted((number * golden % 1, cell) for number, cell in enumerate(cells))]


def plan_again(suspects: Sequence[Suspect], records: Iterable[AnyRecord]) -> list[Pair]:
    """Returns the suspected pairs that were slow alone, once: these are to be measured again."""
    alone = retested_pairs(records)
    again = []
    for suspect in suspects:
        outcome = outcome_of(suspect, suspects, alone) if suspect.side == "pair" else None
        pair = (suspect.hosts[0], suspect.peers[0]) if suspect.peers else None
        if outcome and pair in alone and len(alone[pair]) == 1 and outcome.effect < LEAST_TWICE_EFFECT:
            again.append(pair)
    return again


def _spaced(cells: NDArray[np.intp], limit: int) -> NDArray[np.intp]:
    """Returns at most ``limit`` of the cells, evenly spaced, so that near and far partners are among them."""
    if len(cells) > limit:
        cells = cells[np.linspace(0, len(cells) - 1, limit).round().astype(int)]
    return cells


def retested_pairs(records: Iterable[AnyRecord]) -> dict[Pair, list[Measurement]]:
    """Returns the bandwidths measured alone, by pair, in the order of measuring."""
    found: dict[Pair, list[Measurement]] = {}
    for record in records:
        if (
            isinstance(record, Measurement)
            and (record.name, record.metric, record.status) == (MEASUREMENT, "bandwidth", "ok")
            and record.subject.host
            and record.subject.peer
            and record.summary
            and record.summary.median > 0
        ):
            found.setdefault((record.subject.host, record.subject.peer), []).append(record)
    return found


def outcome_of(
    suspect: Suspect, suspects: Sequence[Suspect], alone: Mapping[Pair, list[Measurement]]
) -> Outcome | None:
    """Returns the result of a suspect's retest; None if it was not retested or there are no controls."""
    times = {pair: sum(other.covers(*pair) for other in suspects) for pair in alone}
    suspected = [pair for pair in alone if suspect.covers(*pair)]
    suspected = [pair for pair in suspected if times[pair] == min(times[other] for other in suspected)]
    controls = [pair for pair in alone if times[pair] == 0]
    if not suspected or not controls:
        return None
    own, others = ([record for pair in pairs for record in alone[pair]] for pairs in (suspected, controls))
    own_logs, control_logs = (
        np.array([math.log(record.median) for record in group]) for group in (own, others)
    )
    effect = float(np.median(own_logs) - np.median(control_logs))
    persists = _is_clear(suspect, own_logs, control_logs) or _is_ranked(suspect, own_logs, control_logs)
    evidence = [record.id for record in own + others]
    medians = [float(np.exp(np.median(logs))) for logs in (own_logs, control_logs)]
    return Outcome(effect, persists, medians[0], medians[1], len(suspected), len(controls), evidence)


def _is_clear(suspect: Suspect, own: Logs, controls: Logs) -> bool:
    """Whether all of the suspect's pairs are slow, beyond the scatter of both groups."""
    # Of a pair the better of its measurements: one disturbance is no fault.
    effect = float((own.max() if suspect.side == "pair" else np.median(own)) - np.median(controls))
    scatter = max(_scatter(own, controls), robust_sigma(controls))
    error = max(scatter, SCALE_FLOOR) * 1.2533 * math.sqrt(1 / len(own) + 1 / len(controls))
    min_effect, min_z = _least(suspect, len(own), len(controls))
    return bool(
        effect < min_effect
        and effect < LEAST_SHARE * suspect.effect
        and effect < -min_z * error
        and own.max() < np.quantile(controls, 0.25)
    )


def _least(suspect: Suspect, own: int, controls: int) -> tuple[float, float]:
    """The effect and the standard deviations that a retest has to show."""
    if min(own, controls) == 1:
        return LEAST_PAIR_EFFECT, LEAST_WEAK_Z
    if suspect.side == "pair":
        return LEAST_TWICE_EFFECT, LEAST_TWICE_Z
    if suspect.one_way:
        return LEAST_ONE_WAY_EFFECT, LEAST_ONE_WAY_Z
    return (LEAST_WEAK_EFFECT, LEAST_WEAK_Z) if suspect.effect > FAST else (LEAST_EFFECT, LEAST_Z)


def _is_ranked(suspect: Suspect, own: Logs, controls: Logs) -> bool:
    """Whether most of many pairs are slower than the controls (Mann and Whitney, 1947), also where the suspect's
    rates vary by themselves."""
    if min(len(own), len(controls)) < LEAST_RANKED or suspect.effect > FAST:
        return False
    effect = float(np.median(own) - np.median(controls))
    if effect >= LEAST_EFFECT or effect >= LEAST_SHARE * suspect.effect:
        return False
    from scipy.stats import mannwhitneyu  # takes long to import, and is seldom needed

    return bool(mannwhitneyu(own, controls, alternative="less", method="exact").pvalue < CHANCE_OF_RANKS)


def _scatter(own: Logs, controls: Logs) -> float:
    """Returns the standard deviation of both groups around their medians; without the largest deviation, which may be
    a disturbance, if there are many. Of so few values a median absolute deviation is often far too small."""
    squares = np.sort(np.concatenate([own - np.median(own), controls - np.median(controls)]) ** 2)
    whole = float(np.sqrt(squares.sum() / max(1, len(squares) - 2)))
    if len(squares) < CONTROL_PAIRS + 2:
        return whole
    return min(whole, TRIMMED * float(np.sqrt(squares[:-1].sum() / (len(squares) - 3))))
