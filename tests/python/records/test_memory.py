"""The memory that is available: the least of the machine's and its control groups'."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from assay.records.memory import available_memory

MACHINES = json.loads((Path(__file__).parents[2] / "fixtures/available_memory.json").read_text())


@pytest.mark.parametrize("planted", MACHINES, ids=lambda planted: planted["machine"])
def test_the_available_memory_of_a_planted_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: dict[str, Any]
) -> None:
    for name, text in planted["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    expected = math.inf if planted["available"] is None else planted["available"]
    assert available_memory(tmp_path) == expected
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path))
    assert available_memory() == expected
