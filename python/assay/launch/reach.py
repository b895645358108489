"""Checks that hosts answer before anything is started on them.

A host is up if a TCP connection to its ssh port is accepted *or refused*; it is down without an answer or a route.
This needs no privilege and no daemon. A name that does not resolve is an error at once.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from assay.errors import UserError
from assay.launch.placement import Site
from assay.launch.slurm_nodes import node_names

SSH_PORT = 22
LIMIT_S = 3.0
CONCURRENT = 64


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
        raise UserError(
            f"the lab has no host {', '.join(unknown)}",
            f"it has {site.lab.hosts[0]} to {site.lab.hosts[-1]}; see 'assay lab status'",
        )
    # Checked from the lab's head, where the launcher runs.
    command = site.lab.enter(site.lab.head, [sys.executable, __file__, *hosts])
    output = subprocess.run(command, capture_output=True, text=True, timeout=60 + LIMIT_S, check=True).stdout
    _refuse(json.loads(output))


def _refuse(dead: dict[str, str]) -> None:
    if dead:
        reasons = sorted(set(dead.values()))
        raise UserError(
            f"{', '.join(dead)}: {'; '.join(reasons)}",
            "check the name and that the host is up, or leave it out",
        )


def probe_hosts(hosts: Sequence[str]) -> dict[str, str]:
    """Returns the hosts that cannot be reached, with the reason."""
    with ThreadPoolExecutor(CONCURRENT) as pool:
        answers = pool.map(_probe, hosts)
        return {host: reason for host, reason in zip(hosts, answers, strict=True) if reason}


def _probe(host: str) -> str | None:
    try:
        socket.create_connection((host, SSH_PORT), timeout=LIMIT_S).close()
    except socket.gaierror:
        return "unknown host (its name does not resolve)"
    except ConnectionRefusedError:
        return None
    except OSError as error:
        return f"does not answer ({error.strerror or 'no reply'} within {LIMIT_S:.0f} s)"
    return None


if __name__ == "__main__":
    print(json.dumps(probe_hosts(sys.argv[1:])))
