"""Files beside the records of a run, and records of event building, under random damage."""

from __future__ import annotations

import contextlib
import io
import math
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from damage import damaged, fuzzed, read_or_refuse_file
from hypothesis import given
from hypothesis import strategies as st
from planted_events import PlantedEventRun
from rich.console import Console

from assay.errors import UserError
from assay.events.figures import buildings
from assay.explain import explain_evidence
from assay.explain.evidence import Evidence
from assay.fabric import schedules
from assay.judge import Vocabulary, load_specification
from assay.numa.applied import load_applied
from assay.records.matrices import cells_of
from assay.records.numa import NumaApplied
from assay.records.run import Run
from assay.records.schema import (
    AnyRecord,
    Matrix,
    Measurement,
    RunInfo,
    Subject,
    Summary,
    decode_record,
    encode,
)
from assay.report.events import show_events

pytestmark = pytest.mark.slow

INFO = encode(RunInfo(id="x", command=["assay"], assay="0", started="2026-01-01T00:00:00+00:00"))
MATRIX = encode(
    Matrix(
        name="network.all_to_all", metric="bandwidth", unit="B/s", hosts=["a", "b"], cells=2,
        index="pairs-1.i32", values="pairs-1.f32", id=1,
    )
)  # fmt: skip
ENDS = np.array([0, 1, 1, 0], "<i4").tobytes()
VALUES = np.array([1e9, 2e9], "<f4").tobytes()
SCHEDULE = b"# a step a line\n1 2 0\n2 0 1\n"
INVENTORY = b"""[inventory]
sockets = 2
numa_nodes = 2
memory = "256 GB"
rdma_ports = {count = 4, rate = "100 Gbit/s", link_layer = "InfiniBand"}
ethernet_ports = [{count = 2, speed = "10 Gbit/s", mtu = "9000 B"}]
ignore = ["mlx5_3:1"]
"""
APPLIED = msgspec.json.encode([NumaApplied("a", "bind", 0.5, 0.1, None, False)])
EVENT_RECORDS = [
    encode(record)
    for record in PlantedEventRun(hosts=["a", "b"], seconds=3, seconds_to_resume={1: 0.2}).records()
]


@fuzzed
@given(damaged(MATRIX), damaged(ENDS), damaged(VALUES))
def test_damaged_pair_matrices(record: bytes, ends: bytes, values: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-hostile-") as folder:
        files = {
            "run.json": INFO,
            "records.jsonl": record + b"\n",
            "pairs-1.i32": ends,
            "pairs-1.f32": values,
        }
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        with contextlib.suppress(UserError):
            for read in Run.load(folder).records:
                if isinstance(read, Matrix):
                    cells_of(read)


@fuzzed
@given(damaged(SCHEDULE))
def test_damaged_schedules(content: bytes) -> None:
    read_or_refuse_file(content, "schedule.txt", lambda path: schedules.read(path, 3))


@fuzzed
@given(damaged(INVENTORY))
def test_damaged_inventories(content: bytes) -> None:
    read_or_refuse_file(content, "x.toml", lambda path: load_specification(path, Vocabulary()))


@fuzzed
@given(damaged(APPLIED))
def test_damaged_placements(content: bytes) -> None:
    read_or_refuse_file(content, "applied.json", lambda path: load_applied(path.parent))


@st.composite
def changed_event_records(draw: st.DrawFn) -> list[AnyRecord]:
    """Records of event building, some of which are missing or have random figures, names or parameters."""
    records = []
    names = st.sampled_from(["a", "[/x]", "<script>alert(1)</script>", "\x1b[2J", "\ud83d\ude00" * 40, ""])
    figures = st.floats(width=32) | st.sampled_from([0.0, -1.0, 1e308, math.inf, math.nan])
    for line in EVENT_RECORDS:
        record = decode_record(line)
        assert isinstance(record, Measurement)
        if not draw(st.integers(0, 5)):
            continue
        if not draw(st.integers(0, 3)):
            record.subject = Subject(host=draw(names))
            record.params["t"] = draw(figures)
            record.params[draw(names)] = draw(names)
            record.summary = draw(st.none() | st.builds(Summary, n=st.integers(0, 9), median=figures))
            record.samples = draw(st.lists(figures, max_size=3))
        records.append(record)
    return records


@fuzzed
@given(changed_event_records())
def test_changed_event_records_are_shown(records: list[AnyRecord]) -> None:
    buildings(records)
    show_events(Console(file=io.StringIO()), records)
    explain_evidence(Evidence(records, ["a", "b"]))


def test_undamaged_seeds_are_read(tmp_path: Path) -> None:
    files = {"run.json": INFO, "records.jsonl": MATRIX + b"\n", "pairs-1.i32": ENDS, "pairs-1.f32": VALUES}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (matrix,) = Run.load(tmp_path).records
    assert isinstance(matrix, Matrix)
    assert cells_of(matrix)[2].tolist() == [1e9, 2e9]
    (tmp_path / "s").write_bytes(SCHEDULE)
    assert schedules.read(tmp_path / "s", 3) is not None
    (tmp_path / "applied.json").write_bytes(APPLIED)
    assert len(load_applied(tmp_path)) == 1
    (tmp_path / "x.toml").write_bytes(INVENTORY)
    assert load_specification(tmp_path / "x.toml", Vocabulary())
    assert len(buildings([decode_record(line) for line in EVENT_RECORDS])) == 1
