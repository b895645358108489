"""Checks that hosts answer before anything is started on them.

A host is up if a TCP connection to its ssh port is accepted *or refused*; it is down without an answer or a route.
This needs no privilege and no daemon. A name that does not resolve is an error at once.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from assay.errors import UserError
from assay.launch.own_python import run_module
from assay.launch.placement import Site
from assay.launch.slurm_nodes import node_names
from assay.records.padding import did_you_mean

SSH_PORT = 22
LIMIT_S = 3.0
CONCURRENT = 64
UNKNOWN = "unknown host (its name does not resolve)"
MAX_NUMBERS, MAX_WIDTH = 3, 5  # of a name whose padding is guessed: numbers, and digits of each


def check_hosts(site: Site, hosts: Sequence[str], launcher: str = "") -> None:
    """Raises UserError that names the hosts that are unknown or do not answer.

    srun needs no ssh and names the nodes that Slurm cannot use, so before it only the names are checked.
    """
    unique = list(dict.fromkeys(hosts))
    if site.name == "here":
        return
    if launcher == "srun" and not site.lab:
        node_names(tuple(unique))
        return
    if site.lab:
        _check_lab(site, unique)
        return
    _refuse(probe_hosts(unique))


def _check_lab(site: Site, hosts: list[str]) -> None:
    assert site.lab is not None
    unknown = [h for h in hosts if h not in site.lab.hosts]
    if unknown:
        there = f"it has {site.lab.hosts[0]} to {site.lab.hosts[-1]}; see 'assay lab status'"
        raise UserError(
            f"the lab has no host {', '.join(unknown)}", did_you_mean(unknown, site.lab.hosts, there)
        )
    # Checked from the lab's head, where the launcher runs.
    command = site.lab.enter(site.lab.head, run_module("assay.launch.reach", *hosts))
    output = subprocess.run(command, capture_output=True, text=True, timeout=60 + LIMIT_S, check=True).stdout
    _refuse(json.loads(output))


def _refuse(dead: dict[str, str]) -> None:
    if dead:
        reasons = sorted(set(dead.values()))
        unknown = [host for host, reason in dead.items() if reason == UNKNOWN]
        raise UserError(
            f"{', '.join(dead)}: {'; '.join(reasons)}",
            did_you_mean(
                unknown,
                _padded(unknown),
                _range(unknown) or "check the name and that the host is up, or leave it out",
            ),
        )


def _range(unknown: list[str]) -> str | None:
    """How to write a range without brackets ("n1-n4", "n01-04"); None if there is none."""
    found = (re.fullmatch(r"(.*?[^\d-])(\d+)-(?:\1)?(\d+)", host) for host in unknown)
    ranges = [match for match in found if match and int(match[2]) < int(match[3])]
    return f"if it is a range, write {ranges[0][1]}[{ranges[0][2]}-{ranges[0][3]}]" if ranges else None


def _padded(unknown: list[str]) -> list[str]:
    """The names with one of their numbers as wide as the first name needs to resolve; empty if no width helps. All
    look-ups are made at once, since each may take seconds."""
    if not unknown:
        return []
    ways = [(number, width) for number in range(MAX_NUMBERS) for width in range(1, MAX_WIDTH + 1)]
    with ThreadPoolExecutor(CONCURRENT) as pool:
        answers = pool.map(_resolves, [_widened(unknown[0], *way) for way in ways])
        fitting = [way for way, answer in zip(ways, answers, strict=True) if answer]
        names = [_widened(name, *fitting[0]) for name in unknown] if fitting else []
        return [name for name, answer in zip(names, pool.map(_resolves, names), strict=True) if answer]


def _widened(name: str, number: int, width: int) -> str:
    """The name with the digits of one of its numbers, counted from 0; empty without such a number."""
    parts = re.split(r"([0-9]+)", name)
    place = 2 * number + 1
    if place >= len(parts) or len(parts[place]) > MAX_WIDTH or not re.search(r"[^0-9.]", name):
        return ""
    parts[place] = f"{int(parts[place]):0{width}}"
    return "".join(parts)


def _resolves(name: str) -> bool:
    try:
        return bool(name and socket.getaddrinfo(name, SSH_PORT))
    except (OSError, UnicodeError):
        return False


def probe_hosts(hosts: Sequence[str]) -> dict[str, str]:
    """Returns the hosts that cannot be reached, with the reason."""
    with ThreadPoolExecutor(CONCURRENT) as pool:
        answers = pool.map(_probe, hosts)
        return {host: reason for host, reason in zip(hosts, answers, strict=True) if reason}


def _probe(host: str) -> str | None:
    try:
        socket.create_connection((host, SSH_PORT), timeout=LIMIT_S).close()
    except UnicodeError:
        return "no host has such a name (a part of it is empty, or longer than 63 characters)"
    except socket.gaierror:
        letter = next((letter for letter in host if not letter.isascii()), "")
        return (
            f"no host has such a name: '{letter}' is none of A-Z, a-z, 0-9, '-' and '.'"
            if letter
            else UNKNOWN
        )
    except ConnectionRefusedError:
        return None
    except OSError as error:
        return f"does not answer ({error.strerror or 'no reply'} within {LIMIT_S:.0f} s)"
    return None


if __name__ == "__main__":
    print(json.dumps(probe_hosts(sys.argv[1:])))
