"""Builds the programs whose memory placement is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "numa"


@pytest.fixture(scope="session")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four threads that use an array, after a serial or a parallel first touch."""
    return build(tmp_path_factory.mktemp("programs") / "placed", "placed.c")


def build(program: Path, source: str, *options: str) -> Path:
    command = ["gcc", "-g", "-O1", "-pthread", *options, str(FIXTURES / source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    return program
