"""UDP from one host into an interface of another: both sides in one measurement."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from assay.errors import UserError
from assay.launch.engines import Described, describe, probe
from assay.launch.launchers import Local
from assay.launch.placement import Segment, Site
from assay.measure.session import Session, Side
from assay.records.schema import Scalar
from assay.records.units import parse_in

RECEIVE, SEND = "node.udp_receive", "node.udp_send"
ASK_LIMIT_S = 20.0


class Endpoint(NamedTuple):
    site: Site
    host: str


def measure_udp(
    session: Session,
    receiver: Endpoint | tuple[Site, str],
    sender: Endpoint | tuple[Site, str],
    where: str,
    params: Mapping[str, Scalar],
    more: bool = False,
) -> bool:
    """Receives on ``where``, an address (or name, or interface) of the receiver. True when both sides finished.

    ``params`` are those of either side, each gets its own; ``more`` is as in ``Session.measure``.
    """
    receiver, sender = Endpoint(*receiver), Endpoint(*sender)
    address = find_address(receiver, where)
    sides = []
    for measurement, end in ((RECEIVE, receiver), (SEND, sender)):
        described = describe(probe()).find(measurement)
        chosen = {name: params[name] for name in (p.name for p in described.parameters) if name in params}
        sides.append(
            Side(measurement, end.site, end.host, {**in_base_units(described, chosen), "host": address})
        )
    receiving, sending = sides
    return session.measure_pair(receiving, sending, more=more)


def in_base_units(described: Described, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Parameters as the engine reads them: "750 Mbit/s" is 93750000. Raises UserError."""
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


def find_address(end: Endpoint, where: str) -> str:
    """The address of a named interface of that host. A name of no interface is taken for an address or a host
    name."""
    if "." in where or ":" in where:
        return where
    argv = Local().command(end.site, [Segment([end.host])], ["ip", "-json", "address", "show", "dev", where])
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ASK_LIMIT_S)
    except FileNotFoundError:  # no ip command here: the engine checks the name
        return where
    except subprocess.TimeoutExpired:
        raise UserError(f"{end.host} does not answer within {ASK_LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        return where
    addresses = [a for link in json.loads(done.stdout) if link for a in link["addr_info"]]
    lasting = [a for a in addresses if a.get("scope") != "link"]
    if not lasting:
        raise UserError(
            f"the interface {where} of {end.host} has no address",
            f"ip address add ADDRESS/PREFIX dev {where}",
        )
    return str(min(lasting, key=lambda a: a["family"] != "inet")["local"])
