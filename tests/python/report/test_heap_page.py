"""The report's heap pages: a tree that is too large loses its smallest calls, and the rest keeps its figures."""

from __future__ import annotations

import make_heap
import msgspec
import pytest

from assay.profile.columns import unpack_column
from assay.profile.heap import HeapProfile
from assay.report.heap_page import heap_page


@pytest.fixture(scope="module")
def profile() -> HeapProfile:
    encoded = msgspec.json.encode(make_heap.make_profile(20_000))
    return msgspec.json.decode(encoded, type=HeapProfile)


def test_a_small_tree_is_whole(profile: HeapProfile) -> None:
    page = heap_page(profile, "made")
    assert page.left_out == 0 and page.profile.tree is profile.tree


def test_the_largest_calls_are_kept_with_their_callers_and_figures(profile: HeapProfile) -> None:
    page = heap_page(profile, "made", max_nodes=1000)
    nodes = page.profile.tree.nodes
    parent = unpack_column(nodes.parent, nodes.rows)
    assert (nodes.rows, page.left_out) == (1000, 19_000)
    assert all(caller < node for node, caller in enumerate(parent))
    calls = HeapProfile(**{f: getattr(page.profile, f) for f in page.profile.__struct_fields__}).calls
    largest = max(calls.stacks, key=lambda stack: stack.figures["bytes"])
    callers = calls.callers(largest.node)
    assert callers[0].function == make_heap.PLANTED and len(callers) == make_heap.DEPTH
    whole = profile.calls.column(profile.tree.nodes.figures, "bytes", profile.tree.nodes.rows)
    kept = calls.column(nodes.figures, "bytes", nodes.rows)
    assert kept[parent < 0].sum() == whole[profile.calls.parent < 0].sum()
    assert page.profile.tree.functions is profile.tree.functions  # figures are those of all stacks
