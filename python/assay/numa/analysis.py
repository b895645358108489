"""Makes the profile of a process (assay.records.numa) from its recordings.

A process that counts its accesses has two recordings: its own, and that of the recorder, which watches page faults from
outside. Accesses, objects and first touches are taken from its own; bindings, names of threads, resident memory and
memory over time from the recorder's. Threads are matched by their number in the kernel, objects by kind and name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.numa.advice import advise
from assay.numa.call_tree import TreeMaker
from assay.numa.missing import absent, problems
from assay.numa.over_time import sampling_of, timeline_of
from assay.numa.profile import UNKNOWN, Location, Profile
from assay.numa.recording import NOWHERE, PARTS, POLICIES, Touch, as_shown
from assay.records.numa import (
    METRICS,
    NumaAdvice,
    NumaBinding,
    NumaCells,
    NumaFirstTouches,
    NumaNode,
    NumaObject,
    NumaProcess,
    NumaProfile,
    NumaThread,
)

RECORDER = "libassay-numa"  # its own memory is not the program's
Cells = dict[tuple[int, int], int]


@dataclass
class _Object:
    number: int
    name: str
    kind: str
    node: int  # of the allocating stack in the call tree, -1: none
    bytes: int = 0
    blocks: int = 0
    accesses: Cells = field(default_factory=lambda: defaultdict(int))
    touched: Cells = field(default_factory=lambda: defaultdict(int))
    is_counted: bool = False  # of a recording that counts accesses by object
    resident: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    moved: int = 0
    parts: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class _Thread:
    number: int
    name: str = ""
    pinned: bool | None = None
    accesses: Cells = field(default_factory=lambda: defaultdict(int))
    touched: Cells = field(default_factory=lambda: defaultdict(int))
    bindings: list[NumaBinding] = field(default_factory=list)


def processes(profiles: Sequence[Profile]) -> list[list[Profile]]:
    """Groups recordings by process: that with counts of accesses, then that of the recorder, if there is one. Each
    program that a process executed counts as a process."""
    rest = [profile for profile in profiles if not profile.is_exact]
    by_process = []
    for exact in (profile for profile in profiles if profile.is_exact):
        process = exact.recording.process
        other = next(
            (p for p in rest if (p.recording.process.pid, p.recording.process.command)
             == (process.pid, process.command)), None,
        )  # fmt: skip
        by_process.append([exact, other] if other else [exact])
        if other:
            rest.remove(other)
    return by_process + [[profile] for profile in rest]


def analyse(recordings: Sequence[Profile]) -> NumaProfile:
    """The profile of one process from its recordings, as ``processes`` groups them."""
    return _Analysis(recordings).profile()


class _Analysis:
    def __init__(self, recordings: Sequence[Profile]) -> None:
        self.recordings = recordings
        self.main = recordings[0]
        self.recorder = next((p for p in recordings if not p.is_exact), None)  # that watched from outside
        self.page_bytes = self.main.recording.process.page_bytes
        self.maker = TreeMaker(METRICS)
        self.nodes = sorted(self.main.recording.nodes)
        self.objects: list[_Object] = []
        self.object_of: dict[tuple[int, int], _Object] = {}  # by recording and number there
        self.unmatched: dict[tuple[str, str], list[_Object]] = defaultdict(list)  # of the first recording
        self.threads: dict[int, _Thread] = {}  # by number in the kernel
        self.stack_nodes: dict[tuple[int, int], int] = {}
        self.recorder_pages = 0  # pages that the recorder itself touched; left out
        # Bytes, policies and huge pages by number of the object, location and number of the thread.
        self.touch_rows: dict[tuple[int, int, int], tuple[int, set[str], int]] = {}
        for profile in reversed(recordings):  # the recorder numbers threads as they start
            self._add_threads(profile)
        self.touching = self.main if self.main.recording.touches or not self.recorder else self.recorder
        self._add_accesses(self.main)
        self._add_touches(self.touching)
        for profile in recordings:
            self._add_placements(profile)

    # ---- stacks, objects, threads

    def _stack(self, profile: Profile, stack: int) -> int:
        key = (id(profile), stack)
        if key not in self.stack_nodes:
            frames = [profile.locations[k] for k in profile.stacks.get(stack, [])] or [UNKNOWN]
            self.stack_nodes[key] = self.maker.stack(frames)
        return self.stack_nodes[key]

    def _object(self, profile: Profile, number: int) -> _Object:
        key = (id(profile), number)
        if key not in self.object_of:
            row = profile.recording.objects[number]
            name = profile.name(number)
            kind_and_name = (row.kind, name)
            matched = self._matched_object(profile, *kind_and_name, row.bytes)
            if matched is None:
                node = self._stack(profile, row.stack) if row.stack else -1
                matched = _Object(len(self.objects), name, row.kind, node, row.bytes, row.count)
                matched.is_counted = bool(profile.recording.parts)
                self.objects.append(matched)
                if profile is self.main:
                    self.unmatched[kind_and_name].append(matched)
                if node >= 0:
                    self.maker.add(node, "allocated", row.bytes)
            self.object_of[key] = matched
        return self.object_of[key]

    def _matched_object(self, profile: Profile, kind: str, name: str, size: int) -> _Object | None:
        """The object of the process's other recording: of several that one line allocated, that of the same size."""
        if profile is self.main:
            return None
        others = self.unmatched[kind, name]
        same = [other for other in others if other.bytes == size] or (others if len(others) == 1 else [])
        if not same:
            return None
        others.remove(same[0])
        return same[0]

    def _add_threads(self, profile: Profile) -> None:
        recording = profile.recording
        home = {cpu: node.id for node in recording.nodes.values() for cpu in node.processors}
        for row in recording.threads.values():
            thread = self.threads.setdefault(row.tid, _Thread(len(self.threads)))
            thread.name = thread.name or as_shown(row.name)
        for binding in sorted(recording.bindings, key=lambda binding: binding.ns):
            thread = self._thread(profile, binding.thread)
            thread.pinned = _is_pinned(binding.processors, home)
            shown = NumaBinding(
                seconds=binding.ns * 1e-9,
                processors=format_processors(binding.processors),
                policy=policy_name(binding.policy),
                nodes=list(binding.nodes),
            )
            if not thread.bindings or _binding_key(thread.bindings[-1]) != _binding_key(shown):
                thread.bindings.append(shown)

    def _thread(self, profile: Profile, number: int) -> _Thread:
        return self.threads[profile.recording.threads[number].tid]

    # ---- counts

    def _add_accesses(self, profile: Profile) -> None:
        add = self.maker.add
        for row in profile.recording.accesses:
            node, count = self._stack(profile, row.stack), row.reads + row.writes
            thread = self._thread(profile, row.thread)
            thread.accesses[row.thread_node, row.page_node] += count
            add(node, "accesses", count)
            add(node, _kind(row.thread_node, row.page_node), count)
            add(node, "reads", row.reads)
            add(node, "writes", row.writes)
            if thread.pinned is False:
                add(node, "unpinned", count)
        for part in profile.recording.parts:
            used = self._object(profile, part.object)
            used.accesses[part.thread_node, part.page_node] += part.accesses
            used.parts[part.thread_node, part.part] += part.accesses
            if used.node >= 0:
                add(used.node, "used", part.accesses)
                if _kind(part.thread_node, part.page_node) == "remote":
                    add(used.node, "used_remote", part.accesses)

    def _add_touches(self, profile: Profile) -> None:
        for row in profile.recording.touches:
            if row.object == NOWHERE:
                continue
            node = self._stack(profile, row.stack)
            location = self.maker.locations[self.maker.site(node)]
            if _is_recorder(location, profile.recording.objects[row.object].name):
                self.recorder_pages += row.pages
                continue
            self._add_touch(profile, row, node)

    def _add_touch(self, profile: Profile, row: Touch, node: int) -> None:
        size = row.pages * self.page_bytes
        touched, thread = self._object(profile, row.object), self._thread(profile, row.thread)
        for cells in (touched.touched, thread.touched):
            cells[row.thread_node, row.page_node] += size
        self.maker.add(node, "touched", size)
        if _kind(row.thread_node, row.page_node) == "remote":
            self.maker.add(node, "touched_remote", size)
        key = (touched.number, self.maker.site(node), thread.number)
        before, policies, huge = self.touch_rows.get(key, (0, set(), 0))
        self.touch_rows[key] = (before + size, policies | {policy_name(row.policy)}, huge + row.huge)

    def _add_placements(self, profile: Profile) -> None:
        for placed in profile.recording.placed:
            if not self._belongs_to_recorder(profile, placed.object):
                self._object(profile, placed.object).resident[placed.node] += placed.pages * self.page_bytes
        for moved in profile.recording.moved:
            if not self._belongs_to_recorder(profile, moved.object):
                self._object(profile, moved.object).moved += moved.pages * self.page_bytes

    def _belongs_to_recorder(self, profile: Profile, number: int) -> bool:
        return _is_recorder(UNKNOWN, profile.recording.objects[number].name)

    # ---- the profile

    def profile(self) -> NumaProfile:
        main, has_accesses = self.main, self.main.has_accesses
        advice = self._advice()
        order = sorted(self.objects, key=_size, reverse=True)
        index = {placed.number: k for k, placed in enumerate(order)}
        threads = sorted(self.threads.values(), key=lambda thread: thread.number)
        accesses: Cells = defaultdict(int)
        touched: Cells = defaultdict(int)
        for thread in threads:
            _sum_into(accesses, thread.accesses)
            _sum_into(touched, thread.touched)
        for row in advice:
            row.object = index[row.object]
        process = self._process()
        timed = self.recorder or main
        timeline = timeline_of(timed.recording, self.nodes, self.page_bytes, has_slices=timed is main)
        return NumaProfile(
            process=process,
            problems=problems(self.recordings, self.recorder_pages * self.page_bytes),
            nodes=[
                NumaNode(node.id, len(node.processors), node.memory, list(node.distances))
                for node in (main.recording.nodes[number] for number in self.nodes)
            ],
            accesses=_cells(accesses) if has_accesses else None,
            touched=_cells(touched),
            objects=[self._object_row(placed) for placed in order],
            threads=[
                NumaThread(
                    name=f"{thread.number} {thread.name}".strip(),
                    accesses=_cells(thread.accesses) if has_accesses else None,
                    touched=_cells(thread.touched),
                    pinned=thread.pinned,
                    bindings=thread.bindings,
                )
                for thread in threads
            ],
            first_touches=self._first_touches(index),
            timeline=timeline,
            sampling=sampling_of(main.recording),
            advice=advice,
            applied=[],
            absent=absent(
                main.recording.process.mode, self.recorder is not None, bool(timeline.slices.seconds)
            ),
            tree=self.maker.tree(),
        )

    def _process(self) -> NumaProcess:
        row = self.main.recording.process
        ends = [profile.recording.end for profile in self.recordings]
        return NumaProcess(
            pid=row.pid,
            parent=row.parent,
            program=" ".join(as_shown(word) for word in row.command.split("\0") if word) or "unknown program",
            rank=row.rank,
            mode=row.mode,
            emulated=row.emulated,
            page_bytes=row.page_bytes,
            seconds=max((end.ns for end in ends if end), default=0) * 1e-9,
            complete=all(ends),
            lost_events=sum(end.lost for end in ends if end),
        )

    def _object_row(self, used: _Object) -> NumaObject:
        has_parts = bool(used.parts)
        return NumaObject(
            name=used.name,
            kind=used.kind,
            site=self.maker.site(used.node) if used.node >= 0 else -1,
            bytes=used.bytes,
            blocks=used.blocks,
            accesses=_cells(used.accesses) if used.is_counted else None,
            touched=_cells(used.touched),
            resident=[used.resident.get(node, 0) for node in (*self.nodes, NOWHERE)],
            moved=used.moved,
            parts=[[used.parts.get((node, part), 0) for part in range(PARTS)] for node in self.nodes]
            if has_parts
            else [],
        )

    def _advice(self) -> list[NumaAdvice]:
        """The largest gain first."""
        rows = []
        for advice in advise(self.main):
            advised = self._object(self.main, advice.object)
            amount = sum(advised.accesses.values()) or sum(advised.touched.values())
            rows.append(
                NumaAdvice(
                    object=advised.number,
                    action=advice.action,
                    nodes=list(advice.nodes),
                    before=advice.before,
                    predicted=advice.predicted,
                    assumed=advice.assumed,
                    toucher=self.maker.location(advice.toucher) if advice.toucher else -1,
                    gain=round(amount * (advice.before - advice.predicted)),
                    fix=advice.fix,
                )
            )
        return sorted(rows, key=lambda row: -row.gain)

    def _first_touches(self, index: dict[int, int]) -> NumaFirstTouches:
        rows = sorted(self.touch_rows.items(), key=lambda item: -item[1][0])
        return NumaFirstTouches(
            object=[index[key[0]] for key, _ in rows],
            location=[key[1] for key, _ in rows],
            thread=[key[2] for key, _ in rows],
            bytes=[size for _, (size, _, _) in rows],
            policy=[", ".join(sorted(policies)) for _, (_, policies, _) in rows],
            huge=[huge for _, (_, _, huge) in rows],
        )


def _kind(thread_node: int, page_node: int) -> str:
    if NOWHERE in (thread_node, page_node):
        return "unknown"
    return "local" if thread_node == page_node else "remote"


def _is_recorder(location: Location, name: str) -> bool:
    if location.module.rpartition("/")[2].startswith(RECORDER):
        return True
    return as_shown(name).rpartition("/")[2].startswith(RECORDER) or "/assay-numa-" in name


def _is_pinned(processors: Sequence[int], home: dict[int, int]) -> bool:
    """Whether they are processors of one node, and not simply all that there are."""
    nodes = {home.get(processor, NOWHERE) for processor in processors}
    return len(nodes) == 1 and nodes != {NOWHERE} and len(processors) < len(home)


def _binding_key(binding: NumaBinding) -> tuple[object, ...]:
    return binding.processors, binding.policy, tuple(binding.nodes)


def _size(used: _Object) -> tuple[int, int, int]:
    """The order of objects: by accesses, then by touched bytes, then by resident bytes."""
    return sum(used.accesses.values()), sum(used.touched.values()), sum(used.resident.values())


def _sum_into(sums: Cells, more: Cells) -> None:
    for key, count in more.items():
        sums[key] += count


def _cells(cells: Cells) -> NumaCells:
    rows = sorted((key, count) for key, count in cells.items() if count)
    return NumaCells([a for (a, _), _ in rows], [b for (_, b), _ in rows], [count for _, count in rows])


def policy_name(mode: int) -> str:
    return POLICIES[mode] if mode < len(POLICIES) else f"mode {mode}"


def format_processors(processors: Sequence[int]) -> str:
    """As the kernel writes them: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(processors)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
