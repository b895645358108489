"""Holds a topology of Slurm against a fabric, by the groups of hosts that its switches make. Names of switches do not
matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from pathlib import Path

from assay.errors import UserError
from assay.fabric.remedies.slurm import Switch, fold, tree_of
from assay.fabric.topology import Fabric

MAX_SHOWN = 8  # switches in one line


def differences(
    path: Path, file_switches: list[Switch], fabric: Fabric, elsewhere: Set[str] = frozenset()
) -> tuple[list[str], list[str]]:
    """A line for each difference between a file and the fabric; none where they agree. Then a line for each leaf whose
    hosts are left out on purpose: where all else agrees and most hosts are in the file, the others are no compute nodes
    (a login node, a file server). Those of ``elsewhere``
    are in other topologies of the file, and may be left out, however many they are."""
    expected = tree_of(fabric)
    leaf_of = {node: switch.name for switch in expected for node in switch.nodes}
    lines: list[str] = []
    seen: dict[str, Switch] = {}
    for switch in file_switches:
        used = Counter(leaf_of[node] for node in switch.nodes if node in leaf_of)
        main_leaf = max(sorted(used), key=lambda leaf: used[leaf]) if used else ""
        for node in switch.nodes:
            if node in seen:
                lines.append(f"{switch.place}: {node} is on {switch.name} and on {seen[node].name}")
            elif node in leaf_of and leaf_of[node] != main_leaf:
                lines.append(
                    f"{switch.place}: {node} is with hosts of {main_leaf}, the fabric has it on {leaf_of[node]}"
                )
            seen.setdefault(node, switch)
        lines += _unknown(switch, leaf_of)
    missing = {leaf.name: [node for node in leaf.nodes if node not in seen] for leaf in expected}
    shown = [
        f"{path}: {fold(nodes)} of {leaf} {_is(nodes)} missing" for leaf, nodes in missing.items() if nodes
    ]
    others = _split_leaves(path, file_switches, leaf_of) + _wrong_groups(path, file_switches, expected)
    in_none = sum(node not in elsewhere for nodes in missing.values() for node in nodes)
    if lines or others or 2 * in_none >= len(leaf_of):
        return lines + shown + others, []
    return [], [
        f"{path}: note: {fold(nodes)} of {leaf} {_is(nodes)} left out{_in_others(nodes, elsewhere)}"
        for leaf, nodes in missing.items()
        if nodes
    ]


def require_agreement(switches: list[Switch], fabric: Fabric) -> None:
    """Raises UserError unless every host with a name is in one leaf, with the hosts on its switches. The groups are
    counted from the cables, not from the tree."""
    leaves = [set(switch.nodes) for switch in switches if switch.nodes]
    where = {host: number for number, hosts in enumerate(leaves) for host in hosts}
    by_switch: dict[int, set[int]] = {}
    for host in where:
        for port in fabric.ports_of[host]:
            by_switch.setdefault(int(fabric.host_switch[port]), set()).add(where[host])
    by_switch.pop(-1, None)
    if sum(map(len, leaves)) != len(where) or any(len(groups) > 1 for groups in by_switch.values()):
        raise UserError(
            "the topology does not have each host once, with its neighbours", "report this defect"
        )


def _in_others(nodes: list[str], elsewhere: Set[str]) -> str:
    return ": in another topology of the file alone" if set(nodes) <= elsewhere else ""


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _unknown(switch: Switch, leaf_of: dict[str, str]) -> list[str]:
    """One line for the hosts of a switch that the fabric does not have, with the hosts that may be meant: those that
    lack what stands before all others' numbers, or the domain."""
    unknown = [node for node in switch.nodes if node not in leaf_of]
    if not unknown:
        return []
    line = f"{switch.place}: {fold(unknown)} {_is(unknown)} not in the fabric"
    known = next((node for node in switch.nodes if node in leaf_of), next(iter(leaf_of), ""))
    domain = "".join(known.partition(".")[1:])
    guesses = [{node: known[:start] + node for node in unknown} for start in range(1, len(known))]
    guesses.append({node: node + domain if domain else node.partition(".")[0] for node in unknown})
    found = [{node: meant for node, meant in guess.items() if meant in leaf_of} for guess in guesses]
    best = max(found, key=len, default={})
    if best:
        of_which = "" if len(best) == len(unknown) else f" for {fold(list(best))}"
        line += f"; did you mean {fold(list(best.values()))}{of_which}?"
    return [line]


def _split_leaves(path: Path, file_switches: list[Switch], leaf_of: dict[str, str]) -> list[str]:
    """A line for each leaf switch whose hosts the file puts on several switches."""
    parts: dict[str, list[str]] = {}
    for switch in file_switches:
        used = Counter(leaf_of[node] for node in switch.nodes if node in leaf_of)
        for leaf, count in used.items():
            if count * 2 > len(switch.nodes):
                parts.setdefault(leaf, []).append(switch.name)
    return [
        f"{path}: {', '.join(names)} are one switch in the fabric, {leaf}"
        for leaf, names in parts.items()
        if len(names) > 1
    ]


def _wrong_groups(path: Path, file_switches: list[Switch], expected: list[Switch]) -> list[str]:
    """A line for each difference in the sets of hosts below the switches above the leaves."""
    names = {switch.name for switch in file_switches}
    lines = [
        f"{switch.place}: switch {child} of {switch.name} is not defined"
        for switch in file_switches
        for child in switch.children
        if child not in names
    ]
    parents: dict[str, list[str]] = {}
    for switch in file_switches:
        for child in switch.children:
            parents.setdefault(child, []).append(switch.name)
    lines += [
        f"{path}: {child} is below {' and below '.join(above)}, and Slurm's tree has one place for it"
        for child, above in parents.items()
        if len(above) > 1
    ]
    file_groups = _groups(file_switches)
    known = {node for switch in expected for node in switch.nodes}
    present = set().union(*file_groups.values()) if file_groups else set()
    by_hosts = {
        frozenset(hosts & present): switch
        for switch, hosts in zip(expected, _groups(expected).values(), strict=True)
        if hosts & present
    }
    file_sets = {frozenset(hosts & known) for hosts in file_groups.values()}
    roots = _roots(file_switches)
    joined: set[str] = set()
    for hosts, switch in by_hosts.items():
        if hosts in file_sets or switch.nodes:
            continue
        apart = [root for root in roots if file_groups[root] & known and file_groups[root] & known <= hosts]
        if len(apart) > 1:
            joined.update(apart)
            lines.append(f"{path}: {_shown(apart)} are joined in the fabric by {_shown(switch.stands_for)}")
        else:
            lines.append(
                f"{path}: no switch joins the {len(hosts)} hosts that the fabric joins at {switch.name}"
            )
    for switch in file_switches:
        hosts = frozenset(file_groups[switch.name] & known)
        if switch.children and hosts and hosts not in by_hosts and switch.name not in joined:
            lines.append(_no_such_part(switch, hosts, expected, len(file_groups[switch.name])))
    return lines


def _no_such_part(switch: Switch, hosts: frozenset[str], expected: list[Switch], count: int) -> str:
    """Why no part of the fabric has just the hosts of a switch."""
    below = _groups(expected)
    islands = [sorted(hosts & below[root]) for root in _roots(expected) if hosts & below[root]]
    if len(islands) > 1:
        return f"{switch.place}: {switch.name} joins {' and '.join(map(fold, islands))}, which no cable joins"
    return f"{switch.place}: no part of the fabric has just the {count} hosts of {switch.name}"


def _shown(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    shown = list(names)[:MAX_SHOWN]
    return (", ".join(shown) if more or len(shown) != 2 else " and ".join(shown)) + more


def _roots(switches: list[Switch]) -> list[str]:
    """The switches that are below no other."""
    children = {child for switch in switches for child in switch.children}
    return [switch.name for switch in switches if switch.name not in children]


def _groups(switches: list[Switch]) -> dict[str, set[str]]:
    """The hosts below each switch. It ends even if the file has switches that contain each other."""
    below = {switch.name: set(switch.nodes) for switch in switches}
    changed = True
    while changed:
        changed = False
        for switch in switches:
            hosts = below[switch.name].union(*(below.get(child, set()) for child in switch.children))
            changed |= len(hosts) > len(below[switch.name])
            below[switch.name] = hosts
    return below
