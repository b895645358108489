"""Findings of ``assay heap`` on planted programs: totals to the byte, and the advice on each fault."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from heap_runs import (
    LIMIT_S,
    NEEDED,
    ROOT,
    advice,
    faults_can_be_watched,
    functions,
    heap,
    of,
    profile,
)

from assay.profile.tree import by_function

pytestmark = [*NEEDED, pytest.mark.programs]


def test_output_and_exit_status_are_the_programs_own(planted: Path, tmp_path: Path) -> None:
    done = heap(tmp_path / "run", planted, "clean")
    assert (done.returncode, done.stdout) == (7, "done\n")
    assert done.stderr.startswith("said\n")
    assert "allocated" in done.stderr and "peak" in done.stderr


def test_a_clean_program_gets_no_advice(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "clean")
    assert advice(tmp_path / "run") == []
    one = profile(tmp_path / "run")
    assert one.process.complete
    assert of(one, "main").bytes >= 400_000


def test_a_leak(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "leak")
    node = of(profile(tmp_path / "run"), "leak")
    assert (node.count, node.bytes, node.leaked, node.leaked_count) == (10, 1_000_000, 1_000_000, 10)
    (cause,) = advice(tmp_path / "run")
    assert "leak" in cause and "planted.cpp:" in cause and "977 KiB" in cause


def test_short_lives(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "churn")
    node = of(profile(tmp_path / "run"), "churn")
    assert (node.count, node.bytes, node.temporary, node.leaked) == (50_000, 5_000_000, 50_000, 0)
    (cause,) = advice(tmp_path / "run")
    assert "50000 blocks that are freed before the next" in cause


def test_reallocation_in_a_loop(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "grow")
    node = of(profile(tmp_path / "run"), "grow")
    assert (node.count, node.bytes, node.reallocated) == (5000, 10 * 5000 * 5001 // 2, 4999)
    (cause,) = advice(tmp_path / "run")
    assert "reallocates 4999 times" in cause


def test_blocks_that_are_made_larger_once(small: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", small, "once")
    node = of(profile(tmp_path / "run"), "enlarge")
    assert (node.reallocated, node.foreign_reallocations) == (2000, 2000)
    assert not any("reallocates" in cause for cause in advice(tmp_path / "run"))


def test_functions_that_only_hand_requests_on(small: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", small, "wrapped")
    assert of(profile(tmp_path / "run"), "wanting").leaked == 5_000_000
    assert any("wanting" in cause for cause in advice(tmp_path / "run"))


def test_a_function_stands_where_most_of_it_is(small: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", small, "two lines")
    by = {one.location.function: one for one in profile(tmp_path / "run").by("bytes", by_function)}
    lines = (ROOT / "tests/fixtures/heap/small.c").read_text().splitlines()
    assert "malloc(1000000)" in lines[by["two_lines"].location.line - 1]
    assert (
        by["two_lines"].exclusive == 1_000_010
        and by["main"].inclusive >= by["two_lines"].inclusive == 1_000_010
    )


def test_single_bytes(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "tiny")
    (cause,) = advice(tmp_path / "run")
    assert "5000 blocks of 1 byte" in cause


def test_every_way_to_ask(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "ways")
    one = profile(tmp_path / "run")
    nodes = [n for k, n in enumerate(one.nodes) if "every_way" in functions(one, k)]
    # Twelve blocks and strdup's source; libstdc++ rounds an aligned block up to its alignment.
    assert sum(n.count for n in nodes if n.min_size == n.max_size == 1000) == 12
    assert sum(n.count for n in nodes if n.min_size == n.max_size == 1024) == 1
    assert sum(n.leaked_count for n in nodes) == 0
    assert one.totals.unknown_frees == 0


def test_what_is_asked_of_the_system_itself(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "bare", planted, "clean")
    heap(tmp_path / "run", planted, "maps")
    bare, one = profile(tmp_path / "bare"), profile(tmp_path / "run")
    more = {
        kind: one.threads[0].calls[kind].count
        - (bare.threads[0].calls[kind].count if kind in bare.threads[0].calls else 0)
        for kind in ("map", "unmap", "brk")
    }
    assert more == {"map": 2, "unmap": 2, "brk": 2}  # mremap counts as unmap and map
    assert one.totals.mapped_bytes - bare.totals.mapped_bytes == (1 << 20) + (3 << 20)


def test_threads(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "threads")
    one = profile(tmp_path / "run")
    node = of(one, "churn")
    assert (node.count, node.bytes, node.temporary) == (80_000, 8_000_000, 80_000)
    assert sorted(t.calls["malloc"].count for t in one.threads)[-8:] == [10_000] * 8
    assert len(one.threads) == 9


def test_blocks_that_another_thread_frees(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "handover")
    one = profile(tmp_path / "run")
    assert one.totals.unknown_frees == 0
    assert max(t.foreign_frees for t in one.threads) >= 1000


def test_what_is_never_there_at_once_does_not_add_up(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "halves")
    one = profile(tmp_path / "run")
    peaks = {p.function.partition("(")[0].rpartition("::")[2]: p for p in one.locations}
    assert peaks["both_halves"].function_inclusive_peak == 3_000_000
    assert peaks["first_half"].function_inclusive_peak == 1_000_000
    assert peaks["leak"].function_exclusive_peak == 3_000_000
    callers = [n for n in one.nodes if one.locations[n.location].function.startswith("both_halves")]
    assert sorted(n.inclusive_peak for n in callers) == [1_000_000, 3_000_000]  # each on its own line


def test_pages_that_a_few_blocks_keep(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "fragments")
    one = profile(tmp_path / "run")
    assert one.fragmentation is not None
    assert 19_000 < one.fragmentation.pages < 22_000
    # Pages are examined when a quarter more is empty, so the maximum may be missed by that much.
    assert one.fragmentation.empty > 0.75 * one.fragmentation.pages * one.fragmentation.page_bytes
    worst = one.fragmentation.pins[0]
    assert "interleave" in one.allocation_site(worst.node).function
    assert worst.blocks == 20_000
    (cause,) = advice(tmp_path / "run")
    assert "interleave" in cause and "nearly empty pages" in cause


def test_how_deep_the_stack_went(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "deep")
    (thread,) = profile(tmp_path / "run").threads
    assert 1_000_000 < thread.stack.deepest < 1_200_000
    assert thread.stack.deepest <= thread.stack.resident < thread.stack.deepest + 200_000
    one = profile(tmp_path / "run")
    assert "leak" in functions(one, thread.stack.node)
    assert max(thread.stack.depth) == thread.stack.deepest


def test_copies_that_were_not_meant(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "copies")
    causes = advice(tmp_path / "run")
    assert any("by_value" in cause and "copies" in cause for cause in causes), causes


@pytest.mark.skipif(not faults_can_be_watched(), reason="page faults cannot be watched here")
def test_who_touches_first(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "touch")
    one = profile(tmp_path / "run")
    assert one.touches is not None
    pages = (100 << 20) // 4096
    (line,) = [t for t in one.touches.lines if t.function.startswith("touch")]
    assert abs(line.pages - pages) <= 2
    stack = max(one.touches.stacks, key=lambda t: t.pages)
    assert "ask_large" in one.allocation_site(stack.node).function
    assert abs(stack.pages - pages) <= 2
    # 49 or 50 huge pages lie inside of it; its ends use small pages.
    assert 49 <= stack.with_huge <= 50 + 2 * 512
    assert abs(dict(one.touches.threads)[1] - pages) <= 50
    (cause,) = advice(tmp_path / "run")
    assert "ask_large" in cause and "with huge pages it would be" in cause


@pytest.mark.skipif(not faults_can_be_watched(), reason="page faults cannot be watched here")
def test_who_has_it_touched(planted: Path, tmp_path: Path) -> None:
    """First touch is attributed to the callers of memset, memcpy, read and the standard library."""
    heap(tmp_path / "run", planted, "fills")
    touches = profile(tmp_path / "run").touches
    assert touches is not None
    pages = Counter[str]()
    for line in touches.lines:
        pages[line.function.partition("(")[0]] += line.pages
    expected = (8 << 20) // 4096
    for name in ("clear", "copy", "receive", "fill"):
        assert abs(pages[name] - expected) <= 2, (name, pages)
    assert 19 * 24 <= pages["enlarge"] <= 20 * (24 + 25), pages


@pytest.mark.skipif(not faults_can_be_watched(), reason="page faults cannot be watched here")
def test_memory_that_is_touched_anew(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "cycle")
    (cause,) = advice(tmp_path / "run")
    assert "ask_large" in cause and "8 times their peak" in cause
    heap(tmp_path / "without", planted, "cycle", options=["--no-faults"])
    assert profile(tmp_path / "without").touches is None
    assert advice(tmp_path / "without") == []


def test_variables(tmp_path: Path) -> None:
    program = tmp_path / "globals"
    source = ROOT / "tests/fixtures/heap/globals.cpp"
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", source, "-o", program], check=True, timeout=LIMIT_S)
    heap(tmp_path / "run", program)
    found = {v.name: v for v in profile(tmp_path / "run").globals.variables}
    zeroed, each = found["planted::zeroed"], found["of_each_thread"]
    assert (zeroed.bytes, zeroed.per_thread, zeroed.line) == (8 << 20, False, 8)
    assert zeroed.resident is not None and abs(zeroed.resident - (4 << 20)) <= 8192
    assert (each.bytes, each.per_thread) == (64 << 10, True)
    assert found["planted::initialised"].bytes == 1_000_000
    objects = {o.path: o for o in profile(tmp_path / "run").globals.objects}
    own = objects[str(program)]
    assert own.data >= 1_000_000 and own.bss >= 8 << 20 and own.tls >= 64 << 10
    assert any("planted::zeroed" in cause and "8 MiB" in cause for cause in advice(tmp_path / "run"))
