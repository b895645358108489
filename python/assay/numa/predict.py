"""Predicts the remote share of a recorded program on another topology.

A recording that counts accesses tells which thread uses each of the sixteen parts of an object, and how many pages of
the object each thread touched first. Which thread touched which part is not recorded. It is estimated as the
distribution that fits both counts, where a thread touches no more pages of a part than it made accesses to it
(iterative proportional fitting: Deming and Stephan, 1940). By the default policy a page is on the node of the thread
that touched it first.

Threads that were bound stay on the same processor where the topology has it; threads that were not are spread evenly
over the processors in the order in which they started, and so are all with ``spread``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from assay.errors import UserError
from assay.numa.advice import PLACEABLE_KINDS
from assay.numa.profile import Profile
from assay.numa.recording import NOWHERE, PARTS, Part
from assay.numa.topology import Topology
from assay.profile.columns import Numbers

FIXED = (1, 2)  # policies "preferred" and "bind": a page stays on the node with its number
INTERLEAVED = (3, 6)  # policies "interleave" and "weighted interleave"
ROUNDS = 100  # of the fitting
# From object, part and recorded node to the share of these pages on each node.
Placement = Callable[[int, int, int], Numbers]


@dataclass(frozen=True)
class Prediction:
    """Remote shares by placement: "first touch" as the program does it, "parallel first touch", "interleave", and
    "node N" for nodes of memory alone that hold all of it. ``objects``: the same of each object, by name."""

    shares: dict[str, float]
    objects: dict[str, dict[str, float]]
    recorded: float | None


def predict(recordings: Sequence[Profile], topology: Topology, spread: bool = False) -> Prediction:
    """``recordings`` of one process, the one that counts accesses first. Raises UserError for one that counts none by
    object."""
    main = recordings[0]
    if not main.has_accesses or not main.recording.touches:
        reason = "were not counted" if not main.has_accesses else "were not counted by object"
        raise UserError(
            f"the accesses of {main.title} {reason}", "compile it with assay numa cc, and record it again"
        )
    homes = thread_homes(recordings, topology, spread)
    parts = [row for row in main.recording.parts if row.thread in homes]
    if not parts:
        raise UserError(f"{main.title} made no accesses that were counted", "record a program that does")
    placements: dict[str, Placement] = {
        "first touch": _first_touch(main, homes, topology),
        "parallel first touch": _by_main_user(parts, homes, topology),
        "interleave": _interleaved(topology),
    }
    movable = {number for number, row in main.recording.objects.items() if row.kind in PLACEABLE_KINDS}
    pages = sum(row.pages for row in main.recording.touches if row.object in movable)
    for node in topology.memory_nodes:
        if topology.memory[node] == 0 or topology.memory[node] >= pages * main.recording.process.page_bytes:
            placements[f"node {topology.numbers[node]}"] = _on_node(node, topology)
    as_it_is = placements["first touch"]
    sums: dict[str, dict[int, list[float]]] = {}
    for name, placement in placements.items():
        by_object: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for row in parts:
            chosen = placement if row.object in movable else as_it_is
            local = float(chosen(row.object, row.part, row.page_node)[homes[row.thread]])
            by_object[row.object][0] += row.accesses * (1 - local)
            by_object[row.object][1] += row.accesses
        sums[name] = by_object
    return Prediction(
        shares={name: _share(rows.values()) for name, rows in sums.items()},
        objects={
            main.name(number): {name: _share([rows[number]]) for name, rows in sums.items()}
            for number in sorted({row.object for row in parts} & movable)
        },
        recorded=_recorded(parts),
    )


def _share(rows: Iterable[list[float]]) -> float:
    """The remote share of (remote, all) accesses."""
    pairs = list(rows)
    whole = sum(total for _, total in pairs)
    return sum(remote for remote, _ in pairs) / whole if whole else 0.0


def _recorded(parts: Sequence[Part]) -> float | None:
    known = [row for row in parts if NOWHERE not in (row.thread_node, row.page_node)]
    whole = sum(row.accesses for row in known)
    remote = sum(row.accesses for row in known if row.thread_node != row.page_node)
    return remote / whole if whole else None


def thread_homes(recordings: Sequence[Profile], topology: Topology, spread: bool) -> dict[int, int]:
    """The node of each thread of the first recording, by its number there."""
    main = recordings[0].recording
    started = sorted(main.threads.values(), key=lambda thread: thread.tid)
    processors_in_order, bound = topology.all, {} if spread else _bindings(recordings)
    workers = [thread.number for thread in started[1:]]  # the first is the main thread
    homes = {}
    for thread in started:
        processors = bound.get(thread.tid)
        if processors:
            known = [processor for processor in processors if processor in processors_in_order]
            first = known[0] if known else processors_in_order[min(processors) % len(processors_in_order)]
            homes[thread.number] = topology.node_of(first)
        elif thread.number in workers:
            index = workers.index(thread.number) * len(topology.by_node) // len(workers)
            homes[thread.number] = topology.node_of(topology.by_node[index])
        else:
            homes[thread.number] = topology.node_of(topology.by_node[0])
    return homes


def _bindings(recordings: Sequence[Profile]) -> dict[int, list[int]]:
    """The processors that each thread was last bound to, by its number in the kernel; empty if these were all."""
    processors_of_thread: dict[int, list[int]] = {}
    for profile in recordings:
        recording = profile.recording
        processors_in_order = {
            processor for node in recording.nodes.values() for processor in node.processors
        }
        for binding in sorted(recording.bindings, key=lambda binding: binding.ns):
            tid = recording.threads[binding.thread].tid
            processors_of_thread[tid] = (
                sorted(binding.processors) if len(binding.processors) < len(processors_in_order) else []
            )
    return processors_of_thread


# ---- placements


def _interleaved(topology: Topology) -> Placement:
    count = len(topology.processors)
    even = np.full(count, 1 / count)
    return lambda number, part, node: even


def _on_node(node: int, topology: Topology) -> Placement:
    only = np.zeros(len(topology.processors))
    only[node] = 1
    return lambda number, part, recorded: only


def _by_main_user(parts: Sequence[Part], homes: dict[int, int], topology: Topology) -> Placement:
    """Each part on the node that uses it most."""
    uses: dict[tuple[int, int], Numbers] = defaultdict(lambda: np.zeros(len(topology.processors)))
    for row in parts:
        uses[row.object, row.part][homes[row.thread]] += row.accesses
    chosen = {key: np.eye(len(counts))[int(np.argmax(counts))] for key, counts in uses.items()}
    return lambda number, part, node: chosen[number, part]


def _first_touch(profile: Profile, homes: dict[int, int], topology: Topology) -> Placement:
    count = len(topology.processors)
    touched: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    others: dict[tuple[int, int], Numbers] = defaultdict(lambda: np.zeros(count))  # by policy, not by thread
    for row in profile.recording.touches:
        key = row.object, row.page_node
        if row.policy in INTERLEAVED:
            others[key] += row.pages / count
        elif row.policy in FIXED and row.page_node != NOWHERE:
            numbers = topology.numbers
            is_there = row.page_node in numbers
            others[key][numbers.index(row.page_node) if is_there else row.page_node % count] += row.pages
        elif row.thread in homes:
            touched[key][row.thread] += row.pages
    accesses: dict[tuple[int, int], dict[int, Numbers]] = defaultdict(
        lambda: defaultdict(lambda: np.zeros(PARTS))
    )
    for part in profile.recording.parts:
        accesses[part.object, part.page_node][part.thread][part.part] += part.accesses
    shares: dict[tuple[int, int], Numbers] = {}
    for key, by_thread in accesses.items():
        shares[key] = _pages_by_node(by_thread, touched.get(key, {}), others.get(key), homes, count)
    return lambda number, part, node: shares[number, node][part]


def _pages_by_node(
    accesses: dict[int, Numbers],
    touched: dict[int, int],
    others: Numbers | None,
    homes: dict[int, int],
    count: int,
) -> Numbers:
    """[part, node] The share of each part's pages on each node. If no thread is known to have touched the object, its
    users count as such, in proportion to their accesses."""
    whole = sum(accesses.values(), np.zeros(PARTS))
    threads = [thread for thread in touched if thread in accesses] or list(touched) or list(accesses)
    pages = np.array([float(touched.get(thread, 0)) for thread in threads])
    if not pages.any():
        pages = np.array([accesses[thread].sum() for thread in threads])
    used = whole > 0
    capacity = pages.sum() / max(1, used.sum())
    none = np.zeros(PARTS)
    touchable = np.array([np.minimum(accesses.get(thread, none), capacity) for thread in threads]).T
    touchable[used & (touchable.sum(axis=1) == 0)] = 1  # the accesses of the toucher were not counted
    fitted = _fit(touchable, np.where(used, capacity, 0.0), pages)
    by_node = np.zeros((PARTS, count))
    if touched or others is None:
        for column, thread in enumerate(threads):
            by_node[:, homes[thread]] += fitted[:, column]
    if others is not None:
        by_node += np.outer(used / max(1, used.sum()), others)
    sums = by_node.sum(axis=1, keepdims=True)
    shares: Numbers = np.divide(by_node, sums, out=np.full_like(by_node, 1 / count), where=sums > 0)
    return shares


def _fit(start: Numbers, rows: Numbers, columns: Numbers) -> Numbers:
    """The matrix nearest to ``start`` whose rows and columns have these sums. If there is none, the rows have them."""
    fitted = start.astype(np.float64)
    for _ in range(ROUNDS):
        for axis, target_sums in ((0, columns), (1, rows)):
            sums = fitted.sum(axis=axis)
            scale = np.divide(target_sums, sums, out=np.zeros_like(target_sums), where=sums > 0)
            fitted = fitted * (scale if axis == 0 else scale[:, None])
    return fitted
