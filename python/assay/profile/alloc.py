"""The records of an allocator study, looked up by measurement, metric, allocator and parameters."""

from __future__ import annotations

from collections.abc import Iterable

from assay.records.schema import AnyRecord, Measurement, Scalar, Summary

CYCLE = "profile.alloc.cycle"
RETENTION = "profile.alloc.retention"
THREADS = "profile.alloc.threads"
HANDOVER = "profile.alloc.handover"
MIXED = "profile.alloc.mixed"
REPLAY = "profile.alloc.replay"
NAMES = (CYCLE, RETENTION, THREADS, HANDOVER, MIXED, REPLAY)


class AllocStudy:
    """All records of the study; allocators are in the order of the command line."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.records = [
            record for record in records if isinstance(record, Measurement) and record.name in NAMES
        ]
        self.waived = [record for record in self.records if record.status == "waived"]
        self.measured = [record for record in self.records if record.summary is not None]

    def allocators(self, name: str = "") -> list[str]:
        records = (record for record in self.measured if name in ("", record.name))
        return list(dict.fromkeys(str(record.params["allocator"]) for record in records))

    def values(self, name: str, param: str) -> list[int]:
        """The values of a parameter, ascending."""
        return sorted(
            {
                int(record.params[param])
                for record in self.measured
                if record.name == name and param in record.params
            }
        )

    def record(self, name: str, metric: str, allocator: str, **params: Scalar) -> Measurement | None:
        """The last record with these parameters."""
        for candidate in reversed(self.measured):
            if (candidate.name, candidate.metric, candidate.params["allocator"]) == (
                name,
                metric,
                allocator,
            ) and all(candidate.params.get(key) == value for key, value in params.items()):
                return candidate
        return None

    def summary(self, name: str, metric: str, allocator: str, **params: Scalar) -> Summary | None:
        record = self.record(name, metric, allocator, **params)
        return record.summary if record else None

    def median(self, name: str, metric: str, allocator: str, **params: Scalar) -> float | None:
        summary = self.summary(name, metric, allocator, **params)
        return summary.median if summary else None

    def total(self, metrics: Iterable[str], allocator: str, **params: Scalar) -> float | None:
        """The sum of several metrics' medians, in seconds a block; None if one of them is missing."""
        parts = [self.median(CYCLE, metric, allocator, **params) for metric in metrics]
        return (
            None if any(part is None for part in parts) else sum(part for part in parts if part is not None)
        )
