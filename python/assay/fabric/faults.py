"""Faults of forwarding tables that do not depend on traffic: routes that do not arrive, credit loops, and up ports with
far more destinations than others.

A credit loop is a deadlock: a packet holds buffers of a link while it waits for those of the next link. If such waits
form a cycle of the channel dependency graph (Dally and Seitz, 1987), traffic can stop forever. Routes on different
virtual lanes do not wait for each other; the lanes are not in forwarding tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.fabric.routes import BrokenRoute, Routes
from assay.fabric.topology import Fabric, Ints

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# An up port is crowded if it has at least this multiple of the mean destinations of its switch's up ports, and two
# destinations more than the mean.
CROWDED = 2.0


@dataclass(frozen=True)
class CrowdedPort:
    """An up port with at least CROWDED times the destinations of the mean up port of its switch."""

    link: int
    destinations: int
    mean: float


def broken_routes(routes: Routes, limit: int) -> list[tuple[BrokenRoute, int]]:
    """Routes that do not arrive: one for each fault, switch where it occurs and destination, with the number of ordered
    pairs of hosts that it cuts off. At most ``limit``, the worst first."""
    fabric = routes.fabric
    codes, stopped = routes.ends()
    leaf, host = np.nonzero(codes)
    pairs = _pairs_cut_off(fabric, leaf, host)
    leaf, host, pairs = leaf[pairs > 0], host[pairs > 0], pairs[pairs > 0]
    keys = np.stack([codes[leaf, host], stopped[leaf, host], host], axis=1).astype(np.int64)
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    lost = np.bincount(group.ravel(), weights=pairs, minlength=len(first))
    worst = np.argsort(-lost, kind="stable")[:limit]
    return [(routes.broken(int(leaf[first[k]]), int(host[first[k]])), int(lost[k])) for k in worst]


def _pairs_cut_off(fabric: Fabric, leaf: NDArray[np.int64], host: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n] how many end ports of each edge switch send to each end port: hosts and routers to hosts, hosts to routers,
    none to itself, none to aggregation nodes, and none where no cable leads (``cables.islands``)."""
    hosts = fabric.hosts_on[fabric.edge_switches[leaf]]
    senders = fabric.edge_of[(fabric.host_switch >= 0) & ~fabric.is_aggregation]
    all_on = np.bincount(senders, minlength=len(fabric.edge_switches))[leaf]
    own = fabric.host_switch[host] == fabric.edge_switches[leaf]
    to_others = np.where(fabric.is_aggregation[host], 0, hosts)
    joined = fabric.part_of[fabric.edge_switches[leaf]] == fabric.part_of[fabric.host_switch[host]]
    joined &= fabric.host_switch[host] >= 0
    return np.asarray(joined * np.where(fabric.is_host[host], all_on - own, to_others), np.int64)


def unreachable_pairs(routes: Routes) -> int:
    """The number of ordered pairs of different hosts between which no route arrives."""
    leaf, host = np.nonzero(routes.ends()[0])
    return int(_pairs_cut_off(routes.fabric, leaf, host).sum())


def credit_loops(routes: Routes, *others: Routes) -> list[Ints]:
    """One cycle of links for each group of links that can wait for each other in a circle; ``others`` are further
    routes on the same fabric."""
    dependencies = np.concatenate([_dependencies(route_set) for route_set in (routes, *others)])
    if not len(dependencies):
        return []
    from scipy.sparse import csr_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import connected_components

    links = routes.fabric.links
    graph = csr_array(
        (np.ones(len(dependencies), np.int8), (dependencies[:, 0], dependencies[:, 1])), shape=(links, links)
    )
    count, group = connected_components(graph, directed=True, connection="strong")
    sizes = np.bincount(group, minlength=count)
    return [_cycle(graph, np.flatnonzero(group == g).astype(np.int32)) for g in np.flatnonzero(sizes > 1)]


def _dependencies(routes: Routes) -> NDArray[np.int64]:
    """[n, 2] pairs of links that follow each other on a route of hosts or routers, each pair once: a packet on the
    first waits for the second. Aggregation nodes send to those of their tree alone."""
    fabric, links = routes.fabric, routes.fabric.links
    leaf, host = np.indices((len(fabric.edge_switches), fabric.hosts)).reshape(2, -1)
    has_traffic = (_pairs_cut_off(fabric, leaf, host) > 0).reshape(len(fabric.edge_switches), fabric.hosts)
    inner = np.where(has_traffic[:, :, None], routes.all_between_switches(), -1)
    codes = [np.zeros(0, np.int64)]
    for hop in range(inner.shape[2] - 1):
        first, second = inner[:, :, hop].ravel(), inner[:, :, hop + 1].ravel()
        follows = (first >= 0) & (second >= 0)
        codes.append(np.unique(first[follows].astype(np.int64) * links + second[follows]))
    code = np.unique(np.concatenate(codes))
    return np.stack([code // links, code % links], axis=1)


def _cycle(graph: csr_array, group: Ints) -> Ints:
    """A shortest cycle through the first link of a strongly connected group."""
    from scipy.sparse.csgraph import breadth_first_order  # slow to import, rarely needed

    inside = graph[group][:, group]
    order, before = breadth_first_order(inside, 0, directed=True)
    into = set(np.flatnonzero(inside[:, [0]].toarray().ravel()).tolist())
    last = next(int(node) for node in order if int(node) in into)
    path = [last]
    while path[-1] != 0:
        path.append(int(before[path[-1]]))
    return np.asarray(group[path[::-1]], np.int32)


def crowded_ports(routes: Routes) -> list[CrowdedPort]:
    """The crowded up ports, the most crowded first."""
    fabric, ports = routes.fabric, routes.tables.ports
    link = fabric.next_link
    is_up = (link >= 0) & fabric.between_switches[link]
    next_node = np.where(is_up, fabric.link_to[link], 0)
    is_up &= fabric.levels[next_node] > fabric.levels[:, None]
    crowded = []
    for switch in np.flatnonzero(is_up.any(1)):
        destinations = np.bincount(ports[switch], minlength=link.shape[1])[: link.shape[1]]
        up = np.flatnonzero(is_up[switch])
        mean = float(destinations[up].mean())
        for port in up[(destinations[up] >= CROWDED * mean) & (destinations[up] >= mean + 2)]:
            crowded.append(CrowdedPort(int(link[switch, port]), int(destinations[port]), mean))
    return sorted(crowded, key=lambda port: port.mean / port.destinations)
