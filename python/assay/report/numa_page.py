"""The NUMA profile in the report's page, with the source files. The smallest objects, first touches and call-tree nodes
are left out where there are too many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from assay.profile.numa import NumaProfile, remote_share, total
from assay.profile.profiles import Profiles
from assay.profile.sources import Sources
from assay.records.numa import NumaFirstTouches, NumaPage, NumaRank
from assay.report.profile_page import (
    MAX_EMBEDDED_BYTES,
    MAX_NODES,
    MAX_PROCESSES,
    MIN_NODES,
    named_problems,
    named_sources,
    reduced_tree,
)

MAX_OBJECTS = 5000  # of a page: those with most accesses or touched bytes
MAX_TOUCHES = 20_000  # rows


def numa_pages(profiles: Profiles, sources: Sources) -> Iterator[NumaPage]:
    """First the merged ranks of an MPI program, then the processes of the run, those that count accesses first."""
    text_room, node_room = MAX_EMBEDDED_BYTES, MAX_NODES
    merged = profiles.numa_merged
    for profile in [*([merged] if merged else []), *profiles.numa[:MAX_PROCESSES]]:
        page = numa_page(profile, max(MIN_NODES, node_room))
        if profile is merged:
            page.ranks = _ranks(profiles.numa_ranks)
        page.sources = named_sources(profile.tree.locations.file, sources, text_room)
        page.source_problems = named_problems(profile.tree.locations.file, sources)
        text_room -= sum(len(source.text) for source in page.sources.values())
        node_room -= page.profile.tree.nodes.rows
        yield page


def numa_page(profile: NumaProfile, max_nodes: int) -> NumaPage:
    """Without source files."""
    tree, left_out = reduced_tree(profile.calls, max_nodes)
    objects = profile.objects[:MAX_OBJECTS]
    touches = _touches_of_shown(profile.first_touches, len(objects))
    left_out += len(profile.objects) - len(objects)
    left_out += len(profile.first_touches.object) - len(touches.object)
    advice = [row for row in profile.advice if row.object < len(objects)]
    shown = replace(profile, tree=tree, objects=objects, first_touches=touches, advice=advice)
    return NumaPage(
        title=profile.title, ranks=[], sources={}, source_problems=[], left_out=left_out, profile=shown
    )


def _touches_of_shown(touches: NumaFirstTouches, objects: int) -> NumaFirstTouches:
    """The first rows, which are the largest, of the objects that are shown."""
    rows = [k for k, number in enumerate(touches.object) if number < objects][:MAX_TOUCHES]
    return NumaFirstTouches(
        object=[touches.object[k] for k in rows],
        location=[touches.location[k] for k in rows],
        thread=[touches.thread[k] for k in rows],
        bytes=[touches.bytes[k] for k in rows],
        policy=[touches.policy[k] for k in rows],
        huge=[touches.huge[k] for k in rows],
    )


def _ranks(ranks: Sequence[NumaProfile]) -> list[NumaRank]:
    return [
        NumaRank(
            name=f"rank {rank.process.rank}",
            pid=rank.process.pid,
            remote_share=remote_share(rank.matrix),
            amount=total(rank.matrix),
            seconds=rank.process.seconds,
        )
        for rank in ranks
    ]
