"""Rounds of experiments between named hosts, and their results.

The engine reads rounds as lines of JSON with rank numbers (``engines/network/saturation/round.hpp``); this code uses
host names. A round's ``key`` is a digest of its parameters, by which a resumed run finds the rounds that it has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.records.schema import AnyRecord, Flows, Measurement, Scalar

NAME = "network.saturation"
REPLACES = "replaces"  # the parameter with the key of the round that this one replaces

Flow = tuple[str, str]  # from, to


@dataclass(frozen=True)
class Round:
    """``flows`` at the same time; or, with ``sizes``, pairs in ping-pong one after the other; with ``pauses``, pairs
    whose calls of MPI are timed."""

    flows: tuple[Flow, ...] = ()
    size: int = 0
    seconds: float = 0.0
    sizes: tuple[int, ...] = ()  # ping-pong, calls
    pauses: tuple[float, ...] = ()  # calls: s until the receive, for each size
    count: int = 0
    params: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return hashlib.sha1(json.dumps(self._request(lambda host: host)).encode()).hexdigest()[:12]

    def line(self, ranks: Mapping[str, int]) -> bytes:
        """The line that the engine reads; its records carry the key."""
        request = self._request(lambda host: ranks[host])
        request["params"] = {**self.params, "round": self.key}
        return json.dumps(request).encode() + b"\n"

    def _request(self, name: object) -> dict[str, object]:
        assert callable(name)
        ends = [[name(source), name(target)] for source, target in self.flows]
        if self.pauses:
            pauses = [round(pause, 9) for pause in self.pauses]
            request: dict[str, object] = {"calls": ends, "sizes": list(self.sizes), "pauses": pauses}
            request["count"] = self.count
        elif self.sizes:
            request = {"ping_pong": ends, "sizes": list(self.sizes), "count": self.count}
        else:
            request = {"flows": ends, "size": self.size, "seconds": round(self.seconds, 9)}
        return {**request, "params": dict(self.params)}


@dataclass
class Result:
    """The result of a round: one record of flows; or for each pair and size a record of its latency, or three of its
    calls."""

    flows: Flows | None = None
    latencies: list[Measurement] = field(default_factory=list)
    seconds: float = 0.0  # the duration that was long enough for steady flows; 0 where nobody asked

    def is_complete(self, request: Round) -> bool:
        if request.sizes:
            records = 3 if request.pauses else 1
            return len(self.latencies) >= records * len(request.flows) * len(request.sizes)
        return self.flows is not None

    @property
    def total(self) -> float:
        return sum(self.flows.values) if self.flows else 0.0


def flows_that_count(records: Sequence[AnyRecord]) -> list[Flows]:
    """The rounds of concurrent flows that have rates and were not replaced."""
    measured = [r for r in records if isinstance(r, Flows) and r.name == NAME and r.values]
    replaced = {r.params[REPLACES] for r in measured if REPLACES in r.params}
    return [r for r in measured if r.params.get("round") not in replaced]


def results(records: Sequence[AnyRecord]) -> dict[str, Result]:
    """The results in a run's records, by the key of the round."""
    by_key: dict[str, Result] = {}
    for record in records:
        if not isinstance(record, Flows | Measurement) or record.name != NAME or "round" not in record.params:
            continue
        result = by_key.setdefault(str(record.params["round"]), Result())
        if isinstance(record, Flows):
            result.flows = record
        else:
            result.latencies.append(record)
    return by_key
