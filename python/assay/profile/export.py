"""Profiles of any profiler in the formats of other tools: collapsed stacks (Brendan Gregg's flame graphs), speedscope,
pprof and callgrind (KCachegrind)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from assay.profile.tree import CallTree, Location
from assay.records.profile import Metric


class Profile(Protocol):
    """The part of a profile that is exported: its call tree, with the metrics that are ``listed``."""

    @property
    def calls(self) -> CallTree: ...

    @property
    def program(self) -> str: ...


def _listed(profile: Profile) -> list[Metric]:
    return [metric for metric in profile.calls.metrics.values() if metric.listed]


def _frame(location: Location) -> str:
    return location.place.replace(";", ":")


def collapsed(profile: Profile, metric: str) -> str:
    """One line for each stack, the outermost function first: "main (a.c:3);work (a.c:9) 4096"."""
    lines: dict[str, int] = {}
    for node, value in _values(profile, metric):
        stack = ";".join(_frame(location) for location in reversed(profile.calls.callers(node)))
        lines[stack] = lines.get(stack, 0) + value
    return "".join(f"{stack} {value}\n" for stack, value in lines.items())


def _values(profile: Profile, metric: str) -> Iterator[tuple[int, int]]:
    """The innermost node of each stack with a figure, and the figure."""
    values = profile.calls.of_stacks(metric).tolist()
    for node, value in zip(profile.calls.stack_node.tolist(), values, strict=True):
        if value:
            yield node, round(value)


def _stack(profile: Profile, node: int) -> list[int]:
    """Numbers of locations, from this node to the outermost."""
    calls = profile.calls
    return [int(calls.location[ancestor]) for ancestor in calls.stack(node)]


def speedscope(profile: Profile) -> str:
    """One profile for each listed metric. Format: https://www.speedscope.app/file-format-schema.json."""
    profiles = []
    for metric in _listed(profile):
        samples, weights = [], []
        for node, value in _values(profile, metric.key):
            samples.append(_stack(profile, node)[::-1])
            weights.append(value)
        unit = "none" if metric.unit == "1" else "bytes"
        profiles.append({"type": "sampled", "name": metric.label, "unit": unit, "startValue": 0,
                         "endValue": sum(weights), "samples": samples, "weights": weights})  # fmt: skip
    frames = [
        {
            "name": location.function,
            "file": location.file or location.module,
            **({"line": location.line} if location.line else {}),
        }
        for location in profile.calls.locations
    ]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": frames},
            "profiles": profiles,
            "name": profile.program,
            "exporter": "assay",
        }
    )


# ---- pprof: https://github.com/google/pprof/blob/main/proto/profile.proto, a gzipped protocol buffer


def pprof(profile: Profile) -> bytes:
    """Every listed metric is a sample type; a pprof location is a line of a function."""
    strings = _Strings()
    out = bytearray()
    metrics = _listed(profile)
    for metric in metrics:
        unit = "count" if metric.unit == "1" else "bytes"
        out += _message(1, _number(1, strings[metric.label]) + _number(2, strings[unit]))
    for stack in profile.calls.stacks:
        values = [round(stack.figures[metric.key]) for metric in metrics]
        if any(values):
            lines = [location + 1 for location in _stack(profile, stack.node)]
            out += _message(2, _packed(1, lines) + _packed(2, values))
    for number, location in enumerate(profile.calls.locations, 1):
        out += _message(4, _number(1, number) + _message(4, _number(1, number) + _number(2, location.line)))
        names = _number(2, strings[location.function]) + _number(4, strings[location.file or location.module])
        out += _message(5, _number(1, number) + names)
    for text in strings.texts:
        out += _message(6, text.encode(errors="replace"))
    return gzip.compress(bytes(out), mtime=0)


class _Strings:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    @property
    def texts(self) -> list[str]:
        return list(self.numbers)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))


# ---- callgrind: https://valgrind.org/docs/manual/cl-format.html


def callgrind(profile: Profile) -> str:
    """Exclusive costs by line, and calls with their inclusive costs. The number of calls is not known: it is taken as
    the largest count (such as allocations) of the call."""
    metrics = _listed(profile)
    names = [metric.key for metric in metrics]
    exclusive: dict[Location, list[int]] = {}
    calls: dict[tuple[Location, Location], tuple[list[int], int]] = {}
    tree = profile.calls
    for stack in tree.stacks:
        location = tree.locations[tree.location[stack.node]]
        _add(exclusive.setdefault(location, [0] * len(names)), [round(stack.figures[name]) for name in names])
    nodes = tree.tables.nodes
    columns = [tree.column(nodes.figures, name, nodes.rows).astype(np.int64).tolist() for name in names]
    call_counts = _largest_counts(tree, [metric.key for metric in metrics if metric.unit == "1"])
    for number, (parent, inclusive) in enumerate(
        zip(tree.parent.tolist(), zip(*columns, strict=True), strict=True)
    ):
        location = tree.locations[tree.location[number]]
        exclusive.setdefault(location, [0] * len(names))
        if parent >= 0:
            edge = (tree.locations[tree.location[parent]], location)
            sums, before = calls.get(edge, ([0] * len(names), 0))
            _add(sums, inclusive)
            calls[edge] = (sums, before + max(1, call_counts[number]))
    lines = [
        "# callgrind format", "version: 1", "creator: assay", f"cmd: {profile.program}",
        "positions: line", "events: " + " ".join(names),
        *(f"event: {metric.key} : {metric.label}" for metric in metrics),
        "summary: " + " ".join(str(sum(values)) for values in zip(*exclusive.values(), strict=True)),
    ]  # fmt: skip
    by_caller: dict[Location, list[tuple[Location, list[int], int]]] = {}
    for (caller, callee), (sums, times) in calls.items():
        by_caller.setdefault(caller, []).append((callee, sums, times))
    for location, values in exclusive.items():
        lines += ["", f"ob={location.module}", f"fl={_file(location)}", f"fn={location.function}"]
        lines.append(f"{location.line} {_costs(values)}")
        for callee, sums, times in by_caller.get(location, []):
            lines += [f"cob={callee.module}", f"cfi={_file(callee)}", f"cfn={callee.function}"]
            lines += [f"calls={times} {callee.line}", f"{location.line} {_costs(sums)}"]
    return "\n".join(lines) + "\n"


def _largest_counts(tree: CallTree, names: Sequence[str]) -> list[int]:
    """The largest of the metrics of each call; they are counts."""
    most = np.zeros(len(tree.parent))
    for name in names:
        most = np.maximum(most, tree.exclusive_of_nodes(name))
    return [int(count) for count in most.tolist()]


def _add(sums: list[int], values: Sequence[int]) -> None:
    for k, value in enumerate(values):
        sums[k] += value


def _file(location: Location) -> str:
    return location.file or "???"


def _costs(values: list[int]) -> str:
    return " ".join(map(str, values))
