"""Recordings and profiles of ``assay numa`` under random damage: they are read and shown, or refused in one line.

``make fuzz`` runs more rounds, with random damage: ASSAY_FUZZ_ROUNDS for each test.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import msgspec
import pytest
from damage import fuzzed
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from assay.errors import UserError
from assay.explain import explain_evidence
from assay.explain.evidence import Evidence
from assay.numa.advice import plan
from assay.numa.analysis import analyse
from assay.numa.profile import Location, Profile, load_profile, save_profile
from assay.numa.recording import parse_recording
from assay.profile import numa
from assay.profile.export import callgrind, collapsed, pprof, speedscope
from assay.profile.numa_ranks import merge_ranks
from assay.profile.profiles import Profiles
from assay.report.numa import show_numa
from assay.report.numa_page import numa_page

pytestmark = pytest.mark.slow

ROWS: list[list[object]] = [
    ["process", 1, "gcc", 10, 1, 4096, 2, "./a\x00b\x00", "3"],
    ["node", 0, [0], 0, []],
    ["node", 1, [1], 0, [21, 10]],
    ["module", 4096, 8192, 12288, "/bin/a"],
    ["thread", 0, 10, "a"],
    ["binding", 0, 5, [0], 0, []],
    ["stack", 1, [8200, 8300]],
    ["site", 2, "f", "a.c", 3],
    ["object", 0, "heap", "", 1, 8192, 1],
    ["touch", 0, 1, 0, 0, 0, 0, 2, 0],
    ["access", -1, 2, 0, 0, 1, 3, 4],
    ["part", 0, 15, 0, 0, 1, 7],
    ["placed", 0, 0, 2],
    ["moved", 0, 0, 1, 1],
    ["memory", 7, -1, 2],
    ["slice", 0, 1000, 3, 4, 0],
    ["slice", 1000, 1000, 0, 0, 1],
    ["sampling", "cpu/mem-loads/", 1000, 1, [3, 0, 0, 4, 0]],
    ["note", "nothing is missing"],
    ["end", 9, 0, 0],
]
UNDAMAGED = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def profile_of(text: bytes) -> Profile:
    recording = parse_recording(text.splitlines(keepends=True), "x")
    return Profile(recording, [Location("f", "a.c", 3, "/bin/a")], {1: [0, 0], 2: [0]})


def use(recording: Profile) -> None:
    """Everything that commands do with a recording."""
    plan(recording, [])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1.json"
        path.write_bytes(msgspec.json.encode(analyse([recording])))
        show(numa.load_profile(path))


def show(profile: numa.NumaProfile) -> None:
    """Everything that commands do with a profile."""
    show_numa(Console(file=io.StringIO()), profile)
    profiles = Profiles(Path("/nowhere"))
    profiles.numa = [profile]
    explain_evidence(Evidence([], ["h"], profiles=profiles))
    numa.check(merge_ranks([profile, profile]))
    msgspec.json.encode(numa_page(profile, max_nodes=1))
    for write in (callgrind, pprof, speedscope, lambda profile: collapsed(profile, "touched")):
        write(profile)


@fuzzed
@given(
    position=st.integers(0, len(UNDAMAGED) - 1), inserted=st.binary(max_size=8), removed=st.integers(0, 20)
)
def test_damaged_recordings(position: int, inserted: bytes, removed: int) -> None:
    try:
        profile = profile_of(UNDAMAGED[:position] + inserted + UNDAMAGED[position + removed :])
    except UserError:
        return
    use(profile)


@fuzzed
@given(data=st.data())
def test_damaged_profiles(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1.0.json"
        save_profile(profile_of(UNDAMAGED), path)
        content = path.read_bytes()
        position = data.draw(st.integers(0, len(content) - 1))
        inserted, removed = data.draw(st.binary(max_size=6)), data.draw(st.integers(0, 12))
        path.write_bytes(content[:position] + inserted + content[position + removed :])
        try:
            profile = load_profile(path)
        except UserError:
            return
        use(profile)


@fuzzed
@given(data=st.data())
def test_damaged_analyses(data: st.DataObject) -> None:
    content = msgspec.json.encode(analyse([profile_of(UNDAMAGED)]))
    position = data.draw(st.integers(0, len(content) - 1))
    inserted, removed = data.draw(st.binary(max_size=6)), data.draw(st.integers(0, 12))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1.json"
        path.write_bytes(content[:position] + inserted + content[position + removed :])
        try:
            profile = numa.load_profile(path)
        except UserError:
            return
    show(profile)


def test_undamaged_rows_are_read() -> None:
    use(profile_of(UNDAMAGED))
