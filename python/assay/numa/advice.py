"""Advice on placement, each with the remote share that it is predicted to give.

An exact profile knows which node uses each of the sixteen parts of an object, so a placement's remote share follows
by counting. A touch profile knows only who touched first: its prediction assumes that the threads of all nodes use
the object alike, and says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from assay.numa.profile import Location, Profile, by_object, by_thread, first_touches, resident
from assay.numa.recording import NOWHERE, PARTS, as_text

MIN_SHARE = 0.05  # of all accesses or pages: smaller objects are not worth a change
MIN_PAGES = 64
MIN_SAMPLES = 100  # of an object: the error of a share is then 5 points (one standard deviation) at most
MIN_GAIN = 0.05  # of the object's accesses that are remote
MOSTLY_READ = 0.9  # of an object's accesses that are reads: worth a copy on each node
MIN_SHARE_OF_ONE_NODE = 0.95  # of an object's pages: placed on one node
PLACEABLE_KINDS = ("heap", "mapping")  # kinds of objects that ``--apply`` can place


@dataclass(frozen=True)
class Advice:
    """``action``: "spread", "bind", "interleave" or "replicate". ``nodes``: for "spread" the node of each of the
    object's equal parts, else the nodes to use. Shares are of the object's accesses. ``assumed``: the prediction
    assumes that all nodes use the object evenly."""

    object: int
    action: str
    nodes: tuple[int, ...]
    before: float
    predicted: float
    assumed: bool
    toucher: Location | None

    @property
    def fix(self) -> str:
        return {
            "spread": "touch it first in parallel, each thread the part that it uses",
            "bind": f"place it on node {self.nodes[0]}, whose threads use it",
            "interleave": "interleave its pages over the nodes",
            "replicate": "keep a copy of it on each node, written to all and read locally: it is mostly read",
        }[self.action]


def advise(profile: Profile) -> list[Advice]:
    """The objects that are worth another placement, the largest first."""
    return _by_accesses(profile) if profile.has_accesses else _by_touches(profile)


def _nodes(profile: Profile) -> list[int]:
    return sorted(profile.recording.nodes)


def _main_toucher(profile: Profile, number: int) -> Location | None:
    sites = [
        (location, counts) for (obj, location, _), counts in first_touches(profile).items() if obj == number
    ]
    return max(sites, key=lambda site: site[1].total)[0] if sites else None


def threads_nodes(profile: Profile) -> set[int]:
    """Nodes on which threads were seen, or were bound to."""
    nodes = {node for counts in by_thread(profile).values() for node in counts.by_thread_node()}
    home = {cpu: node.id for node in profile.recording.nodes.values() for cpu in node.processors}
    for binding in profile.recording.bindings:
        bound = {home[processor] for processor in binding.processors if processor in home}
        nodes |= bound if len(bound) == 1 else set()
    return nodes - {NOWHERE}


def _by_touches(profile: Profile) -> list[Advice]:
    nodes = threads_nodes(profile)
    if len(nodes) < 2:
        return []
    pages = resident(profile)
    advice_list = []
    touched = by_object(profile)
    total = sum(counts.total for counts in touched.values())
    for number, counts in touched.items():
        pages_by_node = pages.get(number) or counts.by_page_node()
        size = sum(pages_by_node.values())
        if profile.recording.objects[number].kind not in (*PLACEABLE_KINDS, "global"):
            continue
        if (
            counts.total < MIN_SHARE * total
            or size < MIN_PAGES
            or max(pages_by_node.values()) < MIN_SHARE_OF_ONE_NODE * size
        ):
            continue
        even = 1 - 1 / len(nodes)
        toucher = _main_toucher(profile, number)
        advice_list.append(Advice(number, "spread", tuple(sorted(nodes)), even, 0.0, True, toucher))
    return advice_list


def _uses(profile: Profile) -> dict[int, dict[int, dict[int, int]]]:
    """Accesses by object, part and node of the thread."""
    uses: dict[int, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
    for row in profile.recording.parts:
        if row.thread_node != NOWHERE:
            uses[row.object][row.part][row.thread_node] += row.accesses
    return uses


def main_users(parts: dict[int, dict[int, int]], nodes: list[int]) -> tuple[int, ...]:
    """For each part of an object the node that uses it most; an unused part has the node of the part before it."""
    chosen: list[int] = []
    for part in range(PARTS):
        users = parts.get(part, {})
        before = chosen[-1] if chosen else nodes[0]
        chosen.append(max(users, key=lambda node: (users[node], node == before)) if users else before)
    return tuple(chosen)


def predicted_share(parts: dict[int, dict[int, int]], action: str, nodes: tuple[int, ...]) -> float:
    """The remote share of accesses that a placement would give. ``parts``: accesses by part and thread's node.
    ``nodes`` as in ``Advice``."""
    total = sum(count for users in parts.values() for count in users.values())
    if not total:
        return 0.0
    local = 0.0
    for part, users in parts.items():
        if action == "interleave":
            local += sum(users.get(node, 0) for node in nodes) / len(nodes)
        else:
            local += users.get(nodes[part * len(nodes) // PARTS], 0)
    return 1 - local / total


def _reads_and_writes(profile: Profile) -> dict[int, tuple[int, int]]:
    """Reads and writes by object; empty for an engine that counts them by line alone."""
    kinds: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in profile.recording.accesses:
        if row.object != NOWHERE:
            reads, writes = kinds[row.object]
            kinds[row.object] = reads + row.reads, writes + row.writes
    return kinds


def replicated_share(reads: int, writes: int, copies: int) -> float | None:
    """The remote share of accesses where each of ``copies`` nodes has a copy: reads are local, each write goes to all
    copies. None for an object that is not mostly read, or used on one node."""
    if copies < 2 or reads < MOSTLY_READ * (reads + writes) or not reads:
        return None
    return writes * (copies - 1) / (reads + writes * copies)


def _candidates(parts: dict[int, dict[int, int]], nodes: list[int]) -> Iterable[tuple[str, tuple[int, ...]]]:
    """The placements to compare, the simplest first, which wins among equal predictions."""
    yield from (("bind", (node,)) for node in nodes)
    yield "spread", main_users(parts, nodes)
    yield "interleave", tuple(nodes)


def _by_accesses(profile: Profile) -> list[Advice]:
    nodes, uses = _nodes(profile), _uses(profile)
    is_sampled = profile.recording.sampling is not None
    # Loads and stores are sampled separately, so samples do not tell how many accesses are reads.
    counts_of, kinds = by_object(profile), {} if is_sampled else _reads_and_writes(profile)
    total = sum(counts.total for counts in counts_of.values())
    advice_list = []
    for number, counts in counts_of.items():
        before = counts.remote_share
        if profile.recording.objects[number].kind not in PLACEABLE_KINDS or before is None:
            continue
        if counts.total < MIN_SHARE * total or (is_sampled and counts.total < MIN_SAMPLES):
            continue
        parts = uses[number]
        shares = {placement: predicted_share(parts, *placement) for placement in _candidates(parts, nodes)}
        best = min(shares, key=lambda placement: shares[placement])
        users = tuple(node for node in nodes if any(node in uses for uses in parts.values()))
        copied = replicated_share(*kinds.get(number, (0, 0)), len(users))
        # Copies cost memory and a change of the program: they must give more than a placement does.
        if copied is not None and shares[best] - copied >= MIN_GAIN:
            best = "replicate", users
            shares[best] = copied
        if before - shares[best] >= MIN_GAIN:
            toucher = _main_toucher(profile, number)
            advice_list.append(Advice(number, best[0], best[1], before, shares[best], False, toucher))
    return advice_list


def applicable(advices: Iterable[Advice]) -> list[Advice]:
    """The advice that ``--apply`` can follow: copies need a change of the program."""
    return [advice for advice in advices if advice.action != "replicate"]


def plan(profile: Profile, advices: Iterable[Advice]) -> str:
    """The file that the recorder takes with ``--plan`` (engines/profile/numa/hooks/apply.hpp)."""
    lines = []
    modules = profile.recording.modules
    for advice in advices:
        stack = profile.recording.objects[advice.object].stack
        for address in profile.recording.stacks.get(stack, ()):
            module = next((m for m in modules if m.begin <= address < m.end), None)
            if module is None or Location("", "", 0, module.path).is_runtime or "\n" in module.path:
                continue
            nodes = ",".join(map(str, advice.nodes))
            lines.append(f"{address - module.bias:x} {advice.action} {nodes} {as_text(module.path)}\n")
            break
    return "".join(lines)
