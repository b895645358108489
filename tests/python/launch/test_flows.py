"""The platform of a simulation by flows, as the engine reads it, and the platforms that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch.flows import write_network

HEAD = '<platform version="4.1"><config id="General"><prop id="smpi/bw-factor" value="0:1"/></config>'
LINKS = (
    '<link id="up" bandwidth="12.5GBps" latency="100ns"/><link id="down" bandwidth="800Mbps" latency="1us"/>'
)
HOSTS = '<host id="a" speed="1Gf"/><host id="b" speed="1Gf"/><host id="c" speed="1Gf"/>'
ROUTE = '<route src="a" dst="b"><link_ctn id="up"/><link_ctn id="down"/></route>'
REQUIRED = {"smpi/bw-factor": "0:1"}


def network_of(folder: Path, content: str, hosts: tuple[str, ...] = ("a", "b"), head: str = HEAD) -> str:
    platform, target = folder / "fabric.xml", folder / "network"
    platform.write_text(f"{head}{content}</platform>")
    write_network(platform, hosts, REQUIRED, target)
    return target.read_text()


def zone(content: str) -> str:
    return f'<zone id="all" routing="Full">{content}</zone>'


def test_routes_are_written_by_pair_and_back_where_they_are_symmetrical(tmp_path: Path) -> None:
    text = network_of(tmp_path, zone(HOSTS + LINKS + ROUTE))
    head = ["assay-flows 1", "hosts 2", "a", "b", "links 2", "12500000000 1.0000000000000001e-07"]
    assert text.splitlines()[:6] == head
    assert text.splitlines()[6:] == ["100000000 9.9999999999999995e-07", "routes", "", "0 1", "1 0", ""]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (zone(HOSTS + LINKS), "no route from a to b"),
        (zone(HOSTS + LINKS + ROUTE.replace('"down"', '"none"')), "a route over 'none', which is no link"),
        (zone(HOSTS + LINKS + ROUTE.replace("<route ", '<route symmetrical="NO" ')), "no route from b to a"),
        (zone(HOSTS + LINKS.replace("12.5GBps", "fast") + ROUTE), "the rate or latency of link 'up'"),
        (
            zone(HOSTS + LINKS.replace('id="up"', 'id="up" sharing_policy="FATPIPE"') + ROUTE),
            "link 'up' is not shared evenly, or varies",
        ),
        (zone('<cluster id="c" radical="0-1"/>'), "<cluster>, and flows take hosts, links and routes"),
        (zone(HOSTS + LINKS + ROUTE).replace("Full", "Floyd"), "not one zone with routing Full"),
    ],
)
def test_a_platform_of_anything_but_routes_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        network_of(tmp_path, content)
    assert refusal.value.what.endswith(problem)
    assert not (tmp_path / "network").exists()


def test_a_platform_that_simgrid_would_share_otherwise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="smpi/bw-factor is not set, and flows are shared as with 0:1"):
        network_of(tmp_path, zone(HOSTS + LINKS + ROUTE), head='<platform version="4.1">')
