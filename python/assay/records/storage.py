"""The figures of storage benchmarks across the rounds in which they were measured.

Stock and accelerated are measured in turns, so that what changes on a machine meanwhile meets both. Each round is
a record of its own; what is shown of them is the median over all their samples, and of a ratio the median over the
rounds, each of which compares what was measured close together.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from assay.records.schema import AnyRecord, Measurement, Scalar, Subject

IOR = "storage.ior"
SOLVER = "storage.reaction_diffusion"
HDF5 = "storage.hdf5"
DEVICE = "storage.device"
SPEEDUP = "storage.speedup"
PARALLEL = (IOR, SOLVER, HDF5)

STOCK, ACCELERATED = "stock", "accelerated"
OF_A_RUN = ("round", "digest")  # parameters that tell repetitions of the same thing apart


@dataclass
class Figure:
    """One metric under one set of parameters, over all rounds."""

    name: str
    metric: str
    unit: str
    better: str
    params: dict[str, Scalar]
    subject: Subject
    records: list[Measurement] = field(default_factory=list)

    @property
    def samples(self) -> list[float]:
        """All repetitions of all rounds; of a distribution the median of each round."""
        return [
            x for r in self.records for x in (r.samples or [r.summary.median if r.summary else float("nan")])
        ]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def percentile(self, which: str) -> float | None:
        """The median over the rounds of "p5", "p95", "p99", "min" or "max"."""
        found = [getattr(r.summary, which) for r in self.records if r.summary]
        known = [x for x in found if x is not None]
        return statistics.median(known) if known else None

    def at(self, round_number: Scalar) -> float | None:
        """The median of one round."""
        for r in self.records:
            if r.params.get("round") == round_number and r.summary:
                return r.summary.median
        return None


def figures(records: Iterable[AnyRecord], name: str, metric: str = "") -> list[Figure]:
    """In the order of measuring. Subjects tell figures apart where they are devices or hosts, not where one was found
    to be the slowest."""
    found: dict[str, Figure] = {}
    for r in records:
        if (
            not isinstance(r, Measurement)
            or r.name != name
            or metric not in ("", r.metric)
            or r.summary is None
        ):
            continue
        params = {key: value for key, value in r.params.items() if key not in OF_A_RUN}
        key = repr((r.metric, sorted(params.items(), key=str), r.subject.host if name == DEVICE else ""))
        figure = found.setdefault(key, Figure(r.name, r.metric, r.unit, r.better, params, r.subject))
        # A round that was cut short and made again in a resumed run is there twice: the later one counts.
        figure.records = [*(one for one in figure.records if one.params != r.params), r]
    return list(found.values())


def side_by_side(records: Iterable[AnyRecord], name: str, metric: str) -> Iterator[dict[str, Figure]]:
    """Stock and accelerated of what is otherwise the same, by that word; one of them may be missing."""
    pairs: dict[str, dict[str, Figure]] = {}
    for figure in figures(records, name, metric):
        rest = {key: value for key, value in figure.params.items() if key != "io"}
        pairs.setdefault(repr(sorted(rest.items(), key=str)), {})[str(figure.params.get("io"))] = figure
    yield from pairs.values()


def speedups(stock: Figure, accelerated: Figure) -> list[float]:
    """Accelerated over stock, round by round, above one where it is better; of rounds that both have."""
    ratios = []
    for r in stock.records:
        other = accelerated.at(r.params.get("round", 1))
        if r.summary and r.summary.median > 0 and other:
            ratio = other / r.summary.median
            ratios.append(1 / ratio if stock.better == "lower" else ratio)
    return ratios
