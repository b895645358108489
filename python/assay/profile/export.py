"""Heap profiles in the formats of other tools: collapsed stacks (Brendan Gregg's flame graphs), speedscope, pprof and
callgrind (KCachegrind)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable

from assay.profile.heap import COUNTED, METRICS, HeapProfile
from assay.profile.tree import Location


def _frame(location: Location) -> str:
    return f"{location.function} ({location.source})".replace(";", ":")


def collapsed(profile: HeapProfile, metric: str) -> str:
    """One line for each stack, the outermost function first: "main (a.c:3);work (a.c:9) 4096"."""
    lines: dict[str, int] = {}
    for number, node in enumerate(profile.nodes):
        if value := getattr(node, metric):
            stack = ";".join(
                _frame(profile.locations[profile.nodes[ancestor].location])
                for ancestor in reversed(list(profile.stack(number)))
            )
            lines[stack] = lines.get(stack, 0) + value
    return "".join(f"{stack} {value}\n" for stack, value in lines.items())


def speedscope(profile: HeapProfile, metrics: dict[str, str]) -> str:
    """One profile for each metric (name -> title). Format: https://www.speedscope.app/file-format-schema.json."""
    profiles = []
    for metric, title in metrics.items():
        samples, weights = [], []
        for number, node in enumerate(profile.nodes):
            if value := getattr(node, metric):
                samples.append(
                    [profile.nodes[ancestor].location for ancestor in reversed(list(profile.stack(number)))]
                )
                weights.append(value)
        unit = "none" if metric in COUNTED else "bytes"
        profiles.append({"type": "sampled", "name": title, "unit": unit, "startValue": 0,
                         "endValue": sum(weights), "samples": samples, "weights": weights})  # fmt: skip
    frames = [
        {
            "name": location.function,
            "file": location.file or location.module,
            **({"line": location.line} if location.line else {}),
        }
        for location in profile.locations
    ]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": frames},
            "profiles": profiles,
            "name": profile.process.program,
            "exporter": "assay",
        }
    )


# ---- pprof: https://github.com/google/pprof/blob/main/proto/profile.proto, a gzipped protocol buffer


def pprof(profile: HeapProfile) -> bytes:
    """Every metric is a sample type; a pprof location is a line of a function."""
    strings = _Strings()
    out = bytearray()
    for metric, title in METRICS.items():
        unit = "count" if metric in COUNTED else "bytes"
        out += _message(1, _number(1, strings[title]) + _number(2, strings[unit]))
    for number, node in enumerate(profile.nodes):
        values = [getattr(node, metric) for metric in METRICS]
        if any(values):
            stack = [profile.nodes[ancestor].location + 1 for ancestor in profile.stack(number)]
            out += _message(2, _packed(1, stack) + _packed(2, values))
    for number, location in enumerate(profile.locations, 1):
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


def callgrind(profile: HeapProfile) -> str:
    """Exclusive costs by line, and calls with their inclusive costs."""
    names = list(METRICS)
    inclusive = [[getattr(node, name) for name in names] for node in profile.nodes]
    exclusive: dict[Location, list[int]] = {}
    calls: dict[tuple[Location, Location], tuple[list[int], int]] = {}
    for number in range(len(inclusive) - 1, -1, -1):
        node = profile.nodes[number]
        location = profile.locations[node.location]
        _add(exclusive.setdefault(location, [0] * len(names)), [getattr(node, name) for name in names])
        if node.parent >= 0:
            _add(inclusive[node.parent], inclusive[number])
            edge = (profile.locations[profile.nodes[node.parent].location], location)
            sums, times = calls.get(edge, ([0] * len(names), 0))
            _add(sums, inclusive[number])
            calls[edge] = (sums, times + max(1, node.count))
    lines = [
        "# callgrind format", "version: 1", "creator: assay", f"cmd: {profile.process.program}",
        "positions: line", "events: " + " ".join(names),
        *(f"event: {name} : {title}" for name, title in METRICS.items()),
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


def _add(sums: list[int], values: list[int]) -> None:
    for k, value in enumerate(values):
        sums[k] += value


def _file(location: Location) -> str:
    return location.file or "???"


def _costs(values: list[int]) -> str:
    return " ".join(map(str, values))
