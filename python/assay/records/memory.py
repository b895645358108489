"""The memory that a process can still allocate: the function of ``engines/machine`` for what Python plans itself.

Both are held against the same planted machines. A batch system limits a job by a control group, so the machine's figure
alone promises memory whose use ends the job.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# By version of control groups: the files of limits, that of the use, and the lines of memory.stat that
# count what the kernel drops before it refuses memory.
VERSION_2 = (
    ("memory.max", "memory.high"),
    "memory.current",
    ("inactive_file", "active_file", "slab_reclaimable"),
)
VERSION_1 = (
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


def available_memory(root: Path | None = None) -> float:
    """Bytes: the machine's available memory, or less where a control group of version 2 or 1 limits the process.

    ``root`` is a prefix of /proc, /sys and mount points, $ASSAY_ROOT by default. Infinite where nothing is known.
    """
    root = Path(os.environ.get("ASSAY_ROOT") or "/") if root is None else root
    machine = _numbers(root / "proc/meminfo")
    # A kernel before 3.14 does not estimate it: what is free, and the file cache without tmpfs.
    cache = machine.get("Buffers:", 0) + machine.get("Cached:", 0)
    free = machine.get("MemFree:", math.inf) + max(0, cache - machine.get("Shmem:", 0))
    available = machine.get("MemAvailable:", free) * 1024
    for folder, is_unified in _groups(root):
        available = min(available, _unused(folder, *(VERSION_2 if is_unified else VERSION_1)))
    return available


def _groups(root: Path) -> Iterator[tuple[Path, bool]]:
    """The folders of this process's control groups that may limit memory, from its own one to the root of the
    hierarchy, and whether they are of version 2. In a container the path may be that of the host: then only the root
    group exists, which is the container's."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if not controllers or "memory" in controllers.split(","):
            for point, path in _mounts(root, PurePosixPath(group), is_unified=not controllers):
                for part in (path, *path.parents):
                    yield root / point.lstrip("/") / str(part).lstrip("/"), not controllers


def _mounts(root: Path, group: PurePosixPath, is_unified: bool) -> list[tuple[str, PurePosixPath]]:
    """The mount points that show ``group``, and its path below each. A mount may show a part of the hierarchy only. If
    none shows the group, all mounts of the hierarchy; without any the folder in which systemd mounts it."""
    mounts: list[tuple[PurePosixPath, str]] = []
    for line in _text(root / "proc/self/mountinfo").split("\n"):
        fields, _, rest = line.partition(" - ")
        if len(fields.split(" ")) < 6 or len(rest.split(" ")) < 3:
            continue
        part, point = map(unescape, fields.split(" ")[3:5])
        kind, _, options = rest.split(" ")[:3]
        if kind == "cgroup2" if is_unified else kind == "cgroup" and "memory" in options.split(","):
            mounts.append((PurePosixPath(part), point))
    shown = [
        (point, PurePosixPath("/") / group.relative_to(part))
        for part, point in mounts
        if group.is_relative_to(part)
    ]
    return (
        shown
        or [(point, group) for _, point in mounts]
        or [("sys/fs/cgroup" if is_unified else "sys/fs/cgroup/memory", group)]
    )


def unescape(path: str) -> str:
    """A path of mountinfo or mounts, where the kernel writes a space as "\\040"."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)


def _unused(folder: Path, limits: tuple[str, ...], usage: str, reclaimable: tuple[str, ...]) -> float:
    """What the group in ``folder`` may still use."""
    limit = min(_number(folder / name, math.inf) for name in limits)
    if limit == math.inf:
        return limit
    counts = _numbers(folder / "memory.stat")
    dropped = sum(counts.get(name, 0) for name in reclaimable)
    return max(0, limit - max(0, _number(folder / usage, 0) - dropped))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _number(path: Path, missing: float) -> float:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else missing


def _numbers(path: Path) -> dict[str, float]:
    """The lines "NAME NUMBER" of a file."""
    fields = (line.split() for line in _text(path).splitlines())
    return {field[0]: int(field[1]) for field in fields if len(field) > 1 and field[1].isdecimal()}
