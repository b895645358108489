"""Heap profiles for other tools: collapsed stacks (Brendan Gregg's flame graphs) and speedscope's file format."""

from __future__ import annotations

import json

from assay.profile.heap import HeapProfile, Place


def _frame(place: Place) -> str:
    return f"{place.function} ({place.source})".replace(";", ":")


def collapsed(profile: HeapProfile, metric: str) -> str:
    """A line a stack, outermost first: "main (a.c:3);work (a.c:9) 4096"."""
    lines: dict[str, int] = {}
    for number, node in enumerate(profile.nodes):
        if value := getattr(node, metric):
            stack = ";".join(
                _frame(profile.places[profile.nodes[at].place])
                for at in reversed(list(profile.stack(number)))
            )
            lines[stack] = lines.get(stack, 0) + value
    return "".join(f"{stack} {value}\n" for stack, value in lines.items())


def speedscope(profile: HeapProfile, metrics: dict[str, str]) -> str:
    """One profile for each metric (name -> title), as https://www.speedscope.app/file-format-schema.json says."""
    profiles = []
    for metric, title in metrics.items():
        samples, weights = [], []
        for number, node in enumerate(profile.nodes):
            if value := getattr(node, metric):
                samples.append([profile.nodes[at].place for at in reversed(list(profile.stack(number)))])
                weights.append(value)
        unit = "none" if metric in ("count", "temporary", "reallocated") else "bytes"
        profiles.append({"type": "sampled", "name": title, "unit": unit, "startValue": 0,
                         "endValue": sum(weights), "samples": samples, "weights": weights})  # fmt: skip
    frames = [
        {"name": p.function, "file": p.file or p.module, **({"line": p.line} if p.line else {})}
        for p in profile.places
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
