"""Small fabrics with a planted shape, for the tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from assay.fabric import Fabric


def ring(switches: int) -> Fabric:
    """A ring of switches with one host on each: the smallest fabric whose shortest paths can deadlock. The host is at
    port 1, the next switch at port 2."""
    ends = [(switches + s, 1, s, 1) for s in range(switches)]
    ends += [(s, 2, (s + 1) % switches, 3) for s in range(switches)]
    return cabled(switches, switches, ends)


def connected(
    switches: int, pairs: list[tuple[int, int]], hosts: list[int], kinds: list[str] | None = None
) -> Fabric:
    """A fabric with a cable between each of ``pairs`` of switches, and host h on switch ``hosts[h]``."""
    used = [0] * switches

    def port(switch: int) -> int:
        used[switch] += 1
        return used[switch]

    ends = [(switches + h, 1, switch, port(switch)) for h, switch in enumerate(hosts)]
    ends += [(a, port(a), b, port(b)) for a, b in pairs]
    return replace(cabled(switches, len(hosts), ends), host_kinds=kinds or [])


def cabled(switches: int, hosts: int, ends: list[tuple[int, int, int, int]]) -> Fabric:
    """A fabric with these cables: node, port, node, port; hosts are the nodes after the switches."""
    links = np.array([*ends, *[(c, d, a, b) for a, b, c, d in ends]], np.int32)
    return Fabric(
        switch_names=[f"s{s}" for s in range(switches)],
        switch_guids=np.arange(switches, dtype=np.uint64) + 1,
        switch_lids=np.arange(1, switches + 1, dtype=np.int32),
        switch_ports=np.full(switches, 40, np.int32),
        host_names=[f"h{h}" for h in range(hosts)],
        host_guids=np.arange(hosts, dtype=np.uint64) + 100,
        host_lids=np.arange(100, hosts + 100, dtype=np.int32),
        link_from=links[:, 0],
        link_from_port=links[:, 1],
        link_to=links[:, 2],
        link_to_port=links[:, 3],
        link_width=np.full(len(links), 4, np.int32),
        link_speed=["EDR"] * len(links),
    )
