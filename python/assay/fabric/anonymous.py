"""Replaces the names and GUIDs in a fabric's files; results that are computed from the files stay the same.

Every GUID is replaced by a number, every description by a name: switches become switch1, switch2 ..., hosts become
host1, host2 ..., in the natural order of their names, so ranks keep their order. LIDs, ports and rates stay. The
descriptions of aggregation nodes, which are not ranks, keep the words that mark them. Comments, vendor, device and
serial numbers are left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from assay.errors import UserError
from assay.fabric.tables import NO_ENTRY, ForwardingTables
from assay.fabric.topology import AGGREGATION, ROUTER, Fabric, Ints

SWITCH_GUIDS, NODE_GUIDS, PORT_GUIDS = 0x00A5_5A00_0000_0000, 0x00A5_5A10_0000_0000, 0x00A5_5A20_0000_0000
TOPOLOGY, TABLES, ORDER = "topology.txt", "fts.txt", "order.txt"


def write(fabric: Fabric, tables: ForwardingTables | None, order: Ints | None, folder: Path) -> list[Path]:
    """Writes the fabric in the format of ibnetdiscover, its tables in that of dump_fts, and an order of ranks.

    Raises UserError if a file exists already, or tables or an order are given and LIDs are unknown.
    """
    has_lids = fabric.switch_lids.all() and fabric.host_lids.all()
    if not has_lids and (tables is not None or order is not None):
        raise UserError(
            f"{fabric.source}: not every switch and host has a LID", "take a dump of a routed fabric"
        )
    names = _descriptions(fabric)
    texts = {TOPOLOGY: _topology(fabric, names)}
    if tables is not None:
        texts[TABLES] = _tables(fabric, tables, names)
    if order is not None:
        texts[ORDER] = "".join(
            "DUMMY\n" if host < 0 else f"{fabric.host_lids[host]:#06x}\t{names[host]}\n" for host in order
        )
    paths = [folder / name for name in texts]
    existing = [path for path in paths if path.exists()]
    if existing:
        raise UserError(f"{existing[0]} exists already", "name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return paths


def _switch(number: int) -> str:
    return f"switch{number + 1}"


def _descriptions(fabric: Fabric) -> list[str]:
    """[H] new descriptions: ports of one host stay ports of one host, "host3 mlx5_0" and "host3 mlx5_1"."""
    numbers: dict[str, int] = {}
    rails: dict[str, int] = {}
    texts = []
    for name, host, is_host in zip(fabric.host_names, fabric.hosts_of_ports, fabric.is_host, strict=True):
        key = host if host and is_host else name
        text = f"host{numbers.setdefault(key, len(numbers) + 1)}"
        if is_host and len(fabric.ports_of.get(host, [])) > 1:
            text += f" mlx5_{rails.setdefault(key, 0)}"
            rails[key] += 1
        texts.append(text)
    return [
        f"{text} {AGGREGATION}" if is_aggregation else text
        for text, is_aggregation in zip(texts, fabric.is_aggregation, strict=True)
    ]


def _letters(fabric: Fabric, host: int) -> tuple[str, str]:
    """How ibnetdiscover marks an adapter, and a router."""
    return ("Rt", "R") if fabric.host_kinds and fabric.host_kinds[host] == ROUTER else ("Ca", "H")


def _topology(fabric: Fabric, names: list[str]) -> str:
    lines = ["# anonymised by assay fabric anonymise"]
    links_by_node = np.argsort(fabric.link_from, kind="stable")
    first = np.searchsorted(fabric.link_from[links_by_node], np.arange(fabric.switches + fabric.hosts + 1))
    for node in range(fabric.switches + fabric.hosts):
        links = [int(link) for link in links_by_node[first[node] : first[node + 1]]]
        is_switch = node < fabric.switches
        if is_switch:
            lines.append(
                f'Switch\t{fabric.switch_ports[node]} "S-{SWITCH_GUIDS + node:016x}"\t\t# "{_switch(node)}" '
                f"base port 0 lid {fabric.switch_lids[node]} lmc 0"
            )
        elif links:
            host = node - fabric.switches
            kind, letter = _letters(fabric, host)
            lines.append(
                f'{kind}\t{fabric.link_from_port[links[0]]} "{letter}-{NODE_GUIDS + host:016x}"\t\t# '
                f'"{names[host]}"'
            )
        lines += [_end_line(fabric, names, link, is_switch) for link in links]
        lines.append("")
    return "\n".join(lines) + "\n"


def _end_line(fabric: Fabric, names: list[str], link: int, is_switch: bool) -> str:
    port, peer, peer_port = (
        int(array[link]) for array in (fabric.link_from_port, fabric.link_to, fabric.link_to_port)
    )
    rate = f" {fabric.link_width[link]}x{fabric.link_speed[link]}" if fabric.link_speed[link] else ""
    if peer < fabric.switches:
        peer_end, name, lid = (
            f'"S-{SWITCH_GUIDS + peer:016x}"[{peer_port}]',
            _switch(peer),
            fabric.switch_lids[peer],
        )
    else:
        host = peer - fabric.switches
        peer_end = (
            f'"{_letters(fabric, host)[1]}-{NODE_GUIDS + host:016x}"[{peer_port}]({PORT_GUIDS + host:x})'
        )
        name, lid = names[host], fabric.host_lids[host]
    if is_switch:
        return f'[{port}]\t{peer_end}\t\t# "{name}" lid {lid}{rate}'
    host_number = int(fabric.link_from[link]) - fabric.switches
    return (
        f"[{port}]({PORT_GUIDS + host_number:x}) \t{peer_end}\t\t# lid {fabric.host_lids[host_number]} lmc 0 "
        f'"{name}" lid {lid}{rate}'
    )


def _tables(fabric: Fabric, tables: ForwardingTables, names: list[str]) -> str:
    lines = []
    order = np.argsort(fabric.host_lids)
    for switch in range(fabric.switches):
        guid = SWITCH_GUIDS + switch
        lines.append(
            f"Unicast lids [0x0-{int(fabric.host_lids.max()):#x}] of switch Lid {fabric.switch_lids[switch]} guid "
            f"{guid:#018x} ({_switch(switch)}):"
        )
        entries = [int(host) for host in order if tables.ports[switch, host] != NO_ENTRY]
        lines += [
            f"{fabric.host_lids[host]:#06x} {tables.ports[switch, host]:03d} : (Channel Adapter portguid "
            f"{PORT_GUIDS + host:#018x}: '{names[host]}')"
            for host in entries
        ]
        lines.append(f"{len(entries)} valid lids dumped")
    return "\n".join(lines) + "\n"
