"""The measured rounds beside the same rounds in the simulator: curves, and the error at each point."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace

from assay.model.course import MESSAGES, messages_to_all
from assay.model.estimate import estimate, summed
from assay.model.network import Topology
from assay.model.rounds import Result, Round, results
from assay.records.schema import AnyRecord, Comparison, Flows, Measurement, Verdict
from assay.records.units import format_share

ALL_TO_ALL = "all to all"
ECHOES = 1  # a simulated message takes the same time each time

# What a record's parameters say beyond what was asked.
_ANSWERED = {"round", "size", "window_s", "messages", "again"}


def replay(rounds: Sequence[Round], answers: dict[str, Result]) -> Generator[Round, Result, None]:
    for asked in rounds:
        answers[asked.key] = yield asked


@dataclass
class Pairing:
    """One round to be simulated, and the records that it was measured by."""

    asked: Round
    measured: list[Flows | Measurement]


def pairings(records: Sequence[AnyRecord]) -> list[Pairing]:
    """Each different round of a run once; repetitions are measured records of the same."""
    found: dict[str, Pairing] = {}
    measured: list[Flows | Measurement]
    for result in results(records).values():
        if result.flows is not None and result.flows.params.get("experiment") == "first":
            continue  # it only told how long messages should be
        if result.flows is not None and result.flows.values:
            asked, measured = _flows(result.flows), [result.flows]
        elif result.echoes and result.echoes[0].params.get("experiment") == "sweep":
            asked, measured = _echo(result.echoes), [*result.echoes]
        else:
            continue
        same = replace(asked, seconds=0.0).key  # repetitions may have lasted differently
        found.setdefault(same, Pairing(asked, [])).measured.extend(measured)
    return list(found.values())


def _flows(record: Flows) -> Round:
    params = {k: v for k, v in record.params.items() if k not in _ANSWERED}
    size = int(record.params["size"])
    if params["experiment"] == "all_to_all":
        everyone = tuple(record.targets)
        return Round(everyone=everyone, size=size, messages=messages_to_all(len(everyone)), params=params)
    flows = tuple(zip(record.sources, record.targets, strict=True))
    return Round(flows, size, MESSAGES * size / min(record.values), params=params)


def _echo(echoes: Sequence[Measurement]) -> Round:
    first = echoes[0]
    params = {k: v for k, v in first.params.items() if k not in _ANSWERED}
    sizes = tuple(sorted({int(e.params["size"]) for e in echoes}))
    return Round(
        ((str(first.subject.host), str(first.subject.peer)),), sizes=sizes, count=ECHOES, params=params
    )


def comparisons(
    pairs: Sequence[Pairing], simulated: dict[str, Result], cabinets: Topology
) -> list[Comparison]:
    points: list[Comparison] = []
    for pairing in pairs:
        answer = simulated.get(pairing.asked.key, Result())
        if pairing.asked.sizes:
            points += _times(pairing, answer)
        else:
            points += _rates(pairing, answer, cabinets)
    points = list({(point.curve, point.x): point for point in reversed(points)}.values())[::-1]
    order = {curve: i for i, curve in enumerate(dict.fromkeys(point.curve for point in points))}
    return sorted(points, key=lambda point: (order[point.curve], point.x))


def _point(
    curve: str, along: str, x: float, unit: str, measured: float, simulated: float | None, label: str = ""
) -> Comparison:
    error = simulated / measured - 1 if simulated is not None and measured > 0 else None
    return Comparison(
        curve=curve,
        along=along,
        x=x,
        unit=unit,
        measured=measured,
        simulated=simulated,
        error=error,
        label=label,
    )


def _times(pairing: Pairing, answer: Result) -> list[Comparison]:
    simulated = {e.params["size"]: e.summary.median for e in answer.echoes if e.summary}
    where = "inside a cabinet" if pairing.asked.params["level"] == "inside" else "between cabinets"
    return [
        _point(
            f"time of a message {where}",
            "message size",
            int(e.params["size"]),
            "s",
            e.summary.median,
            simulated.get(e.params["size"]),
        )
        for e in pairing.measured
        if isinstance(e, Measurement) and e.summary
    ]


def _rates(pairing: Pairing, answer: Result, cabinets: Topology) -> list[Comparison]:
    asked, params = pairing.asked, pairing.asked.params
    flows = list(asked.flows) or [("", host) for host in asked.everyone]

    def point(
        curve: str, along: str, x: float, of: Collection[str] | None = None, label: str = ""
    ) -> Comparison:
        chosen = [i for i, (a, b) in enumerate(flows) if of is None or a in of or b in of]
        rounds = [r for r in pairing.measured if isinstance(r, Flows)]
        # As the fit takes it: the middle of all slices, which one that was held up does not move. An all-to-all
        # has no plateau: its whole is what is compared.
        slices = [x for r in rounds for x in summed([r.slices[i] for i in chosen])]
        whole = [sum(r.values[i] for i in chosen) for r in rounds]
        measured = estimate(whole if asked.everyone else slices).value
        found = answer.flows.values if answer.flows is not None else []
        simulated = sum(found[i] for i in chosen) if found else None
        return _point(curve, along, x, "B/s", measured, simulated, label)

    match params["experiment"]:
        case "pairs":
            shape = {"send": "send", "sendrecv": "both ways", "ring": "rings of four"}[str(params["shape"])]
            along = "rings" if params["shape"] == "ring" else "pairs"
            # A cabinet that is too small for so many stays at what it has.
            return [
                point(f"{name}: {along}, {shape}", along, n, hosts)
                for name, hosts in cabinets.items()
                if (n := _members(flows, hosts, str(params["shape"])))
            ]
        case "host":
            way = {"up": "to two others", "down": "from two others", "both": "both directions"}[
                str(params["way"])
            ]
            places = {host: i for i, host in enumerate(h for hosts in cabinets.values() for h in hosts)}
            return [
                point(f"each host {way}", "hosts", places[c], [c], c)
                for c in str(params["centres"]).split(",")
            ]
        case "cabinet":
            way = {"up": "to the others", "down": "from the others", "both": "both directions"}[
                str(params["way"])
            ]
            return [point(f"{params['cabinet']}: {way}", "pairs", float(params["count"]))]
        case "backbone":
            return [point("all cabinets at once, each to the next", "flows", len(flows))]
        case _:
            return [point(ALL_TO_ALL, "hosts", len(flows))]


def _members(flows: Sequence[tuple[str, str]], hosts: Sequence[str], shape: str) -> int:
    inside = sum(1 for source, _ in flows if source in set(hosts))
    return inside // {"send": 1, "sendrecv": 2, "ring": 4}[shape]


def verdict(points: Sequence[Comparison], limit: float) -> Verdict:
    """A platform is good when every rate is simulated as it was measured. What was not simulated never is.

    Times of messages are shown and not judged: they are of one pair, alone. Nor is the all-to-all, which ends with
    its slowest rank: how evenly a transport shares is no capacity.
    """
    rates = [point for point in points if point.unit == "B/s" and point.curve != ALL_TO_ALL]
    required = f"within {format_share(limit)} of measured, at each of {len(rates)} points"
    missing = [point for point in rates if point.error is None]
    head = Verdict(
        criterion="simulated rates", specification="model", outcome="INCONCLUSIVE", metric="model/error",
        required=limit, required_text=required,
    )  # fmt: skip
    if missing or not rates:
        head.reason = f"{len(missing)} points were not simulated" if rates else "nothing to compare"
        return head
    worst = max(rates, key=lambda point: abs(point.error or 0.0))
    observed = abs(worst.error or 0.0)
    head.outcome = "PASS" if observed <= limit else "FAIL"
    head.observed, head.observed_text = (
        observed,
        f"{format_share(observed)} at worst: {worst.curve}, {worst.along} {worst.label or f'{worst.x:g}'}",
    )
    head.margin = (limit - observed) / limit
    if head.outcome == "FAIL":
        head.remedy = "the report shows which curve parts; measure again when the network is quiet"
    return head
