"""A heap profile as the report's page takes it: the analyser's tables with the source files, and without nodes that are
too many to show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from assay.profile.columns import Numbers, packed, unpacked
from assay.profile.heap import HeapProfile
from assay.profile.profiles import Profiles
from assay.profile.ranks import outliers
from assay.profile.sources import Sources
from assay.profile.tree import CallTree
from assay.records.heap import HeapPage, HeapRank
from assay.records.profile import Column, Nodes, Source, Stacks, Tree
from assay.report.heap import problems

MAX_PROCESSES = 16
MAX_NODES = 1_500_000  # of a report; a browser opens them in 5 s
MIN_NODES = 20_000  # of each page
MAX_EMBEDDED_BYTES = 32 << 20  # of the source files on all pages of a report


def heap_pages(profiles: Profiles, sources: Sources) -> Iterator[HeapPage]:
    """First the merged ranks of an MPI program, then the processes of the run, the largest first, then the profiles
    that were written while the program ran."""
    text_room, node_room = MAX_EMBEDDED_BYTES, MAX_NODES
    for profile, title in _shown(profiles):
        page = heap_page(profile, title, max(MIN_NODES, node_room))
        if profile is profiles.merged:
            page.ranks = _ranks(profiles)
        page.sources = _sources(profile.tree.locations.file, sources, text_room)
        text_room -= sum(len(source.text) for source in page.sources.values())
        node_room -= page.profile.tree.nodes.rows
        yield page


def _shown(profiles: Profiles) -> Iterator[tuple[HeapProfile, str]]:
    """Profiles, and the titles that tell them apart."""
    if profiles.merged is not None:
        yield profiles.merged, profiles.merged.title
    for profile in profiles.processes[:MAX_PROCESSES]:
        yield profile, profile.title
    for profile in profiles.dumps[:MAX_PROCESSES]:
        yield profile, f"{profile.title}, after {profile.process.seconds:.2f} s"


def _ranks(profiles: Profiles) -> list[HeapRank]:
    return [
        HeapRank(
            name=f"rank {rank.process.rank}",
            pid=rank.process.pid,
            peak=rank.totals.peak,
            bytes=rank.totals.bytes,
            count=rank.totals.count,
            leaked=rank.totals.leaked,
            seconds=rank.process.seconds,
            outlier=outlying,
        )
        for rank, outlying in zip(profiles.ranks, outliers(profiles.ranks), strict=True)
    ]


def heap_page(profile: HeapProfile, title: str, max_nodes: int = MAX_NODES) -> HeapPage:
    """Without source files. ``title`` tells the process from the run's others."""
    calls = profile.calls
    page = HeapPage(
        title=title, problems=problems(profile), ranks=[], sources={}, left_out=0, profile=profile
    )
    if len(calls.parent) <= max_nodes:
        return page
    number = _renumbered(calls, max_nodes)  # -1: left out
    page.left_out = int(np.sum(number < 0))
    page.profile = replace(profile, tree=_reduced(calls, number))
    return page


def _renumbered(calls: CallTree, max_nodes: int) -> Numbers:
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


def _reduced(calls: CallTree, number: Numbers) -> Tree:
    tree = calls.tables
    nodes, stacks = number >= 0, number[calls.stack_node] >= 0
    parent = calls.parent[nodes]
    return replace(
        tree,
        nodes=Nodes(
            int(nodes.sum()),
            packed(np.where(parent < 0, -1, number[parent])),
            packed(calls.location[nodes]),
            _rows(tree.nodes.figures, nodes),
        ),
        stacks=Stacks(
            int(stacks.sum()),
            packed(number[calls.stack_node[stacks]]),
            packed(calls.stack_site[stacks]),
            _rows(tree.stacks.figures, stacks),
        ),
    )


def _rows(figures: dict[str, Column], kept: Numbers) -> dict[str, Column]:
    return {name: packed(unpacked(column, len(kept))[kept]) for name, column in figures.items()}


def _sources(names: list[str], sources: Sources, room: int) -> dict[str, Source]:
    """Those of the run's source files that a page names, of at most ``room`` characters together."""
    chosen: dict[str, Source] = {}
    for name in dict.fromkeys(names):
        source = sources.files.get(name)
        if source is not None and len(source.text) <= room:
            chosen[name] = source
            room -= len(source.text)
    return chosen
