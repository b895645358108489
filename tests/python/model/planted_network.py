"""A network that answers the rounds of a study from planted capacities, without running an engine."""

from __future__ import annotations

from collections.abc import Callable, Generator

from assay.model.experiments import experiments
from assay.model.network import Network
from assay.model.rounds import NAME, Result, Round
from assay.model.study import Effort, Study
from assay.records.schema import AnyRecord, Flows, Measurement, Subject, Summary

TimeOfSize = Callable[[int], float]  # s of a message of that size in B


class PlantedNetwork:
    """``inside`` and ``between`` give a message's time from its size. ``distort`` may change each record of rates."""

    def __init__(
        self,
        network: Network,
        inside: TimeOfSize,
        between: TimeOfSize,
        distort: Callable[[Flows], None] = lambda _: None,
    ) -> None:
        self.network, self.inside, self.between, self.distort = network, inside, between, distort
        self.records: list[AnyRecord] = []
        self.pairs = 0  # whose latency was asked for, to find the cabinets

    def answer(self, request: Round) -> Result:
        params = {**request.params, "round": request.key}
        if request.pauses:
            return Result()  # there is no MPI whose calls could be timed
        if request.sizes:
            if request.params["experiment"] != "sweep":
                self.pairs += len(request.flows)
            return Result(
                latencies=[
                    self._latency(a, b, size, params) for a, b in request.flows for size in request.sizes
                ]
            )
        flows = list(request.flows)
        rates = self.network.predict(flows)
        sources, targets = [a for a, _ in flows], [b for _, b in flows]
        record = Flows(
            id=len(self.records) + 1, name=NAME, metric="rate", unit="B/s", sources=sources, targets=targets,
            values=rates, slices=[[rate] * 8 for rate in rates],
            params={**params, "size": request.size, "window_s": request.seconds * 10, "messages": 10},
        )  # fmt: skip
        self.distort(record)
        self.records.append(record)
        return Result(flows=record)

    def _latency(self, a: str, b: str, size: int, params: dict) -> Measurement:
        cabinet = self.network.cabinet_of
        time = (self.inside if cabinet[a] == cabinet[b] else self.between)(size)
        record = Measurement(
            id=len(self.records) + 1, name=NAME, metric="latency", unit="s", subject=Subject(host=a, peer=b),
            params={**params, "size": size}, summary=Summary(n=3, median=time), samples=[time] * 3,
        )  # fmt: skip
        self.records.append(record)
        return record

    def study(self, cabinets: dict[str, list[str]] | None = None) -> Study:
        """Runs all experiments on this network."""
        hosts = [host for members in self.network.cabinets.values() for host in members]
        study = Study(hosts, Effort(), dict(cabinets or {}))
        answer_rounds(experiments(study), self.answer)
        return study


def answer_rounds(
    conversation: Generator[Round, Result, object], answer: Callable[[Round], Result]
) -> list[Round]:
    """Answers each round that the conversation requests. Returns the requested rounds."""
    requested: list[Round] = []
    try:
        requested.append(next(conversation))
        while True:
            requested.append(conversation.send(answer(requested[-1])))
    except StopIteration:
        return requested


def cluster(
    cabinets: int, hosts: int, up: float = 1e8, down: float = 1e8, limiter: float | None = None
) -> Network:
    """Equal hosts in equal cabinets. ``hosts``: in each cabinet."""
    members = {f"rack{c}": [f"n{c * hosts + i}" for i in range(hosts)] for c in range(cabinets)}
    network = Network(members)
    for host in network.cabinet_of:
        network.capacity["host", host, "up"] = up
        network.capacity["host", host, "down"] = down
        if limiter:
            network.capacity["host", host, "limiter"] = limiter
    return network


def linear_time(latency: float, rate: float = 1e8) -> TimeOfSize:
    return lambda size: latency + size / rate
