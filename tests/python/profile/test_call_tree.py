"""Call trees: columns, figures by line and function, and trees of several processes merged."""

from __future__ import annotations

import make_heap
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from assay.profile.columns import pack_column, unpack_column
from assay.profile.heap import HeapProfile
from assay.profile.merge import MergedTree
from assay.profile.tree import CallTree
from assay.records.heap import METRICS
from assay.records.profile import Column, Metric


@given(arrays.arrays(np.int64, st.integers(0, 20), elements=st.integers(0, 2**50)))
def test_integers_come_back_exactly(values: np.ndarray) -> None:
    assert unpack_column(pack_column(values), len(values)).tolist() == values.tolist()


@given(arrays.arrays(np.float32, st.integers(0, 20), elements=st.floats(0, 1000, width=32)))
def test_times_keep_seven_digits(values: np.ndarray) -> None:
    assert np.allclose(unpack_column(pack_column(values), len(values)), values, rtol=1e-6)


@pytest.mark.parametrize(
    "column",
    [Column("u4", b"1234"), Column("u4", b"12345"), Column("f4", np.float32([1, np.nan]).tobytes())],
)
def test_damaged_columns_are_refused(column: Column) -> None:
    with pytest.raises(ValueError):
        unpack_column(column, 2)


def profile(nodes: int = 400) -> HeapProfile:
    return msgspec.json.decode(msgspec.json.encode(make_heap.make_profile(nodes)), type=HeapProfile)


def test_the_largest_stack_is_first_by_line_and_function() -> None:
    planted = profile()
    for group in ("line", "function"):
        first = planted.by("bytes", group)[0]
        assert first.location.function == make_heap.PLANTED
        assert first.exclusive == first.inclusive == pytest.approx(planted.totals.bytes / 2, abs=1)


def test_a_mean_is_the_quotient_of_its_metrics() -> None:
    calls = profile().calls
    sizes, counts = calls.of_stacks("bytes"), calls.of_stacks("count")
    assert calls.of_stacks("mean_size").tolist() == (sizes / counts).tolist()


def test_two_processes_merged_have_all_figures_of_both() -> None:
    first, second = profile(400), profile(800)
    merged = MergedTree(METRICS)
    merged.add(first.calls)
    merged.add(second.calls)
    calls = CallTree(merged.tree(), METRICS)
    before = [first.calls, second.calls]
    for metric in (m for m in METRICS if m.fold in ("sum", "peak")):
        for group in ("line", "function"):
            sums = [sum(c.exclusive(group, metric.key).values()) for c in before]
            assert sum(calls.exclusive(group, metric.key).values()) == pytest.approx(sum(sums))
        roots = [_at_roots(c, metric) for c in [calls, *before]]
        assert roots[0] == pytest.approx(roots[1] + roots[2])
    assert calls.of_stacks("min_size").min() == min(c.of_stacks("min_size").min() for c in before)
    assert calls.of_stacks("max_size").max() == max(c.of_stacks("max_size").max() for c in before)
    assert {tuple(calls.callers(node)) for node in calls.stack_node} == {
        tuple(c.callers(node)) for c in before for node in c.stack_node
    }


def _at_roots(calls: CallTree, metric: Metric) -> float:
    nodes = calls.tables.nodes
    return float(calls.column(nodes.figures, metric.key, nodes.rows)[calls.parent < 0].sum())


def test_merging_one_process_changes_nothing() -> None:
    planted = profile()
    merged = MergedTree(METRICS)
    merged.add(planted.calls)
    calls = CallTree(merged.tree(), METRICS)
    for name in ("bytes", "min_size", "max_lifetime", "mean_size"):
        assert calls.of_stacks(name).tolist() == planted.calls.of_stacks(name).tolist()
        assert calls.by(name, "function") == planted.by(name, "function")


@pytest.mark.parametrize("damage", ["parent", "location", "site", "metric", "line_id"])
def test_tables_that_contradict_each_other_are_refused(damage: str) -> None:
    tree = make_heap.make_profile(400).tree
    if damage == "parent":  # a call above itself
        tree.nodes.parent = pack_column(np.arange(400))
    elif damage == "location":
        tree.nodes.location = pack_column(np.full(400, 10**6))
    elif damage == "site":
        tree.stacks.site = pack_column(np.full(tree.stacks.rows, 10**6))
    elif damage == "metric":
        del tree.lines.inclusive["leaked"]
    else:
        tree.locations.line_id[0] = 5
    with pytest.raises(ValueError):
        CallTree(tree, METRICS)
