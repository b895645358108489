"""Makes the measurements that a specification needs, and no others.

A criterion names a metric; its measurement runs with the parameters that the specification gives
(``[parameters."node.udp_receive"]``), on every offered host. Measurements that need more than the host
itself are repeated for each of its devices: a UDP reception for each interface, from a peer; an RDMA
transfer from each port. What cannot be measured is waived with the reason, and then never passes; a device that is
there and not in order is recorded as unfit, and fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from assay.errors import UserError
from assay.judge import Specification
from assay.judge.criteria import Share
from assay.judge.inventory import Inventory
from assay.launch.engines import describe, probe
from assay.launch.hosts import fold
from assay.launch.launchers import Launcher
from assay.launch.placement import REMOTE, Site
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.node import measure_node
from assay.measure.rdma import Endpoint, Pair, measure_rdma, plan_ports, ports_of, why_no_pair
from assay.measure.session import Session
from assay.measure.udp import RECEIVE, SEND, NoAddress, UdpEndpoint, measure_udp
from assay.measure.workload import load_workload
from assay.records.devices import (
    EthernetPort,
    ethernet_ports,
    gpus,
    names_in_records,
    rdma_ports,
    visible_devices,
)
from assay.records.schema import Scalar
from assay.records.units import format_as

SETTINGS = "node.settings"  # the facts of a host and its devices: part of every acceptance
GPU_COPY, RDMA = "node.gpu_copy", "node.rdma"
TEN_GBIT = 10e9 / 8  # B/s


@dataclass(frozen=True)
class OfferedHosts:
    """The hosts that are offered for acceptance, and the peer that tests them."""

    site: Site
    hosts: list[str]
    launcher: Launcher | None  # for measurements of several hosts together
    no_launcher: str = ""  # why there is none
    peer: str = ""  # the additional system that sends to the offered ones
    interfaces: list[str] = field(default_factory=list)  # to receive on; none: every one that is fast enough
    realtime: bool = False

    @property
    def peer_site(self) -> Site:
        return self.site if self.site.lab else REMOTE


def needed(specification: Specification) -> list[str]:
    """The measurements that the criteria name, in the engines' order."""
    requested = set(_metrics(specification))
    if specification.inventory.lines("gpus"):  # a GPU counts as present only if it can copy
        requested.add(f"{GPU_COPY}/*")
    return [
        measurement.name
        for measurement in describe(probe()).measurements
        if measurement.name == SETTINGS
        or any(
            fnmatchcase(f"{measurement.name}/{metric.name}", pattern)
            for metric in measurement.metrics
            for pattern in requested
        )
    ]


def _metrics(specification: Specification) -> Iterator[str]:
    for criterion in specification.criteria:
        if criterion.metric:
            yield criterion.metric
        for limit in (criterion.min, criterion.max):
            if isinstance(limit, Share):
                yield limit.of


def comply(session: Session, specifications: Sequence[Specification], offer: OfferedHosts) -> None:
    """Makes the measurements that the specifications need on the offered hosts, each once, one after the other."""
    tried: set[str] = set()
    inventory = _combine_inventories(specifications)
    for specification in specifications:
        for name in needed(specification):
            if name in tried:
                continue
            tried.add(name)
            session.continue_after_failure()
            if session.interrupted:
                return
            _measure(session, name, specification, inventory, offer)
    session.continue_after_failure()
    for specification in specifications:
        if any(name.startswith("network.") for name in needed(specification)):
            _measure_network(session, specification, offer)
            return


def _combine_inventories(specifications: Sequence[Specification]) -> Inventory:
    """The devices that any of the specifications expects, and that any of them ignores."""
    inventories = [specification.inventory for specification in specifications]
    return Inventory(
        devices=tuple(line for inventory in inventories for line in inventory.devices),
        ignore=tuple(device for inventory in inventories for device in inventory.ignore),
    )


def _measure(
    session: Session, name: str, specification: Specification, inventory: Inventory, offer: OfferedHosts
) -> None:
    params = dict(specification.parameters.get(name, {}))
    if offer.realtime and "realtime" in _parameters_of(name):
        params["realtime"] = True
    if name == RECEIVE:
        _measure_udp_interfaces(
            session, inventory, offer, {**params, **specification.parameters.get(SEND, {})}
        )
    elif name == RDMA:
        _measure_rdma_ports(session, inventory, offer, params)
    elif name == "node.memory_paced":
        workload = str(params.get("workload", "cobalt2"))
        _measure_each_host(session, name, offer, {**params, "workload": load_workload(workload)})
    elif name.startswith("node."):
        _measure_each_host(session, name, offer, params)
    if name == GPU_COPY and not session.interrupted:
        _record_hidden_gpus(session, offer)


def _parameters_of(measurement: str) -> set[str]:
    return {parameter.name for parameter in describe(probe()).find(measurement).parameters}


def _measure_each_host(session: Session, name: str, offer: OfferedHosts, params: dict[str, Scalar]) -> None:
    session.err.print(f"{name} on {fold(offer.hosts)}")
    measure_node(session, name, offer.site, offer.hosts, offer.launcher, params)


def _measure_udp_interfaces(
    session: Session, inventory: Inventory, offer: OfferedHosts, params: dict[str, Scalar]
) -> None:
    """Each interface of each offered host receives from the peer; one after the other."""
    steps: list[Step] = []
    for host, identity in names_in_records(session.run.records, offer.hosts).items():
        interfaces = offer.interfaces or _fast_ports(session, inventory, host, identity)
        if not offer.peer:
            session.waive(RECEIVE, host, "no system to send from was named: give --peer HOST")
            continue
        if not interfaces:
            session.waive(RECEIVE, host, "no interface of 10 Gbit/s is up: name others with --interfaces")
        for interface in interfaces:
            steps.append(
                Step(
                    host,
                    interface,
                    f"{host} {interface} receives UDP from {offer.peer}",
                    partial(
                        measure_udp,
                        session,
                        UdpEndpoint(offer.site, host),
                        UdpEndpoint(offer.peer_site, offer.peer),
                        interface,
                        params,
                        more_follow=True,
                    ),
                )
            )
    _measure_devices(session, RECEIVE, steps)


def _fast_ports(session: Session, inventory: Inventory, host: str, identity: str) -> list[str]:
    """The Ethernet ports of 10 Gbit/s or more that the UDP test has to measure.

    A port that should be one of them but is down, or runs below a speed that it supports, is recorded as unfit.
    Standard error names ports that the inventory ignores and ports of slower kinds.
    """
    required_speed = format_as(TEN_GBIT, "Gbit/s")
    chosen = []
    for port in ethernet_ports(session.run.records, identity):
        if port.device in inventory.ignore:
            session.err.print(f"{host} {port.device}: left out, the inventory ignores it")
        elif port.is_up and port.speed >= TEN_GBIT and not port.master:
            chosen.append(port.device)
        elif _is_slower_by_nature(port):
            session.err.print(f"{host} {port.description()}: left out, not a port of {required_speed}")
        else:
            expected = f"expected: up at {required_speed}, with an address of its own"
            session.unfit(RECEIVE, host, port.device, f"{port.description()}; {expected}")
    return chosen


def _is_slower_by_nature(port: EthernetPort) -> bool:
    """Whether the port supports less than 10 Gbit/s, or runs below it and its driver does not tell what it supports."""
    return port.fastest < TEN_GBIT if port.fastest else port.is_up and port.speed < TEN_GBIT


def _measure_rdma_ports(
    session: Session, inventory: Inventory, offer: OfferedHosts, params: dict[str, Scalar]
) -> None:
    """Each port of each offered host sends to another card of the same host, else to the peer."""
    steps: list[Step] = []
    for host, identity in names_in_records(session.run.records, offer.hosts).items():
        ports = [
            port for port in ports_of(session.run.records, identity) if port.device not in inventory.ignore
        ]
        if not ports:
            session.waive(RDMA, host, why_no_pair(ports))
        for port in rdma_ports(session.run.records, identity):
            if port.device in inventory.ignore:
                session.err.print(f"{host} {port.device}: left out, the inventory ignores it")
            elif not port.is_active:
                session.unfit(RDMA, host, port.device, f"{port.description()}; expected: ACTIVE")
        pairs = {pair.sender: pair for pair in plan_ports(ports)}
        for device in [port.device for port in ports if port.active]:
            step = _rdma_step(session, offer, host, device, pairs.get(device), params)
            if step:
                steps.append(step)
    _measure_devices(session, RDMA, steps)


def _rdma_step(
    session: Session,
    offer: OfferedHosts,
    host: str,
    device: str,
    pair: Pair | None,
    params: dict[str, Scalar],
) -> Step | None:
    """One port as sender. A port whose only partners are on its own card, or that has none, sends to the peer; without
    a peer it is unfit."""
    sender = Endpoint(offer.site, host, device)
    if pair and not pair.same_card:
        receiver = Endpoint(offer.site, host, pair.receiver)
        to = pair.receiver
    elif offer.peer:
        receiver, to = Endpoint(offer.peer_site, offer.peer, ""), offer.peer
    else:
        reason = (
            f"its only partner here, {pair.receiver}, is on the same card"
            if pair
            else "it has no partner here"
        )
        expected = "expected: an active port of another card, or --peer HOST"
        session.unfit(RDMA, host, device, f"{device}: {reason}; {expected}")
        return None
    return Step(
        host,
        device,
        f"{host}: {device} sends to {to}",
        partial(measure_rdma, session, sender, receiver, params, more_follow=True),
    )


class Step(NamedTuple):
    """The measurement of one device; ``measure`` returns whether it finished."""

    host: str
    device: str
    text: str
    measure: Callable[[], bool]


def _measure_devices(session: Session, name: str, steps: Sequence[Step]) -> None:
    """One device after the other. One that cannot be measured is recorded and never ends the others."""
    all_done = bool(steps)
    for step in steps:
        session.continue_after_failure()
        if session.interrupted:
            return
        session.err.print(step.text)
        try:
            done, reason = step.measure(), session.ended_early
        except NoAddress as error:
            session.unfit(name, step.host, step.device, str(error))
            all_done = False
            continue
        except UserError as error:
            session.give_up(error)
            done, reason = False, str(error)
        if not done and not session.interrupted:
            session.broken(name, step.host, step.device, reason or "its measurement ended early")
        all_done = all_done and done
    if all_done:
        session.complete(*([RECEIVE, SEND] if name == RECEIVE else [name]))


def _record_hidden_gpus(session: Session, offer: OfferedHosts) -> None:
    """Records GPUs of the PCI bus that did not copy as unfit, because the totals do not contain them."""
    for host, identity in names_in_records(session.run.records, offer.hosts).items():
        visible = visible_devices(session.run.records, identity)
        hidden = f"CUDA_VISIBLE_DEVICES={visible} hides GPUs" if visible else "the driver does not show it"
        for gpu in gpus(session.run.records, identity):
            if not gpu.measured:
                session.unfit("node.gpu_copy", host, gpu.pci, f"{gpu.description()}: {hidden}")


def _measure_network(session: Session, specification: Specification, offer: OfferedHosts) -> None:
    if offer.launcher is None or len(offer.hosts) < 2:
        reason = offer.no_launcher or "one host alone has no network to measure"
        session.waive("network.all_to_all", offer.hosts[0], reason)
        return
    params = dict(specification.parameters.get("network.all_to_all", {}))
    measure_network(session, NetworkRequest(offer.launcher, offer.site, [], offer.hosts, params=params))
