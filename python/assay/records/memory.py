"""The memory that a process can still allocate: the function of ``engines/machine`` for what Python plans itself.

Both are held against the same planted machines. A batch system limits a job by a control group, so the machine's figure
alone promises memory whose use ends the job.
"""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath

# By version of control groups: its folder, the files of limits, that of the use, and the lines of memory.stat that
# count what the kernel drops before it refuses memory.
VERSION_2 = (
    "sys/fs/cgroup",
    ("memory.max", "memory.high"),
    "memory.current",
    ("inactive_file", "active_file", "slab_reclaimable"),
)
VERSION_1 = (
    "sys/fs/cgroup/memory",
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


def available_memory(root: Path | None = None) -> float:
    """Bytes: the machine's available memory, or less where a control group of version 2 or 1 limits the process.

    ``root`` is a prefix of /proc and /sys, $ASSAY_ROOT by default. Infinite where nothing is known.
    """
    root = Path(os.environ.get("ASSAY_ROOT") or "/") if root is None else root
    available = _numbers(root / "proc/meminfo").get("MemAvailable:", math.inf) * 1024
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            available = min(available, _unused(root, group, VERSION_2))
        elif "memory" in controllers.split(","):
            available = min(available, _unused(root, group, VERSION_1))
    return available


def _unused(root: Path, group: str, version: tuple[str, tuple[str, ...], str, tuple[str, ...]]) -> float:
    """The least that a group and those above it may still use. In a container the path may be that of the host: then
    only the root group exists, which is the container's."""
    mount, limits, usage, reclaimable = version
    unused = math.inf
    path = PurePosixPath(group)
    for part in (path, *path.parents):
        folder = root / mount / str(part).lstrip("/")
        limit = min(_number(folder / name, math.inf) for name in limits)
        if limit < math.inf:
            counts = _numbers(folder / "memory.stat")
            dropped = sum(counts.get(name, 0) for name in reclaimable)
            unused = min(unused, max(0, limit - max(0, _number(folder / usage, 0) - dropped)))
    return unused


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path, missing: float) -> float:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else missing


def _numbers(path: Path) -> dict[str, float]:
    """The lines "NAME NUMBER" of a file."""
    fields = (line.split() for line in _text(path).splitlines())
    return {field[0]: int(field[1]) for field in fields if len(field) > 1 and field[1].isdecimal()}
