"""Whether a platform file of SimGrid has a route between the hosts that are simulated.

SimGrid notices a missing route only when a message needs it, and then aborts with the names of zones or gateways. Each
zone is looked at by itself: its members (hosts and zones with hosts) must be joined by the routes written in it. With
routing Full each pair needs its own; with Floyd and Dijkstra a way over others will do. Zones of other kinds make their
routes themselves. A file with bypasses is not looked at: these join hosts across zones.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from assay.errors import UserError
from assay.launch.platforms import hosts_of, read_platform

ZONES = ("zone", "AS")
ROUTES = ("route", "zoneRoute", "ASroute")
BYPASSES = ("bypassRoute", "bypassZoneRoute", "bypassASroute")
OVER_OTHERS = ("Floyd", "Dijkstra", "DijkstraCache")

Pair = tuple[str, str]
Joined = dict[str, set[str]]  # the members that routes lead to, by the member where they begin


def require_routes(path: Path, hosts: Iterable[str], shown: Path) -> None:
    """Raises UserError for two of ``hosts`` without a route. ``shown``: the user's name of the platform."""
    root = read_platform(path)
    if any(node.tag in BYPASSES for node in root.iter()):
        return
    used = set(hosts)
    for zone in root.iter():
        if zone.tag in ZONES and zone.get("routing") in ("Full", *OVER_OTHERS):
            _require_routes_in(zone, used, path, shown)


def _require_routes_in(zone: ET.Element, used: set[str], path: Path, shown: Path) -> None:
    members: dict[str, tuple[str, str]] = {}  # a used host of each member, and the member as it is shown
    for node in zone:
        if (host := next((host for host in hosts_of(node.iter(), path) if host in used), None)) is not None:
            name = str(node.get("id"))
            members[name] = host, host if node.tag in ("host", "peer") else f"{host} (zone '{name}')"
    pair = _apart(members, zone) if zone.get("routing") in OVER_OTHERS else _without_own(members, zone)
    if pair is not None:
        source, target = pair
        raise UserError(
            f"{shown}: no route from {members[source][1]} to {members[target][1]} in zone '{zone.get('id')}', whose "
            f"routing is {zone.get('routing')}",
            f"write a route between '{source}' and '{target}' there, or leave one out",
        )


def _without_own(members: Iterable[str], zone: ET.Element) -> Pair | None:
    """Two members without a route of their own."""
    joined = _routes(zone)
    for source in members:
        if missing := [member for member in members if member != source and member not in joined[source]]:
            return source, missing[0]
    return None


def _apart(members: Iterable[str], zone: ET.Element) -> Pair | None:
    """Two members that no way joins, whatever the direction of its routes."""
    joined = _routes(zone, both_ways=True)
    first = next(iter(members), "")
    found, waiting = {first}, [first]
    while waiting:
        new = joined[waiting.pop()] - found
        found |= new
        waiting += new
    return next(((first, member) for member in members if member not in found), None)


def _routes(zone: ET.Element, both_ways: bool = False) -> Joined:
    """The routes of a zone. ``both_ways``: also against those that lead one way."""
    joined: Joined = defaultdict(set)
    for route in zone:
        if route.tag in ROUTES:
            source, target = str(route.get("src")), str(route.get("dst"))
            joined[source].add(target)
            if both_ways or str(route.get("symmetrical", "YES")).upper() != "NO":
                joined[target].add(source)
    return joined
