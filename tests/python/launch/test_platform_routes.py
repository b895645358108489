"""Platforms of SimGrid in which two hosts have no route."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch.platform_routes import require_routes
from assay.launch.platforms import platform_hosts

CLUSTERS = "".join(
    f'<cluster id="{name}" prefix="{name}" suffix="" radical="0-1" speed="1Gf" bw="1GBps" lat="1us"/>'
    for name in "abc"
)
HOSTS = "".join(f'<host id="h{number}" speed="1Gf"/>' for number in range(3)) + '<router id="r"/>'


def refusal(folder: Path, routing: str, members: str, routes: str, count: int | None = None) -> str:
    """What is said of the platform; empty if it is accepted. ``routes``: "zoneRoute a b; ...", "!" for one way."""
    written = ""
    for route in filter(None, routes.split("; ")):
        tag, source, target = route.rstrip("!").split()
        one_way = ' symmetrical="NO"' if route.endswith("!") else ""
        written += f'<{tag} src="{source}" dst="{target}"{one_way}/>'
    path = folder / "platform.xml"
    path.write_text(
        f'<platform version="4.1"><zone id="all" routing="{routing}">{members}{written}</zone></platform>'
    )
    try:
        require_routes(path, platform_hosts(path)[:count], Path("p.xml"))
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("routing", "routes", "pair"),
    [
        ("Full", "zoneRoute a b; zoneRoute a c; zoneRoute b c", ""),
        ("Full", "zoneRoute a b; zoneRoute b c", "a0 (zone 'a') to c0 (zone 'c')"),
        ("Full", "zoneRoute a b; zoneRoute a c; zoneRoute b c!", "c0 (zone 'c') to b0 (zone 'b')"),
        ("Floyd", "zoneRoute a b; zoneRoute b c", ""),
        ("Floyd", "zoneRoute a b!; zoneRoute c b!", ""),
        ("Dijkstra", "zoneRoute a b", "a0 (zone 'a') to c0 (zone 'c')"),
        ("DijkstraCache", "", "a0 (zone 'a') to b0 (zone 'b')"),
        ("Full", "bypassZoneRoute a b", ""),
        ("Vivaldi", "", ""),
    ],
)
def test_zones_that_no_route_joins_are_named(tmp_path: Path, routing: str, routes: str, pair: str) -> None:
    said = refusal(tmp_path, routing, CLUSTERS, routes)
    assert (
        (f"p.xml: no route from {pair} in zone 'all', whose routing is {routing}" in said)
        if pair
        else not said
    )


def test_hosts_that_no_route_joins_are_named(tmp_path: Path) -> None:
    star = "route h0 r; route h1 r; route h2 r"
    assert not refusal(tmp_path, "Floyd", HOSTS, star)
    assert "no route from h0 to h1 in zone 'all'" in refusal(tmp_path, "Full", HOSTS, star)


def test_hosts_that_are_not_simulated_need_no_route(tmp_path: Path) -> None:
    assert not refusal(tmp_path, "Full", CLUSTERS, "zoneRoute a b", count=4)
    assert "to c0 (zone 'c')" in refusal(tmp_path, "Full", CLUSTERS, "zoneRoute a b", count=5)
