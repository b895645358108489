"""Assay runs its own modules: none of the current folder, and none that the variables of another Python name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from assay.launch.own_python import run_module

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "script": [str(ROOT / "assay"), "--version"],
    "module": run_module("assay", "--version"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_modules_of_strangers_are_not_imported(command: list[str], tmp_path: Path) -> None:
    for name in ("queue", "runpy", "msgspec", "assay", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger ran')\n")
    other = {
        "PYTHONHOME": "/nonexistent",
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "queue.py"),
    }
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **other}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("assay ")


def test_a_measured_program_keeps_its_python_variables(tmp_path: Path) -> None:
    """A program that Assay runs for the user gets the user's variables, and no folder of Assay."""
    command = [str(ROOT / "assay"), "heap", "--", "/bin/sh", "-c", "echo $PYTHONPATH:$PYTHONHOME"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "/site/python", "PYTHONHOME": "/site"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[0] == "/site/python:/site"


def test_a_module_finds_what_this_process_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Packages may come from several folders, each in PYTHONPATH."""
    (tmp_path / "of_another_folder.py").write_text("print('found')\n")
    monkeypatch.syspath_prepend(tmp_path)
    done = subprocess.run(
        run_module("of_another_folder"), capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (done.returncode, done.stdout) == (0, "found\n")
    monkeypatch.chdir(tmp_path)  # a stranger's, where it is the current folder
    assert subprocess.run(run_module("of_another_folder"), capture_output=True, timeout=60).returncode == 1
