"""RDMA between two devices: of one machine, or of two.

``measure_rdma`` measures one direction; ``plan_ports`` says which, when each port of a machine has to send:
every active port as sender, towards a port of another card. Which ports there are, the contexts of a run tell
(``node.settings``).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.launch.placement import Site
from assay.measure.session import Session, Side
from assay.records.schema import AnyRecord, Context, Scalar

MEASUREMENT = "node.rdma"
# The parameters of the listening side; it receives all others from the client.
LISTENING = ("port", "timeout", "realtime", "gid_index", "mtu", "service_level", "traffic_class")
TIMEOUT_S = 20.0  # the engine's default
SILENCE_MARGIN_S = 30.0  # beyond the engine's own limit, before it is taken for lost


class End(NamedTuple):
    """One end: ``device`` as the engine takes it, "mlx5_0" or "mlx5_0:1"."""

    site: Site
    host: str
    device: str


@dataclass(frozen=True)
class Port:
    """A port of this host. ``card`` is the same for all ports of one adapter."""

    device: str  # "mlx5_0:1"
    active: bool
    link_layer: str
    card: tuple[str, ...] = ()
    subnet: str = ""

    def shares_card(self, other: Port) -> bool:
        return bool(set(self.card) & set(other.card)) or _device(self) == _device(other)


@dataclass(frozen=True)
class Pair:
    """One direction to measure. ``same_card``: no other card was there to receive."""

    sender: str
    receiver: str
    same_card: bool


def measure_rdma(
    session: Session,
    sender: End | tuple[Site, str, str],
    receiver: End | tuple[Site, str, str],
    params: Mapping[str, Scalar],
    more: bool = False,
) -> bool:
    """From one device to another: the receiver listens, the sender posts. True when both finished.

    ``params`` are the engine's; its records are the sender's, ``more`` is as in ``Session.measure``.
    """
    sender, receiver = End(*sender), End(*receiver)
    together = sender.host == receiver.host
    shared: dict[str, Scalar] = {"port": _free_port()} if together else {}
    shared |= {name: params[name] for name in LISTENING if name in params}
    listening: dict[str, Scalar] = {**shared, "device": receiver.device, "mute": True}
    peer = "127.0.0.1" if together else receiver.host
    posting: dict[str, Scalar] = {**params, **shared, "device": sender.device, "peer": peer}
    silence = float(params.get("timeout", TIMEOUT_S)) + SILENCE_MARGIN_S
    return session.measure_pair(
        Side(MEASUREMENT, receiver.site, receiver.host, listening),
        Side(MEASUREMENT, sender.site, sender.host, posting),
        silence_s=silence,
        more=more,
    )


def ports_of(records: Iterable[AnyRecord], host: str) -> list[Port]:
    """The RDMA ports of a host, from its contexts."""
    return [
        _port(record.subject.device or "", record.facts)
        for record in records
        if isinstance(record, Context) and record.subject.host == host and "rdma.state" in record.facts
    ]


def _port(device: str, facts: Mapping[str, Scalar]) -> Port:
    # The functions of a card differ in the last digit of their PCI address; a card in two slots has one GUID.
    slot = str(facts.get("device.pci", "")).rpartition(".")[0]
    guid = str(facts.get("rdma.adapter", ""))
    return Port(
        device=device,
        active=facts.get("rdma.state") == "ACTIVE",
        link_layer=str(facts.get("rdma.link_layer", "")),
        card=tuple(mark for mark in (slot, guid) if mark.strip("0:")),
        subnet=str(facts.get("rdma.subnet", "")),
    )


def plan_ports(ports: Sequence[Port]) -> list[Pair]:
    """Every active port as sender, each towards the port that suits best: of its subnet, of another card, the
    one that has received least, the next in order. A port with none of its link layer is left out."""
    active = [port for port in ports if port.active]
    received = dict.fromkeys((port.device for port in active), 0)
    pairs = []
    for index, sender in enumerate(active):
        following = [*active[index + 1 :], *active[:index]]
        others = [port for port in following if port.link_layer == sender.link_layer]
        if not others:
            continue
        best = min(
            others,
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


def _free_port() -> int:
    """A TCP port that nobody uses now: several measurements may run on one machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def why_no_pair(ports: Sequence[Port]) -> str:
    """Why no port of a host has another one to send to."""
    active = [port.device for port in ports if port.active]
    state = (
        f"{len(active)} of this machine's RDMA ports are active"
        if len(active) != 1
        else f"only {active[0]} is active"
    )
    return f"{state}, and two that are connected are needed; or name another host: assay rdma -d DEVICE --peer HOST"
