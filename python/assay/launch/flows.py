"""Flows as a launcher: the ranks of the event builder in one process, whose messages are flows on the routes of a
platform.

SimGrid spends most of its time on actors and MPI requests; here a rank is a stack, and the engine shares the links
among the flows itself (``engines/transport/flows``). It takes a platform that says each route, with its links alone, as
``assay fabric platform`` writes it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assay.errors import UserError
from assay.launch.placement import HERE, Segment, Site
from assay.launch.platforms import read_platform
from assay.launch.without_mpi import WithoutMpi

# src/xbt/xbt_parse_units.cpp of SimGrid, as far as a platform of routes needs it
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BANDWIDTHS = {f"{prefix}Bps": factor for prefix, factor in _PREFIXES.items()} | {
    f"{prefix}bps": factor / 8 for prefix, factor in _PREFIXES.items()
}
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)\s*")
FIX = "write the platform with 'assay fabric platform', or leave out --flows"


class Flows(WithoutMpi):
    """The launcher. ``network``: the file that ``write_network`` has written."""

    name = "flows"

    def __init__(self, network: Path) -> None:
        self._network = network

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        assert site.name == HERE.name
        return list(argv)

    def environment(self, site: Site) -> dict[str, str]:
        return {"ASSAY_FLOWS": str(self._network)}


def write_network(platform: Path, hosts: Sequence[str], required: Mapping[str, str], target: Path) -> None:
    """Writes the routes between ``hosts`` as the engine reads them. ``required``: the configuration without which
    SimGrid would share the links otherwise. Raises UserError for a platform of anything but links and routes."""
    root = read_platform(platform)
    given = {str(prop.get("id")): str(prop.get("value")) for prop in root.iter("prop")}
    for key, value in required.items():
        if given.get(key) != value:
            raise UserError(
                f"{platform}: {key} is {given.get(key, 'not set')}, and flows are shared as with {value}", FIX
            )
    zone = _only_zone(root, platform)
    links = {str(node.get("id")): number for number, node in enumerate(zone.iter("link"))}
    lines = ["assay-flows 1", f"hosts {len(hosts)}", *hosts, f"links {len(links)}"]
    lines += [_link_line(node, platform) for node in zone.iter("link")]
    lines.append("routes")
    target.write_text("\n".join([*lines, *_route_lines(zone, hosts, links, platform)]) + "\n")


def _only_zone(root: ET.Element, platform: Path) -> ET.Element:
    zones = [node for node in root if node.tag in ("zone", "AS")]
    if len(zones) != 1 or zones[0].get("routing") != "Full":
        raise UserError(f"{platform}: not one zone with routing Full", FIX)
    others = {node.tag for node in zones[0]} - {"host", "link", "route", "prop"}
    if others:
        raise UserError(f"{platform}: <{min(others)}>, and flows take hosts, links and routes", FIX)
    return zones[0]


def _link_line(node: ET.Element, platform: Path) -> str:
    if node.get("sharing_policy", "SHARED") != "SHARED" or len(node):
        raise UserError(f"{platform}: link '{node.get('id')}' is not shared evenly, or varies", FIX)
    rate = _quantity(str(node.get("bandwidth", "")), _BANDWIDTHS)
    latency = _quantity(str(node.get("latency", "0")), _TIMES)
    if not rate or latency is None:
        raise UserError(
            f"{platform}: the rate or latency of link '{node.get('id')}'", "write 12.5GBps and 100ns"
        )
    return f"{rate:.17g} {latency:.17g}"


def _quantity(text: str, units: Mapping[str, float]) -> float | None:
    """B/s or s; None for a text that is none."""
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        return None
    return float(match[1]) * units[match[2]]


def _route_lines(
    zone: ET.Element, hosts: Sequence[str], links: Mapping[str, int], platform: Path
) -> Iterator[str]:
    """The numbers of the links of each pair, by source and destination."""
    ranks = {host: rank for rank, host in enumerate(hosts)}
    routes: dict[tuple[int, int], list[int]] = {}
    for route in zone.iter("route"):
        ends = ranks.get(str(route.get("src"))), ranks.get(str(route.get("dst")))
        if ends[0] is None or ends[1] is None or ends[0] == ends[1]:
            continue
        try:
            crossed = [links[str(link.get("id"))] for link in route]
        except KeyError as error:
            raise UserError(f"{platform}: a route over {error}, which is no link", FIX) from None
        routes[ends[0], ends[1]] = crossed
        if str(route.get("symmetrical", "YES")).upper() in ("YES", "TRUE", "1"):
            routes.setdefault((ends[1], ends[0]), crossed[::-1])
    for src, source in enumerate(hosts):
        for dst, destination in enumerate(hosts):
            if src != dst and not routes.get((src, dst)):
                raise UserError(f"{platform}: no route from {source} to {destination}", FIX)
            yield " ".join(map(str, routes.get((src, dst), [])))
