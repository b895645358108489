"""Measures RDMA between two devices, on one machine or on two.

``measure_rdma`` measures one direction. ``plan_ports`` chooses the directions of a test of all ports of a machine:
every active port sends once, to a port of another card where there is one. ``ports_of`` reads the ports of a host
from the context records of a run (the engine's measurement ``node.settings``).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.launch.placement import Site
from assay.measure.engine_processes import Side
from assay.measure.session import Session
from assay.records.schema import AnyRecord, Context, Scalar

MEASUREMENT = "node.rdma"
# The parameters that the listening process takes; the sending process tells it all others.
LISTENER_PARAMS = ("port", "timeout", "realtime", "gid_index", "mtu", "service_level", "traffic_class")
LOOPBACK = "127.0.0.1"
TIMEOUT_S = 20.0  # the engine's default
SILENCE_MARGIN_S = (
    30.0  # added to the engine's own time limit; an engine that is silent for longer counts as lost
)


class Endpoint(NamedTuple):
    """``device``: as the engine takes it, "mlx5_0" or "mlx5_0:1"."""

    site: Site
    host: str
    device: str


@dataclass(frozen=True)
class Port:
    """An RDMA port of a host.

    ``card``: identifiers of the adapter. Ports of one adapter share at least one.
    """

    device: str  # "mlx5_0:1"
    active: bool
    link_layer: str
    card: tuple[str, ...] = ()
    subnet: str = ""

    def shares_card(self, other: Port) -> bool:
        return bool(set(self.card) & set(other.card)) or _device(self) == _device(other)


@dataclass(frozen=True)
class Pair:
    """One direction to measure. ``same_card``: both ports are on one card, because no other card suits better."""

    sender: str
    receiver: str
    same_card: bool


def measure_rdma(
    session: Session,
    sender: Endpoint | tuple[Site, str, str],
    receiver: Endpoint | tuple[Site, str, str],
    params: Mapping[str, Scalar],
    more_follow: bool = False,
) -> bool:
    """Measures from one device to another. The receiver listens, the sender posts operations and writes the records.

    ``params``: of the engine. ``more_follow``: other measurements of the run follow, as in
    ``Session.measure``. Returns whether both sides finished.
    """
    sender, receiver = Endpoint(*sender), Endpoint(*receiver)
    same_host = sender.host == receiver.host
    shared: dict[str, Scalar] = {"port": _free_tcp_port()} if same_host else {}
    shared |= {name: params[name] for name in LISTENER_PARAMS if name in params}
    peer = LOOPBACK if same_host else receiver.host
    receiver_params: dict[str, Scalar] = {**shared, "device": receiver.device, "mute": True}
    receiver_params["listen"] = params.get("listen") or _address_of(peer)
    operation_params = {name: value for name, value in params.items() if name != "listen"}
    sender_params: dict[str, Scalar] = {**operation_params, **shared, "device": sender.device, "peer": peer}
    silence = float(params.get("timeout", TIMEOUT_S)) + SILENCE_MARGIN_S
    return session.measure_pair(
        Side(MEASUREMENT, receiver.site, receiver.host, receiver_params),
        Side(MEASUREMENT, sender.site, sender.host, sender_params),
        silence_s=silence,
        more_follow=more_follow,
    )


def ports_of(records: Iterable[AnyRecord], host: str) -> list[Port]:
    """The RDMA ports of a host, from its context records."""
    return [
        _port(record.subject.device or "", record.facts)
        for record in records
        if isinstance(record, Context) and record.subject.host == host and "rdma.state" in record.facts
    ]


def _port(device: str, facts: Mapping[str, Scalar]) -> Port:
    # The PCI functions of a card differ in the last digit of their address. A card that occupies two slots has one
    # GUID. An identifier of zeros is unset.
    slot = str(facts.get("device.pci", "")).rpartition(".")[0]
    guid = str(facts.get("rdma.adapter", ""))
    return Port(
        device=device,
        active=facts.get("rdma.state") == "ACTIVE",
        link_layer=str(facts.get("rdma.link_layer", "")),
        card=tuple(identifier for identifier in (slot, guid) if identifier.strip("0:")),
        subnet=str(facts.get("rdma.subnet", "")),
    )


def plan_ports(ports: Sequence[Port]) -> list[Pair]:
    """Pairs every active port, as sender, with a receiver. In order of priority the receiver is in the same subnet,
    on another card, of another device, receives from the fewest ports so far, and follows next in order. A port
    that is alone in its link layer is left out."""
    active = [port for port in ports if port.active]
    received = dict.fromkeys((port.device for port in active), 0)
    pairs = []
    for index, sender in enumerate(active):
        following = [*active[index + 1 :], *active[:index]]
        candidates = [port for port in following if port.link_layer == sender.link_layer]
        if not candidates:
            continue
        best = min(
            candidates,
            key=lambda port: (
                port.subnet != sender.subnet,
                port.shares_card(sender),
                _device(port) == _device(sender),
                received[port.device],
            ),
        )
        received[best.device] += 1
        pairs.append(Pair(sender.device, best.device, best.shares_card(sender)))
    return pairs


def _device(port: Port) -> str:
    return port.device.rpartition(":")[0]


def _free_tcp_port() -> int:
    """A TCP port that is free now, since several measurements may run on one machine."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _address_of(host: str) -> str:
    """The address at which the sender will call that host; the name itself where it is not known here."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return host


def why_no_pair(ports: Sequence[Port]) -> str:
    """The reason why ``plan_ports`` finds no pair."""
    active = [port.device for port in ports if port.active]
    state = (
        f"{len(active)} of this machine's RDMA ports are active"
        if len(active) != 1
        else f"only {active[0]} is active"
    )
    return f"{state}; two connected ones are needed, or another host: assay rdma -d DEVICE --peer HOST"
