"""``assay check``: the main job."""

from __future__ import annotations

import argparse
import socket

from assay.commands.options import add_lab, add_output, open_run, place, quantity, specifications
from assay.errors import UserError
from assay.launch.engines import probe
from assay.launch.hosts import host_list
from assay.launch.launchers import LAUNCHERS, Launcher, default_launcher, find_launcher
from assay.launch.placement import Site
from assay.launch.reach import check_hosts
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.node import measure_node
from assay.measure.session import Session
from assay.records.schema import Scalar

NODE = ["node.memory", "node.noise"]
SIZES = [2**k for k in range(0, 23, 2)]  # every second one of the sweep: a check takes a minute


class Check:
    """Qualify this machine, or hosts: memory, noise, network; judged against limits derived from the machine
    itself, or against a specification of yours."""

    name = "check"
    examples = """
  assay check                       this machine
  assay check -w "node[1-48]"       a cluster
  assay check --spec site.toml      by your own limits, besides the machine's own
  assay check --lab                 the virtual cluster of this machine
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--hosts", "-w", metavar="LIST", help="hosts, such as node[1-48]")
        add_lab(parser)
        parser.add_argument("--launcher", choices=[x.name for x in LAUNCHERS if x.flavour])
        parser.add_argument(
            "--budget",
            type=quantity("s"),
            default=20.0,
            metavar="TIME",
            help="for the network (default: 20s)",
        )
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        site, hosts = place(args, host_list(args.hosts, None, "--hosts"))
        wanted = specifications(args, "net" if site.lab else "self")
        launcher, no_mpi = _launcher(args)
        if launcher is None and site.name == "ssh":
            raise UserError(no_mpi)
        check_hosts(site, hosts)
        run = open_run("check", args)
        run.info.hosts = hosts
        run.save()
        session = Session(run, verbose=args.verbose, quiet=args.json)
        try:
            probe()
        except UserError as error:  # a machine without a compiler: all is waived, with the reason
            session.give_up(error)
        else:
            _measure(session, args, site, hosts, launcher, no_mpi)
        status = session.conclude(wanted)
        if args.json:
            session.print_json()
        return status


def _measure(
    session: Session,
    args: argparse.Namespace,
    site: Site,
    hosts: list[str],
    launcher: Launcher | None,
    no_mpi: str,
) -> None:
    if site.lab:  # its hosts are this machine: their memory is measured by a check without --lab
        session.err.print(f"checking {len(hosts)} lab hosts: network")
    else:
        where = "this machine" if site.name == "here" else f"{len(hosts)} hosts"
        session.err.print(f"checking {where}: memory, noise, network")
        for name in NODE:
            measure_node(session, name, site, hosts, launcher, {})
    if launcher is None or len(hosts) < 2:
        reason = no_mpi or "one host alone has no network to measure"
        session.waive("network.all_to_all", socket.gethostname(), reason)
        return
    params: dict[str, Scalar] = {
        "sizes": ",".join(map(str, SIZES)),
        "op": "send,put,get" if site.name == "here" else "send",
        "budget": args.budget,
        "schedule": "shift",
    }
    measure_network(session, NetworkRequest(launcher, site, [], hosts, params=params))


def _launcher(args: argparse.Namespace) -> tuple[Launcher | None, str]:
    """The launcher, or the reason why there is none."""
    if args.launcher:
        return find_launcher(args.launcher), ""
    try:
        return default_launcher(), ""
    except UserError as error:
        return None, str(error)
