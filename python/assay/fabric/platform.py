"""A fabric as a SimGrid platform (3.32 and 4.x): a link for each direction of each cable, a route for each pair of
hosts, as the forwarding tables have it.

The configuration switches off SimGrid's corrections (factors by message size, traffic of acknowledgements): each link
carries its nominal rate, and its flows share it evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

import numpy as np

from assay.errors import UserError
from assay.fabric.routes import Routes

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


def platform_text(routes: Routes, rate: float, latency: str = LATENCY) -> str:
    """``rate`` (B/s) and ``latency`` (as SimGrid writes it): of every cable. Raises UserError for a route that does not
    arrive, or too many hosts."""
    if routes.fabric.hosts > MAX_HOSTS:
        raise UserError(
            f"{routes.fabric.hosts} hosts: a platform of routes has {MAX_HOSTS} at most",
            "describe a smaller fabric",
        )
    return "\n".join(_lines(routes, rate, latency)) + "\n"


def _lines(routes: Routes, rate: float, latency: str) -> Iterator[str]:
    fabric = routes.fabric
    yield "<?xml version='1.0' encoding='utf-8'?>"
    yield '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    yield '<platform version="4.1">'
    yield '<config id="General">'
    for key, value in CONFIGURATION.items():
        yield f'<prop id="{key}" value="{value}"/>'
    yield "</config>"
    yield '<zone id="all" routing="Full">'
    for name in fabric.host_names:
        yield f'<host id={quoteattr(name)} speed="1Gf"/>'
    for link in range(fabric.links):
        yield f'<link id={_link(routes, link)} bandwidth="{rate:.6g}Bps" latency="{latency}"/>'
    hosts = np.arange(fabric.hosts)
    names = [_link(routes, link) for link in range(fabric.links)]
    for src in hosts:
        crossed = routes.links(np.full(len(hosts), src), hosts)
        for dst in hosts[hosts != src]:
            links = "".join(f"<link_ctn id={names[link]}/>" for link in crossed[dst] if link >= 0)
            ends = f"src={quoteattr(fabric.host_names[src])} dst={quoteattr(fabric.host_names[dst])}"
            yield f'<route {ends} symmetrical="NO">{links}</route>'
    yield "</zone>"
    yield "</platform>"


def _link(routes: Routes, link: int) -> str:
    return quoteattr(routes.fabric.link_name(link))
