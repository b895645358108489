"""What a recording of ``assay heap`` could not keep is counted and said, and its figures do not pass for whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from heap_runs import REQUIREMENTS, can_trace_page_faults, finding_causes, load_profile, run_heap

from assay.explain.evidence import Evidence
from assay.explain.heap import heap_leak
from assay.judge import judge, load_specification
from assay.profile.profiles import load_profiles
from assay.records.run import Run

pytestmark = [*REQUIREMENTS, pytest.mark.programs]
TOUCHED_PAGES = 16 * (16 << 20) // 4096  # by the scenario "overrun"
SPECIFICATION = '[[criterion]]\nmetric = "profile.heap/leaked"\nmax = "1 GB"\n'


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_page_faults_that_found_the_kernels_buffer_full_are_counted(planted: Path, tmp_path: Path) -> None:
    """The program stops its recorder and touches more pages than the buffer of a processor holds."""
    done = run_heap(tmp_path / "run", planted, "overrun")
    profile, _ = load_profiles(tmp_path / "run")
    assert profile.touches is not None and done.returncode == 7
    (pages,) = profile.touches.site_pages
    lost = profile.trace.lost_faults
    assert lost > 0 and pages < TOUCHED_PAGES
    assert TOUCHED_PAGES <= pages + lost <= TOUCHED_PAGES + 1000  # also of code, stacks and the C library
    assert f"{lost} page faults could not be recorded" in done.stderr
    (cause,) = [text for text in finding_causes(tmp_path / "run") if "page faults" in text]
    assert f"at least {pages} page faults" in cause


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_a_recorder_that_keeps_up_loses_no_page_fault(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "fork")
    assert [profile.trace.lost_faults for profile in load_profiles(tmp_path / "run")] == [0, 0]
    assert "could not be recorded" not in done.stderr


def test_sampled_blocks_beyond_the_table_are_counted_and_leave_the_verdict_open(
    planted: Path, tmp_path: Path
) -> None:
    """Two thirds of 1.2 million live blocks are sampled; the table holds half a million."""
    done = run_heap(tmp_path / "run", planted, "tiny", "1200000", options=["--sample", "1B"])
    (profile,) = load_profiles(tmp_path / "run")
    assert profile.trace.lost_events > 100_000
    assert "too many sampled blocks live at a time" in done.stderr
    assert f"{profile.trace.lost_events} events could not be recorded" in done.stderr
    (tmp_path / "site.toml").write_text(SPECIFICATION)
    (verdict,) = judge(load_specification(tmp_path / "site.toml"), Run.load(tmp_path / "run").records)
    assert verdict.outcome == "INCONCLUSIVE"
    assert "events could not be recorded" in verdict.reason


def test_a_leak_is_doubtful_when_events_are_missing(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "leak")
    profile = load_profile(tmp_path / "run")
    evidence = Evidence([], ["h1"], profiles=SimpleNamespace(main=profile))  # type: ignore[arg-type]
    (whole,) = heap_leak(evidence)
    profile.trace.lost_events = 3
    (doubtful,) = heap_leak(evidence)
    assert doubtful.details[len(whole.details) :] == [
        "doubtful: 3 events could not be recorded, and frees may be what is missing"
    ]
