"""The figures of storage benchmarks over all rounds.

A round measures the MPI's own I/O ("stock") and Assay's accelerator ("accelerated") in turns, so that changes of the
machine affect both. Each round is a record of its own. The value of a figure is the median over all samples; a ratio is
the median over the rounds' ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from assay.records.schema import AnyRecord, Measurement, Scalar, Subject

IOR = "storage.ior"
SOLVER = "storage.reaction_diffusion"
HDF5 = "storage.hdf5"
METADATA = "storage.metadata"
DEVICE = "storage.device"
SPEEDUP = "storage.speedup"
PARALLEL = (IOR, SOLVER, HDF5, METADATA)

STOCK, ACCELERATED = "stock", "accelerated"
REPETITION_PARAMS = ("round", "digest")  # parameters that differ between repetitions


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
        """All repetitions of all rounds; for a distribution the median of each round."""
        return [
            x for r in self.records for x in (r.samples or [r.summary.median if r.summary else float("nan")])
        ]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def p99(self) -> float | None:
        """The median over the rounds."""
        values = [r.summary.p99 for r in self.records if r.summary and r.summary.p99 is not None]
        return statistics.median(values) if values else None

    def in_round(self, round_number: Scalar) -> float | None:
        """The median of one round."""
        for r in self.records:
            if r.params.get("round") == round_number and r.summary:
                return r.summary.median
        return None


Variants: TypeAlias = dict[str, Figure]  # by variant: stock, accelerated


def figures(records: Iterable[AnyRecord], name: str, metric: str = "") -> list[Figure]:
    """In the order of measuring. Figures of devices are distinguished by host; other subjects (such as the slowest
    rank) do not distinguish figures."""
    by_key: dict[str, Figure] = {}
    for r in records:
        if (
            not isinstance(r, Measurement)
            or r.name != name
            or metric not in ("", r.metric)
            or r.summary is None
        ):
            continue
        params = {key: value for key, value in r.params.items() if key not in REPETITION_PARAMS}
        key = repr((r.metric, sorted(params.items(), key=str), r.subject.host if name == DEVICE else ""))
        figure = by_key.setdefault(key, Figure(r.name, r.metric, r.unit, r.better, params, r.subject))
        # A round that was interrupted and repeated in a resumed run has two records: the later one counts.
        figure.records = [*(record for record in figure.records if record.params != r.params), r]
    return list(by_key.values())


def pair_variants(records: Iterable[AnyRecord], name: str, metric: str) -> Iterator[Variants]:
    """The figures that differ in the variant only, by variant; one of them may be missing."""
    yield from _by_params(records, name, metric).values()


def match_variants(records: Sequence[AnyRecord], name: str, metrics: Sequence[str]) -> list[list[Variants]]:
    """For each set of parameters the variants of each metric, in the order of ``metrics``.

    A metric that has no record for a set of parameters has an empty dict there.
    """
    by_metric = [_by_params(records, name, metric) for metric in metrics]
    keys = dict.fromkeys(key for variants in by_metric for key in variants)
    return [[variants.get(key, {}) for variants in by_metric] for key in keys]


def params_of(row: Sequence[Variants]) -> dict[str, Scalar]:
    """The parameters of a row of ``match_variants``. Its metrics and variants differ in ``io`` alone."""
    return next(figure.params for variants in row for figure in variants.values())


def _by_params(records: Iterable[AnyRecord], name: str, metric: str) -> dict[str, Variants]:
    """The variants by their parameters without ``io``."""
    result: dict[str, Variants] = {}
    for figure in figures(records, name, metric):
        shared = {key: value for key, value in figure.params.items() if key != "io"}
        result.setdefault(repr(sorted(shared.items(), key=str)), {})[str(figure.params.get("io"))] = figure
    return result


def speedups(stock: Figure, accelerated: Figure) -> list[float]:
    """Accelerated to stock in each round that has both; above 1: accelerated is better."""
    ratios = []
    for r in stock.records:
        accelerated_rate = accelerated.in_round(r.params.get("round", 1))
        if r.summary and r.summary.median > 0 and accelerated_rate:
            ratio = accelerated_rate / r.summary.median
            ratios.append(1 / ratio if stock.better == "lower" else ratio)
    return ratios
