"""Measures what a specification asks for, and no more.

A criterion names a metric; its measurement runs with the parameters that the specification gives
(``[parameters."node.udp_receive"]``), on every offered host. Measurements that need more than the host
itself are repeated for each of its devices: a UDP reception for each interface, from a peer; an RDMA
transfer from each port. What cannot be measured is waived with the reason, and then never passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from assay.judge import Specification
from assay.judge.criteria import Share
from assay.launch.engines import describe, probe
from assay.launch.hosts import fold
from assay.launch.launchers import Launcher
from assay.launch.placement import REMOTE, Site
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.node import measure_node
from assay.measure.rdma import Endpoint, Pair, measure_rdma, plan_ports, ports_of, why_no_pair
from assay.measure.session import Session
from assay.measure.udp import UdpEndpoint, measure_udp
from assay.measure.workload import load_workload
from assay.records.schema import AnyRecord, Context, Scalar

SETTINGS = "node.settings"  # what a host is: part of every acceptance
TEN_GBIT = 10e9 / 8  # B/s


@dataclass(frozen=True)
class Offer:
    """The hosts that are offered for acceptance, and the peer that tests them."""

    site: Site
    hosts: list[str]
    launcher: Launcher | None  # for what several hosts do together
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


def comply(session: Session, specification: Specification, offer: Offer) -> None:
    """Measures what the specification asks of the offered hosts, one measurement after the other."""
    for name in needed(specification):
        session.carry_on()
        if session.ended_early:
            return
        params = dict(specification.parameters.get(name, {}))
        if offer.realtime and "realtime" in _parameters_of(name):
            params["realtime"] = True
        if name == "node.udp_receive":
            _receive(session, specification, offer, params)
        elif name == "node.rdma":
            _rdma(session, offer, params)
        elif name == "node.memory_paced":
            workload = str(params.get("workload", "cobalt2"))
            _each_host(session, name, offer, {**params, "workload": load_workload(workload)})
        elif name.startswith("node."):
            _each_host(session, name, offer, params)
    session.carry_on()
    if any(name.startswith("network.") for name in needed(specification)):
        _network(session, specification, offer)


def _parameters_of(measurement: str) -> set[str]:
    return {parameter.name for parameter in describe(probe()).find(measurement).parameters}


def _each_host(session: Session, name: str, offer: Offer, params: dict[str, Scalar]) -> None:
    session.err.print(f"{name} on {fold(offer.hosts)}")
    measure_node(session, name, offer.site, offer.hosts, offer.launcher, params)


def _receive(session: Session, specification: Specification, offer: Offer, params: dict[str, Scalar]) -> None:
    """Each interface of each offered host receives from the peer; one after the other."""
    name = "node.udp_receive"
    params |= specification.parameters.get("node.udp_send", {})
    todo: list[tuple[str, str]] = []
    for host in offer.hosts:
        interfaces = offer.interfaces or fast_interfaces(session.run.records, host)
        if not offer.peer:
            session.waive(name, host, "no system to send from was named: give --peer HOST")
        elif not interfaces:
            session.waive(name, host, "no interface of 10 Gbit/s is up: name others with --interfaces")
        else:
            todo += [(host, interface) for interface in interfaces]
    for host, interface in todo:
        session.err.print(f"{host} {interface} receives UDP from {offer.peer}")
        more = (host, interface) != todo[-1]
        receiver, sender = UdpEndpoint(offer.site, host), UdpEndpoint(offer.peer_site, offer.peer)
        measure_udp(session, receiver, sender, interface, params, more=more)


def fast_interfaces(records: Iterable[AnyRecord], host: str) -> list[str]:
    """Adapters of a host that are up and run at 10 Gbit/s at least, by the facts of the run."""
    return [
        record.subject.device
        for record in records
        if isinstance(record, Context)
        and record.subject.host == host
        and record.subject.device
        and record.facts.get("interface.state") == "up"
        and record.facts.get("interface.kind") == "physical"
        and float(record.facts.get("interface.speed", 0)) >= TEN_GBIT
    ]


def _rdma(session: Session, offer: Offer, params: dict[str, Scalar]) -> None:
    """Each port of each offered host sends to another card of the same host."""
    name = "node.rdma"
    todo: list[tuple[str, Pair]] = []
    for host in offer.hosts:
        ports = ports_of(session.run.records, host)
        pairs = plan_ports(ports)
        alone = {port.device for port in ports if port.active} - {pair.sender for pair in pairs}
        if not pairs:
            session.waive(name, host, why_no_pair(ports))
        for device in sorted(alone):
            session.err.print(f"{host} {device} has no other active port to send to: left out")
        todo += [(host, pair) for pair in pairs]
    for host, pair in todo:
        session.err.print(f"{host}: {pair.sender} sends to {pair.receiver}")
        sender, receiver = Endpoint(offer.site, host, pair.sender), Endpoint(offer.site, host, pair.receiver)
        measure_rdma(session, sender, receiver, params, more=(host, pair) != todo[-1])


def _network(session: Session, specification: Specification, offer: Offer) -> None:
    if offer.launcher is None or len(offer.hosts) < 2:
        reason = offer.no_launcher or "one host alone has no network to measure"
        session.waive("network.all_to_all", offer.hosts[0], reason)
        return
    params = dict(specification.parameters.get("network.all_to_all", {}))
    measure_network(session, NetworkRequest(offer.launcher, offer.site, [], offer.hosts, params=params))
