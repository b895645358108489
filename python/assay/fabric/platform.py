"""A fabric as a SimGrid platform (3.32 and 4.x): a link for each direction of each cable, a route for each pair of
hosts, as the forwarding tables have it.

The configuration switches off SimGrid's corrections (factors by message size, traffic of acknowledgements): each link
carries its nominal rate without the line code, and its flows share it evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.routes import Routes
from assay.fabric.topology import DATA_RATES, Fabric, Ints

Floats = NDArray[np.float64]
BITS_PER_BYTE = 8

MAX_HOSTS = 1024  # a route for each pair of them: about 100 MB
LATENCY = "1us"  # of a cable; the rates of long messages do not depend on it
CONFIGURATION = {
    "network/model": "SMPI",
    "network/crosstraffic": "0",
    "network/TCP-gamma": "0",
    "smpi/bw-factor": "0:1",
    "smpi/lat-factor": "0:1",
    "smpi/simulate-computation": "no",
}


def own_rates(fabric: Fabric) -> Floats:
    """[L] the rate of each link's cable in B/s: that of its slower end; 0 where the file does not give it."""
    lanes = np.array([DATA_RATES.get(speed, 0.0) for speed in fabric.link_speed])
    rates: Floats = fabric.link_width * lanes / BITS_PER_BYTE
    return np.minimum(rates, rates[fabric.reverse])


def platform_text(routes: Routes, rate: float | Floats, latency: str = LATENCY) -> str:
    """``rate`` (B/s): of every cable, or of each link. ``latency`` (as SimGrid writes it): of every cable. Its hosts
    are the end ports of hosts. Raises UserError for a route that does not arrive, or too many hosts."""
    count = int(routes.fabric.is_host.sum())
    if count > MAX_HOSTS:
        raise UserError(
            f"{count} hosts: a platform of routes has {MAX_HOSTS} at most",
            "describe a smaller fabric",
        )
    rates = np.broadcast_to(np.asarray(rate, float), (routes.fabric.links,))
    return "\n".join(_lines(routes, rates, latency)) + "\n"


def _lines(routes: Routes, rates: Floats, latency: str) -> Iterator[str]:
    fabric = routes.fabric
    yield "<?xml version='1.0' encoding='utf-8'?>"
    yield '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    yield '<platform version="4.1">'
    yield '<config id="General">'
    for key, value in CONFIGURATION.items():
        yield f'<prop id="{key}" value="{value}"/>'
    yield "</config>"
    yield '<zone id="all" routing="Full">'
    hosts = np.flatnonzero(fabric.is_host)
    for host in hosts:
        yield f'<host id={quoteattr(fabric.host_names[host])} speed="1Gf"/>'
    for link in range(fabric.links):
        yield f'<link id={_link(routes, link)} bandwidth="{rates[link]:.6g}Bps" latency="{latency}"/>'
    names = [_link(routes, link) for link in range(fabric.links)]
    for src in hosts:
        crossed = routes.links(np.full(len(hosts), src), hosts)
        _require_ways(fabric, int(src), hosts, crossed)
        for dst, way in zip(hosts, crossed, strict=True):
            if dst == src:
                continue
            links = "".join(f"<link_ctn id={names[link]}/>" for link in way if link >= 0)
            ends = f"src={quoteattr(fabric.host_names[src])} dst={quoteattr(fabric.host_names[dst])}"
            yield f'<route {ends} symmetrical="NO">{links}</route>'
    yield "</zone>"
    yield "</platform>"


def _require_ways(fabric: Fabric, src: int, hosts: NDArray[np.integer], crossed: Ints) -> None:
    """Raises UserError unless the links of each way follow each other, from a host to each other one: the walk is
    checked against the cables before a route is written."""
    node = np.full(len(hosts), fabric.switches + src)
    for links in crossed.T:
        moves = links >= 0
        if (fabric.link_from[links[moves]] != node[moves]).any():
            break
        node[moves] = fabric.link_to[links[moves]]
    else:
        if (node == fabric.switches + hosts).all():
            return
    raise UserError(f"a route from {fabric.host_names[src]} is none along the cables", "report this defect")


def _link(routes: Routes, link: int) -> str:
    return quoteattr(routes.fabric.link_name(link))
