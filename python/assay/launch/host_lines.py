"""Lines of host files as MPIs and batch systems write them.

n1                     a name or a node set; of PBS, LSF and srun: a line for each slot
n1:4                   MPICH, Intel MPI: slots
n1 slots=4 max_slots=8 Open MPI
n1 cpu=2               LAM/MPI
n1 8 all.q@n1 <NULL>   Grid Engine: slots, queue, processors
n1 16 n2 16            LSF's LSB_MCPU_HOSTS: slots after each name
2 n1 16 n2 16          CCP_NODES of Microsoft's HPC Pack: the number of hosts before them
[fe80::1%ib0]:4        an IPv6 address

Blanks may be around "=". Of Grid Engine the queue names the host again, by which its lines are told from LSF's.

Assay places its own ranks, so numbers of slots are not used. What else a line says about a host (an interface, a
binding) would change what is measured, and is refused.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from assay.errors import UserError

SLOT_KEYS = ("slots", "max_slots", "max-slots", "cpu", "cpus", "count")
_EQUALS = re.compile(r"(?<!\s)\s*=\s*(?=\d)")
_SLOTS = re.compile(r"([^:,]+|\[[^\]:]*:[^\]]*\]):(\d+)")
ADDRESS = re.compile(r"\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)\]")
OTHER_FILES = (
    (re.compile(r"rank\s+\S+\s*="), "a rank file of Open MPI"),
    (re.compile(r"\S+\s.*\bansible_\w+="), "an inventory of Ansible"),
    (re.compile(r"\[[A-Za-z_][\w:-]*\]$"), "a section, as of an inventory of Ansible or of a configuration"),
    (re.compile(r"<[?!A-Za-z]"), "XML or HTML"),
    (re.compile(r"(export|set|setenv|declare)\s+\w+[=\s]"), "a line of a shell script"),
    (re.compile(r"-\s|\w+:$"), "a list in YAML"),
    (re.compile(r"group\s+\S+(\s+\+\+.*)?$|host\s+[A-Za-z]\S*(\s+\+\+.*)?$"), "a nodelist of Charm++"),
    (
        re.compile(r"([0-9]+(\.[0-9]+){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+)(\s+[A-Za-z][^\s=]*)+$"),
        "an address and names, as in /etc/hosts",
    ),
    (
        re.compile(r"(?=\S*[A-Za-z])[^\s,=\[]+\s+([0-9]+(\.[0-9]+){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+)(\s|$)"),
        "a name and an address of one host",
    ),
    (re.compile(r"\{|\[\s*(\"|$)"), "a list in JSON"),
    (re.compile(r"\^\S"), "a host that Open MPI is to leave out"),
    (re.compile(r"\(?[A-Za-z][^\s,]*(/[0-9]+(\*[0-9]+)?($|\+)|:ncpus=)"), "a value of PBS"),
    (re.compile(r"\S+ [0-9]+(,[0-9]+)+$"), "a host and its processors, as in LSF's affinity file"),
)
_RAIL = re.compile(r"([^:,\[\]\s]+):\d+:([A-Za-z]\w*)")  # of MVAPICH2: host, ranks, adapter
MAX_ADDRESS = 64  # characters
ONE_A_LINE = "write a host or a node set a line"
_BETWEEN = re.compile(r"[\s,;|]+")
# Names of columns: one of the first group is enough, of the second two are needed, since hosts may be called so.
_COLUMNS = re.compile(r"host_?names?|node_?names?|node_?list|host_?list|fqdn|ip_?addr(ess)?", re.IGNORECASE)
_WEAK_COLUMNS = re.compile(
    r"hosts?|nodes?|names?|servers?|ip(v[46])?|addr(ess)?|mac|racks?|roles?|states?|status|partition|user|port|slots|"
    r"cpus|cores|memory|type|id",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[,;]")
_MAC = re.compile(r"([0-9a-f]{2}:){5,}[0-9a-f]{2}", re.IGNORECASE)
_WORD = re.compile(r"(?=.*[^\W\d_])[^\[\]=]+")  # no node set


class HostLine(NamedTuple):
    hosts: str  # a name or a node set
    has_slots: bool
    slots: tuple[int, ...] = ()  # of each name, where the line has them as LSF writes them


def refuse_table(text: str, where: str, is_first: bool) -> None:
    """Raises UserError for a line of a table (CSV): each would be several hosts. Its header is the first line."""
    if is_first and "=" not in text and _is_header(text):
        raise UserError(f"{where} '{text[:60]}': the header of a table, no host", ONE_A_LINE)
    pair = [field.strip().strip("\"'") for field in _SEPARATOR.split(text, maxsplit=2)[:2]]
    addresses = [field for field in pair if is_address(field)]
    if len(addresses) == 1 and any(_WORD.fullmatch(field) for field in pair if field not in addresses):
        raise UserError(f"{where} '{text[:60]}': a name and an address of one host", ONE_A_LINE)


def _is_header(text: str) -> bool:
    fields = [field.strip("\"'") for field in _BETWEEN.split(text.strip()) if field]
    strong = sum(1 for field in fields if _COLUMNS.fullmatch(field))
    weak = sum(1 for field in fields if _WEAK_COLUMNS.fullmatch(field))
    return strong > 0 or weak > 1


def is_address(text: str) -> bool:
    """Whether a field of a table is an address of IPv4 or IPv6, or a MAC."""
    if len(text) > MAX_ADDRESS:
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _MAC.fullmatch(text) is not None
    return True


def parse_line(text: str, where: str) -> HostLine:
    """A line without comment and outer blanks. ``where``: file and line for UserError."""
    text = _EQUALS.sub("=", text)
    first, *others = text.split()
    other_file = next((name for pattern, name in OTHER_FILES if pattern.match(text)), None)
    if other_file is not None:
        raise UserError(f"{where} '{text[:60]}': {other_file}", ONE_A_LINE)
    if len(others) == 3 and others[0].isdigit() and "@" in others[1]:  # Grid Engine
        return HostLine(without_brackets(first), True)
    if first.isdigit() and len(others) == 2 * int(first[:6]) > 0 and all(map(str.isdigit, others[1::2])):
        return HostLine(",".join(others[::2]), True, _numbers(others[1::2]))
    if len(others) > 1 and len(others) % 2 and all(map(str.isdigit, others[::2])):  # LSF
        return HostLine(",".join([first, *others[1::2]]), True, _numbers(others[::2]))
    if rail := _RAIL.fullmatch(first):
        raise UserError(
            f"{where} {rail[1]}: the adapter '{rail[2][:40]}' is not understood",
            f"write {rail[1]}, or its name on the network that is meant",
        )
    for other in others:
        key, equals, value = other.partition("=")
        if not equals:
            if others[0].isdigit():
                raise UserError(
                    f"{where} '{text[:60]}': a number after {first} that is not understood", ONE_A_LINE
                )
            return HostLine(text, False)  # a node set with blanks
        if key.lower() not in SLOT_KEYS:
            raise UserError(
                f"{where} {first}: '{other[:40]}' is not understood",
                f"write {without_slots(first)}, or its name on the network that is meant",
            )
        if not value.isdigit():
            raise UserError(f"{where} {first}: '{other[:40]}': not a number of slots", f"write {first}")
    name = without_slots(first)
    return HostLine(without_brackets(name), bool(others) or name != first)


def _numbers(fields: list[str]) -> tuple[int, ...]:
    return tuple(int(field[:6]) for field in fields)


def without_slots(text: str) -> str:
    """ "n1:4" is n1. An IPv6 address has more than one colon, and its slots follow a bracket."""
    match = _SLOTS.fullmatch(text)
    return match[1] if match else text


def without_brackets(text: str) -> str:
    """ "[fe80::1]" is fe80::1; all else is unchanged."""
    match = ADDRESS.fullmatch(text)
    if match is None:
        return text
    try:
        ipaddress.IPv6Address(match[1])
    except ValueError:
        return text
    return match[1]
