"""The second look: suspects measured again, pair by pair, each alone on the network.

What is still slow then is the hardware's or the configuration's fault; what has vanished was congestion,
which a loaded network has without being at fault. The same few controls, pairs that nobody suspects, are
measured in the same way, because a pair alone is faster than one among many.
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
MOST_SUSPECTS = 16  # the worst; more have a common cause, and each costs time
OWN_PAIRS = 4
CONTROL_PAIRS = 8
LEAST_EFFECT = math.log(0.90)  # what has to be left of the effect,
LEAST_SHARE = 0.2  # which share of the effect under load,
LEAST_Z = 3.0  # and how many standard deviations beyond the controls;
# more of a host that was as fast as the others under load, and of a single pair, which one disturbance slows.
FAST = math.log(0.95)
LEAST_WEAK_EFFECT, LEAST_PAIR_EFFECT = math.log(0.82), math.log(0.70)
LEAST_WEAK_Z = 5.0
SCALE_FLOOR = 0.02  # relative; no short transfer alone repeats better

Pair = tuple[str, str]


@dataclass(frozen=True)
class Outcome:
    """What the second look showed: the suspect's pairs against the controls, as a logarithm."""

    effect: float
    persists: bool
    suspected: float  # median bandwidths, B/s
    control: float
    pairs: int
    controls: int
    evidence: list[int]


def plan_retest(suspects: Sequence[Suspect], matrix: PairMatrix) -> list[Pair]:
    """The pairs (source, target) to measure one after another: the suspects' and the controls.

    Only pairs that the run has measured, with ends as little suspected as possible. Empty without suspects,
    or when nothing is left to compare with.
    """
    if not suspects:
        return []
    worst = list(suspects)[:MOST_SUSPECTS]
    covered = np.stack([_covered(suspect, matrix) for suspect in suspects])
    times = covered.sum(axis=0)
    controls = _spaced(np.flatnonzero(times == 0), CONTROL_PAIRS)
    if not controls.size:
        return []
    chosen: list[int] = []
    for mask in covered[: len(worst)]:
        # A partner that is itself suspected says nothing about this one; but better that than nobody.
        cells_of_suspect = np.flatnonzero(mask & (times == times[mask].min()))
        chosen += _spaced(cells_of_suspect, OWN_PAIRS).tolist()
    cells = dict.fromkeys([*chosen, *controls.tolist()])
    return [(matrix.hosts[matrix.source[cell]], matrix.hosts[matrix.target[cell]]) for cell in cells]


def _covered(suspect: Suspect, matrix: PairMatrix) -> np.typing.NDArray[np.bool_]:
    """Which cells of the matrix use what is suspected; ``Suspect.covers``, for all of them at once."""
    sends = np.isin(matrix.hosts, suspect.hosts)
    if suspect.side == "receive":
        return sends[matrix.target]
    receives = np.isin(matrix.hosts, suspect.peers) if suspect.peers else np.ones(len(matrix.hosts), bool)
    both: np.typing.NDArray[np.bool_] = sends[matrix.source] & receives[matrix.target]
    return both


def _spaced(cells: np.typing.NDArray[np.intp], limit: int) -> np.typing.NDArray[np.intp]:
    """At most ``most`` of the cells, evenly spaced: near partners and far ones, few hosts twice."""
    if len(cells) > limit:
        cells = cells[np.linspace(0, len(cells) - 1, limit).round().astype(int)]
    return cells


def retested_pairs(records: Iterable[AnyRecord]) -> dict[Pair, Measurement]:
    """The bandwidths that were measured alone, by pair; the last one counts."""
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
    """What became of a suspect; None when it, or nothing to compare it with, was measured again."""
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
    error = (
        max(spread(control_logs), SCALE_FLOOR) * 1.2533 * math.sqrt(1 / len(suspected) + 1 / len(controls))
    )
    min_effect, min_z = LEAST_EFFECT, LEAST_Z
    if min(len(suspected), len(controls)) == 1:
        min_effect, min_z = LEAST_PAIR_EFFECT, LEAST_WEAK_Z
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


def _log(record: Measurement) -> float:
    assert record.summary is not None
    return math.log(record.summary.median)
