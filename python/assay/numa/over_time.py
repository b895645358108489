"""Memory and the remote share over time, and the sampling of accesses, from a recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from assay.numa.recording import DATA_SOURCES, NOWHERE, Recording, as_shown
from assay.records.numa import NumaSampling, NumaSlices, NumaTimeline

ATTRIBUTED = (
    "heap",
    "mapping",
    "global",
    "stack",
)  # kinds of objects that have a name; "small" and "other" have none


def timeline_of(
    recording: Recording, nodes: Sequence[int], page_bytes: int, has_slices: bool
) -> NumaTimeline:
    """``has_slices``: the recording's slices are of what the profile's matrix counts."""
    pages: dict[int, dict[int, int]] = defaultdict(dict)
    for row in recording.memory:
        pages[row.ns][row.node] = row.pages
    times = sorted(pages)
    return NumaTimeline(
        seconds=[ns * 1e-9 for ns in times],
        resident=[[pages[ns].get(node, 0) * page_bytes for ns in times] for node in (*nodes, NOWHERE)],
        slices=_slices(recording) if has_slices else NumaSlices([], 0.0, [], [], []),
    )


def _slices(recording: Recording) -> NumaSlices:
    rows = recording.slices
    return NumaSlices(
        seconds=[row.ns * 1e-9 for row in rows],
        width=rows[0].width * 1e-9 if rows else 0.0,
        local=[row.local for row in rows],
        remote=[row.remote for row in rows],
        unknown=[row.unknown for row in rows],
    )


def sampling_of(recording: Recording) -> NumaSampling | None:
    """None where accesses were not sampled."""
    row = recording.sampling
    if row is None:
        return None
    samples = [(access.reads + access.writes, access.object) for access in recording.accesses]
    return NumaSampling(
        events=as_shown(row.events),
        period=row.period,
        samples=sum(count for count, _ in samples),
        attributed=sum(
            count
            for count, number in samples
            if number != NOWHERE and recording.objects[number].kind in ATTRIBUTED
        ),
        sources=list(DATA_SOURCES),
        samples_by_source=list(row.samples_by_source),
        throttled=row.throttled,
    )
