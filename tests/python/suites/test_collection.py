"""Names of tests follow from the code alone.

Processes that run tests in parallel each collect them, and end in an error if the names differ: a name with a time
stamp, an address or the order of a set would fail the gate by chance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def collected(hash_seed: int, temporary: Path) -> list[str]:
    temporary.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "TMPDIR": str(temporary)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    output = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [line for line in output.splitlines() if "::" in line]


def test_two_processes_collect_the_same_tests_in_the_same_order(tmp_path: Path) -> None:
    # The second collection begins seconds after the first: a time stamp in a name differs.
    first, second = (collected(seed, tmp_path / str(seed)) for seed in (1, 2))

    assert len(first) > 1000
    assert first == second
    assert len(set(first)) == len(first)
