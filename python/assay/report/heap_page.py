"""The heap profile in the report's page: the analyser's tables and the source files. The smallest call-tree nodes are
left out where there are too many."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from assay.profile.heap import HeapProfile
from assay.profile.profiles import Profiles
from assay.profile.ranks import outliers
from assay.profile.sources import Sources
from assay.records.heap import HeapPage, HeapRank
from assay.report.heap import missing, problems
from assay.report.profile_page import (
    MAX_EMBEDDED_BYTES,
    MAX_NODES,
    MAX_PROCESSES,
    MIN_NODES,
    named_problems,
    named_sources,
    reduced_tree,
)


def heap_pages(profiles: Profiles, sources: Sources) -> Iterator[HeapPage]:
    """First the merged ranks of an MPI program, then the processes of the run, the largest first, then the profiles
    that were written while the program ran."""
    text_room, node_room = MAX_EMBEDDED_BYTES, MAX_NODES
    for profile, title in _shown(profiles):
        page = heap_page(profile, title, max(MIN_NODES, node_room))
        if profile is profiles.main:
            page.problems += missing(profiles)
        if profile is profiles.merged:
            page.ranks = _ranks(profiles)
        page.sources = named_sources(profile.tree.locations.file, sources, text_room)
        page.source_problems = named_problems(profile.tree.locations.file, sources)
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
    tree, left_out = reduced_tree(profile.calls, max_nodes)
    return HeapPage(
        title=title,
        problems=problems(profile),
        ranks=[],
        sources={},
        source_problems=[],
        left_out=left_out,
        profile=replace(profile, tree=tree) if left_out else profile,
    )
