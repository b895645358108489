"""Finds hosts that large packets do not reach: a switch port or a tunnel on the way with a smaller MTU drops them in
silence, so that connections open and then hang.

The size that counts is the one that TCP has agreed on with the host's ssh port: both interfaces take it. A closed UDP
port answers what arrives by an ICMP error, which a connected socket gets (udp(7)). That needs no privilege, and no
program on the other host. A host that answers no small datagram tells nothing, and neither does one behind a router
that reports the smaller MTU: TCP follows such a report.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from assay.launch.own_python import run_module
from assay.launch.placement import HERE, Site
from assay.records.schema import Failure
from assay.records.units import format_size

PORT = 9  # discard: nobody listens there
SSH_PORT, CONNECT_S = 22, 3.0
TRIES, ANSWER_S = 3, 1.2  # hosts send an ICMP error a second at most (icmp(7), icmp_ratelimit)
SIZES = (9000, 4096, 2044, 1500, 1450, 1400, 1280)  # B; common MTUs, with those of tunnels
SMALL = 576  # B; every host takes these (RFC 1122)
MAX_HOSTS, LIMIT_S = 8, 60.0
HEADERS = {socket.AF_INET: (40, 28), socket.AF_INET6: (60, 48)}  # B of TCP and of UDP, with IP
# <bits/in.h>: do not fragment, and ignore what earlier packets have shown. Python's socket does not name them.
MTU_DISCOVER, MTU_DISCOVER_6, PROBE = 10, 23, 3


class Loss(NamedTuple):
    """Packets of ``largest`` bytes, which TCP sends, are lost; those of ``passing`` bytes arrive."""

    largest: int
    passing: int


def lost_large_packets(site: Site, hosts: Sequence[str]) -> dict[str, Loss]:
    """The hosts of these that only smaller packets reach, from where the launcher runs."""
    command = site.wrap(run_module("assay.launch.large_packets", *hosts[:MAX_HOSTS]))
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
        return {host: Loss(*sizes) for host, sizes in json.loads(output).items()}
    except (subprocess.SubprocessError, OSError, ValueError):
        return {}  # nothing is known


def name_lost_packets(failure: Failure, site: Site, hosts: Sequence[str]) -> None:
    """Adds to a failure of silent hosts that large packets do not reach one of them, if that is so."""
    if site.name == HERE.name or not hosts:
        return
    for host, loss in lost_large_packets(site, list(dict.fromkeys(hosts))).items():
        failure.problem += (
            f"; packets of {format_size(loss.largest)} to {host} are lost on the way, those of "
            f"{format_size(loss.passing)} arrive"
        )
        failure.fix += ("; " if failure.fix else "") + (
            f"give the switch ports on the way to {host} the MTU of the hosts, or the hosts that of the ports: "
            "ip link set INTERFACE mtu BYTES"
        )


def _loss(host: str) -> Loss | None:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
        of_tcp, of_udp = HEADERS[family]
        largest = _largest_segment(host) + of_tcp
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            is_v6 = family == socket.AF_INET6
            level = socket.IPPROTO_IPV6 if is_v6 else socket.IPPROTO_IP
            sender.setsockopt(level, MTU_DISCOVER_6 if is_v6 else MTU_DISCOVER, PROBE)
            sender.settimeout(ANSWER_S)
            sender.connect(address)
            if not _arrives(sender, SMALL - of_udp) or _arrives(sender, largest - of_udp):
                return None
            smaller = (size for size in SIZES if SMALL < size < largest)
            return Loss(largest, next((size for size in smaller if _arrives(sender, size - of_udp)), SMALL))
    except (OSError, UnicodeError, KeyError):
        return None  # also: a router on the way has answered that it takes smaller ones


def _largest_segment(host: str) -> int:
    """What both ends agree on, without headers. Raises OSError where no TCP connection can be made."""
    with socket.create_connection((host, SSH_PORT), timeout=CONNECT_S) as connection:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)


def _arrives(sender: socket.socket, size: int) -> bool:
    """Raises OSError where the network says more than nothing, such as that the packet is too large (EMSGSIZE)."""
    for _ in range(TRIES):
        try:
            sender.send(bytes(size))
            sender.recv(1)
        except ConnectionRefusedError:
            return True
        except TimeoutError:
            continue
    return False


def main(hosts: Sequence[str]) -> None:
    with ThreadPoolExecutor(MAX_HOSTS) as pool:
        found = dict(zip(hosts, pool.map(_loss, hosts), strict=True))
    print(json.dumps({host: loss for host, loss in found.items() if loss}))


if __name__ == "__main__":
    main(sys.argv[1:])
