"""The recorder that is attached to a running process: what it says, however early it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.measure import heap_recorder


@pytest.mark.parametrize("last_line, still_runs", [("left 17: it goes on", True), ("17 has ended", False)])
def test_a_recorder_that_ends_at_once_is_heard_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_line: str, still_runs: bool
) -> None:
    """Both lines arrive together."""
    engine = tmp_path / "assay-heap"
    engine.write_text(f"#!/bin/sh\necho 'attached\n{last_line}'\necho 'a problem' >&2\n")
    engine.chmod(0o755)
    monkeypatch.setattr(heap_recorder, "recorder", lambda: engine)
    attached: list[bool] = []
    recording = heap_recorder.record_running(
        tmp_path / "trace", 17, 0, heap_recorder.Recording(), lambda: attached.append(True)
    )
    assert attached == [True]
    assert (recording.still_runs, recording.problem) == (still_runs, "a problem")
