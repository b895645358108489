"""Turns suspects into findings: slow hosts, pairs and blocks, and congestion.

A suspect that is still slow when measured alone is a fault. Otherwise other traffic slowed it: that is not a fault, and
a warning only if the loss was large and one-sided. Without a retest, only suspects that chance cannot explain are
reported, with less confidence.
"""

from __future__ import annotations

import math
from typing import Literal

from ClusterShell.NodeSet import NodeSet

from assay.explain.counters import CONGESTION, ERRORS, growth
from assay.explain.evidence import Evidence
from assay.explain.hca import bound_adapter
from assay.explain.matrix import host_of
from assay.explain.retest import Outcome
from assay.explain.suspect import Side, Suspect
from assay.records.schema import Finding, Subject
from assay.records.units import format_quantity, format_share

CHANCE = 0.001  # without a retest: expected number of healthy suspects of a run that look as bad
MIN_UNTESTED = {"transmit": 0.15, "receive": 0.15, "pair": 0.5, "block": 0.3}  # least loss without a retest
MIN_UNTESTED_OF_FEW = 0.3  # the same with few hosts, whose spread is hardly known
FEW = 32
MIN_EFFECT_BEYOND_SIDE = math.log(0.85)  # of a block to a slow host that has a finding of its own
MIN_CONGESTION = 0.4  # loss under load that is a warning although the pair recovers alone

Observation = tuple[Suspect, Outcome | None]  # a suspect under load, and its retest

LINK = (
    "the cable and transceiver, the negotiated speed and width (ethtool, ibstat), the PCIe link (lspci -vv)"
)
FIX = {
    "transmit": f"on {{hosts}} check the transmit side: {LINK}, shapers (tc qdisc), the CPU governor",
    "receive": f"on {{hosts}} check the receive side: {LINK}, ring buffers and interrupts, the switch port's "
    "transmit lane",
    "both": f"on {{hosts}} check the adapter: {LINK}; then the node (governor, memory, other load)",
    "pair": "check the path from {hosts} to {peers}: routing, the links it uses, their counters",
    "block": "check the cables and uplinks from {hosts} to {peers}: links that are down or slow, routing, counters",
}


def slow_host(evidence: Evidence) -> list[Finding]:
    """Finds hosts that send or receive more slowly than their peers; one finding a host.

    Of several ranks of a host the worst counts for each side; the details name them all.
    """
    by_host: dict[str, list[Observation]] = {}
    for suspect, outcome in evidence.suspects:
        if suspect.side in ("transmit", "receive") and _is_fault(evidence, suspect, outcome):
            by_host.setdefault(host_of(suspect.hosts[0]), []).append((suspect, outcome))
    return [_host_finding(evidence, host, sides) for host, sides in by_host.items()]


def _host_finding(evidence: Evidence, host: str, observed: list[Observation]) -> Finding:
    verbs = {"transmit": "sends", "receive": "receives"}
    worst: dict[Side, float] = {}
    for suspect, outcome in observed:
        worst[suspect.side] = min(_effect(suspect, outcome), worst.get(suspect.side, 0.0))
    rates = " and ".join(
        f"{verbs[side]} at {format_share(math.exp(effect))}" for side, effect in worst.items()
    )
    adapters = {bound_adapter(evidence, suspect.hosts[0]) for suspect, _ in observed}
    device = adapters.pop() if len(adapters) == 1 else ""
    subject = f"{device} of {host}" if device else host
    cause = f"{subject} {rates} of its peers' rate"
    return _finding(
        evidence,
        "slow_host",
        cause,
        next(iter(worst)) if len(worst) == 1 else "both",
        Subject(host=host, device=device or None),
        observed,
    )


def slow_pair(evidence: Evidence) -> list[Finding]:
    """Finds single paths that are slow although both ends are fast with others."""
    return _paths(evidence, "pair")


def slow_block(evidence: Evidence) -> list[Finding]:
    """Finds groups of hosts that reach each other at full rate, but not the rest or another group."""
    return _paths(evidence, "block")


def _paths(evidence: Evidence, side: Literal["pair", "block"]) -> list[Finding]:
    return [
        _path_finding(evidence, f"slow_{side}", suspect, outcome)
        for suspect, outcome in evidence.suspects
        if suspect.side == side
        and _is_fault(evidence, suspect, outcome)
        and not _is_explained(evidence, suspect, outcome)
    ]


def _is_explained(evidence: Evidence, path: Suspect, outcome: Outcome | None) -> bool:
    """Whether a pair has an end or a block with a finding already; a block, an only host as one end that has one and is
    as slow."""
    effect = _effect(path, outcome)
    return any(
        other.side != path.side
        and other.side != "pair"
        and all(other.covers(host, peer) for host in path.hosts for peer in path.peers)
        and (path.side == "pair" or effect > _effect(other, other_outcome) + MIN_EFFECT_BEYOND_SIDE)
        and _is_fault(evidence, other, other_outcome)
        for other, other_outcome in evidence.suspects
    )


def congestion(evidence: Evidence) -> list[Finding]:
    """Finds large losses under load that vanish when measured alone: a warning, since the network is shared."""
    return [
        _path_finding(evidence, "congestion", suspect, outcome)
        for suspect, outcome in evidence.suspects
        if outcome
        and not outcome.persists
        and suspect.side != "pair"  # one pair, once, is noise
        and not suspect.one_way
        and not suspect.with_best  # two servers under the same clients never share evenly
        and suspect.chance < CHANCE
        and _loss(suspect.effect) > MIN_CONGESTION
    ]


def _path_finding(evidence: Evidence, rule: str, suspect: Suspect, outcome: Outcome | None) -> Finding:
    hosts, peers = _fold(suspect.hosts), _fold(suspect.peers)
    path = f"from {hosts} to {peers}" if peers else f"{hosts} ({suspect.side})"
    effect = suspect.effect if rule == "congestion" else _effect(suspect, outcome)
    cause = f"{path}: {format_share(math.exp(effect))} of the rate of similar paths"
    if rule == "congestion":
        cause += " under load, full rate alone"
    peer = host_of(suspect.peers[0]) if suspect.side == "pair" else None
    subject = Subject(host=host_of(suspect.hosts[0]), peer=peer) if suspect.side != "block" else Subject()
    return _finding(evidence, rule, cause, suspect.side, subject, [(suspect, outcome)])


def _finding(
    evidence: Evidence,
    rule: str,
    cause: str,
    side: Side | Literal["both"],
    subject: Subject,
    observed: list[Observation],
) -> Finding:
    """Builds a finding about speed: figures, counters, confidence and fix."""
    is_congestion, is_untested = rule == "congestion", any(outcome is None for _, outcome in observed)
    hosts = observed[0][0].hosts
    details = [line for suspect, outcome in observed for line in _describe_observation(suspect, outcome)]
    grown = growth(evidence, ERRORS | CONGESTION)
    counted = (
        [growth_record for host in (*hosts, *observed[0][0].peers) for growth_record in grown.get(host, [])]
        if side != "block"
        else []
    )
    details += [str(growth_record) for growth_record in counted]
    confidence = 0.7 if is_congestion or is_untested else 0.95
    if side in ("pair", "block") and is_untested:
        confidence = 0.5
    if any(growth_record.counter in ERRORS for growth_record in counted):
        confidence += (1 - confidence) / 2
    rows = evidence.one_way.rows if observed[0][0].one_way else evidence.matrix.rows
    records = [number for host in hosts[:4] for number in rows.get(host, [])]
    records += [number for _, outcome in observed if outcome for number in outcome.evidence]
    effects = [
        suspect.effect if is_congestion else _effect(suspect, outcome) for suspect, outcome in observed
    ]
    return Finding(
        rule=rule,
        cause=cause,
        subject=subject,
        side=side,
        severity="warning" if is_congestion or (is_untested and side in ("pair", "block")) else "fault",
        effect=math.expm1(min(effects)),
        confidence=confidence,
        evidence=sorted({*records, *(growth_record.record for growth_record in counted)}),
        details=details,
        fix=FIX[side].format(hosts=_fold(hosts), peers=_fold(observed[0][0].peers)),
    )


def _describe_observation(suspect: Suspect, outcome: Outcome | None) -> list[str]:
    compared = "the fastest" if suspect.with_best else "the median"
    subject = f"{suspect.hosts[0]} {suspect.side}" if len(suspect.hosts) == 1 else suspect.side
    how = "with nothing in the other direction" if suspect.one_way else "under load"
    lines = [f"{subject}: {-_loss(suspect.effect):+.0%} against {compared} of its peers {how}"]
    if not suspect.with_best:
        lines[0] += f", {-suspect.z:.1f} standard deviations"
    if suspect.with_best and suspect.side == "pair":
        lines.append("too few hosts to decide which end is slow: add one")
    if outcome is None:
        return [*lines, "not retested: congestion is not excluded"]
    suspected, control = format_quantity(outcome.suspected, "B/s"), format_quantity(outcome.control, "B/s")
    if outcome.is_group:
        line = (
            f"{outcome.pairs} flows at once: {suspected} each, {control} of other groups ({outcome.controls})"
        )
        return [*lines, line]
    return [
        *lines,
        f"alone: {suspected} over {outcome.pairs} pairs, {control} over {outcome.controls} other pairs",
    ]


def _is_fault(evidence: Evidence, suspect: Suspect, outcome: Outcome | None) -> bool:
    if outcome is not None:
        return outcome.persists
    if (
        suspect.side in ("transmit", "receive")
        and not suspect.one_way
        and suspect.hosts[0] in evidence.one_way.hosts
    ):
        return False  # without traffic in the other direction the side was as fast as others
    min_loss = MIN_UNTESTED[suspect.side]
    if len(evidence.matrix.hosts) < FEW:
        min_loss = max(min_loss, MIN_UNTESTED_OF_FEW)
    return suspect.chance < CHANCE and not suspect.with_best and _loss(suspect.effect) > min_loss


def _effect(suspect: Suspect, outcome: Outcome | None) -> float:
    """Returns the effect (logarithm) to report: that of the retest, if there was one."""
    return outcome.effect if outcome else suspect.effect


def _loss(effect: float) -> float:
    return -math.expm1(effect)


def _fold(hosts: tuple[str, ...]) -> str:
    return str(NodeSet.fromlist(list(hosts))) if hosts else ""
