"""Builds the planted programs, once per session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from heap_attached import compile_source
from heap_runs import build_planted

# Of attaching to a process, against hangs: users wait for 10 s, in which threads of a busy machine may not stop.
os.environ.setdefault("ASSAY_ATTACH_LIMIT_S", "300")


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_planted(tmp_path_factory.mktemp("planted") / "planted")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_source(tmp_path_factory.mktemp("small") / "small", "small.c")
