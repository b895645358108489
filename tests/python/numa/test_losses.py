"""What a NUMA recording could not keep is counted and said, and its figures do not pass for whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from heap_runs import build_planted, can_trace_page_faults
from planted_numa import planted_profile

from assay.judge import judge, load_specification
from assay.numa.analysis import analyse
from assay.numa.profile import Profile
from assay.profile.profiles import Profiles
from assay.records.run import Run

ROOT = Path(__file__).parents[3]
TOUCHED_PAGES = 16 * (16 << 20) // 4096  # by the scenario "overrun"


def with_loss(profile: Profile, lost: int, **changes: object) -> Profile:
    assert profile.recording.end is not None
    end = msgspec.structs.replace(profile.recording.end, lost=lost)
    recording = msgspec.structs.replace(profile.recording, end=end, **changes)
    return Profile(recording, profile.locations, profile.stacks)


def test_losses_of_every_recording_of_a_process_are_told() -> None:
    """Accesses and first touches come from two recordings; either may lack some."""
    exact = with_loss(planted_profile(2, mode="gcc"), 5, touches=[])
    profile = analyse([exact, with_loss(planted_profile(2, mode="touch"), 2)])
    assert profile.process.lost_events == 7
    assert any(text.startswith("7 events could not be recorded") for text in profile.problems)


@pytest.mark.programs
@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_page_faults_that_found_the_kernels_buffer_full_leave_the_verdict_open(tmp_path: Path) -> None:
    """The program stops its recorder and touches more pages than the buffer of a processor holds."""
    program = build_planted(tmp_path / "planted")
    done = subprocess.run(
        [sys.executable, "-m", "assay", "numa", "-o", "run", "--emulate", "2", "--", program, "overrun"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    profile = max(Profiles(tmp_path / "run").numa, key=lambda each: each.process.lost_events)
    lost = profile.process.lost_events
    assert TOUCHED_PAGES / 2 < lost < TOUCHED_PAGES + 1000
    assert f"{lost} events could not be recorded" in done.stderr
    (tmp_path / "site.toml").write_text('[[criterion]]\nmetric = "profile.numa/remote_share"\nmax = 1\n')
    (verdict,) = judge(load_specification(tmp_path / "site.toml"), Run.load(tmp_path / "run").records)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "events could not be recorded" in verdict.reason
