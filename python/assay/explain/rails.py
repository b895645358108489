"""The ports of a fabric that the ranks of a run used, and the paths between them.

A host with several adapters (rails) sends by one of them, or spreads a message over several. Which ones is taken from
what the run says, the first that says something: the adapters to which its servers were bound, the named rail, all
ports of the host. Where several are left, the bytes that the adapters counted leave out those that carried none. Is
there still more than one, each is a candidate, and so are the links of its path: a slow link that the pairs of another
rail's link share is then not told apart from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.evidence import Evidence
from assay.explain.hca import MAX_SHARE_OF_OTHERS, bound_adapter, carried_bytes
from assay.explain.matrix import host_of
from assay.fabric import Fabric, Routes
from assay.fabric.routes import PAD
from assay.fabric.topology import Ints


@dataclass(frozen=True)
class Rails:
    """``ports`` [ranks, devices]: the end port of each rank on each adapter that it may have used, -1 for none.
    ``devices``: the names of the adapters; empty for the only port of a host."""

    routes: Routes
    devices: list[str]
    ports: Ints

    @property
    def members(self) -> Ints:
        """The end ports that the ranks may have used."""
        return np.unique(self.ports[self.ports >= 0]).astype(np.int32)

    def links(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> tuple[Ints, NDArray[np.bool_]]:
        """[pairs, hops] the links of all paths that a message from rank ``src`` to rank ``dst`` may have taken, each
        once, padded with -1; [pairs] whether these are several paths. A message stays on a rail that both ranks have.
        Raises UserError where no path arrives."""
        parts, paths = [np.empty((len(src), 0), np.int32)], np.zeros(len(src), np.int64)
        share_rail = ((self.ports[src] >= 0) & (self.ports[dst] >= 0)).any(axis=1)
        blocked = np.full((len(src), 2), -1, np.int32)
        for d, e in np.ndindex(len(self.devices), len(self.devices)):
            ports = np.stack([self.ports[src, d], self.ports[dst, e]], axis=1)
            is_path = np.asarray((ports >= 0).all(axis=1) & (share_rail if d == e else ~share_rail))
            arrives = is_path.copy()
            arrives[is_path] = self.routes.arrives(*ports[is_path].T)
            blocked[is_path & ~arrives] = ports[is_path & ~arrives]
            if arrives.any():
                links = self.routes.links(*ports[arrives].T)
                parts.append(np.full((len(src), links.shape[1]), PAD, np.int32))
                parts[-1][arrives] = links
                paths += arrives
        if (paths == 0).any():
            self.routes.require(*blocked[paths == 0].T)
        return _distinct(np.concatenate(parts, axis=1)), paths > 1

    def certain_pairs(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> set[tuple[int, int]]:
        """The pairs of end ports of the pairs of ranks that have one port each."""
        port, is_known = self.ports.max(axis=1), (self.ports >= 0).sum(axis=1) == 1
        known = is_known[src] & is_known[dst]
        return set(zip(port[src[known]].tolist(), port[dst[known]].tolist(), strict=True))


def find_rails(evidence: Evidence, routes: Routes, ranks: Sequence[str]) -> Rails:
    """The ports of ``ranks`` ("host", or "host:1" of a host with several). Raises UserError for a host that the fabric
    does not have, or an adapter that a host does not have."""
    fabric = routes.fabric
    used = [_ports_of(evidence, fabric, rank) for rank in ranks]
    devices = sorted({fabric.device_of(port) for ports in used for port in ports})
    table = np.full((len(ranks), len(devices)), -1, np.int32)
    for number, ports in enumerate(used):
        for port in ports:
            table[number, devices.index(fabric.device_of(port))] = port
    return Rails(routes, devices, table)


def _ports_of(evidence: Evidence, fabric: Fabric, rank: str) -> list[int]:
    host = host_of(rank)
    ports = fabric.find_rails(host, bound_adapter(evidence, rank) or str(evidence.options.get("rail") or ""))
    if len(ports) == 1:
        return ports
    carried, _ = carried_bytes(evidence, host, [])
    enough = MAX_SHARE_OF_OTHERS * sum(carried.values())
    carriers = {device for device, amount in carried.items() if amount > enough}
    return [port for port in ports if fabric.device_of(port).partition(":")[0] in carriers] or ports


def _distinct(crossed: Ints) -> Ints:
    """Each link of a row once."""
    ordered = -np.sort(-crossed, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = PAD
    return ordered
