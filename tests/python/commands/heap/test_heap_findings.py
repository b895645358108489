"""Findings of ``assay heap`` on planted programs: exact totals, and the cause that is reported for each fault."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from heap_runs import (
    LIMIT_S,
    REQUIREMENTS,
    ROOT,
    can_trace_page_faults,
    finding_causes,
    functions_on_stack,
    load_profile,
    run_heap,
    stack_metrics,
    total_of_function,
)

pytestmark = [*REQUIREMENTS, pytest.mark.programs]


def test_output_and_exit_status_are_unchanged(planted: Path, tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", planted, "clean")
    assert (done.returncode, done.stdout) == (7, "done\n")
    assert done.stderr.startswith("said\n")
    assert "allocated" in done.stderr and "peak" in done.stderr


def test_a_clean_program_has_no_findings(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "clean")
    assert finding_causes(tmp_path / "run") == []
    result = load_profile(tmp_path / "run")
    assert result.process.complete
    assert total_of_function(result, "main").bytes >= 400_000


def test_a_leak_is_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "leak")
    node = total_of_function(load_profile(tmp_path / "run"), "leak")
    assert (node.count, node.bytes, node.leaked, node.leaked_count) == (10, 1_000_000, 1_000_000, 10)
    (cause,) = finding_causes(tmp_path / "run")
    assert "leak" in cause and "planted.cpp:" in cause and "977 KiB" in cause


def test_short_lived_blocks_are_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "churn")
    node = total_of_function(load_profile(tmp_path / "run"), "churn")
    assert (node.count, node.bytes, node.temporary, node.leaked) == (50_000, 5_000_000, 50_000, 0)
    (cause,) = finding_causes(tmp_path / "run")
    assert "50000 blocks that are freed before the next" in cause


def test_reallocation_in_a_loop_is_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "grow")
    node = total_of_function(load_profile(tmp_path / "run"), "grow")
    assert (node.count, node.bytes, node.reallocated) == (5000, 10 * 5000 * 5001 // 2, 4999)
    (cause,) = finding_causes(tmp_path / "run")
    assert "reallocates 4999 times" in cause


def test_one_reallocation_per_block_is_no_finding(small: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", small, "once")
    node = total_of_function(load_profile(tmp_path / "run"), "enlarge")
    assert (node.reallocated, node.foreign_reallocations) == (2000, 2000)
    assert not any("reallocates" in cause for cause in finding_causes(tmp_path / "run"))


def test_an_allocation_wrapper_is_not_the_cause(small: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", small, "wrapped")
    assert total_of_function(load_profile(tmp_path / "run"), "wrapped_allocations").leaked == 5_000_000
    assert any("wrapped_allocations" in cause for cause in finding_causes(tmp_path / "run"))


def test_a_functions_line_is_the_one_with_most_bytes(small: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", small, "two lines")
    functions = {
        entry.location.function: entry for entry in load_profile(tmp_path / "run").by("bytes", "function")
    }
    lines = (ROOT / "tests/fixtures/heap/small.c").read_text().splitlines()
    assert "malloc(1000000)" in lines[functions["two_lines"].location.line - 1]
    assert (
        functions["two_lines"].exclusive == 1_000_010
        and functions["main"].inclusive >= functions["two_lines"].inclusive == 1_000_010
    )


def test_many_blocks_of_one_byte_are_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "tiny")
    (cause,) = finding_causes(tmp_path / "run")
    assert "5000 blocks of 1 byte" in cause


def test_every_allocation_function_is_recorded(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "ways")
    result = load_profile(tmp_path / "run")
    nodes = [
        n for n in stack_metrics(result) if "every_allocation_function" in functions_on_stack(result, n.node)
    ]
    # 12 blocks and strdup's source string; libstdc++ rounds an aligned block up from 1000 to 1024 bytes.
    assert sum(n.count for n in nodes if n.min_size == n.max_size == 1000) == 12
    assert sum(n.count for n in nodes if n.min_size == n.max_size == 1024) == 1
    assert sum(n.leaked_count for n in nodes) == 0
    assert result.totals.unknown_frees == 0


def test_mmap_munmap_and_brk_are_counted(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "bare", planted, "clean")
    run_heap(tmp_path / "run", planted, "maps")
    bare, result = load_profile(tmp_path / "bare"), load_profile(tmp_path / "run")
    difference = {
        kind: result.threads[0].calls[kind].count
        - (bare.threads[0].calls[kind].count if kind in bare.threads[0].calls else 0)
        for kind in ("map", "unmap", "brk")
    }
    assert difference == {"map": 2, "unmap": 2, "brk": 2}  # mremap counts as unmap and map
    assert result.totals.mapped_bytes - bare.totals.mapped_bytes == (1 << 20) + (3 << 20)


def test_allocations_of_threads_are_recorded_exactly(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "threads")
    result = load_profile(tmp_path / "run")
    node = total_of_function(result, "churn")
    assert (node.count, node.bytes, node.temporary) == (80_000, 8_000_000, 80_000)
    assert sorted(t.calls["malloc"].count for t in result.threads)[-8:] == [10_000] * 8
    assert len(result.threads) == 9


def test_blocks_freed_by_another_thread_are_counted(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "handover")
    result = load_profile(tmp_path / "run")
    assert result.totals.unknown_frees == 0
    assert max(t.foreign_frees for t in result.threads) >= 1000


def test_peaks_of_blocks_that_are_not_live_together_do_not_add_up(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "halves")
    result = load_profile(tmp_path / "run")
    peaks = {
        p.location.function.partition("(")[0].rpartition("::")[2]: p for p in result.by("peak", "function")
    }
    assert peaks["both_halves"].inclusive == 3_000_000
    assert peaks["first_half"].inclusive == 1_000_000
    assert peaks["leak"].exclusive == 3_000_000
    lines = [p for p in result.by("peak", "line") if p.location.function.startswith("both_halves")]
    assert sorted(p.inclusive for p in lines) == [1_000_000, 3_000_000]
    nodes = result.calls.column(result.tree.nodes.figures, "peak", result.tree.nodes.rows)
    callers = [
        peak
        for peak, location in zip(nodes, result.calls.location, strict=True)
        if result.calls.locations[location].function.startswith("both_halves")
    ]
    assert sorted(callers) == [1_000_000, 3_000_000]  # each on its own line


@pytest.mark.acceptance(
    "profile"
)  # resident memory is sampled in time; fragmentation_test.cpp has the arithmetic
def test_fragmentation_is_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "fragments")
    result = load_profile(tmp_path / "run")
    assert result.fragmentation is not None
    assert 19_000 < result.fragmentation.pages < 22_000
    # Fragmentation is measured again only when resident minus live bytes has grown by a quarter, so the result may be
    # that far below the maximum.
    page_bytes = result.fragmentation.pages * result.fragmentation.page_bytes
    assert page_bytes - result.fragmentation.live > 0.75 * page_bytes
    assert "interleave" in result.calls.locations[result.fragmentation.pin_site[0]].function
    assert result.fragmentation.pin_blocks[0] == 20_000
    (cause,) = finding_causes(tmp_path / "run")
    assert "interleave" in cause and "nearly empty pages" in cause


@pytest.mark.acceptance("profile")  # resident memory is sampled in time
def test_shared_memory_is_not_fragmentation(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "shared")
    result = load_profile(tmp_path / "run")
    assert max(result.timeline.resident) > 8 << 20
    assert result.fragmentation is None


def test_stack_depth_is_measured(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "deep")
    (thread,) = load_profile(tmp_path / "run").threads
    assert 1_000_000 < thread.deepest < 1_200_000
    assert thread.deepest <= thread.resident < thread.deepest + 200_000
    result = load_profile(tmp_path / "run")
    assert result.calls.locations[thread.deepest_site].function.startswith("leak")
    assert max(thread.depth) == thread.deepest


def test_implicit_copies_are_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "copies")
    causes = finding_causes(tmp_path / "run")
    assert any("by_value" in cause and "copies" in cause for cause in causes), causes


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_first_touch_by_another_thread_is_counted(planted: Path, tmp_path: Path) -> None:
    """Fewer page faults than the kernel keeps for a recorder that has to wait for a processor."""
    run_heap(tmp_path / "run", planted, "touch", "40")
    result = load_profile(tmp_path / "run")
    touches, pages = result.touches, (40 << 20) // 4096
    assert touches is not None
    (line,) = [k for k, name in enumerate(touches.line_function) if name.startswith("touch")]
    assert abs(touches.line_pages[line] - pages) <= 2
    assert "allocate_large" in result.calls.locations[touches.site[0]].function
    assert 19 <= touches.site_with_huge[0] <= 20 + 2 * 512
    assert abs(dict(zip(touches.thread, touches.thread_pages, strict=True))[1] - pages) <= 50


@pytest.mark.acceptance("profile")  # more page faults than the kernel keeps for a recorder that is late
@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_first_touch_by_another_thread_is_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "touch")
    result = load_profile(tmp_path / "run")
    assert result.touches is not None
    pages = (100 << 20) // 4096
    touches = result.touches
    (line,) = [k for k, name in enumerate(touches.line_function) if name.startswith("touch")]
    assert abs(touches.line_pages[line] - pages) <= 2
    assert "allocate_large" in result.calls.locations[touches.site[0]].function
    assert abs(touches.site_pages[0] - pages) <= 2
    # 49 or 50 huge pages fit into the block; up to 512 small pages remain at each end.
    assert 49 <= touches.site_with_huge[0] <= 50 + 2 * 512
    assert abs(dict(zip(touches.thread, touches.thread_pages, strict=True))[1] - pages) <= 50
    (cause,) = finding_causes(tmp_path / "run")
    assert "allocate_large" in cause and "with huge pages it would be" in cause


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_first_touch_by_library_functions(planted: Path, tmp_path: Path) -> None:
    """First touch is attributed to the callers of memset, memcpy, read and the standard library."""
    run_heap(tmp_path / "run", planted, "fills")
    touches = load_profile(tmp_path / "run").touches
    assert touches is not None
    pages = Counter[str]()
    for function, count in zip(touches.line_function, touches.line_pages, strict=True):
        pages[function.partition("(")[0]] += count
    expected = (1 << 20) // 4096
    for name in ("clear", "copy", "receive", "fill"):
        assert abs(pages[name] - expected) <= 2, (name, pages)
    assert 19 * 24 <= pages["enlarge"] <= 20 * (24 + 25), pages


@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_pages_faulted_in_repeatedly_are_counted(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "cycle", "34", "2")  # blocks of over 32 MiB are always mapped anew
    touches = load_profile(tmp_path / "run").touches
    assert touches is not None and abs(touches.site_pages[0] - 2 * (34 << 20) // 4096) <= 2 * 2
    run_heap(tmp_path / "without", planted, "cycle", "34", "2", options=["--no-faults"])
    assert load_profile(tmp_path / "without").touches is None


@pytest.mark.acceptance("profile")  # more page faults than the kernel keeps for a recorder that is late
@pytest.mark.skipif(not can_trace_page_faults(), reason="page faults cannot be traced here")
def test_pages_faulted_in_repeatedly_are_found(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "cycle")
    (cause,) = finding_causes(tmp_path / "run")
    assert "allocate_large" in cause and "8 times their peak" in cause
    run_heap(tmp_path / "without", planted, "cycle", options=["--no-faults"])
    assert load_profile(tmp_path / "without").touches is None
    assert finding_causes(tmp_path / "without") == []


def test_large_global_variables_are_found(tmp_path: Path) -> None:
    program = tmp_path / "globals"
    source = ROOT / "tests/fixtures/heap/globals.cpp"
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", source, "-o", program], check=True, timeout=LIMIT_S)
    run_heap(tmp_path / "run", program)
    variables = {v.name: v for v in load_profile(tmp_path / "run").variables}
    zeroed, per_thread = variables["planted::zeroed"], variables["of_each_thread"]
    assert (zeroed.bytes, zeroed.per_thread, zeroed.line) == (8 << 20, False, 10)
    # Written just before the end, and not huge pages.
    assert zeroed.resident is not None and abs(zeroed.resident - (4 << 20)) <= 8192
    assert (per_thread.bytes, per_thread.per_thread) == (64 << 10, True)
    assert variables["planted::initialised"].bytes == 1_000_000
    objects = {o.path: o for o in load_profile(tmp_path / "run").objects}
    sections = objects[str(program)]
    assert sections.data >= 1_000_000 and sections.bss >= 8 << 20 and sections.tls >= 64 << 10
    assert any("planted::zeroed" in cause and "8 MiB" in cause for cause in finding_causes(tmp_path / "run"))
