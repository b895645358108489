"""The retest of groups: all hosts of a suspected group send at once, and then other groups do the same.

The hosts of a group share a path to all other hosts (a cabinet's uplink). A single pair does not fill this path, so a
path that has lost some of its cables is slow only when many pairs use it. The groups are measured one after another, so
that traffic of others is not taken for a slow path: it has ended by then, or slows the other groups too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from assay.explain.matrix import PairMatrix
from assay.explain.polish import MEDIAN_ERROR
from assay.explain.retest import Outcome, Pair
from assay.explain.suspect import Suspect
from assay.records.schema import AnyRecord, Flows
from assay.records.statistics import median

MEASUREMENT = "network.saturation"
SHAPE = "group"  # the record's parameter "shape", which tells these rounds from those of a saturation study
MAX_CONTROLS = 3  # other groups
REPEATS = 2  # measurements of each group
MAX_FLOWS = 64  # of a group
MIN_HOSTS = 3
MIN_EFFECT = math.log(0.94)
MIN_SHARE = 0.2  # of the effect under load
SCALE_FLOOR = 0.01  # relative; no total of a group repeats better
MIN_Z = 4.0


def plan_groups(suspects: Sequence[Suspect], matrix: PairMatrix) -> list[list[Pair]]:
    """Returns rounds of concurrent flows: those of each suspected group, and those of other groups for comparison. The
    whole sequence is repeated ``REPEATS`` times."""
    groups = [suspect for suspect in suspects if _is_group(suspect)]
    rounds: list[list[Pair]] = []
    for suspect in groups:
        rounds += _rounds_of(suspect, groups, matrix)
    distinct = [list(flows) for flows in dict.fromkeys(tuple(flows) for flows in rounds)]
    return distinct * REPEATS


def _is_group(suspect: Suspect) -> bool:
    """Whether the suspect is the path from a group to another group, or to all others. The path of a single cable leads
    to only some of the others."""
    small, large = sorted((len(suspect.hosts), len(suspect.peers)))
    return suspect.side == "block" and small >= MIN_HOSTS and (large == small or large >= 2 * small)


def _rounds_of(suspect: Suspect, groups: Sequence[Suspect], matrix: PairMatrix) -> list[list[Pair]]:
    hosts = matrix.hosts
    small, large = sorted((suspect.hosts, suspect.peers), key=len)
    size, first = len(small), hosts.index(small[0])
    if size * 2 > len(hosts) or first % size or tuple(hosts[first : first + size]) != small:
        return []  # no group of a division
    sends = small == suspect.hosts
    rounds = [_flows(small, large, sends)]
    for start in range(0, len(hosts) - size + 1, size):
        others = tuple(hosts[start : start + size])
        if others == small or len(rounds) > MAX_CONTROLS:
            continue
        partners = tuple(host for host in hosts if host not in others and host not in small)
        flows = _flows(others, partners, sends)
        if len(flows) >= len(rounds[0]) and not any(g.covers(*flow) for g in groups for flow in flows):
            rounds.append(flows[: len(rounds[0])])
    return rounds if len(rounds) > 1 else []


def _flows(group: Sequence[str], others: Sequence[str], sends: bool) -> list[Pair]:
    """A flow from (or to) each host of the group, to a different one of the others."""
    count = min(len(group), len(others), MAX_FLOWS)
    suspected = [group[i] for i in np.linspace(0, len(group) - 1, count).round().astype(int)]
    partners = [others[i] for i in np.linspace(0, len(others) - 1, count).round().astype(int)]
    return list(zip(suspected, partners, strict=True) if sends else zip(partners, suspected, strict=True))


def measured_groups(records: Iterable[AnyRecord]) -> list[Flows]:
    return [
        record
        for record in records
        if isinstance(record, Flows)
        and (record.name, record.params.get("shape")) == (MEASUREMENT, SHAPE)
        and record.values
        and sum(record.values) > 0
    ]


def group_outcome(suspect: Suspect, suspects: Sequence[Suspect], measured: Sequence[Flows]) -> Outcome | None:
    """Returns the result of a group's retest; None if the group was not measured or there is no group to compare it
    with."""
    if not _is_group(suspect):
        return None
    suspected, controls = [], []
    groups = [other for other in suspects if _is_group(other)]
    for record in measured:
        flows = list(zip(record.sources, record.targets, strict=True))
        if all(suspect.covers(*flow) for flow in flows):
            suspected.append(record)
        elif not any(other.covers(*flow) for other in groups for flow in flows):
            controls.append(record)
    if not suspected or not controls:
        return None
    rates, control_rates = (
        np.log([sum(r.values) / len(r.values) for r in group]) for group in (suspected, controls)
    )
    effect = median(rates) - median(control_rates)
    freedom = max(1, len(rates) + len(control_rates) - 2)
    squares = np.sum((rates - median(rates)) ** 2) + np.sum((control_rates - median(control_rates)) ** 2)
    error = (
        max(math.sqrt(squares / freedom), SCALE_FLOOR)
        * MEDIAN_ERROR
        * math.sqrt(1 / len(rates) + 1 / len(control_rates))
    )
    persists = effect < min(MIN_EFFECT, -MIN_Z * error, MIN_SHARE * suspect.effect)
    return Outcome(
        effect, bool(persists and rates.max() < control_rates.min()), float(np.exp(median(rates))),
        float(np.exp(median(control_rates))), len(suspected[0].values), len(controls),
        [r.id for r in suspected + controls], True,
    )  # fmt: skip
