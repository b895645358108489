"""Names from node descriptions. A description is a text for people: "node1 mlx5_0" is the first adapter of host node1,
"MF0;isw1:SX6036/U1" is the managed switch isw1, and "MT4123 ConnectX6 Mellanox Technologies" is what an adapter says
that nobody has named. Names go to Slurm, launchers and lists of hosts, so they are one word of safe letters where the
description has one.

    host     the machine: the first word of the descriptions of its adapters
    port     an end port: its host; of a host with several, also the adapter, and the port of an adapter with several:
             "node1 mlx5_0", "node1 mlx5_1:2"
    switch   the name within a managed switch's description; of several chips of one box also the chip, "core1-L2-U1".
             Else the first word; where several share it, or its number follows, all words: "leaf-0-rack-B"

Two nodes never have one name: what the description does not tell apart has its GUID in its name, or a number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

SAFE = re.compile(r"[A-Za-z0-9_.-]+")
_MANAGED = re.compile(r"MF[0-9]+;([^:;]*)(?::([^/]*))?(/.*)?")
# What vendors put there, and what a host says before it has a name.
_FACTORY = re.compile(
    r"Mellanox Technologies|\bConnectX|\bConnect-?IB\b|\bInfini(Host|Scale)|^MT[0-9]{4,5}\b|\bLogical HCA\b|^QLogic\b|"
    r"^(\(none\)|localhost\b)",
    re.IGNORECASE,
)
_DEVICE = re.compile(
    r"(mlx[0-9]|mthca|hfi1|qib|ipath|ehca|ibp|rocep|roceo|bnxt_re|irdma|efa_?)[\w.-]*|HCA-[0-9]+"
)

_HOST_WORD = re.compile(r"(node|host|server|blade|compute|worker|slot|unit)[-_.]?[0-9]", re.IGNORECASE)
# "mlx5_0", "rail1"; a number alone is of "node 0" and "node 1", two hosts, and so is "node1" of "rack3 node1".
_ADAPTER = re.compile(rf"(?!{_HOST_WORD.pattern})[^\W\d]\S*[0-9]", re.IGNORECASE)

# Long-haul extenders: Longbow of Obsidian Research, IBEx of Bay Microsystems, MetroX of Mellanox. A name of the first
# two alone may be a cluster's, so it needs a model. Their makers are known by the first three bytes of a GUID too (as
# opensm names them), and make no other InfiniBand device.
_EXTENDER = re.compile(
    r"(?<![A-Za-z0-9])(Longbow [CEX][0-9]|Obsidian (Research|Strategics)|IBEx[ _-]?[GM][0-9]{2}\b|MetroX"
    r"|M?TX6(000|100|240|280)|M?TQ8[12]00)",
    re.IGNORECASE,
)
_EXTENDER_MAKERS = (0x001777, 0x000BC1)


@dataclass(frozen=True)
class EndPort:
    """An end port as a file describes it. ``is_host``: of a host, and no router's or aggregation node's."""

    description: str
    adapter: int  # GUID of the node
    guid: int  # of the port
    port: int
    is_host: bool = True


def is_extender(description: str, guid: int) -> bool:
    """Whether a node is a long-haul extender, which joins two sites at a rate of its own."""
    return guid >> 40 in _EXTENDER_MAKERS or _EXTENDER.search(description) is not None


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts node2 before node10."""
    parts = re.split(r"([0-9]+)", name)
    return [(0, int(part), "") if index % 2 else (1, 0, part) for index, part in enumerate(parts)]


def name_ports(ports: Sequence[EndPort]) -> tuple[list[str], list[str]]:
    """The names of end ports, all different, and of their hosts; the host is empty where the description names none."""
    hosts = _host_names(ports)
    members: dict[str, list[int]] = defaultdict(list)
    for index, host in enumerate(hosts):
        if host:
            members[host].append(index)
    adapters = Counter(port.adapter for port, host in zip(ports, hosts, strict=True) if host)
    wanted = [
        host if host and len(members[host]) == 1
        else _port_name(host, port, adapters[port.adapter] > 1) if host
        else port.description
        for port, host in zip(ports, hosts, strict=True)
    ]  # fmt: skip
    described = Counter(port.description for port in ports)
    taken = Counter(wanted)
    names = []
    for port, host, name in zip(ports, hosts, wanted, strict=True):
        is_told_apart = taken[name] == 1 and name and (host or (described[name] == 1 and port.is_host))
        names.append(name if is_told_apart else f"{name or 'port'} {port.guid:#018x}")
    return names, hosts


def _port_name(host: str, port: EndPort, has_several: bool) -> str:
    device = port.description[len(host) :].strip() or f"{port.adapter:#018x}"
    return f"{host} {device}" + (f":{port.port}" if has_several else "")


def _host_names(ports: Sequence[EndPort]) -> list[str]:
    """The host of each port. A first word that several adapters share is a host only if they are its rails: what
    follows the word tells them apart, or nothing follows it."""
    words = [_first_word(port) for port in ports]
    rests: dict[str, dict[int, str]] = defaultdict(dict)
    for port, word in zip(ports, words, strict=True):
        rests[word][port.adapter] = port.description[len(word) :].strip()
    is_host = {word: bool(word) and _are_rails(list(of_word.values())) for word, of_word in rests.items()}
    return [word if is_host[word] else "" for word in words]


def _first_word(port: EndPort) -> str:
    """Empty where the description names no host."""
    if not port.is_host or not port.description or _FACTORY.search(port.description):
        return ""
    word = port.description.split()[0]
    return "" if _DEVICE.fullmatch(word) else word


def _are_rails(rests: list[str]) -> bool:
    if len(rests) == 1 or not any(rests):
        return True
    return len(set(rests)) == len(rests) and (all(map(_is_adapter, rests)) or _differ_in_device(rests))


def _differ_in_device(rests: list[str]) -> bool:
    """Whether only the last word differs and names a device: "S 192.168.10.1 HCA-1" and "S 192.168.10.1 HCA-2" of an
    Exadata. "node1 HCA-1" and "node1 HCA-2" are of host node1, whatever stands before."""
    parts = [rest.rpartition(" ") for rest in rests]
    shared = {before for before, _, _ in parts}
    is_a_host = any(_HOST_WORD.match(word) for before in shared for word in before.split())
    return len(shared) == 1 and not is_a_host and all(_DEVICE.fullmatch(last) for _, _, last in parts)


def _is_adapter(rest: str) -> bool:
    """Whether what follows a first word names an adapter: "mlx5_0", "mlx5_1 storage", or nothing, as a host with one
    has it."""
    return not rest or _ADAPTER.fullmatch(rest) is not None or _DEVICE.fullmatch(rest.split()[0]) is not None


def name_switches(descriptions: Sequence[str], guids: Sequence[int]) -> list[str]:
    """Short names of switches, all different and safe for Slurm."""
    parts = [_switch_parts(text) for text in descriptions]
    short = Counter(name for name, _ in parts)
    wanted = [
        "-".join([name, *rest]) if short[name] > 1 or _is_numbered(name, rest) else name
        for name, rest in parts
    ]
    counts = Counter(wanted)
    number: Counter[str] = Counter()
    names = list(wanted)
    taken = {name for name, count in counts.items() if count == 1}
    for index in sorted(range(len(wanted)), key=lambda k: guids[k]):
        if counts[wanted[index]] > 1:
            number[wanted[index]] += 1
            while (name := f"{wanted[index]}-{number[wanted[index]]}") in taken:
                number[wanted[index]] += 1
            taken.add(name)
            names[index] = name
    return names


def _is_numbered(name: str, rest: list[str]) -> bool:
    """Whether the number of "spine 0" is behind its first word."""
    return not re.search("[0-9]", name) and re.search("[0-9]", rest[0] if rest else "") is not None


def _switch_parts(description: str) -> tuple[str, list[str]]:
    """A safe name and what tells it from others of that name: module and chip of a managed box, or the other words of
    a description, unless they are the vendor's."""
    if match := _MANAGED.fullmatch(description):
        name, rest = safe(match[1] or match[2] or ""), (match[3] or "").split("/")
    else:
        words = description.split()
        name = safe(words[0] if words else "")
        rest = [] if _FACTORY.search(description) else words[1:]
    return name or "switch", [part for part in map(safe, rest) if part]


def safe(text: str) -> str:
    """The text with every run of other letters than Slurm takes replaced by a dash."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-")


def is_usable(host: str) -> bool:
    """Whether Slurm and launchers can take a host's name."""
    return SAFE.fullmatch(host) is not None
