"""``assay udp``: UDP reception, loss and sending, measured as the eth-test of the COBALT correlator does."""

from __future__ import annotations

import argparse
import socket

from assay.commands.options import add_option, add_output
from assay.commands.parser import Example, Parser
from assay.commands.run import read_parameters
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.lab import Lab
from assay.launch.engines import describe, probe
from assay.launch.launchers import Local
from assay.launch.placement import HERE, REMOTE, Segment, Site, lab_site
from assay.launch.reach import check_hosts
from assay.measure.udp import RECEIVE, SEND, UdpEndpoint, in_base_units, measure_udp
from assay.records.schema import Scalar

NAMES = {"receive": RECEIVE, "send": SEND}
LISTS = {
    "receive": "--port, --size, --sockets, --threads, --buffer, --wait, --token, --no-verify, --fragments, "
    "--realtime",
    "send": "--port, --size, --streams, --rate, --budget, --threads, --wait, --token, --no-gso, --fragments, "
    "--realtime",
}


class Udp:
    """UDP reception on one interface: speed, loss, and where it happened. First 'receive' on the tested machine,
    then 'send' on another, both with -w, the name or address of the interface to test. By default 12 streams of 750
    Mbit/s, 8900-byte messages, 20 s, as COBALT's eth-test; needs jumbo frames."""

    name = "udp"
    examples = [
        Example("assay udp receive -w 10.1.0.7", "on the tested machine", "another host"),
        Example("assay udp send -w 10.1.0.7 --budget 60s", "then on the other", "another host"),
        Example("assay udp receive -w 10.1.0.7 --peer node2", "both sides, through ssh", "another host"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        sides = parser.add_subparsers(title="sides", dest="side", metavar="SIDE", required=True)
        for side, summary in (("receive", "Receive, on the tested machine."), ("send", "Send to it.")):
            parsed = sides.add_parser(
                side,
                help=summary[0].lower() + summary[1:].rstrip("."),
                description=f"{summary} Other options are the measurement's, see 'assay list {NAMES[side]}': "
                f"{LISTS[side]}.",
                usage="%(prog)s -w HOST [options]",
                examples=self.examples,
            )
            add_option(parsed, "-w --hosts", "one: name or address of the tested interface", required=True)
            if side == "receive":
                add_option(parsed, "--peer", "the sender, which is started too")
                add_option(parsed, "--lab")
            add_output(parsed)
            parsed.set_defaults(takes_unknown=True, resume=None)

    def run(self, args: argparse.Namespace) -> int:
        starts_both_sides = getattr(args, "peer", None) is not None
        params = _read_params(args, starts_both_sides)
        site, this_host = _site_and_host(args)
        if not starts_both_sides:
            _check_interface(args.hosts, args.side)
        specs = specifications(args, *(["udp"] if args.side == "receive" else []))
        session = open_session("udp", args, [this_host], {"side": args.side, "host": args.hosts, **params})
        with session.interruptible():
            if starts_both_sides:
                sender = UdpEndpoint(site if site.lab else REMOTE, args.peer)
                measure_udp(session, UdpEndpoint(site, this_host), sender, args.hosts, params)
            else:
                session.err.print(_next_step(args))
                params_with_host = {**params, "host": args.hosts}
                session.measure(
                    NAMES[args.side], Local(), site, [Segment([this_host])], params_with_host, flavour=""
                )
        return session.conclude(specs)


def _check_interface(host: str, side: str) -> None:
    """Raises UserError for a text that is no address and no known name; to receive, an interface has a name too."""
    names = [name for _, name in socket.if_nameindex()]
    if side == "receive" and host in names:
        return
    try:
        socket.getaddrinfo(host, None)
    except (socket.gaierror, UnicodeError):
        also = f", or one of {', '.join(names)}" if side == "receive" else ""
        raise UserError(
            f"-w {host}: not an address, and its name does not resolve",
            f"give the address of the interface to test, such as 10.1.0.7{also}",
        ) from None


def _read_params(args: argparse.Namespace, starts_both_sides: bool) -> dict[str, Scalar]:
    """The engine's parameters among the options, checked; those of both sides with ``starts_both_sides``."""
    sides = [describe(probe()).find(NAMES[side]) for side in (NAMES if starts_both_sides else [args.side])]
    parameters = [p for side in sides for p in side.parameters if p.name != "host"]
    values = read_parameters(sides[0].name, parameters, args.unknown)
    params: dict[str, Scalar] = {}
    for described in sides:
        names = {p.name for p in described.parameters}
        params |= in_base_units(described, {key: value for key, value in values.items() if key in names})
    return params


def _site_and_host(args: argparse.Namespace) -> tuple[Site, str]:
    """The site of this side, and the name of its host."""
    lab_name = getattr(args, "lab", None)
    sender = getattr(args, "peer", None)
    if lab_name is None:
        if sender:
            check_hosts(REMOTE, [sender])
        return HERE, socket.gethostname()
    lab = Lab.load(lab_name or None)
    if sender is None:
        raise UserError("--lab without --peer", "say which host of the lab sends: --peer h0")
    site = lab_site(lab)
    receiver = next((host for host in lab.hosts if lab.address(host) == args.hosts), args.hosts)
    check_hosts(site, [receiver, sender])
    return site, receiver


def _next_step(args: argparse.Namespace) -> str:
    if args.side == "send":
        return f"sending to {args.hosts}"
    return f"receiving; now on the sending machine: assay udp send -w {args.hosts}"
