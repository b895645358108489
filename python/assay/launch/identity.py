"""Gives each host one name in all records: the name in the host list, not the one that the host has for itself.

A list may hold aliases, fully qualified names, addresses, or names of another adapter ("n1-ib"); the engine knows
host names and addresses. The engine reports them before any record (``Ranks``), and every record is renamed to the
list's name as it arrives, so that all later steps know one name only. A host is recognised by its name, by the name
without its domain where only one host has it, by an address that only this host has, and last by the ranks that the
launcher was told to start there.
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

from assay.errors import UserError
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
RESOLVING = 32  # names that are resolved at the same time


@dataclass
class Match:
    """The listed names of a machine; the first is used. ``by`` says how the machine was recognised."""

    names: list[str] = field(default_factory=list)
    by: str = ""


def addresses_of(name: str) -> set[str]:
    """Returns the addresses of a name as this machine resolves it; empty if it does not."""
    try:
        return {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return set()


def match_names(
    asked: Sequence[str],
    machines: Sequence[Machine],
    machine_of_rank: Sequence[int] = (),
    resolve: Resolve = addresses_of,
) -> list[Match]:
    """Finds the listed names of each machine. ``asked``: by rank, as the launcher was told; ``of``: by rank, the
    index of its machine; empty before anything was started."""
    matches = [Match() for _ in machines]
    unmatched = list(dict.fromkeys(asked))

    def take(machine_of_name: dict[str, int], by: str) -> None:
        for name, machine in machine_of_name.items():
            matches[machine].names.append(name)
            matches[machine].by = matches[machine].by or by
            unmatched.remove(name)

    by_own_name = {
        name: k for k, machine in reversed(list(enumerate(machines))) for name in _own_names(machine)
    }
    take({name: by_own_name[name] for name in unmatched if name in by_own_name}, "name")
    take(_by_short_name(unmatched, asked, machines, matches), "short name")
    if unmatched and any(machine.addresses for machine in machines):
        take(_by_address(unmatched, machines, resolve), "address")
    if machine_of_rank:
        take(_by_ranks(unmatched, asked, machine_of_rank, matches), "rank")
    for match in matches:
        match.names.sort(key=list(asked).index)
    return matches


def _own_names(machine: Machine) -> list[str]:
    return [machine.host, *machine.names]


def _short(name: str) -> str:
    """Returns a name without its domain; an address as it is."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.partition(".")[0].lower()


def _by_short_name(
    unmatched: Iterable[str], asked: Sequence[str], machines: Sequence[Machine], matches: Sequence[Match]
) -> dict[str, int]:
    listed = Counter(_short(name) for name in dict.fromkeys(asked))
    owners: dict[str, set[int]] = defaultdict(set)
    for k, machine in enumerate(machines):
        for name in _own_names(machine):
            owners[_short(name)].add(k)
    machine_of_name = {}
    for name in unmatched:
        of_name = owners.get(_short(name), set())
        if len(of_name) == 1 and listed[_short(name)] == 1 and not matches[(k := min(of_name))].names:
            machine_of_name[name] = k
    return machine_of_name


def _by_address(unmatched: Sequence[str], machines: Sequence[Machine], resolve: Resolve) -> dict[str, int]:
    """An address that several machines have (a bridge of containers) says nothing."""
    shared = Counter(address for machine in machines for address in set(machine.addresses))
    with ThreadPoolExecutor(RESOLVING) as pool:
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
    unmatched: Iterable[str], asked: Sequence[str], machine_of_rank: Sequence[int], matches: Sequence[Match]
) -> dict[str, int]:
    """A name whose ranks are exactly those of a machine that has no name yet."""
    machine_of_name = {}
    for name in unmatched:
        ranks = [rank for rank, other in enumerate(asked) if other == name]
        there = {machine_of_rank[rank] for rank in ranks}
        machine = min(there)
        is_whole = [rank for rank, k in enumerate(machine_of_rank) if k == machine] == ranks
        if len(there) == 1 and is_whole and not matches[machine].names:
            machine_of_name[name] = machine
    return machine_of_name


class HostRenamer:
    """Renames the records of one engine. ``asked``: the listed host of each rank; empty on this machine alone."""

    def __init__(self, asked: Sequence[str], resolve: Resolve = addresses_of) -> None:
        self._asked = list(asked)
        self._resolve = resolve
        self._renamed: dict[str, str] = {}
        self.labels: list[str] = []  # of each rank, as records have them; empty until the engine has reported

    def match_ranks(self, ranks: Ranks) -> list[Context]:
        """Reads the engine's report. Returns a context for each host whose own name is another than the list's.

        Raises UserError for a report that contradicts itself.
        """
        count = len(ranks.labels)
        if len(ranks.host_index) != count or not all(0 <= k < len(ranks.hosts) for k in ranks.host_index):
            raise UserError("the engine's list of ranks contradicts itself", "build it again: make setup")
        self.labels = list(ranks.labels)
        if len(self._asked) != count:
            return []
        matches = match_names(self._asked, ranks.hosts, ranks.host_index, self._resolve)
        for rank, label in enumerate(ranks.labels):
            by_own_name = ranks.hosts[ranks.host_index[rank]].host
            name = next(iter(matches[ranks.host_index[rank]].names), by_own_name)
            if name != by_own_name:
                self._renamed[by_own_name] = name
                self._renamed[label] = name + label.removeprefix(by_own_name)
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
        facts |= {"host.own_name": machine.host, "host.recognised_by": match.by}
    if len(match.names) > 1:
        facts["host.aliases"] = ",".join(match.names[1:])
    return facts
