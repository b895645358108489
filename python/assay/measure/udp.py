"""UDP from one host into an interface of another: both sides in one measurement."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from assay.errors import UserError
from assay.launch.engines import MeasurementDescription, describe, probe
from assay.launch.launchers import Local
from assay.launch.placement import Segment, Site
from assay.measure.engine_processes import Side
from assay.measure.session import Session
from assay.records.schema import Scalar
from assay.records.units import parse_in

RECEIVE, SEND = "node.udp_receive", "node.udp_send"
ADDRESS_LIMIT_S = 60.0  # for a host to list the addresses of an interface


class NoAddress(UserError):
    """An interface without an address: nothing can be sent to it."""


class UdpEndpoint(NamedTuple):
    """A host, and how processes are started on it."""

    site: Site
    host: str


def measure_udp(
    session: Session,
    receiver: UdpEndpoint,
    sender: UdpEndpoint,
    interface: str,
    params: Mapping[str, Scalar],
    more_follow: bool = False,
) -> bool:
    """Starts the receiver, then the sender. Returns True when both finished. Raises UserError.

    ``interface`` is the receiver's: its name, an address or a host name. ``params`` hold the parameters of both
    measurements; each side gets those that it has. ``more_follow`` says that other interfaces follow, so that the
    measurement is not complete yet.
    """
    address = find_address(receiver, interface)
    sides = []
    for measurement, end in ((RECEIVE, receiver), (SEND, sender)):
        described = describe(probe()).find(measurement)
        side_params = {p.name: params[p.name] for p in described.parameters if p.name in params}
        sides.append(
            Side(measurement, end.site, end.host, {**in_base_units(described, side_params), "host": address})
        )
    receiving, sending = sides
    return session.measure_pair(receiving, sending, more_follow=more_follow)


def in_base_units(described: MeasurementDescription, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Parameters with times in s and rates in B/s: "750 Mbit/s" is 93750000. Raises UserError, also if one is out of
    the bounds that the engine describes."""
    units = {p.name: p.unit for p in described.parameters}
    read: dict[str, Scalar] = {}
    for name, value in params.items():
        try:
            if units.get(name) in ("s", "B/s") and isinstance(value, str) and not _is_number(value):
                value = parse_in(value, units[name])
        except UserError as error:
            raise UserError(f"--{name.replace('_', '-')}: {error.what}", error.fix) from None
        read[name] = value
    described.check_bounds(read)
    return read


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def find_address(end: UdpEndpoint, interface: str) -> str:
    """The address of that interface, IPv4 before IPv6; link-local addresses do not count.

    A text that names no interface of the host is returned unchanged: it is an address or a host name, which the
    engine checks. Raises UserError if the host does not answer, or the interface has no address.
    """
    if "." in interface or ":" in interface:
        return interface
    argv = Local().command(
        end.site, [Segment([end.host])], ["ip", "-json", "address", "show", "dev", interface]
    )
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ADDRESS_LIMIT_S)
    except FileNotFoundError:  # no ip command here
        return interface
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{end.host} does not answer within {ADDRESS_LIMIT_S:.0f} s", "check that it is up"
        ) from None
    if done.returncode != 0:  # no interface of that name
        return interface
    addresses = [a for link in json.loads(done.stdout) if link for a in link["addr_info"]]
    routable = [a for a in addresses if a.get("scope") != "link"]
    if not routable:
        raise NoAddress(
            f"the interface {interface} of {end.host} has no address",
            f"ip address add ADDRESS/PREFIX dev {interface}",
        )
    return str(min(routable, key=lambda a: a["family"] != "inet")["local"])
