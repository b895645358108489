"""Functions for the pages of all profilers: they limit the call tree to its largest nodes, and choose source files."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from assay.profile.columns import Numbers, pack_column, unpack_column
from assay.profile.sources import Sources
from assay.profile.tree import CallTree
from assay.records.profile import Column, Nodes, Source, SourceProblem, Stacks, Tree

MAX_PROCESSES = 16
MAX_NODES = 1_500_000  # of a report; a browser opens them in 5 s
MIN_NODES = 20_000  # of each page
MAX_EMBEDDED_BYTES = 32 << 20  # of the source files on all pages of a report


def reduced_tree(calls: CallTree, max_nodes: int) -> tuple[Tree, int]:
    """The tree with the nodes of the largest figures, and how many were left out."""
    if len(calls.parent) <= max_nodes:
        return calls.tables, 0
    number = _new_node_numbers(calls, max_nodes)  # -1: left out
    return _keep_nodes(calls, number), int(np.sum(number < 0))


def _new_node_numbers(calls: CallTree, max_nodes: int) -> Numbers:
    """The new number of each node that has one of the largest shares of any metric's total."""
    nodes = calls.tables.nodes
    shares = np.zeros(len(calls.parent))
    for metric in calls.metrics.values():
        if metric.fold == "sum":
            values = calls.column(nodes.figures, metric.key, nodes.rows)
            total = values[calls.parent < 0].sum()
            shares = np.maximum(shares, values / total if total else 0)
    # A caller's share is never below a callee's and its number is lower, so all callers of a kept node are kept.
    kept = np.sort(np.argsort(-shares, kind="stable")[:max_nodes])
    number = np.full(len(shares), -1)
    number[kept] = np.arange(len(kept))
    return number


def _keep_nodes(calls: CallTree, number: Numbers) -> Tree:
    tree = calls.tables
    nodes, stacks = number >= 0, number[calls.stack_node] >= 0
    parent = calls.parent[nodes]
    return replace(
        tree,
        nodes=Nodes(
            int(nodes.sum()),
            pack_column(np.where(parent < 0, -1, number[parent])),
            pack_column(calls.location[nodes]),
            _rows(tree.nodes.figures, nodes),
        ),
        stacks=Stacks(
            int(stacks.sum()),
            pack_column(number[calls.stack_node[stacks]]),
            pack_column(calls.stack_site[stacks]),
            _rows(tree.stacks.figures, stacks),
        ),
    )


def _rows(figures: dict[str, Column], kept: Numbers) -> dict[str, Column]:
    return {name: pack_column(unpack_column(column, len(kept))[kept]) for name, column in figures.items()}


def named_sources(names: list[str], sources: Sources, room: int) -> dict[str, Source]:
    """The run's source files that a page names, at most ``room`` characters together."""
    chosen: dict[str, Source] = {}
    for name in dict.fromkeys(names):
        source = sources.files.get(name)
        if source is not None and len(source.text) <= room:
            chosen[name] = source
            room -= len(source.text)
    return chosen


def named_problems(names: list[str], sources: Sources) -> list[SourceProblem]:
    """The problems of the source files that a page names."""
    named = set(names)
    return [problem for problem in sources.problems() if problem.file in named]
