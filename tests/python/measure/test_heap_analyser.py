"""A heap analyser that fails: one line names the cause, and no file is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.measure import heap


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -SEGV $$", r"x\.heap: its analysis was ended by signal 11 \(Segmentation fault\)$"),
        ("kill -KILL $$", r"ended by signal 9 \(Killed\); the system may have run out of memory"),
        (
            "echo 'assay-heap: x.heap is not a heap trace; fix: record it' >&2; exit 2",
            "^x.heap is not a heap trace",
        ),
        ("exit 3", r"x\.heap: its analysis ended with status 3"),
        ("sleep 20", "has not ended within 1 s"),
    ],
)
def test_a_failed_analysis_is_one_line_and_leaves_no_file(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analyser = tmp_path / "assay-heap"
    analyser.write_text(f"#!/bin/sh\necho '{{'\n{script}\n")
    analyser.chmod(0o755)
    monkeypatch.setattr(heap, "recorder", lambda: analyser)
    monkeypatch.setattr(heap, "ANALYSIS_LIMIT_S", 1 if "sleep" in script else 60)
    trace = tmp_path / "x.heap"
    trace.write_bytes(b"")
    with pytest.raises(UserError) as raised:
        heap.analyse_trace(trace)
    assert re.search(message, raised.value.what), raised.value.what
    assert sorted(path.name for path in tmp_path.iterdir()) == ["assay-heap", "x.heap"]
