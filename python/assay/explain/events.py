"""Rules on event building: wrong or missing fragments, deaths, dips, back-pressure, and an unused share of the
network's capacity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.events.figures import BUILD, WRONG_FRAGMENTS, Building, buildings
from assay.events.shares import NetworkRates, network_rates
from assay.events.stability import find_dips
from assay.explain.evidence import Evidence
from assay.explain.matrix import host_of
from assay.records.schema import Failure, Finding, Measurement, Subject
from assay.records.units import format_quantity, format_share

MIN_WAIT_SHARE = 0.25  # least share of the time that a rank waited for a filter unit or for credits
MIN_LIMIT_SHARE = 0.5  # of the time, for the filter units to be the limit of all
MIN_WAIT_RATIO = 2.0  # least ratio of its wait to that of the other ranks
MIN_RESENT_SHARE = 0.01  # of the packets; full queues of a healthy network cost a few in a thousand
MIN_RESENT = 100.0  # packets
MIN_SHARE_OF_PAIRS = 0.8  # of the rate of pairs of hosts; event builders are designed for this share
MIN_SHARE_OF_ALLTOALL = 0.9  # of the rate of MPI_Alltoall

WAITS = {
    "filter": "its filter unit must take events as fast as they are built: raise --filter-rate, or add --filters",
    "credits": "give builders more --credits, or look why they are slow: assay net over the same hosts",
}
MAX_NAMED = 4  # ranks in a line
UNBALANCED = "the ledger does not balance"  # message of engines/events/results.cpp

NAMES = {
    "fragments_corrupt": "fragments arrived with wrong bytes",
    "fragments_duplicate": "fragments arrived twice",
    "fragments_unaccounted": "fragments were produced and are neither built nor reported lost",
}


def event_ledger(evidence: Evidence) -> list[Finding]:
    """Fragments that were corrupt, duplicate or unaccounted; and fragments lost without a death that explains it."""
    findings = []
    for building in buildings(evidence.records):
        for metric in WRONG_FRAGMENTS:
            count = building.count(metric)
            if count:
                record = building.totals[metric]
                findings.append(
                    Finding(
                        rule="event_ledger",
                        cause=f"{count:.0f} {NAMES[metric]} ({building.label})",
                        subject=record.subject,
                        severity="fault",
                        evidence=[record.id],
                        fix="find the pair: assay net --op send over the same hosts verifies every payload",
                    )
                )
        findings += _lost_fragments(building)
    return findings + _unbalanced(evidence)


def _unbalanced(evidence: Evidence) -> list[Finding]:
    """The engine's failure that fragments were assigned but neither built nor reported lost."""
    return [
        Finding(
            rule="event_ledger",
            cause=record.problem,
            subject=record.subject,
            severity="fault",
            evidence=[record.id],
            fix=record.fix,
        )
        for record in evidence.records
        if isinstance(record, Failure) and UNBALANCED in record.problem
    ]


def _lost_fragments(building: Building) -> list[Finding]:
    lost = building.count("fragments_lost")
    if not lost:
        return []
    record = building.totals["fragments_lost"]
    incomplete = building.count("events_incomplete")
    died = bool(building.lost)
    reason = f"{_names(building)} died" if died else "no node died"
    return [
        Finding(
            rule="event_ledger",
            cause=f"{lost:.0f} fragments were lost in "
            f"{'an unknown number of' if incomplete is None else f'{incomplete:.0f}'} incomplete events: {reason} "
            f"({building.label})",
            severity="warning" if died else "fault",
            evidence=[record.id],
            fix="" if died else "look for loss on the way: assay net, assay udp",
        )
    ]


def event_death(evidence: Evidence) -> list[Finding]:
    """Ranks that died while events were built, and how soon building went on."""
    findings = []
    for building in buildings(evidence.records):
        returned = {str(record.params.get("lost")): record for record in building.returns}
        for record in building.resumes:
            label = str(record.params.get("lost"))
            outcome = (
                "the run ended before events were complete on all others"
                if math.isnan(record.median)
                else f"events were complete again after {format_quantity(record.median, 's')}"
            )
            records = [record]
            if back := returned.get(label):
                outcome += f"; it took part again {format_quantity(back.median, 's')} after its loss"
                records.append(back)
            findings.append(_death(building, label, outcome, records))
        recorded = {str(record.params.get("lost")) for record in building.resumes}
        counted = [record for record in building.totals.values() if record.params.get("lost")][:1]
        findings += [
            _death(building, label, "no more events were to be assigned then", counted)
            for label in building.lost
            if label not in recorded
        ]
    return findings


def _death(building: Building, label: str, outcome: str, records: list[Measurement]) -> Finding:
    host = host_of(label)
    return Finding(
        rule="event_death",
        cause=f"{_rank_name(building, label)} was lost; {outcome}",
        subject=Subject(host=host, rank=building.rank_of(label)),
        side="node",
        severity="fault",
        evidence=[record.id for record in records],
        fix=f"look at {host}: is it up, and what does its log say?",
    )


def _rank_name(building: Building, label: str) -> str:
    """ "rank 2 on h1"; the label "h1:0" where the rank has reported nothing."""
    rank = building.rank_of(label)
    return label if rank is None else f"rank {rank} on {host_of(label)}"


def _names(building: Building) -> str:
    names = [_rank_name(building, label) for label in building.lost]
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def event_dip(evidence: Evidence) -> list[Finding]:
    """Stretches of time in which building was slower than usual, with the node that caused each."""
    findings, end = [], _last_assignment(evidence)
    for building in buildings(evidence.records):
        for dip in find_dips(building.slices, _ranks(building, evidence), end, building.had_lost):
            cause = f"{dip.host} slowed all down" if dip.host else "all nodes were slow alike"
            findings.append(
                Finding(
                    rule="event_dip",
                    cause=f"{cause} from {dip.start:.0f} s to {dip.end:.0f} s: {format_share(dip.depth)} below the "
                    f"usual {format_quantity(dip.usual, 'B/s')} ({building.label})",
                    subject=Subject(host=dip.host) if dip.host else Subject(),
                    side="node" if dip.host else "none",
                    severity="warning",
                    effect=-dip.depth,
                    evidence=list(dip.ids),
                    fix=f"what ran on {dip.host} at that time?"
                    if dip.host
                    else "what else used the network then?",
                )
            )
    return findings


def event_backpressure(evidence: Evidence) -> list[Finding]:
    """Ranks that waited for a filter unit or for credits far longer than the others; filter units that all wait for."""
    findings = []
    for building in buildings(evidence.records):
        waits = _waits(building, evidence)
        findings += _unequal_waits(waits) or _filter_limit(building, waits)
    return findings


class _Wait(NamedTuple):
    record: Measurement
    share: (
        float  # of the time in which events were assigned; waits for a rest that is built later count as well
    )
    waiting_for: str  # "filter" or "credits"


def _waits(building: Building, evidence: Evidence) -> list[_Wait]:
    duration = _duration(building, evidence)
    return [
        _Wait(record, min(1.0, record.median / duration), str(record.params.get("waiting_for", "credits")))
        for record in building.ranks
        if record.metric == "backpressure" and duration
    ]


def _unequal_waits(waits: Sequence[_Wait]) -> list[Finding]:
    findings = []
    for wait in waits:
        others = sorted(
            other.share for other in waits if other is not wait and other.waiting_for == wait.waiting_for
        )
        if not others:
            continue
        usual = others[len(others) // 2]
        if wait.share > MIN_WAIT_SHARE and wait.share > MIN_WAIT_RATIO * usual:
            findings.append(
                Finding(
                    rule="event_backpressure",
                    cause=f"{wait.record.subject.host} waited {format_share(wait.share)} of the time for "
                    f"{wait.waiting_for}; others {format_share(usual)}",
                    subject=wait.record.subject,
                    side="node",
                    severity="warning",
                    effect=-wait.share,
                    evidence=[wait.record.id],
                    fix=WAITS.get(wait.waiting_for, ""),
                )
            )
    return findings


def _filter_limit(building: Building, waits: Sequence[_Wait]) -> list[Finding]:
    """The filter units as the limit of the whole building: half of the builders waited for theirs most of the time.
    Builders wait for credits whenever the network is full, which is no fault."""
    shares = sorted(wait.share for wait in waits if wait.waiting_for == "filter")
    median = shares[len(shares) // 2] if shares else 0.0
    if median < MIN_LIMIT_SHARE:
        return []
    return [
        Finding(
            rule="event_backpressure",
            cause=f"the filter units are the limit: builders waited for them {format_share(median)} of "
            f"the time ({building.label})",
            subject=Subject(),
            side="none",
            severity="warning",
            evidence=[wait.record.id for wait in waits],
            details=["the rate is that of the filter units; the network and the readout could carry more"],
            fix="raise --filter-rate, or add --filters",
        )
    ]


def event_resends(evidence: Evidence) -> list[Finding]:
    """A network that loses packets while events are built: the transport sends them again, which costs time.

    A lost packet slows all flows that share a queue with it, so the counts do not tell which host loses them. Ranks of
    one host lose none on a network."""
    findings: list[Finding] = []
    if len(set(evidence.hosts)) < 2:
        return findings
    for building in buildings(evidence.records):
        if _filter_limit(building, _waits(building, evidence)):
            continue  # what was lost when builders let the sources go on cost nothing
        sent, resent = building.packets("packets_sent"), building.packets("packets_resent")
        total, again = sum(sent.values()), sum(resent.values())
        if not total > 0 or again < MIN_RESENT or again < MIN_RESENT_SHARE * total:
            continue
        most = sorted(resent, key=lambda label: -resent[label])[:MAX_NAMED]
        findings.append(
            Finding(
                rule="event_resends",
                cause=f"{again:,.0f} of {total:,.0f} packets were sent again ({format_share(again / total)}): the "
                f"network lost or delayed them ({building.label})",
                subject=Subject(),
                side="none",
                severity="warning",
                effect=-again / total,
                evidence=[r.id for r in building.ranks if r.metric == "packets_resent"],
                details=[
                    f"{label}: {resent[label]:,.0f} of {sent[label]:,.0f} "
                    f"({format_share(resent[label] / sent[label])})"
                    for label in most
                    if resent[label] and sent.get(label)
                ],
                fix="find the host: assay net over the same hosts; then the error and drop counters of its port at "
                "both ends (ethtool -S), pause frames, and the queues on the way",
            )
        )
    return findings


def event_share(evidence: Evidence) -> list[Finding]:
    """Advice if event building stays below the rate that the network carried in the same run."""
    carried = network_rates(evidence.records)
    built = [b for b in buildings(evidence.records) if not math.isnan(b.network_throughput)]
    if not built:
        return []
    best = max(built, key=lambda building: building.network_throughput)
    if best.params.get("rate") not in (None, 0, 0.0, "0"):  # --input-rate limited the sources
        return []
    if len(set(evidence.hosts)) == 1:
        # On one host processors limit the rate, and event building also writes and checks each byte. Only MPI has
        # shared memory, so no other transport is compared with it.
        over_mpi = evidence.options.get("transport", "mpi") == "mpi"
        carried = replace(
            carried, pairs=math.nan, alltoall=carried.alltoall_verified if over_mpi else math.nan
        )
    return _share_finding(best, carried)


def _share_finding(best: Building, carried: NetworkRates) -> list[Finding]:
    rate = best.network_throughput
    limits = (
        (carried.pairs, MIN_SHARE_OF_PAIRS, "pairs of hosts carry"),
        (carried.alltoall, MIN_SHARE_OF_ALLTOALL, "MPI_Alltoall carries"),
    )
    details = [
        f"{description} {format_quantity(limit, 'B/s')} in the same run: {format_share(rate / limit)} of it is used"
        for limit, _, description in limits
        if limit > 0
    ]
    short = [description for limit, share, description in limits if limit > 0 and rate < share * limit]
    if not short:
        return []
    return [
        Finding(
            rule="event_share",
            cause=f"event building moves {format_quantity(rate, 'B/s')} between the hosts, less than what {short[0]}"
            f" ({best.label})",
            severity="advice",
            evidence=[best.totals["network_throughput"].id, *carried.ids],
            details=details,
            fix="search for better parameters: assay eb tune over the same hosts",
        )
    ]


def _ranks(building: Building, evidence: Evidence) -> int:
    """The number of ranks that built events; one for each host of the run if the records do not say it."""
    return int(building.params.get("ranks", 0)) or len(evidence.hosts)


def _last_assignment(evidence: Evidence) -> float:
    """When the last event was assigned, in s; infinite where not a time but a number of events ended the run."""
    duration = evidence.options.get("duration")
    return duration if isinstance(duration, int | float) and duration else math.inf


def _duration(building: Building, evidence: Evidence) -> float:
    """The time in which events were assigned; a rest that is built later may take long."""
    if building.slices:
        return min(building.slices[-1].end, _last_assignment(evidence))
    return float(building.params.get("duration", 0) or 0)


__all__ = [
    "BUILD",
    "event_backpressure",
    "event_death",
    "event_dip",
    "event_ledger",
    "event_resends",
    "event_share",
]
