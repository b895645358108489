"""Compares measured rounds with the same rounds in the simulator: curves with the error at each point.

Each point has its uncertainty, from which the proof (``proof.py``) takes how far its error may exceed the limit. A
point has only a few visits or slices, which may agree by chance. So its uncertainty is at least what is typical of its
kind.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from assay.model.estimate import Z95, estimate, summed
from assay.model.fitted import Model
from assay.model.network import Topology
from assay.model.rounds import REPLACES, Result, Round, flows_that_count
from assay.model.study import OTHER_PARTNERS, PLATEAU
from assay.model.times import Deviations, MessageTimes, deviations, error_of_time, sweeps
from assay.records.schema import AnyRecord, Comparison, Flows, Scalar
from assay.records.statistics import median

TOKEN_BUCKET = (
    "a single message is faster than a stream, as behind a token bucket; SimGrid has no token buckets"
)
ROUND_TRIPS, MESSAGES = 1, 6  # simulated messages all take the same time

# Parameters that a record has besides those of its round.
_RECORD_PARAMS = {"round", "size", "window_s", "messages", "repetition", REPLACES}
# Experiments that only prepare others; they are not compared.
_PREPARING = {"first", "contention"}


def replay(rounds: Iterable[Round], answers: dict[str, Result]) -> Generator[Round, Result, None]:
    """An experiment with fixed rounds: yields each, and puts its result into ``answers`` by the round's key."""
    for request in rounds:
        answers[request.key] = yield request


@dataclass
class SimulatedRound:
    """A round to simulate, and its measurements: records of flows, or the times of a pair."""

    round: Round
    measured: list[Flows] | MessageTimes


def rounds_to_simulate(records: Sequence[AnyRecord]) -> list[SimulatedRound]:
    """Each distinct round of a run once, with the records of all its repetitions."""
    rounds = [_sweep(level, times) for level, times in sweeps(records).items()]
    repeated: dict[str, list[Flows]] = {}
    for record in flows_that_count(records):
        if record.params.get("experiment") not in _PREPARING:
            key_of_repetitions = replace(
                _flows(record), seconds=0.0
            ).key  # repetitions may have lasted differently
            repeated.setdefault(key_of_repetitions, []).append(record)
    return rounds + [SimulatedRound(_flows(records[0]), records) for records in repeated.values()]


def _flows(record: Flows) -> Round:
    params = {k: v for k, v in record.params.items() if k not in _RECORD_PARAMS}
    size = int(record.params["size"])
    flows = tuple(zip(record.sources, record.targets, strict=True))
    return Round(flows, size, MESSAGES * size / min(record.values), params=params)


def _sweep(level: str, times: MessageTimes) -> SimulatedRound:
    params: dict[str, Scalar] = {"experiment": "sweep", "level": level}
    return SimulatedRound(
        Round((times.pair,), sizes=tuple(sorted(times.visits)), count=ROUND_TRIPS, params=params), times
    )


def comparisons(
    rounds: Sequence[SimulatedRound], simulated: dict[str, Result], model: Model
) -> list[Comparison]:
    points: list[Comparison] = []
    pooled = deviations(
        visits for r in rounds if isinstance(r.measured, MessageTimes) for visits in r.measured.medians()
    )
    for simulated_round in rounds:
        answer = simulated.get(simulated_round.round.key, Result())
        if isinstance(simulated_round.measured, MessageTimes):
            points += _times(simulated_round.round, simulated_round.measured, answer, model, pooled)
        else:
            points += _rates(simulated_round.round, simulated_round.measured, answer, model.network.cabinets)
    points = list({(point.curve, point.x): point for point in reversed(points)}.values())[::-1]
    raise_to_typical([point for point in points if point.unit == "B/s"])
    order = {curve: i for i, curve in enumerate(dict.fromkeys(point.curve for point in points))}
    return sorted(points, key=lambda point: (order[point.curve], point.x))


def _point(
    curve: str,
    axis: str,
    x: float,
    unit: str,
    measured: float,
    standard_error: float,
    simulated: float | None,
    label: str = "",
) -> Comparison:
    error = simulated / measured - 1 if simulated is not None and measured > 0 else None
    return Comparison(
        curve=curve,
        axis=axis,
        x=x,
        unit=unit,
        measured=measured,
        simulated=simulated,
        error=error,
        uncertainty=Z95 * standard_error,
        label=label,
    )


def raise_to_typical(rates: Sequence[Comparison]) -> None:
    """Slices of a round that agree by chance make its rate no more certain than others."""
    typical = median([rate.uncertainty for rate in rates]) if rates else 0.0
    for rate in rates:
        rate.uncertainty = max(rate.uncertainty, typical)


def _times(
    request: Round, times: MessageTimes, answer: Result, model: Model, pooled: Deviations
) -> list[Comparison]:
    simulated = {int(e.params["size"]): e.summary.median for e in answer.latencies if e.summary}
    where = "inside a cabinet" if request.params["level"] == "inside" else "between cabinets"
    gap = model.network.gap(times.pair)
    points = []
    for size in request.sizes:
        measured = times.time_of(size)
        curve = f"time of a message {where}"
        error = error_of_time(measured, pooled, size, times.change_of(size))
        point = _point(curve, "message size", size, "s", measured.value, error, simulated.get(size))
        if size >= model.size and measured.value < PLATEAU * size * gap:
            point.waived = TOKEN_BUCKET
        points.append(point)
    return points


def _rates(request: Round, measured: Sequence[Flows], answer: Result, cabinets: Topology) -> list[Comparison]:
    flows, params = request.flows, request.params

    def point(
        curve: str, axis: str, x: float, hosts_of: Collection[str] | None = None, label: str = ""
    ) -> Comparison:
        chosen = [i for i, (a, b) in enumerate(flows) if hosts_of is None or a in hosts_of or b in hosts_of]
        # The median of all slices, as in the fit: a slice that was delayed does not move it.
        slices = [rate for record in measured for rate in summed([record.slices[i] for i in chosen])]
        rates = answer.flows.values if answer.flows is not None else []
        simulated = sum(rates[i] for i in chosen) if rates else None
        rate = estimate(slices)
        return _point(curve, axis, x, "B/s", rate.value, rate.standard_error, simulated, label)

    match params["experiment"]:
        case "pairs":
            shape = {"send": "send", "sendrecv": "both ways", "ring": "rings of four"}[str(params["shape"])]
            axis = "rings" if params["shape"] == "ring" else "pairs"
            # A cabinet that is too small for the round's count has its own number of pairs.
            return [
                point(f"{name}: {axis}, {shape}", axis, n, hosts)
                for name, hosts in cabinets.items()
                if (n := _members(flows, hosts, str(params["shape"])))
            ]
        case "host":
            direction = {"up": "to two others", "down": "from two others", "both": "both directions"}[
                str(params["direction"])
            ]
            places = {host: i for i, host in enumerate(h for hosts in cabinets.values() for h in hosts)}
            return [
                point(f"each host {direction}", "hosts", places[c], [c], c)
                for c in str(params["centres"]).split(",")
            ]
        case "cabinet":
            direction = {"up": "to the others", "down": "from the others", "both": "both directions"}[
                str(params["direction"])
            ]
            return [point(f"{params['cabinet']}: {direction}", "pairs", float(params["count"]))]
        case "other_partners" | "every_second":
            who = "with other partners" if params["experiment"] == OTHER_PARTNERS else "every second host"
            direction = str(params["direction"])
            place = float(("up", "down", "both").index(direction))
            return [point(f"{params['cabinet']}: {who}", "direction", place, label=direction)]
        case "strides":
            return [
                point("all cabinets at once, each to a further one", "cabinets away", float(params["stride"]))
            ]
        case "two_cabinets":
            place = float(list(cabinets).index(str(params["other"])))
            return [
                point(
                    f"{params['cabinet']} to each other cabinet", "cabinet", place, label=str(params["other"])
                )
            ]
        case "backbone":
            return [point("all cabinets at once, each to the next", "flows", len(flows))]
        case _:
            return [point("all to all, step by step", "step", float(params["step"]))]


def _members(flows: Sequence[tuple[str, str]], hosts: Sequence[str], shape: str) -> int:
    members = set(hosts)
    inside = sum(1 for source, _ in flows if source in members)
    if shape == "ring" and inside == 3:
        return 1
    return inside // {"send": 1, "sendrecv": 2, "ring": 4}[shape]
