"""Faults of a fabric: slow cables, islands, cables to oneself; lost routes, credit loops, crowded up ports.

Tables that were computed here give warnings about themselves, and none about the fabric's own.
"""

from __future__ import annotations

from typing import Literal

from assay.explain.evidence import Evidence
from assay.records.schema import Finding, Measurement, Subject

LINKS, ROUTES = "fabric.links", "fabric.routes"
MAX_DETAILS = 20  # lines in the details of one finding
MAX_LOST = 1000  # lost routes that a run records at most


def slow_cables(evidence: Evidence) -> list[Finding]:
    """One finding for each cable that is narrower or slower than most of its kind, and one for each kind whose cables
    are all slow."""
    findings = []
    for record in evidence.measurements(LINKS, "slow_rate"):
        usual = float(record.params["usual"])
        if record.median >= usual:
            continue
        findings.append(
            Finding(
                rule="slow_cable",
                cause=f"the cable {record.subject.device} runs at {record.params['width']}x "
                f"{record.params['speed']}, {record.median / usual:.0%} of the other "
                f"{record.params['cable_kind']} cables",
                subject=record.subject,
                side="both",
                effect=record.median / usual - 1,
                confidence=1.0,
                evidence=[record.id],
                details=[str(record.params["guids"])] if "guids" in record.params else [],
                fix="reseat the cable at both ends, then replace it; then look at the port's settings",
            )
        )
    return findings + _slow_kinds(evidence)


def _slow_kinds(evidence: Evidence) -> list[Finding]:
    """One finding for each kind of cable and rate, for cables that are as fast as most of their kind although both
    ports support more."""
    records = [
        record
        for record in evidence.measurements(LINKS, "slow_rate")
        if record.median >= float(record.params["usual"])
    ]
    groups: dict[tuple[str, str, float], list[Measurement]] = {}
    for record in records:
        rate = f"{record.params['width']}x {record.params['speed']}"
        groups.setdefault(
            (str(record.params["cable_kind"]), rate, float(record.params["supported"])), []
        ).append(record)
    return [
        Finding(
            rule="slow_cable",
            cause=f"{len(chosen)} {_cables(len(chosen), 'run', kind)} at {rate}, "
            f"{chosen[0].median / supported:.0%} of what both ends support",
            subject=chosen[0].subject,
            side="both",
            effect=chosen[0].median / supported - 1,
            confidence=1.0,
            evidence=[record.id for record in chosen],
            details=_truncate([_place(record) for record in chosen]),
            fix="look for a limit in the ports' enabled speeds and widths (ibportstate), then for cables of that grade",
        )
        for (kind, rate, supported), chosen in groups.items()
    ]


def _place(record: Measurement) -> str:
    """A cable, and which switches are meant where their names do not tell."""
    guids = record.params.get("guids")
    return f"{record.subject.device}{f' ({guids})' if guids else ''}"


def _truncate(places: list[str]) -> list[str]:
    """The first MAX_DETAILS lines, and the number of the others."""
    more = [f"and {len(places) - MAX_DETAILS} more"] if len(places) > MAX_DETAILS else []
    return places[:MAX_DETAILS] + more


def mixed_rates(evidence: Evidence) -> list[Finding]:
    """One warning for each group of slower cables that were built so, or of which nothing shows that they were not."""
    return [_mixed_rate(record) for record in evidence.measurements(LINKS, "grouped_cables")]


def _mixed_rate(record: Measurement) -> Finding:
    count, places = int(record.median), str(record.params["places"]).split("; ")
    rate = f"{record.params['width']}x {record.params['speed']}"
    cables = f"{count} of {record.params['of']} {record.params['cable_kind']} cables {'runs' if count == 1 else 'run'}"
    if extenders := record.params.get("extenders"):
        leads = "it leads" if count == 1 else "they lead"
        reason = f"{leads} to a long-haul extender, which has a rate of its own: {extenders}"
        fix = "compare with what the line between the sites was ordered for"
    elif record.params.get("built_so", True):
        reason = "so many are taken as built so"
        fix = "if they should be as fast as the others, look at the ports' enabled speeds and widths (ibportstate)"
    else:
        reason = f"{'it differs' if count == 1 else 'they differ'}, and nothing shows that both ends could be faster"
        fix = "compare what both ends support (ibportstate; ibdiagnet's db_csv has it) with how it was built"
    return Finding(
        rule="mixed_rates",
        cause=f"{cables} at {rate}, {float(record.params['share_of_usual']):.0%} of the rate of most: {reason}",
        subject=Subject(device=places[0]),
        side="none",
        severity="warning",
        confidence=0.9,
        evidence=[record.id],
        details=places,
        fix=fix,
    )


def _cables(count: int, verb: str, kind: str = "") -> str:
    """The subject and verb of a sentence on cables of a kind: "host cable runs", "switch cables run"."""
    return f"{kind} {f'cable {verb}s' if count == 1 else f'cables {verb}'}".strip()


def islands(evidence: Evidence) -> list[Finding]:
    """One finding for all parts of a fabric that no cables join: a fault if hosts are apart, else a warning (each host
    has a rail on each part)."""
    records = evidence.measurements(LINKS, "island")
    if not records:
        return []
    names = [str(record.params["hosts"]) for record in records]
    pairs = int(records[0].params["pairs"])
    cause = f"{len(records)} islands: {' and '.join(names[:2])} are not joined by any cable"
    return [
        Finding(
            rule="island",
            cause=cause
            + (f"; {pairs} ordered pairs of hosts are apart" if pairs else "; no two hosts are apart"),
            subject=Subject(host=names[-1]),
            side="none",
            severity="fault" if pairs else "warning",
            confidence=1.0,
            evidence=[record.id for record in records],
            details=_truncate([f"{record.median:.0f} hosts: {record.params['hosts']}" for record in records]),
            fix="if they should be one fabric, look for the missing cables; else give the file of each one alone",
        )
    ]


def self_loops(evidence: Evidence) -> list[Finding]:
    """One warning for all cables from a switch to itself."""
    records = evidence.measurements(LINKS, "self_loop")
    if not records:
        return []
    places = [str(record.subject.device) for record in records]
    return [
        Finding(
            rule="self_loop",
            cause=f"{len(records)} {_cables(len(records), 'lead')} from a switch to itself: "
            f"{', '.join(places[:3])}",
            subject=records[0].subject,
            side="none",
            severity="warning",
            confidence=1.0,
            evidence=[record.id for record in records],
            details=_truncate([_place(record) for record in records]),
            fix="unplug them, or cable them to another switch",
        )
    ]


def no_lid(evidence: Evidence) -> list[Finding]:
    """One warning for all end ports without a LID: nothing reaches them, and a host that starts has none yet."""
    records = evidence.measurements(LINKS, "no_lid")
    if not records:
        return []
    places = [f"{record.subject.host} at {record.params['at']}" for record in records]
    one = len(records) == 1
    return [
        Finding(
            rule="no_lid",
            cause=f"{len(records)} cabled {'port has' if one else 'ports have'} no LID: {', '.join(places[:3])}",
            subject=records[0].subject,
            side="none",
            severity="warning",
            confidence=1.0,
            evidence=[record.id for record in records],
            details=_truncate(places),
            fix="see why the subnet manager left them out: their state (ibstat, ibportstate) and its log; a host that "
            "is starting has none yet",
        )
    ]


def _of_engine(record: Measurement) -> str:
    """How a cause begins where the tables were computed here; empty for the fabric's own."""
    engine = record.params.get("computed")
    return f"with tables that {engine} computes here, " if engine else ""


def _severity(record: Measurement) -> Literal["fault", "warning"]:
    """Tables that were computed here say nothing about a fabric that has its own."""
    return "fault" if record.params.get("judged", True) else "warning"


def _fix(record: Measurement, of_own_tables: str) -> str:
    return (
        "try another --routing, or give the fabric's own tables"
        if "computed" in record.params
        else of_own_tables
    )


def lost_routes(evidence: Evidence) -> list[Finding]:
    """One finding for each kind of fault in the tables."""
    records = evidence.measurements(ROUTES, "lost_pairs")
    at_least = "at least " if len(records) == MAX_LOST else ""
    findings = []
    for fault in dict.fromkeys(str(record.params["fault"]) for record in records):
        chosen = [record for record in records if record.params["fault"] == fault]
        pairs = sum(record.median for record in chosen)
        details = _truncate(list(dict.fromkeys(str(record.params["place"]) for record in chosen)))
        findings.append(
            Finding(
                rule="lost_route",
                cause=f"{_of_engine(chosen[0])}{at_least}{pairs:.0f} ordered pairs of hosts do not reach each other: "
                f"{fault} at {_switches(chosen)}",
                subject=chosen[0].subject,
                side="none",
                severity=_severity(chosen[0]),
                confidence=1.0,
                evidence=[record.id for record in chosen],
                details=details,
                fix=_fix(
                    chosen[0],
                    "let the subnet manager route again (kill -HUP of opensm), then take both dumps anew",
                ),
            )
        )
    return findings


def _switches(records: list[Measurement]) -> str:
    names = list(dict.fromkeys(str(record.subject.device) for record in records))
    more = len(names) - 1
    return names[0] + (f" and {more} more {'switch' if more == 1 else 'switches'}" if more else "")


def credit_loop(evidence: Evidence) -> list[Finding]:
    """One finding a cycle of links whose buffers wait for each other: a warning where virtual lanes may keep its routes
    apart."""
    findings = []
    for record in evidence.measurements(ROUTES, "credit_loop"):
        may_be_apart = record.params.get("lanes") == "unknown"
        condition = " if their routes share a virtual lane" if may_be_apart else ""
        fix = "use a routing engine without credit loops: opensm -R updn, ftree or dfsssp"
        if may_be_apart:
            fix = f"nothing with opensm -R dfsssp, lash, nue or torus-2QoS; else judge with --one-lane, and {fix}"
        findings.append(
            Finding(
                rule="credit_loop",
                cause=f"{_of_engine(record)}{record.median:.0f} links can wait for each other in a circle{condition}: "
                "traffic can stop for good",
                subject=Subject(device=str(record.params["links"]).split("; ")[0]),
                side="none",
                severity="warning" if may_be_apart else _severity(record),
                confidence=0.5 if may_be_apart else 1.0,
                evidence=[record.id],
                details=str(record.params["links"]).split("; "),
                fix=_fix(record, fix),
            )
        )
    return findings


def crowded_ports(evidence: Evidence) -> list[Finding]:
    """One warning for all up ports that carry far more destinations than the others of their switch."""
    records = evidence.measurements(ROUTES, "crowded_port")
    if not records:
        return []
    worst = records[0]
    ratio = worst.median / float(worst.params["mean"])
    return [
        Finding(
            rule="crowded_port",
            cause=f"{_of_engine(worst)}{len(records)} up ports have at least twice the destinations of the others "
            f"of their switch, at worst {worst.subject.device}: {worst.median:.0f}, {ratio:.1f} times the mean",
            subject=worst.subject,
            side="none",
            severity="warning",
            confidence=0.9,
            evidence=[record.id for record in records],
            details=[
                f"{_place(record)}: {record.median:.0f} destinations, mean {float(record.params['mean']):.1f}"
                for record in records[:MAX_DETAILS]
            ],
            fix=_fix(
                worst,
                "let the subnet manager balance again; with missing cables, try opensm -R updn or ftree",
            ),
        )
    ]
