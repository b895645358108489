"""Faults of a fabric's cables, without any forwarding table: slow cables, parts that no cable joins, and cables from a
switch to itself.

A cable is held against its peers. Generations are mixed by design: hosts on half of a split port (2x HDR), an older
rack with QDR beside FDR. So cables of one lower rate that are many (MIN_GROUP, and a share of their kind or all that a
switch has) are a group of their own: they are said, not accused. Fewer are accused where something shows that they
could be faster: what both ports support, where the file says it, or else two switches that are faster elsewhere. Of an
adapter with one port nothing is known without that. A width to which nobody builds is always a fault.

A long-haul extender carries the fabric to another site over fibres or a provider's line, at a rate of its own. The line
between two is a group, however few there are, whatever its width and whatever their ports support; so is the cable to
one that has no cable of the usual rate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.fabric.topology import LANE_RATES, Fabric, Ints

MIN_GROUP, GROUP_SHARE = 3, 0.1
FULL_WIDTHS = (4, 8, 12)
# Lanes and speed of half of a split port, and of a port of one plane of an XDR switch.
SPLIT = {(2, "HDR"), (2, "NDR"), (2, "XDR"), (1, "XDR")}


@dataclass(frozen=True)
class SlowCable:
    """A cable that is slower than most of its kind, or than both its ports; rates in bit/s.

    ``kind`` is "host" or "switch"; ``supported`` is the lower of what its ports support, 0 where that is unknown.
    """

    link: int
    kind: str
    rate: float
    usual: float
    supported: float
    width: int
    speed: str


@dataclass(frozen=True)
class TypicalRate:
    """The most frequent rate of a kind of cable, in bit/s, with the lanes and speed of one that has it."""

    rate: float
    width: int
    speed: str


@dataclass(frozen=True)
class RateGroup:
    """Cables of one kind and rate that are slower than the most frequent rate. ``are_many``: so many that they were
    built so; else nothing shows that they could be faster, nor, of ``unproven``, that they could not. ``extenders``:
    the long-haul extenders that they lead to."""

    kind: str
    rate: float
    usual: float
    width: int
    speed: str
    links: Ints
    of: int  # cables of the kind
    are_many: bool
    unproven: int
    extenders: list[str]


@dataclass(frozen=True)
class CableRates:
    """The rates of a fabric's cables. ``slow``: beside their peers; ``groups``: slower ones that have peers of their
    own."""

    usual: dict[str, TypicalRate]  # by kind: "host", "switch"
    slow: list[SlowCable]
    groups: list[RateGroup]
    cables: int  # number of cables
    unknown: int  # number of cables without a rate
    supported: int  # number of cables for which the supported rate of both ports is known


def cable_rates(fabric: Fabric) -> CableRates:
    """The rates of all cables; a cable has the lower rate of its two ends."""
    lanes = np.array([LANE_RATES.get(speed, 0.0) for speed in fabric.link_speed])
    end_rates = fabric.link_width * lanes
    cable_rate = np.minimum(end_rates, end_rates[fabric.reverse])
    max_rates = fabric.link_max_rate if len(fabric.link_max_rate) else np.zeros(fabric.links)
    supported = np.where(fabric.is_long_haul, 0, np.minimum(max_rates, max_rates[fabric.reverse]))
    slower_end = np.where(end_rates <= end_rates[fabric.reverse], np.arange(fabric.links), fabric.reverse)
    cables = np.flatnonzero(np.arange(fabric.links) < fabric.reverse)
    usual: dict[str, TypicalRate] = {}
    slow: list[SlowCable] = []
    groups: list[RateGroup] = []
    for kind, chosen in (
        ("host", cables[~fabric.between_switches[cables]]),
        ("switch", cables[fabric.between_switches[cables]]),
    ):
        known = chosen[cable_rate[chosen] > 0]
        if not len(known):
            continue
        on_extender = fabric.is_extender[fabric.link_from[known]] | fabric.is_extender[fabric.link_to[known]]
        norm = known if on_extender.all() else known[~on_extender]
        values, counts = np.unique(cable_rate[norm], return_counts=True)
        rate = float(values[len(counts) - 1 - counts[::-1].argmax()])  # of equally frequent rates the faster
        end = int(slower_end[known[cable_rate[known] == rate][0]])
        usual[kind] = TypicalRate(rate, int(fabric.link_width[end]), fabric.link_speed[end])
        of_kind = _rate_groups(fabric, kind, known, cable_rate, supported, slower_end, rate)
        groups += of_kind
        grouped = np.concatenate([np.zeros(0, np.int32), *(group.links for group in of_kind)])
        limit = np.maximum(np.where(np.isin(known, grouped), 0, rate), supported[known])
        for link in known[cable_rate[known] < limit]:
            end = int(slower_end[link])
            width, speed = int(fabric.link_width[end]), fabric.link_speed[end]
            peers = float(cable_rate[link]) if link in grouped else rate
            slow.append(
                SlowCable(
                    int(link), kind, float(cable_rate[link]), peers, float(supported[link]), width, speed
                )
            )
    supported_known = int((supported[cables] > 0).sum())
    return CableRates(usual, slow, groups, len(cables), int((cable_rate[cables] == 0).sum()), supported_known)


def _rate_groups(
    fabric: Fabric,
    kind: str,
    cables: NDArray[np.intp],
    cable_rate: NDArray[np.float64],
    supported: NDArray[np.float64],
    slower_end: NDArray[np.intp],
    usual: float,
) -> list[RateGroup]:
    """The groups of slower cables that were built so, or may have been."""
    ends = np.concatenate([cables, fabric.reverse[cables]])
    fast_nodes = set(fabric.link_from[ends[cable_rate[ends] >= usual]].tolist())
    by_rate: dict[tuple[int, str, bool], list[int]] = {}
    for link in cables[cable_rate[cables] < usual]:
        end = int(slower_end[link])
        width, speed = int(fabric.link_width[end]), fabric.link_speed[end]
        if _is_built(width, speed) or fabric.is_long_haul[link]:
            is_on_extender = bool(_extenders_of(fabric, int(link), fast_nodes))
            by_rate.setdefault((width, speed, is_on_extender), []).append(int(link))
    groups = []
    for (width, speed, is_on_extender), links in by_rate.items():
        are_many = len(links) >= MIN_GROUP and (
            len(links) >= GROUP_SHARE * len(cables) or _fill_switches(fabric, cables, links)
        )
        if not are_many and not is_on_extender:
            links = [link for link in links if not _both_ends_in(fabric, link, fast_nodes)]
        if links:
            rate, of = float(cable_rate[links[0]]), len(cables)
            unproven = 0 if are_many or is_on_extender else int((supported[links] == 0).sum())
            extenders = {node: None for link in links for node in _extenders_of(fabric, link, fast_nodes)}
            names = [fabric.node_name(node) for node in extenders]
            group = RateGroup(
                kind, rate, usual, width, speed, np.array(links, np.int32), of, are_many, unproven, names
            )
            groups.append(group)
    return groups


def _extenders_of(fabric: Fabric, link: int, fast_nodes: set[int]) -> list[int]:
    """The extenders whose rate a cable has; none for other cables."""
    ends = int(fabric.link_from[link]), int(fabric.link_to[link])
    extenders = [node for node in ends if fabric.is_extender[node]]
    return [] if len(extenders) == 1 and extenders[0] in fast_nodes else extenders


def _both_ends_in(fabric: Fabric, link: int, nodes: set[int]) -> bool:
    """Whether both ends of a cable are on ``nodes``, which have cables of the usual rate elsewhere."""
    return int(fabric.link_from[link]) in nodes and int(fabric.link_to[link]) in nodes


def _is_built(width: int, speed: str) -> bool:
    """Whether cables of a width and speed are built, so that a group of them is no common fault."""
    return width in FULL_WIDTHS or (width, speed) in SPLIT


def _fill_switches(fabric: Fabric, cables: NDArray[np.intp], links: list[int]) -> bool:
    """Whether each of ``links`` is on a switch all of whose ``cables`` are among them."""
    inside = set(links)
    total: Counter[int] = Counter()
    among: Counter[int] = Counter()
    ends = {int(link): (int(fabric.link_from[link]), int(fabric.link_to[link])) for link in cables}
    for link, pair in ends.items():
        for switch in pair:
            total[switch] += switch < fabric.switches
            among[switch] += switch < fabric.switches and link in inside
    return all(any(among[switch] == total[switch] > 1 for switch in ends[link]) for link in links)


@dataclass(frozen=True)
class Islands:
    """Parts of a fabric that no cable joins, the one with most hosts first. ``pairs``: ordered pairs of hosts that are
    on no common island; a host with a rail on each is apart from none. ``rails``: of each island the adapters by which
    hosts are on it that are on others too, since their names do not tell the islands apart."""

    hosts: list[list[str]]
    pairs: int
    rails: list[list[str]]


def islands(fabric: Fabric) -> Islands:
    """The connected parts that have hosts. Hosts that are cabled to hosts alone are parts of their own."""
    part_of = np.where(fabric.host_switch >= 0, fabric.part_of[fabric.host_switch], -1)
    names = [host or name for host, name in zip(fabric.hosts_of_ports, fabric.host_names, strict=True)]
    parts: dict[int, dict[str, None]] = {}
    on: dict[str, set[int]] = {}
    ports = [int(port) for port in np.flatnonzero(fabric.is_host)]
    part_of_port = [
        int(part_of[port]) if part_of[port] >= 0 else -2 - _pair_number(fabric, port) for port in ports
    ]
    for port, part in zip(ports, part_of_port, strict=True):
        parts.setdefault(part, {})[names[port]] = None
        on.setdefault(names[port], set()).add(part)
    sizes = Counter(frozenset(reached) for reached in on.values())
    apart = sum(a * b for x, a in sizes.items() for y, b in sizes.items() if not x & y)
    order = sorted(parts, key=lambda part: len(parts[part]), reverse=True)
    rails: dict[int, dict[str, None]] = {part: {} for part in parts}
    for port, part in zip(ports, part_of_port, strict=True):
        if len(on[names[port]]) > 1:
            rails[part][fabric.device_of(port)] = None
    return Islands([list(parts[part]) for part in order], apart, [list(rails[part]) for part in order])


def _pair_number(fabric: Fabric, port: int) -> int:
    """The lower number of two end ports that are cabled to each other; the port's own where it has no cable."""
    link = int(fabric.uplink[port])
    return min(port, int(fabric.link_to[link]) - fabric.switches) if link >= 0 else port


def self_loops(fabric: Fabric) -> list[int]:
    """One link of each cable from a switch to itself."""
    loops = np.flatnonzero((fabric.link_from == fabric.link_to) & (np.arange(fabric.links) < fabric.reverse))
    return [int(link) for link in loops]


def ports_without_lid(fabric: Fabric) -> list[int]:
    """End ports without a LID in a fabric where others have one: the subnet manager has not configured them."""
    return [int(port) for port in np.flatnonzero(fabric.host_lids == 0)] if fabric.host_lids.any() else []
