"""Rounds of experiments between named hosts, as they are asked for, and what comes back.

The engine knows ranks and lines of JSON (``engines/network/saturation/round.hpp``); everything above it knows
hosts. A round's ``key`` is a digest of all that it asks, by which a resumed run finds what it has already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.records.schema import AnyRecord, Flows, Measurement, Scalar

NAME = "network.saturation"
REPLACES = "replaces"  # the parameter that names the round in whose place this one stands

Flow = tuple[str, str]  # from, to


@dataclass(frozen=True)
class Round:
    """``flows`` at one time, or, with ``sizes``, pairs in ping-pong one after the other."""

    flows: tuple[Flow, ...] = ()
    size: int = 0
    seconds: float = 0.0
    sizes: tuple[int, ...] = ()  # ping-pong
    count: int = 0
    params: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return hashlib.sha1(json.dumps(self._words(lambda host: host)).encode()).hexdigest()[:12]

    def line(self, ranks: Mapping[str, int]) -> bytes:
        """What the engine reads; the key comes back in its records."""
        words = self._words(lambda host: ranks[host])
        words["params"] = {**self.params, "round": self.key}
        return json.dumps(words).encode() + b"\n"

    def _words(self, name: object) -> dict[str, object]:
        assert callable(name)
        ends = [[name(source), name(target)] for source, target in self.flows]
        if self.sizes:
            asked: dict[str, object] = {"echo": ends, "sizes": list(self.sizes), "count": self.count}
        else:
            asked = {"flows": ends, "size": self.size, "seconds": round(self.seconds, 9)}
        return {**asked, "params": dict(self.params)}


@dataclass
class Result:
    """What one round came to: one record of flows, or one of latency for each pair and size."""

    flows: Flows | None = None
    echoes: list[Measurement] = field(default_factory=list)

    def complete(self, asked: Round) -> bool:
        if asked.sizes:
            return len(self.echoes) >= len(asked.flows) * len(asked.sizes)
        return self.flows is not None

    @property
    def total(self) -> float:
        return sum(self.flows.values) if self.flows else 0.0


def flows_that_count(records: Sequence[AnyRecord]) -> list[Flows]:
    """The rounds of concurrent flows that measured anything and were not replaced."""
    found = [r for r in records if isinstance(r, Flows) and r.name == NAME and r.values]
    replaced = {r.params[REPLACES] for r in found if REPLACES in r.params}
    return [r for r in found if r.params.get("round") not in replaced]


def results(records: Sequence[AnyRecord]) -> dict[str, Result]:
    """What a run has of each round, by the round's key."""
    found: dict[str, Result] = {}
    for record in records:
        if not isinstance(record, Flows | Measurement) or record.name != NAME or "round" not in record.params:
            continue
        result = found.setdefault(str(record.params["round"]), Result())
        if isinstance(record, Flows):
            result.flows = record
        else:
            result.echoes.append(record)
    return found
