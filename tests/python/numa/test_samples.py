"""Sample mode without a PMU: on a planted PMU whose "loads" are page faults, and on a machine that has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_touch import ARRAY_PAGES, ROOT, two_processors

from assay.measure.numa import FOLDER, load_profiles
from assay.numa.profile import by_object, by_site, by_thread
from assay.profile.profiles import Profiles

pytestmark = pytest.mark.programs

SOFTWARE = 1  # linux/perf_event.h: the type of the kernel's own events
PAGE_FAULTS_MIN = 5  # faults that need no disk: every first touch


@pytest.fixture
def planted_pmu(tmp_path: Path) -> dict[str, str]:
    """An environment in which each page fault is a sample of a load, with its address, registers and stack."""
    device = tmp_path / "root/sys/bus/event_source/devices/cpu"
    files = {
        "type": SOFTWARE,
        "format/event": "config:0-7",
        "events/mem-loads": f"event={PAGE_FAULTS_MIN:#x}",
    }
    for name, content in files.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(f"{content}\n")
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), "ASSAY_ROOT": str(tmp_path / "root")}


def sampled(run: Path, environment: dict[str, str], *command: object) -> subprocess.CompletedProcess[str]:
    options = ("--emulate", "2", "--samples", "--period", "1")
    arguments = [sys.executable, "-m", "assay", "numa", "-o", str(run), *options, "--", *map(str, command)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=environment)


@two_processors
def test_samples_are_attributed_to_objects_lines_and_threads(
    placed: Path, planted_pmu: dict[str, str], tmp_path: Path
) -> None:
    done = sampled(tmp_path / "run", planted_pmu, placed, "parallel", 2)
    assert (done.returncode, done.stdout) == (7, "10\n"), done.stderr
    [profile] = load_profiles(tmp_path / "run" / FOLDER)
    recording = profile.recording
    assert recording.process.mode == "sample" and recording.end is not None and recording.end.lost == 0
    # Each page of the array is touched once, each quarter by another thread.
    [array] = [n for n in by_object(profile) if profile.name(n).startswith("allocate ")]
    counts = by_object(profile)[array]
    assert abs(counts.total - ARRAY_PAGES) <= 1 and counts.remote == 0 and counts.known == counts.total
    line = next(line for line in by_site(profile) if line.function == "initialise")
    assert abs(by_site(profile)[line].total - ARRAY_PAGES) <= 1
    workers = sorted(counts.total for counts in by_thread(profile).values())[-4:]
    assert all(abs(count - ARRAY_PAGES // 4) < 40 for count in workers)
    parts = [0] * 16
    for row in recording.parts:
        parts[row.part] += row.accesses if row.object == array else 0
    assert all(abs(count - ARRAY_PAGES // 16) <= 2 for count in parts)
    assert recording.sampling is not None and recording.sampling.events == "cpu/mem-loads/"
    _check_shown(tmp_path / "run", done.stderr)


def _check_shown(run: Path, shown: str) -> None:
    """The profile, the terminal and ``--json`` say how much was attributed, and when."""
    profile = Profiles(run).numa[0]
    sampling, slices = profile.sampling, profile.timeline.slices
    assert sampling is not None and 0.9 * sampling.samples < sampling.attributed < sampling.samples
    assert sampling.samples_by_source[sampling.sources.index("unknown")] == sampling.samples
    share = f"{100 * sampling.attributed / sampling.samples:.3g} % of the samples could be given to an object"
    assert share in shown and "accesses are samples (cpu/mem-loads/)" in shown
    assert sum(slices.local) + sum(slices.remote) + sum(slices.unknown) == sampling.samples
    assert profile.is_exact and "Time line of the remote share" not in [row.view for row in profile.absent]
    command = [sys.executable, "-m", "assay", "numa", "show", str(run), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert f'"attributed":{sampling.attributed}' in json.dumps(json.loads(done.stdout), separators=(",", ":"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples"], "no PMU here samples memory accesses"),
        (["--samples", "--every-access"], "--samples with --every-access; fix: give one of them"),
    ],
)
def test_what_cannot_be_sampled_is_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "ASSAY_ROOT": str(tmp_path / "root")}
    command = [sys.executable, "-m", "assay", "numa", *options, "-o", str(tmp_path / "run"), "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_events_that_the_kernel_refuses_are_one_line(planted_pmu: dict[str, str], tmp_path: Path) -> None:
    device = tmp_path / "root/sys/bus/event_source/devices/cpu"
    (device / "type").write_text("4242\n")
    done = sampled(tmp_path / "run", planted_pmu, "true")
    assert done.returncode == 2 and "the kernel refuses cpu/mem-loads/" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()
