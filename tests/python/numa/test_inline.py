"""Programs of gcc that count inline: several units, functions that units share, code that runs before a unit is
registered, and options with which each access calls its hook."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_exact import ROOT, assay

from assay.commands.numa.compilers import commands_of
from assay.measure.numa import FOLDER, load_profiles

SOURCE = ROOT / "tests" / "fixtures" / "numa" / "early.cpp"
COUNT = 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        [],
        *(
            pytest.param(options, marks=pytest.mark.acceptance("numa"))
            for options in (["-fPIC", "-fno-plt"], ["-masm=intel"], ["-pipe"], ["-flto=auto"])
        ),
    ],
)
def test_units_share_functions_and_code_runs_before_they_are_registered(
    options: list[str], tmp_path: Path
) -> None:
    for unit, define in (("main.o", []), ("other.o", ["-DOTHER"])):
        arguments = ["-O1", *options, *define, "-c", SOURCE, "-o", tmp_path / unit]
        done = assay("c++", *arguments, CXX="g++")
        assert done.returncode == 0, done.stderr
    objects = [tmp_path / "main.o", tmp_path / "other.o"]
    done = assay("c++", *options, *objects, "-o", tmp_path / "program", CXX="g++")
    assert done.returncode == 0, done.stderr
    done = assay("--pages-only", "-o", tmp_path / "run", "--", tmp_path / "program")
    assert done.returncode == 0, done.stderr
    [profile] = [p for p in load_profiles(tmp_path / "run" / FOLDER) if p.is_exact]
    assert profile.recording.end is not None and profile.recording.end.lost == 0
    counts = {"write_early": 0, "write_shared": 0}
    for row in profile.recording.accesses:
        for name in counts:
            if name in profile.site(row.stack).function:
                counts[name] += row.writes
    assert counts == {"write_early": COUNT, "write_shared": 2 * COUNT}


def test_other_assembly_is_left_alone(tmp_path: Path) -> None:
    [counted] = commands_of("cc", ["-c", "a.c"], tmp_path)
    [called] = commands_of("cc", ["-masm=intel", "-c", "a.c"], tmp_path)
    assert "-Xassembler" in counted and "-Xassembler" not in called
