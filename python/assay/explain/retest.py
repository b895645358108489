"""The retest: suspects are measured again, pair by pair, each alone on the network.

What is still slow is a fault of hardware or configuration; what has recovered was congestion, which is no fault.
Controls, a few pairs that are not suspected, are measured in the same way, because a pair alone is faster than a
pair among many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from assay.explain.matrix import PairMatrix
from assay.explain.polish import spread
from assay.explain.suspect import Suspect
from assay.records.schema import AnyRecord, Measurement

MEASUREMENT = "network.pairs"
MOST_SUSPECTS = 16  # the worst; more have a common cause, and each costs time to measure
OWN_PAIRS = 4
CONTROL_PAIRS = 8
LEAST_EFFECT = math.log(0.90)  # what has to be left of the effect,
LEAST_SHARE = 0.2  # which share of the effect under load,
LEAST_Z = 3.0  # and how many standard deviations beyond the controls;
# more of a host that was as fast as the others under load, and of a single pair, which one disturbance slows.
FAST = math.log(0.95)
# Less of a side that was slow without traffic in the other direction: congestion is no explanation there.
LEAST_ONE_WAY_EFFECT, LEAST_ONE_WAY_Z = math.log(0.94), 4.0
LEAST_WEAK_EFFECT, LEAST_PAIR_EFFECT = math.log(0.82), math.log(0.70)
LEAST_WEAK_Z = 5.0
SCALE_FLOOR = 0.02  # relative; no short transfer alone repeats better

Pair = tuple[str, str]


@dataclass(frozen=True)
class Outcome:
    """The result of a retest. ``effect``: logarithm of the suspect's median rate over that of the controls."""

    effect: float
    persists: bool
    suspected: float  # median bandwidths, B/s
    control: float
    pairs: int
    controls: int
    evidence: list[int]


def plan_retest(
    suspects: Sequence[Suspect], matrix: PairMatrix, most_suspects: int = MOST_SUSPECTS
) -> list[Pair]:
    """Returns the pairs (source, target) to measure one after another: those of suspects, then controls.

    Only pairs that the run has measured, with partners that are suspected as little as possible. Empty without
    suspects or without controls.
    """
    if not suspects:
        return []
    worst = list(suspects)[:most_suspects]
    covered = np.stack([_covered(suspect, matrix) for suspect in suspects])
    times = covered.sum(axis=0)
    controls = _spaced(np.flatnonzero(times == 0), CONTROL_PAIRS)
    if not controls.size:
        return []
    chosen: list[int] = []
    for mask in covered[: len(worst)]:
        if not mask.any():  # the sweep did not measure it
            continue
        # A suspected partner says little about this suspect, but is better than none.
        cells_of_suspect = np.flatnonzero(mask & (times == times[mask].min()))
        chosen += _spaced(cells_of_suspect, OWN_PAIRS).tolist()
    cells = dict.fromkeys([*chosen, *controls.tolist()])
    return [(matrix.hosts[matrix.source[cell]], matrix.hosts[matrix.target[cell]]) for cell in cells]


def _covered(suspect: Suspect, matrix: PairMatrix) -> np.typing.NDArray[np.bool_]:
    """Returns a mask of the cells that involve the suspect: ``Suspect.covers`` for all cells at once."""
    sends = np.isin(matrix.hosts, suspect.hosts)
    if suspect.side == "receive":
        return sends[matrix.target]
    receives = np.isin(matrix.hosts, suspect.peers) if suspect.peers else np.ones(len(matrix.hosts), bool)
    both: np.typing.NDArray[np.bool_] = sends[matrix.source] & receives[matrix.target]
    return both


def _spaced(cells: np.typing.NDArray[np.intp], limit: int) -> np.typing.NDArray[np.intp]:
    """Returns at most ``limit`` of the cells, evenly spaced, so that near and far partners are among them."""
    if len(cells) > limit:
        cells = cells[np.linspace(0, len(cells) - 1, limit).round().astype(int)]
    return cells


def retested_pairs(records: Iterable[AnyRecord]) -> dict[Pair, Measurement]:
    """Returns the bandwidths measured alone, by pair; the last record of a pair counts."""
    return {
        (record.subject.host, record.subject.peer): record
        for record in records
        if isinstance(record, Measurement)
        and (record.name, record.metric, record.status) == (MEASUREMENT, "bandwidth", "ok")
        and record.subject.host
        and record.subject.peer
        and record.summary
        and record.summary.median > 0
    }


def outcome_of(
    suspect: Suspect, suspects: Sequence[Suspect], alone: dict[Pair, Measurement]
) -> Outcome | None:
    """Returns the result of a suspect's retest; None if it was not retested or there are no controls."""
    times = {pair: sum(other.covers(*pair) for other in suspects) for pair in alone}
    suspected = [pair for pair in alone if suspect.covers(*pair)]
    suspected = [pair for pair in suspected if times[pair] == min(times[other] for other in suspected)]
    controls = [pair for pair in alone if times[pair] == 0]
    if not suspected or not controls:
        return None
    suspected_logs, control_logs = (
        np.array([_log(alone[pair]) for pair in pairs]) for pairs in (suspected, controls)
    )
    effect = float(np.median(suspected_logs) - np.median(control_logs))
    scatter = max(_scatter(suspected_logs, control_logs), spread(control_logs))
    error = max(scatter, SCALE_FLOOR) * 1.2533 * math.sqrt(1 / len(suspected) + 1 / len(controls))
    min_effect, min_z = LEAST_EFFECT, LEAST_Z
    if min(len(suspected), len(controls)) == 1:
        min_effect, min_z = LEAST_PAIR_EFFECT, LEAST_WEAK_Z
    elif suspect.one_way:
        min_effect, min_z = LEAST_ONE_WAY_EFFECT, LEAST_ONE_WAY_Z
    elif suspect.effect > FAST:
        min_effect, min_z = LEAST_WEAK_EFFECT, LEAST_WEAK_Z
    persists = (
        effect < min_effect
        and effect < LEAST_SHARE * suspect.effect
        and effect < -min_z * error
        and suspected_logs.max() < np.quantile(control_logs, 0.25)
    )
    evidence = [alone[pair].id for pair in suspected + controls]
    medians = [float(np.exp(np.median(logs))) for logs in (suspected_logs, control_logs)]
    return Outcome(effect, bool(persists), medians[0], medians[1], len(suspected), len(controls), evidence)


def _scatter(suspected: np.typing.NDArray[np.float64], controls: np.typing.NDArray[np.float64]) -> float:
    """Returns the standard deviation of both groups around their medians. Of so few values a median absolute
    deviation is often far too small."""
    residuals = np.concatenate([suspected - np.median(suspected), controls - np.median(controls)])
    return float(np.sqrt(np.sum(residuals**2) / max(1, len(residuals) - 2)))


def _log(record: Measurement) -> float:
    assert record.summary is not None
    return math.log(record.summary.median)
