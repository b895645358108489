"""The figures of an allocator study, looked up by question, allocator, size and threads."""

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
    """What was measured, of every allocator in the order of asking."""

    def __init__(self, records: Iterable[AnyRecord]) -> None:
        self.records = [r for r in records if isinstance(r, Measurement) and r.name in NAMES]
        self.waived = [r for r in self.records if r.status == "waived"]
        self.measured = [r for r in self.records if r.summary is not None]

    def allocators(self, name: str = "") -> list[str]:
        chosen = (r for r in self.measured if name in ("", r.name))
        return list(dict.fromkeys(str(r.params["allocator"]) for r in chosen))

    def values(self, name: str, param: str) -> list[int]:
        """Of a parameter, ascending."""
        return sorted({int(r.params[param]) for r in self.measured if r.name == name and param in r.params})

    def record(self, name: str, metric: str, allocator: str, **params: Scalar) -> Measurement | None:
        """The last that has these parameters."""
        for r in reversed(self.measured):
            if (r.name, r.metric, r.params["allocator"]) == (name, metric, allocator) and all(
                r.params.get(key) == value for key, value in params.items()
            ):
                return r
        return None

    def summary(self, name: str, metric: str, allocator: str, **params: Scalar) -> Summary | None:
        found = self.record(name, metric, allocator, **params)
        return found.summary if found else None

    def median(self, name: str, metric: str, allocator: str, **params: Scalar) -> float | None:
        found = self.summary(name, metric, allocator, **params)
        return found.median if found else None

    def total(self, metrics: Iterable[str], allocator: str, **params: Scalar) -> float | None:
        """The phases of a block's life together; None when one of them is not there."""
        parts = [self.median(CYCLE, metric, allocator, **params) for metric in metrics]
        return (
            None if any(part is None for part in parts) else sum(part for part in parts if part is not None)
        )
