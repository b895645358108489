"""Finds hosts that large packets do not reach: a switch port, a tunnel or an interface on the way with a smaller MTU
drops them in silence, so that connections open and then hang.

A closed UDP port answers what arrives by an ICMP error, which a connected socket gets (udp(7)). That needs no
privilege, and no program on the other host. A host that answers no small datagram tells nothing.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from assay.launch.placement import HERE, Site
from assay.records.schema import Failure
from assay.records.units import format_size

PORT = 9  # discard: nobody listens there
TRIES, ANSWER_S = 3, 1.2  # hosts send an ICMP error a second at most (icmp(7), icmp_ratelimit)
SIZES = (9000, 4096, 2044, 1500, 1450, 1400, 1280)  # B; common MTUs, with those of tunnels
SMALL = 576  # B; every host takes these (RFC 1122)
MAX_HOSTS, LIMIT_S = 8, 60.0
# <bits/in.h>: do not fragment, and ignore what earlier packets have shown. Python's socket does not name them.
MTU_DISCOVER, PROBE, MTU = 10, 3, 14
MTU_DISCOVER_6, MTU_6 = 23, 24


class Loss(NamedTuple):
    """Packets of ``mtu`` bytes, the interface's largest, are lost; those of ``passing`` bytes arrive."""

    mtu: int
    passing: int


def lost_large_packets(site: Site, hosts: Sequence[str]) -> dict[str, Loss]:
    """The hosts of these that only smaller packets reach, from where the launcher runs."""
    command = site.wrap([sys.executable, "-m", "assay.launch.large_packets", *hosts[:MAX_HOSTS]])
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        return {host: Loss(*sizes) for host, sizes in json.loads(output).items()}
    except (subprocess.SubprocessError, OSError, ValueError):
        return {}  # nothing is known


def name_lost_packets(failure: Failure, site: Site, hosts: Sequence[str]) -> None:
    """Adds to a failure among hosts that large packets do not reach one of them, if that is so."""
    if site.name == HERE.name or not hosts:
        return
    for host, loss in lost_large_packets(site, list(dict.fromkeys(hosts))).items():
        failure.problem += (
            f"; packets of {format_size(loss.mtu)} to {host} are lost on the way, those of "
            f"{format_size(loss.passing)} arrive"
        )
        failure.fix = (
            "give the interfaces of all hosts and the switch ports between them one MTU: "
            "ip link set INTERFACE mtu BYTES"
        )


def _loss(host: str) -> Loss | None:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            is_v6 = family == socket.AF_INET6
            level = socket.IPPROTO_IPV6 if is_v6 else socket.IPPROTO_IP
            sender.setsockopt(level, MTU_DISCOVER_6 if is_v6 else MTU_DISCOVER, PROBE)
            sender.settimeout(ANSWER_S)
            sender.connect(address)
            mtu = _mtu(sender, level, MTU_6 if is_v6 else MTU)
            headers = 48 if is_v6 else 28
            if not _arrives(sender, SMALL - headers) or _arrives(sender, mtu - headers):
                return None
            smaller = (size for size in SIZES if SMALL < size < mtu)
            return Loss(mtu, next((size for size in smaller if _arrives(sender, size - headers)), SMALL))
    except OSError:
        return None


def _mtu(sender: socket.socket, level: int, option: int) -> int:
    return sender.getsockopt(level, option)


def _arrives(sender: socket.socket, size: int) -> bool:
    for _ in range(TRIES):
        try:
            sender.send(bytes(size))
            sender.recv(1)
        except ConnectionRefusedError:
            return True
        except TimeoutError:
            continue
        except OSError:
            return False  # larger than the interface takes
    return False


def main(hosts: Sequence[str]) -> None:
    with ThreadPoolExecutor(MAX_HOSTS) as pool:
        found = dict(zip(hosts, pool.map(_loss, hosts), strict=True))
    print(json.dumps({host: loss for host, loss in found.items() if loss}))


if __name__ == "__main__":
    main(sys.argv[1:])
