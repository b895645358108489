"""``assay comply``: an offered machine against a specification, with no human reading output."""

from __future__ import annotations

import argparse

from assay.commands.options import add_lab, add_output, open_run, place, read_specification, specifications
from assay.errors import UserError
from assay.launch.hosts import host_list
from assay.launch.launchers import LAUNCHERS, Launcher, default_launcher, find_launcher
from assay.launch.reach import check_hosts
from assay.measure.comply import Offer, comply
from assay.measure.session import Session


class Comply:
    """Measure what a specification asks for, and no more, and judge it: settings, memory, GPUs, UDP, RDMA,
    network. What cannot be measured here is inconclusive, with the reason; it never passes."""

    name = "comply"
    examples = """
  assay comply cobalt2                                    this machine, what can be measured without another
  assay comply cobalt2 --peer sender1                     and UDP from sender1 to each 10GbE port
  assay comply cobalt2 --peer sender1 --interfaces eth2,eth3 --realtime
  assay comply site.toml -w "node[1-8]" --peer sender1
  assay comply lab.toml --lab -w h0 --peer h1 --interfaces eth0
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("specification", metavar="SPEC", help="TOML file, or a built-in name: cobalt2")
        parser.add_argument("--hosts", "-w", metavar="LIST", help="the offered hosts (default: this machine)")
        parser.add_argument("--peer", metavar="HOST", help="the additional system, which sends UDP to them")
        parser.add_argument(
            "--interfaces",
            metavar="NAMES",
            help="interfaces to receive on, with commas (default: adapters of 10 Gbit/s that are up)",
        )
        parser.add_argument("--realtime", action="store_true", help="real-time priority, as chrt -f 1")
        parser.add_argument("--launcher", choices=[x.name for x in LAUNCHERS if x.flavour])
        add_lab(parser)
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        wanted = [read_specification(args.specification), *specifications(args)]
        peers = host_list(args.peer, None, "--peer")
        if len(peers) > 1:
            raise UserError(f"--peer names {len(peers)} hosts", "name the one that sends")
        site, hosts = place(args, host_list(args.hosts, None, "--hosts"), peers if args.lab else [], 1)
        if set(peers) & set(hosts):
            raise UserError(f"--peer {peers[0]} is among the offered hosts", "name another system")
        interfaces = args.interfaces.split(",") if args.interfaces else []
        if not all(interfaces):
            raise UserError(f"--interfaces {args.interfaces!r}: an empty name", "write it like 'eth2,eth3'")
        launcher, no_launcher = _launcher(args)
        peer = peers[0] if peers else ""
        offer = Offer(site, hosts, launcher, no_launcher, peer, interfaces, realtime=args.realtime)
        check_hosts(site, hosts)
        check_hosts(offer.peer_site, peers)
        run = open_run("comply", args)
        run.info.hosts = hosts
        run.info.options = {"specification": args.specification, "peer": args.peer, "interfaces": interfaces}
        run.save()
        session = Session(run, verbose=args.verbose, quiet=args.json)
        for specification in wanted:
            comply(session, specification, offer)
        status = session.conclude(wanted)
        if args.json:
            session.print_json()
        return status


def _launcher(args: argparse.Namespace) -> tuple[Launcher | None, str]:
    if args.launcher:
        return find_launcher(args.launcher), ""
    try:
        return default_launcher(), ""
    except UserError as error:
        return None, str(error)
