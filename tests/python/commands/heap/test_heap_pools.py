"""What runtime libraries keep until the end is no leak: it is named, and what was planted is all that is not freed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    build_planted,
    finding_causes,
    load_profile,
    total_of_function,
)

pytestmark = [*REQUIREMENTS, pytest.mark.programs]

LEAK = 12_345  # bytes, planted
EXCEPTIONS = 72_704  # bytes of libstdc++'s memory for exceptions (GCC 12, 64 bits)


def build(executable: Path, *options: str) -> Path:
    return build_planted(executable, "-O1", *options, source="pools.cpp")


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pools") / "pools")


def record(run: Path, program: Path, mode: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ASSAY, "heap", "-o", run, "--", program, mode],
        input="text\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def pools_of(run: Path) -> dict[str, int]:
    return {pool.name: pool.bytes for pool in load_profile(run).pools}


@pytest.mark.parametrize(
    "mode",
    [
        "streams",
        *(
            pytest.param(mode, marks=pytest.mark.acceptance("profile"))
            for mode in ("unsynchronised", "locale", "library", "threads", "killed")
        ),
    ],
)
def test_only_the_planted_leak_is_not_freed(pools: Path, tmp_path: Path, mode: str) -> None:
    record(tmp_path / "run", pools, mode)
    profile = load_profile(tmp_path / "run")
    assert (profile.totals.leaked, profile.totals.leaked_count) == (LEAK, 1)
    assert total_of_function(profile, "leak").leaked == LEAK
    assert profile.calls.of_stacks("leaked").sum() == LEAK
    assert pools_of(tmp_path / "run")["libstdc++"] >= EXCEPTIONS
    assert "stdio" in pools_of(tmp_path / "run")
    assert profile.calls.of_stacks("pooled").sum() == sum(pool.bytes for pool in profile.pools)


@pytest.mark.parametrize(
    ("mode", "pool"), [("locale", "the C library"), ("library", "the loader"), ("threads", "the loader")]
)
def test_the_library_that_keeps_memory_is_named(pools: Path, tmp_path: Path, mode: str, pool: str) -> None:
    record(tmp_path / "run", pools, mode)
    assert pools_of(tmp_path / "run")[pool] > 0


def test_the_terminal_and_json_say_so(pools: Path, tmp_path: Path) -> None:
    done = record(tmp_path / "run", pools, "streams")
    assert "not freed     12.1 KiB in 1 blocks\n" in done.stderr
    assert "runtime pools 79 KiB, no leaks: libstdc++ 71 KiB, stdio 8 KiB\n" in done.stderr
    shown = subprocess.run(
        [ASSAY, "heap", "show", tmp_path / "run", "--json"], capture_output=True, text=True, timeout=LIMIT_S
    )
    (summary,) = json.loads(shown.stdout)
    assert summary["totals"]["leaked"] == LEAK
    assert [row["exclusive"] for row in summary["functions"]["leaked"] if row["exclusive"]] == [LEAK]
    assert summary["pools"][0] == {"name": "libstdc++", "bytes": EXCEPTIONS, "count": 1}
    (cause,) = finding_causes(tmp_path / "run")
    assert "leak" in cause and "12.1 KiB" in cause


def test_a_library_that_is_linked_statically(tmp_path: Path) -> None:
    record(tmp_path / "run", build(tmp_path / "static", "-static-libstdc++", "-static-libgcc"), "streams")
    assert load_profile(tmp_path / "run").totals.leaked == LEAK
    assert pools_of(tmp_path / "run")["libstdc++"] == EXCEPTIONS


def test_a_file_that_is_not_closed_is_a_leak(pools: Path, tmp_path: Path) -> None:
    """Its buffer belongs to stdio; the FILE itself was given to the program."""
    record(tmp_path / "run", pools, "open file")
    totals = load_profile(tmp_path / "run").totals
    assert totals.leaked_count == 2 and LEAK < totals.leaked < LEAK + 1000
