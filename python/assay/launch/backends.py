"""Finds node-local storage for the accelerator: tmpfs, persistent memory, local file systems.

It reads /proc and /sys below $ASSAY_ROOT, so that tests can plant machines.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct

from assay.records.memory import unescape

# Local file systems. Parallel and remote ones (Lustre, NFS, GPFS) cannot hold a store.
LOCAL = {"ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs", "zfs"}
# Mount points that are not used for data.
NOT_FOR_DATA = (
    "/boot",
    "/etc",
    "/run",
    "/proc",
    "/sys",
    "/dev/pts",
    "/snap",
    "/usr",
    "/var/run",
    "/var/lock",
)


class Backend(Struct):
    """A location for a store. ``size`` and ``free`` in bytes; ``hindrance`` is empty if it can be used."""

    path: str
    kind: str  # devdax, fsdax, memory, file
    size: int
    free: int
    persistent: bool
    hindrance: str = ""


def backends() -> list[Backend]:
    """Returns the locations, best first: persistent memory, memory, files."""
    order = {"devdax": 0, "fsdax": 1, "memory": 2, "file": 3}
    return sorted(
        _devices() + _mounts(), key=lambda backend: (order[backend.kind], -backend.free, backend.path)
    )


def _root() -> Path:
    return Path(os.environ.get("ASSAY_ROOT", "/"))


def _devices() -> list[Backend]:
    devices = []
    for device in sorted((_root() / "sys/bus/dax/devices").glob("dax*")):
        path = f"/dev/{device.name}"
        try:
            size = int((device / "size").read_text())
        except (OSError, ValueError):
            continue
        driver = (device / "driver").resolve().name
        devices.append(Backend(path, "devdax", size, size, True, _device_hindrance(path, driver)))
    return devices


def _device_hindrance(path: str, driver: str) -> str:
    if driver == "kmem":
        return f"the system's memory (to change: daxctl reconfigure-device --mode=devdax {Path(path).name})"
    device = _root() / path.lstrip("/")
    try:
        if not stat.S_ISCHR(device.stat().st_mode):
            return "not a device"
    except OSError:
        return "no such device: is the driver device_dax loaded?"
    if not os.access(device, os.R_OK | os.W_OK):
        return f"no permission (ask an administrator for: chmod 666 {path})"
    return ""


def _mounts() -> list[Backend]:
    mounts: dict[str, Backend] = {}
    try:
        lines = (_root() / "proc/mounts").read_text(errors="surrogateescape").split("\n")
    except OSError:
        return []
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        device, path, kind, options = map(unescape, fields[:4])
        if _is_for_programs(path) or (kind != "tmpfs" and kind not in LOCAL):
            continue
        try:
            statvfs = os.statvfs(path)
        except OSError:
            continue
        if not Path(path).is_dir() or statvfs.f_blocks == 0:  # a single file can be mounted too
            continue
        flags = options.split(",")
        dax = "dax" in flags or "dax=always" in flags
        name = "memory" if kind == "tmpfs" else "fsdax" if dax else "file"
        size, free = statvfs.f_blocks * statvfs.f_frsize, statvfs.f_bavail * statvfs.f_frsize
        hindrance = ""
        if "ro" in flags:
            hindrance = "mounted read-only"
        elif not os.access(path, os.W_OK):
            hindrance = "no permission to write"
        shown = os.fsencode(path).decode(errors="replace")
        if shown != path:
            hindrance = "its name is not UTF-8"
        mounts[device if kind != "tmpfs" else path] = Backend(shown, name, size, free, dax, hindrance)
    return list(mounts.values())


def _is_for_programs(path: str) -> bool:
    """In a container /dev itself is a tmpfs; /dev/shm is for data."""
    return path == "/dev" or any(path == folder or path.startswith(f"{folder}/") for folder in NOT_FOR_DATA)
