"""Settings of a host that measurements depend on: what each is, what it should be, how to mend it.

The root of /sys and /proc is injectable, so that tests can plant a machine.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """``read`` gives the value under a root, None where the machine has no such thing."""

    name: str
    read: Callable[[Path], str | None]
    good: Callable[[str], bool]
    wanted: str
    mend: str


@dataclass(frozen=True)
class Reading:
    """One setting as found; ``good`` is None where the machine has no such thing."""

    name: str
    value: str
    wanted: str
    good: bool | None
    mend: str


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _governors(root: Path) -> str | None:
    found = {_line(p) for p in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(g for g in found if g)) or None


def _turbo(root: Path) -> str | None:
    cpu = root / "sys/devices/system/cpu"
    off = _line(cpu / "intel_pstate/no_turbo")
    boost = _line(cpu / "cpufreq/boost")
    if off is None and boost is None:
        return None
    return "off" if off == "1" or boost == "0" else "on"


def _file(path: str) -> Callable[[Path], str | None]:
    return lambda root: _line(root / path)


def _huge_pages(root: Path) -> str | None:
    line = _line(root / "sys/kernel/mm/transparent_hugepage/enabled")
    return line.split("[")[1].split("]")[0] if line and "[" in line else None


def _at_least(limit: int) -> Callable[[str], bool]:
    return lambda value: int(value.split()[0]) >= limit


def _memory_lock(_root: Path) -> str | None:
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _sysctl(name: str, limit: int) -> Setting:
    return Setting(
        f"net.core.{name}",
        _file(f"proc/sys/net/core/{name}"),
        _at_least(limit),
        f"at least {limit}",
        f"sysctl -w net.core.{name}={limit}",
    )


# The buffer sizes are those that the COBALT2 acceptance asks for.
SETTINGS: list[Setting] = [
    Setting(
        "frequency governor",
        _governors,
        lambda v: v == "performance",
        "performance",
        "cpupower frequency-set -g performance",
    ),
    Setting(
        "turbo",
        _turbo,
        lambda v: v == "off",
        "off, for repeatable figures",
        "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo",
    ),
    Setting(
        "transparent huge pages",
        _huge_pages,
        lambda v: v in ("always", "madvise"),
        "always or madvise",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    _sysctl("rmem_max", 16_777_216),
    _sysctl("wmem_max", 16_777_216),
    _sysctl("netdev_max_backlog", 250_000),
    Setting(
        "locked memory (ulimit -l)",
        _memory_lock,
        lambda v: v == "unlimited" or int(v) >= 1 << 30,
        "unlimited, for RDMA",
        "ulimit -l unlimited (and /etc/security/limits.conf)",
    ),
]


def read_settings(root: Path = Path("/")) -> list[Reading]:
    """Every setting as it stands under ``root``."""
    readings = []
    for s in SETTINGS:
        value = s.read(root)
        good = None if value is None else s.good(value)
        readings.append(Reading(s.name, value or "not on this machine", s.wanted, good, s.mend))
    return readings
