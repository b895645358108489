"""``assay udp``: COBALT's eth-test, receive and send."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping

from assay.commands.options import add_lab, add_output, open_run, specifications
from assay.commands.run import read_parameters
from assay.errors import UserError
from assay.lab import Lab
from assay.launch.engines import describe, probe
from assay.launch.launchers import Local
from assay.launch.placement import HERE, REMOTE, Segment, Site, lab_site
from assay.launch.reach import check_hosts
from assay.measure.session import Session
from assay.measure.udp import RECEIVE, SEND, End, in_base_units, measure_udp
from assay.records.schema import Scalar

NAMES = {"receive": RECEIVE, "send": SEND}
LISTS = {
    "receive": "--port, --size, --sockets, --threads, --buffer, --wait, --no-verify, --fragments, --realtime",
    "send": "--port, --size, --streams, --rate, --seconds, --threads, --wait, --no-gso, --fragments, --realtime",
}


class Udp:
    """UDP reception on one interface: speed, loss, and where it happened. First 'receive' on the tested machine,
    then 'send' on another, both with the name or address of the interface to test. By default 12 streams of 750
    Mbit/s, 8900-byte messages, 20 s, as COBALT's eth-test; needs jumbo frames."""

    name = "udp"
    examples = """
  assay udp receive -H 10.1.0.7                on the tested machine
  assay udp send    -H 10.1.0.7                then on the other
  assay udp receive -H 10.1.0.7 --from node2   both sides at once, the sender through ssh
  assay udp send    -H 10.1.0.7 --streams 4 --rate "2.4 Gbit/s" --seconds 60
  assay udp receive -H h1 --from h0 --lab --size 1472 --rate "5 Mbit/s"
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        sides = parser.add_subparsers(title="which side", dest="side", metavar="SIDE", required=True)
        for side, summary in (("receive", "Receive, on the tested machine."), ("send", "Send to it.")):
            one = sides.add_parser(
                side,
                help=summary[0].lower() + summary[1:].rstrip("."),
                description=f"{summary} Other options are the measurement's, see 'assay list {NAMES[side]}': "
                f"{LISTS[side]}.",
                epilog=f"examples:{self.examples}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            )
            one.add_argument(
                "-H", "--host", required=True, metavar="HOST", help="name or address of the tested interface"
            )
            if side == "receive":
                one.add_argument(
                    "--from", dest="sender", metavar="HOST", help="start the sender too, on that host"
                )
                add_lab(one)
            add_output(one)
            one.set_defaults(takes_others=True, resume=None)

    def run(self, args: argparse.Namespace) -> int:
        both = getattr(args, "sender", None) is not None
        params = _read(args, both)
        site, here = _place(args)
        wanted = specifications(args, *(["udp"] if args.side == "receive" else []))
        run = open_run("udp", args)
        run.info.hosts = [here]
        run.info.options = {"side": args.side, "host": args.host, **params}
        run.save()
        session = Session(run, verbose=args.verbose, quiet=args.json)
        if both:
            sender = End(site if site.lab else REMOTE, args.sender)
            measure_udp(session, End(site, here), sender, args.host, params)
        else:
            session.err.print(_next_step(args))
            own = {**params, "host": args.host}
            session.measure(NAMES[args.side], Local(), site, [Segment([here])], own, flavour="")
        status = session.conclude(wanted)
        if args.json:
            session.print_json()
        return status


def _read(args: argparse.Namespace, both: bool) -> dict[str, Scalar]:
    """The engine's parameters among the options, checked; those of either side where both are started."""
    sides = [describe(probe()).find(NAMES[side]) for side in (NAMES if both else [args.side])]
    kinds: Mapping[str, str] = {p.name: p.kind for one in sides for p in one.parameters if p.name != "host"}
    given = read_parameters(sides[0].name, dict(kinds), args.others)
    params: dict[str, Scalar] = {}
    for one in sides:
        names = {p.name for p in one.parameters}
        params |= in_base_units(one, {key: value for key, value in given.items() if key in names})
    return params


def _place(args: argparse.Namespace) -> tuple[Site, str]:
    """Where this side runs, and the name of that host."""
    lab_name = getattr(args, "lab", None)
    sender = getattr(args, "sender", None)
    if lab_name is None:
        if sender:
            check_hosts(REMOTE, [sender])
        return HERE, socket.gethostname()
    lab = Lab.load(lab_name or None)
    if sender is None:
        raise UserError("--lab without --from", "say which host of the lab sends: --from h0")
    site = lab_site(lab)
    receiver = next((host for host in lab.hosts if lab.address(host) == args.host), args.host)
    check_hosts(site, [receiver, sender])
    return site, receiver


def _next_step(args: argparse.Namespace) -> str:
    if args.side == "send":
        return f"sending to {args.host}"
    return f"receiving; now on the sending machine: assay udp send -H {args.host}"
