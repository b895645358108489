"""Finds Slurm's node name of each listed host, since srun accepts no other name.

A host list may hold an alias, a domain name, an address or a name of another adapter. Slurm knows a node's name, its
host name and one address. For hosts that these do not identify, the engine reports all names and addresses of each node
of the allocation (``assay-probe --identity``). A host that is still unknown is an error, before anything is measured.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile

import msgspec
from ClusterShell.NodeSet import NodeSet, NodeSetException

from assay.errors import UserError
from assay.launch.engines import probe
from assay.launch.identity import MAX_LOOKUPS, addresses_of, match_names
from assay.records.padding import did_you_mean
from assay.records.schema import Machine

SCONTROL_LIMIT_S = 60.0  # of scontrol
SRUN_LIMIT_S = 60.0  # of one process on each node of the allocation


def check_controller() -> None:
    """Raises UserError if Slurm's controller does not answer: srun would wait for it for minutes, then fail."""
    try:
        ping = subprocess.run(
            ["scontrol", "ping"], capture_output=True, text=True, errors="replace", timeout=SCONTROL_LIMIT_S
        )
    except FileNotFoundError:
        return  # srun alone is installed: it says itself what it lacks
    except subprocess.TimeoutExpired:
        answer = f"no answer within {SCONTROL_LIMIT_S:.0f} s"
    else:
        if ping.returncode == 0:
            return
        answer = next(iter((ping.stdout.strip() or ping.stderr.strip()).splitlines()), "scontrol ping failed")
    raise UserError(
        f"Slurm's controller does not answer: {answer}",
        "see 'scontrol ping' and /etc/slurm/slurm.conf, or use --launcher openmpi",
    )


@functools.cache
def node_names(hosts: tuple[str, ...]) -> dict[str, str]:
    """Returns Slurm's node name of each listed host. If Slurm does not answer, the names are returned unchanged, and
    srun reports those that it cannot use. Raises UserError for a host that is not a node, and for two names of one
    node."""
    nodes = _nodes()
    if not nodes:
        return {host: host for host in hosts}
    node_of_host = {host: host for host in hosts if host in nodes}
    if len(node_of_host) < len(hosts):
        node_of_host |= _match(_unmatched(hosts, node_of_host), _machines(nodes))
    if len(node_of_host) < len(hosts) and _allocated():
        node_of_host |= _match(_unmatched(hosts, node_of_host), _query_nodes(_allocated()))
    _refuse(hosts, node_of_host, list(nodes))
    return {host: node_of_host[host] for host in hosts}


def _refuse(hosts: Sequence[str], node_of_host: dict[str, str], nodes: list[str]) -> None:
    missing = _unmatched(hosts, node_of_host)
    elsewhere = {host: number for number, nodes in _components()[1:] for host in missing if host in nodes}
    if elsewhere:
        host, number = next(iter(elsewhere.items()))
        raise UserError(
            f"{host}: in component {number} of this heterogeneous job, and srun starts ranks in component 0 "
            f"({NodeSet.fromlist(_allocated())})",
            "list hosts of that component alone, or use --launcher openmpi",
        )
    if missing:
        nodes_text = NodeSet.fromlist(_allocated() or nodes)
        where = "of this allocation" if _allocated() else "of Slurm"
        raise UserError(
            f"{', '.join(missing[:8])}: no node {where} ({nodes_text}) has this name or address",
            did_you_mean(
                missing,
                _allocated() or nodes,
                "list the nodes as Slurm calls them (scontrol show nodes), or use --launcher openmpi",
            ),
        )
    for host in hosts:
        same = [other for other in hosts if node_of_host[other] == node_of_host[host]]
        if len(same) > 1:
            raise UserError(f"{' and '.join(same)} are one node, {node_of_host[host]}", "name each node once")


def _unmatched(hosts: Sequence[str], node_of_host: dict[str, str]) -> list[str]:
    return [host for host in hosts if host not in node_of_host]


def _match(hosts: Sequence[str], machines: Sequence[Machine]) -> dict[str, str]:
    """Returns the node name, which is the first name of a machine, of each host that is recognised."""
    matches = match_names(hosts, machines, resolve=addresses_of)
    return {
        name: machine.names[0]
        for machine, match in zip(machines, matches, strict=True)
        for name in match.names
    }


def _nodes() -> dict[str, dict[str, str]]:
    """Returns the fields NodeName, NodeAddr and NodeHostName of Slurm's nodes by name, inside an allocation those of
    its nodes only; empty if Slurm does not answer."""
    command = ["scontrol", "show", "node", "--oneliner"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=SCONTROL_LIMIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    allocated = set(_allocated())
    nodes = {}
    for line in result.stdout.splitlines() if result.returncode == 0 else ():
        fields: dict[str, str] = dict(re.findall(r"\b(NodeName|NodeAddr|NodeHostName)=(\S+)", line))
        name = fields.get("NodeName", "")
        if name and (not allocated or name in allocated):
            nodes[name] = fields
    return nodes


def _machines(nodes: dict[str, dict[str, str]]) -> list[Machine]:
    with ThreadPoolExecutor(MAX_LOOKUPS) as pool:
        addresses = pool.map(addresses_of, (fields.get("NodeAddr", name) for name, fields in nodes.items()))
    return [
        Machine(host=name, names=[name, fields.get("NodeHostName", name)], addresses=sorted(node_addresses))
        for (name, fields), node_addresses in zip(nodes.items(), addresses, strict=True)
    ]


def _allocated() -> list[str]:
    """Returns the nodes of the allocation, of a heterogeneous job those of component 0; none outside."""
    components = _components()
    return components[0][1] if components else _listed("SLURM_JOB_NODELIST")


def _components() -> list[tuple[int, list[str]]]:
    """The number and the nodes of each component of a heterogeneous job; empty in any other."""
    lists = ((number, _listed(f"SLURM_JOB_NODELIST_HET_GROUP_{number}")) for number in count())
    return list(takewhile(lambda component: component[1], lists))


def _listed(variable: str) -> list[str]:
    try:
        return list(NodeSet(os.environ.get(variable, "")))
    except NodeSetException:
        return []


def _query_nodes(nodes: Sequence[str]) -> list[Machine]:
    """Returns the names and addresses that each node of the allocation reports; none if that cannot be started."""
    size = len(nodes)
    command = ["srun", "--mpi=none", f"--nodes={size}", f"--ntasks={size}", "--ntasks-per-node=1"]
    command += ["--overcommit", f"--nodelist={','.join(nodes)}", str(probe()), "--identity"]
    try:
        result = subprocess.run(command, capture_output=True, timeout=SRUN_LIMIT_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return []
    machines = []
    for line in result.stdout.splitlines():
        try:
            machine = msgspec.json.decode(line, type=Machine)
        except msgspec.MsgspecError:
            continue
        if machine.names and machine.names[0] in nodes:
            machines.append(machine)
    return machines
