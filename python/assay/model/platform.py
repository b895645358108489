"""Writes the model as a SimGrid platform file (3.32 and 4.x); comments give the source of each figure.

A cabinet of similar hosts is a ``<cluster>``: a link each way for a host, and optionally a limiter that both
share. Hosts that differ have explicit links in a Dijkstra zone. A link that was never the limit is omitted, or
is a FATPIPE, which its flows do not share: no capacity is invented. Hosts that were not measured are left out,
with a comment.

The file carries its configuration, without which SimGrid's defaults lower every rate by 8 to 11 %: no cross
traffic, the factors by message size from the sweep, which are 1 for the message size of the study, and what the calls
of MPI cost. What is not known of the calls is not in the file, with a comment.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

from assay.errors import UserError
from assay.model.calls import describe_parameters, parameters
from assay.model.fit import ENVELOPE
from assay.model.fitted import Model
from assay.records.schema import Capacity
from assay.records.units import format_quantity

MAX_DIFFERENCE = 0.03  # hosts are similar when their capacities differ by less than this share
HEADER = (
    "<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
)
# Speed of every simulated host, and of the simulating machine: computation then takes as long in the simulation as
# here ('assay simulate --compute' changes that).
SPEED = "1Gf"
# SimGrid's names of the algorithms by which each MPI does its collective operations.
SELECTORS = {"Open MPI": "ompi", "MVAPICH": "mvapich2", "Intel": "impi", "MPICH": "mpich"}
# With the algorithms that SimGrid chooses for Open MPI and MPICH, a long all-to-all fails on some numbers of ranks
# ("pair algorithm"): those that are not a power of two, or odd. Its algorithm for MVAPICH takes any number of ranks.
REPLACED_ALGORITHMS = {mpi: {"smpi/alltoall": "mvapich2"} for mpi in ("ompi", "mpich")}
NO_TRANSFER_TIME = 1e6  # bandwidth factor of messages whose time does not depend on size

Node = ET.Element


def write_platform(model: Model, path: Path, origin: str) -> None:
    """Writes the file completely or not at all. ``origin``: the run that the figures come from."""
    root = build(model, origin)
    ET.indent(root, " ")
    text = HEADER + ET.tostring(root, encoding="unicode") + "\n"
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}", "name a writable file with -o") from None


def build(model: Model, origin: str) -> Node:
    measured = {
        name: [h for h in hosts if _is_measured(model, h)] for name, hosts in model.network.cabinets.items()
    }
    if sum(map(len, measured.values())) < 2:
        raise UserError(
            "no host's capacity is known: there is no platform to write", "see 'assay saturate --help'"
        )
    root = ET.Element("platform", version="4.1")
    _comment(root, f"written by assay from {origin}; capacities in bytes a second of payload")
    for sign in model.more_levels:
        _comment(root, f"more than two levels: {sign}")
    for line in describe_parameters(model.calls):
        _comment(root, line)
    root.append(_configuration(model))
    top = ET.SubElement(root, "zone", id="all", routing="Full")
    gateways = {}
    for name, hosts in measured.items():
        _comment_left_out(top, name, [h for h in model.network.cabinets[name] if h not in hosts])
        if hosts:
            gateways[name] = _add_cabinet(top, model, name, hosts)
    _add_cabinet_links(top, model, list(gateways))
    _add_cabinet_routes(top, gateways)
    return root


def _is_measured(model: Model, host: str) -> bool:
    return all(("host", host, direction) in model.network.capacity for direction in ("up", "down"))


def _comment_left_out(parent: Node, name: str, hosts: Sequence[str]) -> None:
    if hosts:
        _comment(parent, f"{name}: {NodeSet.fromlist(hosts)} left out: capacities unknown, not measured")


# Configuration.


def factors(model: Model) -> list[tuple[int, float, float]]:
    """The steps of the factors: message size in B from which a step holds, factor of latency, factor of bandwidth."""
    steps = [
        (s.start, s.latency, min(1 / s.gap, NO_TRANSFER_TIME) if s.gap > 0 else NO_TRANSFER_TIME)
        for s in model.segments
    ]
    return steps or [(0, 1.0, 1.0)]


def _configuration(model: Model) -> Node:
    config = ET.Element("config", id="General")
    steps = factors(model)
    # SimGrid applies a factor to messages longer than its size, envelope included.
    above = [start - 1 + ENVELOPE if start else 0 for start, _, _ in steps]
    latency = ";".join(f"{size}:{factor:.6g}" for size, (_, factor, _) in zip(above, steps, strict=True))
    bandwidth = ";".join(f"{size}:{factor:.6g}" for size, (_, _, factor) in zip(above, steps, strict=True))
    for key, value in (
        ("network/model", "SMPI"),
        ("network/crosstraffic", "0"),
        ("network/TCP-gamma", "0"),
        ("smpi/bw-factor", bandwidth),
        ("smpi/lat-factor", latency),
        *parameters(model.calls).items(),
        ("smpi/simulate-computation", "yes"),
        ("smpi/host-speed", SPEED),
        *([("smpi/coll-selector", selector)] if (selector := coll_selector(model.library)) else []),
        *REPLACED_ALGORITHMS.get(selector, {}).items(),
    ):
        ET.SubElement(config, "prop", id=key, value=value)
    return config


def coll_selector(library: str) -> str:
    """SimGrid's name of an MPI's collective algorithms; empty for an MPI that it does not know."""
    return next((selector for name, selector in SELECTORS.items() if name.lower() in library.lower()), "")


# Cabinets.


def _add_cabinet(parent: Node, model: Model, name: str, hosts: list[str]) -> str:
    """Adds the cabinet; returns the name of its router."""
    names = _radical(hosts)
    if names is not None and _are_similar(model, hosts):
        return _add_cluster(parent, model, name, hosts, *names)
    return _add_listed_hosts(parent, model, name, hosts)


def _are_similar(model: Model, hosts: Sequence[str]) -> bool:
    capacity = model.network.capacity
    links = [capacity["host", h, direction] for h in hosts for direction in ("up", "down")]
    limiters = [capacity["host", h, "limiter"] for h in hosts if ("host", h, "limiter") in capacity]
    if limiters and (len(limiters) < len(hosts) or max(limiters) > min(limiters) * (1 + MAX_DIFFERENCE)):
        return False
    return max(links) <= min(links) * (1 + MAX_DIFFERENCE)


def _radical(hosts: Sequence[str]) -> tuple[str, str] | None:
    """The prefix and the number range that a ``<cluster>`` names its hosts by; None for other names."""
    digits = [len(h) - len(h.rstrip("0123456789")) for h in hosts]
    prefixes = {h[: len(h) - n] for h, n in zip(hosts, digits, strict=True)}
    numbers = [h[len(h) - n :] for h, n in zip(hosts, digits, strict=True)]
    if len(prefixes) != 1 or not all(n and str(int(n)) == n for n in numbers):
        return None
    folded = str(NodeSet.fromlist([f"x{n}" for n in numbers]))[1:].strip("[]")
    return prefixes.pop(), folded


def _upper_median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _add_cluster(
    parent: Node, model: Model, name: str, hosts: Sequence[str], prefix: str, radical: str
) -> str:
    capacity = model.network.capacity
    _comment_cabinet(parent, model, name, hosts)
    cluster = ET.SubElement(
        parent, "cluster", id=name, prefix=prefix, suffix="", radical=radical, speed=SPEED
    )
    cluster.set(
        "bw",
        _rate(_upper_median([capacity["host", h, direction] for h in hosts for direction in ("up", "down")])),
    )
    cluster.set("lat", _time(_latency(model) / 2))
    cluster.set("sharing_policy", "SPLITDUPLEX")
    limiters = [capacity["host", h, "limiter"] for h in hosts if ("host", h, "limiter") in capacity]
    if limiters:
        cluster.set("limiter_link", _rate(_upper_median(limiters)))
    if ("inside", name, "through") in capacity:
        cluster.set("bb_bw", _rate(capacity["inside", name, "through"]))
        cluster.set("bb_lat", "0s")
    return f"{prefix}{name}_router"


def _add_listed_hosts(parent: Node, model: Model, name: str, hosts: Sequence[str]) -> str:
    capacity, router = model.network.capacity, f"{name}_router"
    zone = ET.SubElement(parent, "zone", id=name, routing="DijkstraCache")
    _comment_cabinet(zone, model, name, [])
    for host in hosts:
        ET.SubElement(zone, "host", id=host, speed=SPEED)
    ET.SubElement(zone, "router", id=router)
    inside = ["inside", name, "through"]
    routes: list[tuple[str, str, list[str]]] = []  # SimGrid requires them after all links
    shared = [_add_link(zone, f"{name}_inside", capacity[tuple(inside)])] if tuple(inside) in capacity else []  # type: ignore[index]
    for host in hosts:
        _comment_host(zone, model, host)
        lat = _latency(model) / 2
        up = _add_link(zone, f"{host}_up", capacity["host", host, "up"], lat)
        down = _add_link(zone, f"{host}_down", capacity["host", host, "down"], lat)
        both = (
            [_add_link(zone, f"{host}_limiter", c)] if (c := capacity.get(("host", host, "limiter"))) else []
        )
        routes += [(host, router, [*both, up, *shared]), (router, host, [down, *both])]
    for source, target, links in routes:
        _add_route(zone, "route", source, target, links)
    return router


def _latency(model: Model) -> float:
    return model.inside or model.between


# Between cabinets.


def _add_cabinet_links(parent: Node, model: Model, names: Sequence[str]) -> None:
    if len(names) < 2:
        return
    extra = max(model.between - model.inside, 0.0) / 2 if model.inside else 0.0
    for name in names:
        for direction in ("up", "down", "limiter"):
            _add_cabinet_link(
                parent,
                model,
                model.find("cabinet", name, direction),
                f"{name}_{direction}",
                0.0 if direction == "limiter" else extra,
            )
    _add_cabinet_link(parent, model, model.find("backbone", "", "through"), "backbone", 0.0)


def _add_cabinet_link(
    parent: Node, model: Model, capacity: Capacity | None, name: str, latency: float
) -> None:
    if capacity is None or capacity.value is None:
        reason = capacity.reason if capacity is not None else "not measured"
        if name.endswith(("_up", "_down")):  # without it no route would exist, and SimGrid refuses the file
            _comment(
                parent, f"{name}: capacity unknown ({reason}), taken as no limit: the platform is partial"
            )
            _add_link(parent, name, max(model.network.capacity.values()), latency, sharing="FATPIPE")
        return
    _comment(parent, f"{name}: {describe(capacity)}")
    if (capacity.level, capacity.resource, capacity.direction) in model.network.capacity:
        _add_link(parent, name, capacity.value, latency)
    elif capacity.direction in ("up", "down"):  # it has a latency, but no shared capacity
        _add_link(parent, name, capacity.value, latency, sharing="FATPIPE")


def _add_cabinet_routes(parent: Node, gateways: dict[str, str]) -> None:
    links = {link.get("id") for link in parent.iter("link")}
    for source, leaving in gateways.items():
        for target, arriving in gateways.items():
            if source == target:
                continue
            crossed = [f"{source}_up", f"{source}_limiter", "backbone", f"{target}_limiter", f"{target}_down"]
            crossed += [f"{target}_inside"]
            existing = [name for name in crossed if name in links]
            route = ET.SubElement(
                parent, "zoneRoute", src=source, dst=target, gw_src=leaving, gw_dst=arriving
            )
            route.set("symmetrical", "NO")
            for name in existing:
                ET.SubElement(route, "link_ctn", id=name)


# XML elements.


def _comment(parent: Node, text: str) -> None:
    """Adds a comment; XML allows no two hyphens in it."""
    parent.append(ET.Comment(f" {re.sub('-{2,}', '-', text)} "))


def _add_link(
    parent: Node, name: str, bandwidth: float, latency: float = 0.0, sharing: str = "SHARED"
) -> str:
    link = ET.SubElement(parent, "link", id=name, bandwidth=_rate(bandwidth), latency=_time(latency))
    if sharing != "SHARED":
        link.set("sharing_policy", sharing)
    return name


def _add_route(parent: Node, tag: str, source: str, target: str, links: Sequence[str]) -> None:
    route = ET.SubElement(parent, tag, src=source, dst=target, symmetrical="NO")
    for name in links:
        ET.SubElement(route, "link_ctn", id=name)


def _rate(value: float) -> str:
    return f"{value:.8g}Bps"


def _time(value: float) -> str:
    return f"{value:.6g}s"


def _comment_cabinet(parent: Node, model: Model, name: str, hosts: Sequence[str]) -> None:
    """Adds comments with the source of a cabinet's figures; of similar hosts only the first is shown."""
    inside = model.find("inside", name, "through")
    if inside is not None:
        _comment(parent, f"inside {name}: {describe(inside)}")
    if hosts:
        _comment(parent, f"{len(hosts)} similar hosts, their median; the first, {hosts[0]}:")
        _comment_host(parent, model, hosts[0])


def _comment_host(parent: Node, model: Model, host: str) -> None:
    for direction in ("up", "down", "limiter"):
        capacity = model.find("host", host, direction)
        if capacity is not None:
            _comment(parent, f"{host} {direction}: {describe(capacity)}")


def describe(capacity: Capacity) -> str:
    """A capacity as text: "120 MB/s (119 MB/s to 121 MB/s), to 2 hosts at once; records 12, 13"."""
    if capacity.value is None:
        return f"unknown: {capacity.reason}"
    rate = format_quantity(capacity.value, capacity.unit)
    if capacity.state == "at_least":
        text = f"unknown, at least {rate}"
    else:
        low, high = (
            format_quantity(capacity.low or 0, capacity.unit),
            format_quantity(capacity.high or 0, capacity.unit),
        )
        text = f"{rate} (95 %: {low} to {high})"
    records = ", ".join(map(str, capacity.evidence))
    return f"{text}; {capacity.reason}; records {records}"
