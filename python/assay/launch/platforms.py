"""Platform files of SimGrid: the hosts in them, and the quantities as SimGrid writes them.

Hosts come from ``<host>``, ``<peer>``, and the numbers of a ``<cluster>`` of any kind or of a ``<cabinet>``. Versions 4
and 4.1 are read; SimGrid reads none before.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from assay.errors import UserError
from assay.records.foreign import Wanted, read_text

MAX_HOSTS = 1_000_000  # of a platform: a few bytes can name a range of any size
MIN_VERSION = 4.0
PLATFORM = Wanted("a platform of SimGrid", "give what 'assay model' has written", ("simgrid",))
_HOST = re.compile(r"[^\W_][\w.:%@-]*")
# src/xbt/xbt_parse_units.cpp of SimGrid: prefixes of the short units and of "flops"; a number alone is in flop/s.
_SPEED = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)\s*")
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_LONG_PREFIXES = ("", "kilo", "mega", "giga", "tera", "peta", "exa", "zeta", "yotta")
SPEED_UNITS = {"": 1.0} | {
    prefix + unit: 1000.0**power
    for prefixes, unit in ((_PREFIXES, "f"), (_LONG_PREFIXES, "flops"))
    for power, prefix in enumerate(prefixes)
}


def read_platform(path: Path) -> ET.Element:
    """The root of a platform file. Raises UserError for another file, and for a version that SimGrid does not read."""
    text = read_text(path, PLATFORM)
    try:
        root = ET.fromstring(_from_declaration(text))
    except (ET.ParseError, LookupError, ValueError) as error:  # the last two: an unknown encoding
        raise UserError(f"{path}: not XML: {error}", PLATFORM.fix) from None
    if root.tag != "platform":
        raise UserError(f"{path}: not a platform of SimGrid: <{root.tag}>", PLATFORM.fix)
    version = str(root.get("version", "0"))
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", version) or float(version) < MIN_VERSION:
        raise UserError(
            f"{path}: a platform of version {version[:20]}, and SimGrid reads 4 and 4.1",
            f"update it in place: simgrid_update_xml {path}",
        )
    if (include := root.find(".//include")) is not None:
        raise UserError(
            f"{path}: <include file='{str(include.get('file'))[:60]}'>: SimGrid reads no other file since 3.18",
            "write that file's elements in its place",
        )
    return root


def _from_declaration(text: str) -> str:
    """The text without comments and space before the XML declaration. XML has nothing there; SimGrid ignores it."""
    start = _space_from(text, 0)
    while text.startswith("<!--", start) and (end := text.find("-->", start)) >= 0:
        start = _space_from(text, end + 3)
    return text[start:] if text.startswith("<?xml", start) else text


def _space_from(text: str, start: int) -> int:
    space = re.compile(r"\s*").match(text, start)
    return space.end() if space else start


def platform_hosts(path: Path) -> list[str]:
    """Returns the hosts of a platform file in its order. Raises UserError."""
    hosts = hosts_of(read_platform(path).iter(), path)
    if not hosts:
        raise UserError(f"{path}: no host, cluster, cabinet or peer in it", PLATFORM.fix)
    return hosts


def hosts_of(nodes: Iterable[ET.Element], path: Path) -> list[str]:
    """The hosts that these elements declare, in their order. Raises UserError."""
    hosts: list[str] = []
    for node in nodes:
        if node.tag in ("host", "peer"):
            hosts.append(str(node.get("id")))
        elif node.tag in ("cluster", "cabinet"):
            ids = expand_radical(str(node.get("radical", "")), path)
            if len(hosts) + len(ids) > MAX_HOSTS:
                raise _too_many(path)
            hosts += [f"{node.get('prefix', '')}{i}{node.get('suffix', '')}" for i in ids]
    return hosts


def platform_settings(path: Path) -> list[str]:
    """The names of the settings of SimGrid in a platform file's <config>. Raises UserError."""
    return [
        str(prop.get("id")) for config in read_platform(path).iter("config") for prop in config.iter("prop")
    ]


def require_listable(hosts: list[str], path: Path) -> None:
    """Raises UserError for a host whose name a list of hosts cannot hold; SimGrid takes any text."""
    if strange := next((host for host in hosts if not _HOST.fullmatch(host)), None):
        raise UserError(
            f"{path}: the host '{strange[:60]}': a list of hosts cannot hold this name",
            "rename it in the platform",
        )


def parse_speed(text: str) -> float:
    """flop/s of "1.5Gf", "1.0E9f" or "2Gf,1Gf", of which the first is that at the start. Raises ValueError."""
    match = _SPEED.fullmatch(text.split(",")[0])
    speed = float(match[1]) * SPEED_UNITS.get(match[2], 0.0) if match else 0.0
    if not 0 < speed < float("inf"):
        raise ValueError
    return speed


def computing(path: Path, speed_ratio: float) -> list[str]:
    """smpirun's options for the simulated time of a program's computing. ``speed_ratio``: speed of the platform's first
    host over this machine's; 0: computing takes no time. Raises UserError for a speed that cannot be read."""
    if speed_ratio == 0:
        return ["--cfg=smpi/simulate-computation:no"]
    text = next((speed for node in read_platform(path).iter() if (speed := node.get("speed"))), None)
    if text is None:
        raise UserError(f"{path}: no host has a speed", "write speed='1Gf', or give --compute 0")
    try:
        flops = parse_speed(text)
    except ValueError:
        raise UserError(f"{path}: the speed '{text}' of a host", "write it like 1Gf") from None
    return ["--cfg=smpi/simulate-computation:yes", f"--cfg=smpi/host-speed:{flops / speed_ratio:.9g}f"]


def expand_radical(text: str, path: Path) -> list[int]:
    """The numbers of a cluster's hosts: "0-3,7" is 0, 1, 2, 3, 7. Raises UserError."""
    numbers: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part.strip())
        if not bounds:
            raise UserError(
                f"{path}: radical '{text[:100]}': expected numbers and ranges", "write it like 0-15,20"
            )
        new_numbers = range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)
        if len(numbers) + len(new_numbers) > MAX_HOSTS:
            raise _too_many(path)
        numbers += new_numbers
    return numbers


def _too_many(path: Path) -> UserError:
    return UserError(f"{path}: more than {MAX_HOSTS} hosts", "give a platform with fewer")
