"""``assay comply``: measures what a specification requires of an offered machine, and judges it."""

from __future__ import annotations

import argparse

from assay.commands.options import add_option, add_output, chosen_launcher, site_and_hosts
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import read_specification, specifications
from assay.errors import UserError
from assay.launch.hosts import host_list
from assay.launch.reach import check_hosts
from assay.measure.comply import OfferedHosts, comply


class Comply:
    """Measure what a specification asks for, and judge it. Settings, memory, GPUs, UDP, RDMA and network are
    measured as far as the criteria need them. What cannot be measured here is inconclusive, with the reason; it
    never passes."""

    name = "comply"
    examples = [
        Example("assay comply cobalt2", "what can be measured on this machine alone", needs="minutes"),
        Example("assay comply cobalt2 --peer sender1", "and UDP from sender1", needs="another host"),
        Example('assay comply site.toml -w "node[1-8]" --peer sender1', needs="a cluster"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument("specification", metavar="SPEC", help="TOML file, or a built-in name: cobalt2")
        add_option(parser, "-w --hosts", "the offered ones; default: this machine")
        add_option(parser, "--peer", "which sends UDP to them")
        parser.add_argument(
            "--interfaces",
            metavar="NAMES",
            help="interfaces to receive on, comma-separated (default: adapters of 10 Gbit/s that are up)",
        )
        add_option(parser, "--realtime")
        add_option(parser, "--launcher")
        add_option(parser, "--lab")
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        specs = [read_specification(args.specification), *specifications(args)]
        peers = host_list(args.peer, None, "--peer")
        if len(peers) > 1:
            raise UserError(f"--peer names {len(peers)} hosts", "name the one that sends")
        site, hosts = site_and_hosts(
            args, host_list(args.hosts, None, "--hosts"), peers if args.lab else [], 1
        )
        if set(peers) & set(hosts):
            raise UserError(f"--peer {peers[0]} is among the offered hosts", "name another system")
        interfaces = args.interfaces.split(",") if args.interfaces else []
        if not all(interfaces):
            raise UserError(f"--interfaces {args.interfaces!r}: an empty name", "write it like 'eth2,eth3'")
        launcher, no_launcher = chosen_launcher(args)
        peer = peers[0] if peers else ""
        offer = OfferedHosts(site, hosts, launcher, no_launcher, peer, interfaces, realtime=args.realtime)
        check_hosts(site, hosts)
        check_hosts(offer.peer_site, peers)
        session = open_session(
            "comply",
            args,
            hosts,
            {"specification": args.specification, "peer": args.peer, "interfaces": interfaces},
        )
        with session.interruptible():
            comply(session, specs, offer)
        return session.conclude(specs)
