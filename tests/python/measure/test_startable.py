"""Programs that are there and cannot be started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.measure.startable import require_program


def write_program(folder: Path, content: bytes) -> str:
    path = folder / "program"
    path.write_bytes(content)
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    "content",
    [
        b"#!/bin/sh\n",
        b"#! /bin/sh -e\n",
        b"#!\t/bin/sh\n",
        b"#!/bin/sh",
        b"echo\n",
        b"",
        b"\x7fELF",
        b"#!\0\n",
    ],
)
def test_scripts_that_the_kernel_or_a_shell_runs_are_accepted(tmp_path: Path, content: bytes) -> None:
    path = write_program(tmp_path, content)
    assert require_program(path) == path


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"#!/no/such/python -u\n",
            "its interpreter /no/such/python does not exist; fix: correct its first line",
        ),
        (b"#!/etc/passwd\n", "its interpreter /etc/passwd cannot be executed"),
        (b"#!/bin/sh\r\necho\r\n", "its lines end in CRLF"),
    ],
)
def test_a_script_without_its_interpreter_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        require_program(write_program(tmp_path, content))
    assert problem in str(refused.value)


def test_an_executable_without_its_loader_is_refused(tmp_path: Path) -> None:
    content = Path(shutil.which("true") or "").read_bytes()
    loader = next(
        (name for name in (b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-linux-aarch64.so.1") if name in content),
        None,
    )
    if loader is None:
        pytest.skip("no dynamic 'true' here")
    assert require_program(write_program(tmp_path, content))
    with pytest.raises(UserError, match=r"its loader /nowhere.* does not exist; fix: take a build"):
        require_program(
            write_program(tmp_path, content.replace(loader, b"/nowhere".ljust(len(loader), b"x")))
        )


def test_no_program_is_refused() -> None:
    with pytest.raises(UserError, match="cannot run no-such-program"):
        require_program("no-such-program")
