"""The slices of time of a long run: memory holds a bounded number of them, with every dip; the file holds all."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.events.figures import buildings
from assay.events.stability import find_dips
from assay.records import series
from assay.records.run import Run
from assay.records.schema import AnyRecord, Measurement, Subject, Summary, Verdict
from assay.records.series import MAX_SLICES, SLICES, KeptRecords

USUAL = 8e9  # B/s
DIP = 30_000  # s: the slice in which the rate falls
HOURS = 40_000  # s


def summary(value: float) -> Summary:
    return Summary(n=1, min=value, max=value, median=value, mad=0.0)


def of_slice(t: int, rate: float) -> list[AnyRecord]:
    params = {"t": float(t), "span": 1.0}
    rank = Subject(host="node3" if rate < USUAL / 2 else "node1")
    return [
        Measurement(name=SLICES, metric="throughput", unit="B/s", params=params, summary=summary(rate)),
        Measurement(name=SLICES, metric="latency", unit="s", params=params, summary=summary(1e-3)),
        Measurement(
            name=SLICES,
            metric="rank_throughput",
            unit="B/s",
            params=params,
            subject=rank,
            summary=summary(1e6),
        ),
    ]


def rate_at(t: int) -> float:
    return USUAL * (0.3 if t == DIP else 1 + 0.01 * ((t * 7919) % 11 - 5) / 5)


def total() -> Measurement:
    return Measurement(name="events.build", metric="throughput", unit="B/s", summary=summary(USUAL))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_time_and_a_dip_of_one_slice_stays() -> None:
    kept = KeptRecords()
    largest = 0
    for t in range(HOURS):
        for record in of_slice(t, rate_at(t)):
            kept.append(record)
        largest = max(largest, len(kept.records))
    kept.append(total())
    assert largest <= 3 * MAX_SLICES
    (building,) = buildings(kept.records)
    assert building.slices[0].t == 0 and building.slices[-1].t > HOURS - MAX_SLICES
    assert [(dip.start, dip.end, dip.host) for dip in find_dips(building.slices, 4)] == [
        (DIP, DIP + 1, "node3")
    ]


def test_a_run_read_back_keeps_the_slices_that_it_kept_while_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MAX_SLICES", 32)
    run = Run.create("eb", [], parent=tmp_path)
    for part in range(3):
        for t in range(200):
            for record in of_slice(t, USUAL * (1 + part)):
                run.append(record)
        run.append(total())
    run.append(Verdict(criterion="events.build/throughput >= 1 GB/s", outcome="PASS"))
    run.finish("partial", "killed")
    assert len(run.records) < 3 * 32 + 4
    reloaded = Run.load(run.path)
    assert reloaded.records == run.records
    lines = (run.path / "records.jsonl").read_text().splitlines()
    assert len(lines) == 3 * (3 * 200 + 1) + 1
    # What is removed is removed from the file, and the slices that memory does not hold stay in it.
    resumed = Run.reopen(run.path)
    assert (run.path / "records.jsonl").read_text().splitlines() == lines[:-1]
    appended = resumed.append(total())
    assert appended.id == len(lines)


def test_the_slices_of_several_measurements_share_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_SLICES", 64)
    kept = KeptRecords()
    for part in range(4):
        for t in range(100):
            for record in of_slice(t, USUAL * (0.3 if t == 10 * part else 1)):
                kept.append(record)
    lows = [
        r.params["t"] for r in kept.records if isinstance(r, Measurement) and r.metric == "throughput"
        and r.median < USUAL / 2
    ]  # fmt: skip
    assert lows == [0, 10, 20, 30]
