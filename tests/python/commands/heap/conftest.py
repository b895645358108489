"""The planted program, built once."""

from __future__ import annotations

from pathlib import Path

import pytest
from heap_runs import built


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("planted") / "planted")
