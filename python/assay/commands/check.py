"""``assay check``: measures and judges memory, noise and network of this machine or of a list of hosts."""

from __future__ import annotations

import argparse
import socket
import time

from assay.commands.options import add_option, add_output, chosen_launcher, site_and_hosts
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.launch.direct import Direct
from assay.launch.engines import probe
from assay.launch.hosts import host_list
from assay.launch.launchers import Launcher, has_mpi
from assay.launch.placement import Site
from assay.launch.reach import check_hosts
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.node import measure_node
from assay.measure.session import Session
from assay.records.schema import Scalar

# With --budget: the share of the time that memory may take, and what noise takes of it (its own default at most). The
# network has the rest.
MEMORY_SHARE, NOISE_SHARE = 0.4, 0.1
NOISE_S = (0.1, 1.0)  # the least that the engine takes, and its default
NETWORK_S = 20.0  # without --budget
TCP = "tcp"  # the transport of the network where there is no MPI
LEAST_NETWORK_SHARE = 0.2
SIZES = [
    2**k for k in range(0, 23, 2)
]  # message sizes in B: every second one of 'assay net', so that a check takes a minute


class Check:
    """Qualify this machine or a cluster: memory, noise, network. Figures are judged against limits derived from the
    machine itself, and against your own specification with --spec."""

    name = "check"
    examples = [
        Example("assay check", "this machine"),
        Example('assay check -w "node[1-48]"', "a cluster", needs="a cluster"),
        Example("assay check --spec net --budget 5s", "by another specification too"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        add_option(parser, "-w --hosts", "default: this machine")
        add_option(parser, "--lab")
        add_option(parser, "--launcher")
        add_option(parser, "--budget", "what does not fit is named; default: 20s for the network alone")
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        site, hosts = site_and_hosts(args, host_list(args.hosts, None, "--hosts"))
        launcher, no_mpi_reason = chosen_launcher(args)
        if launcher is None and site.name == "ssh":
            raise UserError(no_mpi_reason)
        # An MPI that cannot be used is a fault to be seen. Where there is none, the network is measured all the same.
        if launcher is None and not has_mpi():
            launcher = Direct(TCP)
        by_mpi = launcher is None or launcher.flavour
        specs = specifications(args, *(["net"] if site.lab else ["self", "self-mpi"] if by_mpi else ["self"]))
        check_hosts(site, hosts)
        session = open_session("check", args, hosts)
        try:
            probe()
        except UserError as error:  # the engines are not built: every measurement is waived, with the reason
            session.give_up(error)
        else:
            with session.interruptible():
                _measure(session, args, site, hosts, launcher, no_mpi_reason)
        return session.conclude(specs)


def _measure(
    session: Session,
    args: argparse.Namespace,
    site: Site,
    hosts: list[str],
    launcher: Launcher | None,
    no_mpi_reason: str,
) -> None:
    started = time.monotonic()
    if site.lab:  # lab hosts share this machine's memory, which a check without --lab measures
        session.err.print(f"checking {len(hosts)} lab hosts: network")
    else:
        where = "this machine" if site.name == "here" else f"{len(hosts)} hosts"
        session.err.print(f"checking {where}: memory, noise, network")
        for name, node_params in _node_measurements(args.budget):
            measure_node(session, name, site, hosts, launcher, node_params)
            session.continue_after_failure()
    if session.interrupted:
        return
    if launcher is None or len(hosts) < 2:
        reason = no_mpi_reason or "one host alone has no network to measure"
        session.waive("network.all_to_all", socket.gethostname(), reason)
        return
    if not launcher.flavour:
        session.err.print("no MPI is on PATH: the network is measured over TCP")
    params: dict[str, Scalar] = {
        "sizes": ",".join(map(str, SIZES)),
        "op": "send,put,get" if site.name == "here" and launcher.flavour else "send",
        "budget": _network_budget(args.budget, time.monotonic() - started),
        "schedule": "shift",
    }
    measure_network(session, NetworkRequest(launcher, site, servers=[], clients=hosts, params=params))


def _node_measurements(budget: float | None) -> list[tuple[str, dict[str, Scalar]]]:
    if budget is None:
        return [("node.memory", {}), ("node.noise", {})]
    least, most = NOISE_S
    noise = min(max(NOISE_SHARE * budget, least), most)
    return [("node.memory", {"limit": MEMORY_SHARE * budget}), ("node.noise", {"budget": noise})]


def _network_budget(budget: float | None, elapsed: float) -> float:
    """What the measurements before it have left of the budget."""
    if budget is None:
        return NETWORK_S
    return max(budget - elapsed, LEAST_NETWORK_SHARE * budget)
