"""The command line that preloads a library into ranks: the user's own libraries stay."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch import preload
from assay.launch.preload import join_libraries, obstacle_in, with_environment

ENV = {"LD_PRELOAD": "/our.so", "A": "1"}


@pytest.fixture
def app(tmp_path: Path) -> str:
    return executable(tmp_path / "app")


def executable(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def launched(
    monkeypatch: pytest.MonkeyPatch, mpi: str, command: Sequence[str], exported: str = ""
) -> list[str]:
    monkeypatch.setattr(preload, "_mpi_of_launcher", lambda launcher: mpi)
    monkeypatch.setenv("LD_PRELOAD", exported)
    command, env = with_environment(command, ENV)
    assert env == {}
    return command


@pytest.mark.parametrize(
    ("ours", "theirs", "joined"),
    [
        ("/our.so", "", "/our.so"),
        ("/our.so", "/darshan.so /jemalloc.so", "/our.so:/darshan.so:/jemalloc.so"),
        ("/our.so", "/x.so:/usr/lib/libasan.so.8", "/usr/lib/libasan.so.8:/our.so:/x.so"),
        ("/our.so", "libclang_rt.tsan-x86_64.so", "libclang_rt.tsan-x86_64.so:/our.so"),
        ("/our.so:/x.so", "/x.so", "/our.so:/x.so"),
    ],
)
def test_the_users_libraries_follow_ours_and_sanitizers_stay_first(
    ours: str, theirs: str, joined: str
) -> None:
    assert join_libraries(ours, theirs) == joined


def test_libraries_of_the_launchers_options_are_kept(monkeypatch: pytest.MonkeyPatch, app: str) -> None:
    given = ["mpirun", "-x", "LD_PRELOAD=/user.so", "-n", "2", app, "-x", "LD_PRELOAD=/argument"]
    assert launched(monkeypatch, "openmpi", given) == [
        "mpirun", "-x", "LD_PRELOAD=/our.so:/user.so", "-x", "A=1", "-n", "2", app, "-x", "LD_PRELOAD=/argument",
    ]  # fmt: skip
    exported = launched(monkeypatch, "openmpi", ["mpirun", "-x", "LD_PRELOAD", app], exported="/user.so")
    assert exported == ["mpirun", "-x", "LD_PRELOAD=/our.so:/user.so", "-x", "A=1", app]
    given = [
        "mpiexec",
        "-genv",
        "LD_PRELOAD",
        "/u.so",
        "-n",
        "1",
        app,
        ":",
        "-env",
        "LD_PRELOAD",
        "/v.so",
        app,
    ]
    assert launched(monkeypatch, "mpich", given) == [
        "mpiexec", "-genv", "LD_PRELOAD", "/our.so", "-genv", "A", "1",
        "-genv", "LD_PRELOAD", "/our.so:/u.so", "-n", "1", app, ":", "-env", "LD_PRELOAD", "/our.so:/v.so", app,
    ]  # fmt: skip


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Programs of a folder, of which "sanitized" cannot be loaded into; others in PATH have no obstacle."""
    programs = {name: executable(tmp_path / name) for name in ("plain", "sanitized")}

    def run_tool(arguments: list[str], limit_s: float) -> bytes:
        assert arguments[0] == "obstacles"
        reasons = {programs["sanitized"]: "is built with it"}
        lines = [json.dumps({"program": p, "reason": reasons.get(p, "")}) for p in arguments[1:]]
        return "\n".join(lines).encode()

    monkeypatch.setattr(preload, "run_tool", run_tool)
    return programs


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["mpirun", "-n", "2", "{sanitized}"], True),
        (["mpirun", "--oversubscribe", "{sanitized}"], True),
        (["mpirun", "-launcher", "sh", "-n", "2", "{sanitized}"], True),
        (["mpirun", "-n", "1", "{plain}", ":", "-n", "1", "{sanitized}", "x"], True),
        (["srun", "{sanitized}"], True),
        (["{sanitized}"], True),
        (["mpirun", "-n", "2", "{plain}", "{sanitized}"], False),
        (["mpirun", "-n", "2", "sh", "-c", "{sanitized}"], False),
        (["sh", "-c", "{sanitized}"], False),
        (["/no/such/program"], False),
        (["mpirun", "-n", "2"], False),
    ],
)
def test_the_program_without_a_library_is_found(
    command: list[str], found: bool, planted: dict[str, str]
) -> None:
    obstacle = obstacle_in([argument.format(**planted) for argument in command])
    assert (obstacle is not None) == found
    if obstacle is not None:
        assert (obstacle.program, obstacle.reason) == (planted["sanitized"], "is built with it")


def test_a_tool_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("assay.launch.stores.engines_folder", lambda: tmp_path)
    with pytest.raises(UserError, match="no assay-store"):
        obstacle_in(["sh"])
