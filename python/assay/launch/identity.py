"""Gives each host one name in all records: its name in the user's host list, not its own host name.

A list may hold aliases, fully qualified names, addresses, or names of another adapter ("n1-ib"); the engine knows
host names and addresses. The engine reports them before any record (``Ranks``), and every record is renamed to the
listed name as it arrives, so that all later steps know one name only. A machine is recognised by its name, by the name
without its domain if only one machine has it, by the number at its end (29 of nid00029, as aprun takes it), by an
address that only this machine has, and last by the ranks that the launcher started there.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
from ClusterShell.NodeSet import NodeSet

from assay.errors import REPAIR, UserError
from assay.records.schema import (
    AnyRecord,
    Context,
    Corruption,
    Failure,
    Flows,
    Machine,
    Measurement,
    Pairs,
    Ranks,
    Scalar,
    Subject,
)

Resolve = Callable[[str], set[str]]
_NUMBER = re.compile(r"[0-9]{1,18}")
_LAST_NUMBER = re.compile(r"[0-9]{1,18}$")
MAX_LOOKUPS = 32  # names that are resolved at the same time


@dataclass
class Match:
    """The listed names of a machine, of which the first is used."""

    names: list[str] = field(default_factory=list)
    recognised_by: str = ""  # "name", "short name", "number", "address" or "rank"


def addresses_of(name: str) -> set[str]:
    """Returns the addresses of a name as this machine resolves it; empty if it does not."""
    try:
        return {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return set()


def match_names(
    listed: Sequence[str],
    machines: Sequence[Machine],
    machine_of_rank: Sequence[int] = (),
    resolve: Resolve = addresses_of,
) -> list[Match]:
    """Finds the listed names of each machine. ``listed``: the listed host of each rank. ``machine_of_rank``: the index
    of each rank's machine; empty if no rank was started."""
    matches = [Match() for _ in machines]
    unmatched = list(dict.fromkeys(listed))

    def assign_names(machine_of_name: dict[str, int], recognised_by: str) -> None:
        for name, machine in machine_of_name.items():
            matches[machine].names.append(name)
            matches[machine].recognised_by = matches[machine].recognised_by or recognised_by
            unmatched.remove(name)

    machine_of_own_name = {
        name: k for k, machine in reversed(list(enumerate(machines))) for name in _own_names(machine)
    }
    assign_names(
        {name: machine_of_own_name[name] for name in unmatched if name in machine_of_own_name}, "name"
    )
    assign_names(_by_short_name(unmatched, listed, machines, matches), "short name")
    assign_names(_by_number(unmatched, machines, matches), "number")
    if unmatched and any(machine.addresses for machine in machines):
        assign_names(_by_address(unmatched, machines, resolve), "address")
    if machine_of_rank:
        assign_names(_by_ranks(unmatched, listed, machine_of_rank, matches), "rank")
    for match in matches:
        match.names.sort(key=list(listed).index)
    return matches


def _own_names(machine: Machine) -> list[str]:
    return [machine.host, *machine.names]


def short_name(name: str) -> str:
    """Returns a name without its domain; an address as it is."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.partition(".")[0].lower()


def _by_short_name(
    unmatched: Iterable[str], listed: Sequence[str], machines: Sequence[Machine], matches: Sequence[Match]
) -> dict[str, int]:
    short_names = Counter(short_name(name) for name in dict.fromkeys(listed))
    owners: dict[str, set[int]] = defaultdict(set)
    for k, machine in enumerate(machines):
        for name in _own_names(machine):
            owners[short_name(name)].add(k)
    machine_of_name = {}
    for name in unmatched:
        owners_of_name = owners.get(short_name(name), set())
        if (
            len(owners_of_name) == 1
            and short_names[short_name(name)] == 1
            and not matches[(k := min(owners_of_name))].names
        ):
            machine_of_name[name] = k
    return machine_of_name


def _by_number(
    unmatched: Iterable[str], machines: Sequence[Machine], matches: Sequence[Match]
) -> dict[str, int]:
    """Numbers of nodes, as aprun takes them: 29 is nid00029. None of them unless each is that of one machine, and all
    machines have the same name before it."""
    numbers = [name for name in unmatched if _NUMBER.fullmatch(name)]
    owners: dict[int, set[int]] = defaultdict(set)
    prefixes = set()
    for k, machine in enumerate(machines):
        name = short_name(machine.host)
        if not matches[k].names and (number := _LAST_NUMBER.search(name)):
            owners[int(number[0])].add(k)
            prefixes.add(name[: number.start()])
    found = {name: min(owners[int(name)]) for name in numbers if len(owners[int(name)]) == 1}
    return found if len(prefixes) == 1 and len(set(found.values())) == len(numbers) else {}


def _by_address(unmatched: Sequence[str], machines: Sequence[Machine], resolve: Resolve) -> dict[str, int]:
    """Names that resolve to an address of one machine. Addresses of several machines (a bridge of containers) are left
    out."""
    shared = Counter(address for machine in machines for address in set(machine.addresses))
    with ThreadPoolExecutor(MAX_LOOKUPS) as pool:
        resolved = dict(zip(unmatched, pool.map(resolve, unmatched), strict=True))
    machine_of_name = {}
    for name, addresses in resolved.items():
        owners = [
            k
            for k, machine in enumerate(machines)
            if any(address in addresses and shared[address] == 1 for address in machine.addresses)
        ]
        if len(owners) == 1:
            machine_of_name[name] = owners[0]
    return machine_of_name


def _by_ranks(
    unmatched: Iterable[str], listed: Sequence[str], machine_of_rank: Sequence[int], matches: Sequence[Match]
) -> dict[str, int]:
    """Names whose ranks are exactly those of a machine that has no listed name yet."""
    machine_of_name = {}
    for name in unmatched:
        ranks = [rank for rank, other in enumerate(listed) if other == name]
        machine_numbers = {machine_of_rank[rank] for rank in ranks}
        machine = min(machine_numbers)
        is_whole = [rank for rank, k in enumerate(machine_of_rank) if k == machine] == ranks
        if len(machine_numbers) == 1 and is_whole and not matches[machine].names:
            machine_of_name[name] = machine
    return machine_of_name


class HostRenamer:
    """Renames the records of one engine. ``listed``: the listed host of each rank; empty for ranks on this machine."""

    def __init__(self, listed: Sequence[str], resolve: Resolve = addresses_of) -> None:
        self._listed = list(listed)
        self._resolve = resolve
        self._renamed: dict[str, str] = {}
        self.labels: list[str] = []  # of each rank, as records have them; empty until the engine has reported

    def match_ranks(self, ranks: Ranks) -> list[Context]:
        """Reads the engine's report of its ranks. Returns a context for each host whose own name is not the listed one.

        Raises UserError for a report that contradicts itself, and for several names that are all one machine.
        """
        count = len(ranks.labels)
        if len(ranks.host_index) != count or not all(0 <= k < len(ranks.hosts) for k in ranks.host_index):
            raise UserError("the engine's list of ranks contradicts itself", REPAIR)
        self.labels = list(ranks.labels)
        if len(self._listed) != count:
            return []
        names = list(dict.fromkeys(self._listed))
        if len(names) > 1 and len(ranks.hosts) == 1:
            raise UserError(
                f"{NodeSet.fromlist(names)} are one machine, {ranks.hosts[0].host}: "
                "its ranks share one network stack, so no wire lies between them",
                "name each machine once",
            )
        matches = match_names(self._listed, ranks.hosts, ranks.host_index, self._resolve)
        for rank, label in enumerate(ranks.labels):
            own_name = ranks.hosts[ranks.host_index[rank]].host
            name = next(iter(matches[ranks.host_index[rank]].names), own_name)
            if name != own_name:
                self._renamed[own_name] = name
                self._renamed[label] = name + label.removeprefix(own_name)
        self.labels = [self._renamed.get(label, label) for label in ranks.labels]
        return [
            Context(subject=Subject(host=self._renamed.get(machine.host, machine.host)), facts=facts)
            for machine, match in zip(ranks.hosts, matches, strict=True)
            if (facts := _facts(machine, match))
        ]

    def rename(self, record: AnyRecord) -> AnyRecord:
        """Returns the record with listed names in place of the engine's."""
        if not self._renamed or not isinstance(
            record, Measurement | Pairs | Flows | Corruption | Context | Failure
        ):
            return record
        if isinstance(record, Flows):
            record.sources, record.targets = (
                self._listed_names(record.sources),
                self._listed_names(record.targets),
            )
        if isinstance(record, Pairs):
            record.peers = self._listed_names(record.peers)
        if isinstance(record, Measurement) and isinstance(lost := record.params.get("lost"), str):
            record.params["lost"] = ",".join(self._listed_names(lost.split(",")))
        if isinstance(record, Failure):
            record.problem = self._in_text(record.problem)
        subject = record.subject
        record.subject = msgspec.structs.replace(
            subject, host=self._listed_name(subject.host), peer=self._listed_name(subject.peer)
        )
        return record

    def _listed_name(self, name: str | None) -> str | None:
        return self._renamed.get(name, name) if name is not None else None

    def _listed_names(self, names: Sequence[str]) -> list[str]:
        return [self._renamed.get(name, name) for name in names]

    def _in_text(self, text: str) -> str:
        """Renames whole words: n1 in "n1: no progress", not in "n1-ib" or "n1.site"."""
        longest_first = sorted(map(re.escape, self._renamed), key=len, reverse=True)
        pattern = rf"(?<![\w.-])({'|'.join(longest_first)})(?![\w-]|\.\w)"
        return re.sub(pattern, lambda machine_of_name: self._renamed[machine_of_name[1]], text)


def _facts(machine: Machine, match: Match) -> dict[str, Scalar]:
    if not match.names:
        return {"host.unlisted": True}
    facts: dict[str, Scalar] = {}
    if match.names[0] != machine.host:
        facts |= {"host.own_name": machine.host, "host.recognised_by": match.recognised_by}
    if len(match.names) > 1:
        facts["host.aliases"] = ",".join(match.names[1:])
    return facts
