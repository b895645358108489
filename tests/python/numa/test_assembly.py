"""The assembly view: accesses by instruction, of a program in which one instruction stores a known number of times."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.launch.engines import engines_folder
from assay.numa import assembly as module
from assay.numa.elf import build_id_of

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "COLUMNS": "120"}
STORES = 12345  # of stores.c
LIMIT_S = 300  # against hangs

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not (engines_folder() / "assay-numa").is_file(), reason="the engines are not built"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the planted instruction is of x86-64"),
    pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump"),
]
needs_qemu = pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="optional: no qemu-x86_64")


def build(program: Path, source: str) -> Path:
    command = ["gcc", "-g", "-O1", "-Wl,--build-id", ROOT / "tests/fixtures/numa" / source, "-o", program]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return program


def assay(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay", "numa", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=ENVIRONMENT | environment,
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program and its run, in which QEMU counted every access."""
    folder = tmp_path_factory.mktemp("stores")
    program = build(folder / "stores", "stores.c")
    done = assay("--emulate", 2, "--every-access", "-o", folder / "run", "--", program)
    assert done.returncode == 0, done.stderr
    return program, folder / "run"


@needs_qemu
def test_one_instruction_has_the_planted_stores(recorded: tuple[Path, Path]) -> None:
    program, run = recorded
    done = assay("show", run, "--assembly", "planted", "--json")
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout)
    assert (found["function"], found["binary"], found["mode"]) == ("planted", str(program), "qemu")
    assert found["build_id"] == build_id_of(program) and found["unplaced"] == 0
    counts = {row["text"].split()[0]: row["accesses"] for row in found["instructions"]}
    accesses = {name: count for name, count in counts.items() if count["reads"] + count["writes"]}
    assert accesses.keys() == {"movnti", "ret"}
    assert (accesses["movnti"]["reads"], accesses["movnti"]["writes"]) == (0, STORES)
    assert (accesses["ret"]["reads"], accesses["ret"]["writes"]) == (1, 0)
    [store] = [row for row in found["instructions"] if row["text"].startswith("movnti")]
    lines = (ROOT / "tests/fixtures/numa/stores.c").read_text().splitlines()
    assert "movnti" in lines[store["line"] - 1] and store["file"].endswith("stores.c")
    assert len(found["instructions"]) > 3  # those without accesses are there too


@needs_qemu
def test_the_text_has_the_count_beside_the_instruction(recorded: tuple[Path, Path]) -> None:
    done = assay("show", recorded[1], "--assembly", "planted")
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if "movnti" in line]
    assert "12 345" in line and "stores.c:" in line


def test_hooks_of_gcc_stand_at_their_calls(tmp_path: Path) -> None:
    source = tmp_path / "sum.c"
    source.write_text(
        "static volatile long values[1000];\n"
        "__attribute__((noinline)) void fill(void) { for (int k = 0; k < 1000; ++k) values[k] = k; }\n"
        "int main(void) { fill(); return 0; }\n"
    )
    assert assay("cc", "-O1", source, "-o", tmp_path / "sum", CC="gcc").returncode == 0
    assert assay("--emulate", 2, "-o", tmp_path / "run", "--", tmp_path / "sum").returncode == 0
    done = assay("show", tmp_path / "run", "--assembly", "fill", "--json")
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout)
    [counted] = [row for row in found["instructions"] if row["accesses"]["writes"]]
    assert (
        counted["accesses"]["writes"] == 1000 and counted["text"].startswith("call") and not found["unplaced"]
    )


@needs_qemu
def test_a_changed_binary_is_refused(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    program, run = recorded
    content = program.read_bytes()
    try:
        build(program, "loops.c")
        done = assay("show", run, "--assembly", "planted")
        assert done.returncode == 2 and "has changed since it was recorded: its build-id is" in done.stderr
        program.unlink()
        done = assay("show", run, "--assembly", "planted")
        assert done.returncode == 2 and f"cannot read {program}" in done.stderr
        os.mkfifo(program)
        done = assay("show", run, "--assembly", "planted")
        assert done.returncode == 2 and "pipe" in done.stderr
    finally:
        program.unlink(missing_ok=True)
        program.write_bytes(content)
        program.chmod(0o755)


@needs_qemu
def test_an_unknown_function_is_one_line(recorded: tuple[Path, Path]) -> None:
    done = assay("show", recorded[1], "--assembly", "plantde")
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and "no function plantde accesses memory" in line


@needs_qemu
def test_an_objdump_that_hangs_or_floods_is_ended(
    recorded: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.errors import UserError
    from assay.measure.numa import FOLDER, load_profiles

    profiles = load_profiles(recorded[1] / FOLDER)
    objdump = tmp_path / "objdump"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(module, "OBJDUMP_LIMIT_S", 0.2)
    for script in ("exec sleep 60", "exec yes"):
        objdump.write_text(f"#!/bin/sh\n{script}\n")
        objdump.chmod(0o755)
        with pytest.raises(UserError, match="objdump took over"):
            module.assemblies(profiles, "planted")


@pytest.mark.parametrize("cut", [0, 4, 40, 64, 100, 400])
def test_damaged_files_have_no_build_id(cut: int, tmp_path: Path) -> None:
    content = Path(sys.executable).resolve().read_bytes()[:2000]
    (tmp_path / "cut").write_bytes(content[:cut])
    assert build_id_of(tmp_path / "cut") == ""
    (tmp_path / "filled").write_bytes(content[:cut] + b"\xff" * 2000)
    assert build_id_of(tmp_path / "filled") in ("", build_id_of(Path(sys.executable).resolve()))
