"""``assay lab``: makes, shows, changes and ends virtual clusters."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from ClusterShell.NodeSet import NodeSet
from rich.text import Text

from assay.commands.options import add_option, count
from assay.commands.parser import Example, Parser
from assay.commands.sub_verbs import VerbGroup, Verbs
from assay.commands.vm import prepare_vm
from assay.errors import EXIT_PASS, UserError
from assay.lab import Fault, Rates, take_down
from assay.lab import Lab as VirtualCluster
from assay.lab.namespaces import find_processes
from assay.lab.traffic import parse_loss, parse_mtu, parse_rate
from assay.records.units import format_quantity, format_share
from assay.report.console import console
from assay.report.tables import plain_table

_RATE = "such as 100mbit or 1gbit"


def _add_verb(verbs: Verbs, name: str, summary: str, examples: list[Example]) -> Parser:
    parser = verbs.add_parser(
        name,
        help=summary[0].lower() + summary[1:].split(". ")[0].rstrip("."),
        description=summary,
        examples=examples,
    )
    add_option(parser, "--lab", "default: $ASSAY_LAB, else 'lab'")
    return parser


def _prepare_up(verbs: Verbs) -> None:
    parser = _add_verb(
        verbs,
        "up",
        "Make a lab. Hosts are h0, h1, ... in cabinet order, and there is a 'head' to launch from.",
        [
            Example(
                "assay lab up --nodes 8 --cabinets 2 --host-rate 100mbit --cabinet-rate 300mbit", needs="root"
            ),
            Example("assay lab up --nodes 2 --host-rate 1gbit --mtu 9000", needs="root"),
            Example(
                "assay lab up --nodes 4 --slurm && assay lab exec head -- srun -N4 hostname", needs="Slurm"
            ),
        ],
    )
    add_option(parser, "--nodes", "default: 8", default=8)
    parser.add_argument(
        "--cabinets", type=count, default=1, metavar="N", help="number of cabinets (default: 1)"
    )
    parser.add_argument("--host-rate", metavar="RATE", help=f"limit of a host, each direction, {_RATE}")
    parser.add_argument(
        "--up-rate", metavar="RATE", help="limit of what a host sends, instead of --host-rate"
    )
    parser.add_argument(
        "--down-rate", metavar="RATE", help="limit of what it receives, instead of --host-rate"
    )
    parser.add_argument("--duplex-rate", metavar="RATE", help="limit of both directions of a host together")
    parser.add_argument("--cabinet-rate", metavar="RATE", help="limit of a cabinet's uplink, each direction")
    parser.add_argument(
        "--lossless",
        action="store_true",
        help="queues before the limits drop no packet, as on InfiniBand; TCP windows are short",
    )
    parser.add_argument(
        "--adapters",
        type=count,
        default=1,
        metavar="N",
        help="adapters of a host, eth0, eth1, ..., each with these rates (default: 1)",
    )
    parser.add_argument("--mtu", default="1500", metavar="BYTES", help="largest packet (default: 1500)")
    parser.add_argument("--slurm", action="store_true", help="run Slurm on it (needs slurm-wlm and munge)")
    parser.set_defaults(sub_verb=_up)


def _up(args: argparse.Namespace) -> int:
    rates = Rates(
        up=_rate(args.up_rate or args.host_rate),
        down=_rate(args.down_rate or args.host_rate),
        duplex=_rate(args.duplex_rate),
        cabinet=_rate(args.cabinet_rate),
        lossless=args.lossless,
    )
    mtu = parse_mtu(args.mtu)
    lab = VirtualCluster.up(
        args.nodes,
        args.cabinets,
        rates,
        with_slurm=args.slurm,
        name=args.lab or None,
        mtu=mtu,
        adapters=args.adapters,
    )
    option = f" --lab {args.lab}" if args.lab else ""
    print(f"lab '{lab.name}' is up: {_summary(lab)}")
    for purpose, verb in (("look", "status"), ("enter", "exec"), ("end", "down")):
        arguments = " h0 -- bash" if verb == "exec" else ""
        print(f"  {purpose + ':':7}assay lab {verb}{option}{arguments}")
    return EXIT_PASS


def _rate(text: str | None) -> float | None:
    return None if text is None else parse_rate(text)


def _prepare_status(verbs: Verbs) -> None:
    parser = _add_verb(
        verbs,
        "status",
        "Show a lab: hosts, cabinets, addresses, planted rates, faults and what runs there.",
        [
            Example("assay lab status", needs="a lab"),
            Example("assay lab status --lab lopsided", needs="a lab"),
            Example("assay lab status --json", needs="a lab"),
        ],
    )
    add_option(parser, "--json", "rates in B/s, null is unlimited")
    parser.set_defaults(sub_verb=_status)


def _status(args: argparse.Namespace) -> int:
    lab = VirtualCluster.load(args.lab or None)
    running = _processes(lab)
    if args.json:
        print(json.dumps(_status_json(lab, running), indent=2))
        return EXIT_PASS
    table = plain_table("host", "cabinet", "address", "sends", "receives", "fault", numbers=["processes"])
    for host in lab.nodes.values():
        for adapter, fault in enumerate(host.faults):
            table.add_row(
                "" if adapter else host.name,
                "" if adapter else host.cabinet,
                host.address_of(adapter),
                _rate_text(fault.tx or lab.rates.up),
                _rate_text(fault.rx or lab.rates.down),
                _describe_fault(fault) if lab.alive(host.name) else Text("dead", style="bold red"),
                "" if adapter else str(len(running[host.name])),
            )
    print(f"lab '{lab.name}': {_summary(lab)}")
    console().print(table)
    return EXIT_PASS


def _processes(lab: VirtualCluster) -> dict[str, list[int]]:
    """The processes in each host, without the process that keeps the host's namespace open."""
    running: dict[str, list[int]] = {host: [] for host in lab.hosts}
    for pid, (_, node) in find_processes(lab.name).items():
        if node in running and pid != lab.nodes[node].pid:
            running[node].append(pid)
    return running


def _status_json(lab: VirtualCluster, running: dict[str, list[int]]) -> dict[str, object]:
    hosts = [
        {
            "name": host.name,
            "cabinet": host.cabinet,
            "address": host.address,
            "alive": lab.alive(host.name),
            "pid": host.pid,
            "processes": sorted(running[host.name]),
            **_fault_json(lab, host.fault),
            "adapters": [
                {"interface": interface, "address": host.address_of(adapter), **_fault_json(lab, fault)}
                for adapter, (interface, fault) in enumerate(zip(lab.interfaces, host.faults, strict=True))
            ],
        }
        for host in lab.nodes.values()
    ]
    rates = {key: getattr(lab.rates, key) for key in ("up", "down", "duplex", "cabinet", "lossless")}
    return {
        "name": lab.name,
        "head": lab.head,
        "interface": lab.interface,
        "agent": lab.agent,
        "slurm": lab.slurm,
        "mtu": lab.mtu,
        "rates": rates,
        "cabinet_faults": {
            name: {"tx": fault.tx, "rx": fault.rx} for name, fault in lab.cabinet_faults.items()
        },
        "hosts": hosts,
    }


def _fault_json(lab: VirtualCluster, fault: Fault) -> dict[str, object]:
    return {
        "tx": fault.tx or lab.rates.up,
        "rx": fault.rx or lab.rates.down,
        "fault": {key: getattr(fault, key) for key in ("tx", "rx", "down", "tx_loss", "rx_loss", "tx_to")},
    }


def _summary(lab: VirtualCluster) -> str:
    text = f"{_count(len(lab.hosts), 'host')} ({NodeSet.fromlist(lab.hosts)})"
    text += f" in {_count(len(lab.cabinets), 'cabinet')}"
    if len(lab.interfaces) > 1:
        text += f", {len(lab.interfaces)} adapters each"
    if lab.rates.duplex is not None:
        text += f", {_rate_text(lab.rates.duplex)} a host both ways together"
    if lab.rates.cabinet is not None:
        text += f", {_rate_text(lab.rates.cabinet)} a cabinet"
    for cabinet, fault in lab.cabinet_faults.items():
        if fault != Fault():
            text += f", faulty: {cabinet} {_describe_fault(fault)}"
    text += ", lossless" if lab.rates.lossless else ""
    if lab.mtu != 1500:
        text += f", MTU {lab.mtu}"
    return text + (", with Slurm" if lab.slurm else "")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _rate_text(rate: float | None) -> str:
    """A rate in bit/s, as networks are specified."""
    return "unlimited" if rate is None else format_quantity(rate * 8, "B/s").replace("B/s", "bit/s")


def _describe_fault(fault: Fault) -> str:
    parts = [side for side, rate in (("tx", fault.tx), ("rx", fault.rx)) if rate is not None]
    parts += [f"tx to {NodeSet.fromlist(list(fault.tx_to))}"] if fault.tx_to else []
    parts += [
        f"{side} loses {format_share(loss)}"
        for side, loss in (("tx", fault.tx_loss), ("rx", fault.rx_loss))
        if loss is not None
    ]
    return ", ".join([*parts, "down"] if fault.down else parts) or "-"


def _prepare_exec(verbs: Verbs) -> None:
    parser = _add_verb(
        verbs,
        "exec",
        "Run a command inside hosts, in this folder and environment. Of one host the exit code is the command's; "
        "of several, which run at once, the highest. 'head' and 'switch' can be entered too.",
        [
            Example("assay lab exec h0 -- bash", needs="a lab"),
            Example("assay lab exec 'h[0-3]' -- cat /sys/class/net/eth0/statistics/tx_bytes", needs="a lab"),
            Example("assay lab exec switch -- tc -statistics qdisc", needs="a lab"),
        ],
    )
    parser.usage = "%(prog)s [options] HOST -- COMMAND [ARGUMENT ...]"
    parser.add_argument("hosts", metavar="HOST", help="a host or a node set, such as h[0-3]")
    parser.add_argument("argv", metavar="-- CMD ...", nargs=argparse.REMAINDER, help="the command")
    parser.set_defaults(sub_verb=_exec)


def _exec(args: argparse.Namespace) -> int:
    lab = VirtualCluster.load(args.lab or None)
    hosts = lab.select_nodes(args.hosts)
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise UserError("no command given", "say which, as in: assay lab exec h0 -- hostname")
    if len(hosts) == 1:  # this process becomes the command, which has its terminal, signals and exit code
        command = lab.enter(hosts[0], argv)
        sys.stdout.flush()
        os.execv(command[0], command)
    return _exec_many(lab, hosts, argv)


def _exec_many(lab: VirtualCluster, hosts: Sequence[str], argv: Sequence[str]) -> int:
    """Runs the command in all hosts at once. Prints host by host, with the host's name before each line."""
    children = [
        subprocess.Popen(
            lab.enter(host, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for host in hosts
    ]
    try:
        for host, child in zip(hosts, children, strict=True):
            for line in child.communicate()[0].decode(errors="replace").splitlines():
                print(f"{host}: {line}", flush=True)
    finally:
        for child in children:
            child.kill()
            child.wait()
    # A command that a signal ended counts as it does for a shell.
    return max(child.returncode if child.returncode >= 0 else 128 - child.returncode for child in children)


def _prepare_fault(verbs: Verbs) -> None:
    parser = _add_verb(
        verbs,
        "fault",
        "Plant faults in hosts or in the uplinks of cabinets, or clear them. Faults add up until --clear.",
        [
            Example("assay lab fault h3 --tx 50% --to h5", "the path from h3 to h5 alone", "a lab"),
            Example("assay lab fault c1 --rx 50%", "the uplink of a cabinet", "a lab"),
            Example("assay lab fault 'h[0-7]' --clear", needs="a lab"),
        ],
    )
    parser.add_argument("hosts", metavar="HOST", help="a host, a cabinet or a node set, such as h[0-3] or c0")
    parser.add_argument(
        "--tx", metavar="RATE", help="limit what it sends: a share of the planted rate, or a rate"
    )
    parser.add_argument("--to", metavar="HOSTS", help="with --tx: only what it sends to these hosts")
    parser.add_argument("--rx", metavar="RATE", help="limit what it receives, likewise")
    parser.add_argument("--tx-loss", metavar="SHARE", help="lose this share of the packets that it sends")
    parser.add_argument("--rx-loss", metavar="SHARE", help="lose this share of the packets that it receives")
    parser.add_argument("--down", action="store_true", help="take the link down")
    parser.add_argument(
        "--adapter", default="", metavar="NAME", help="of that one alone, as eth1 (default: all)"
    )
    parser.add_argument("--clear", action="store_true", help="remove all faults")
    parser.set_defaults(sub_verb=_fault)


def _fault(args: argparse.Namespace) -> int:
    lab = VirtualCluster.load(args.lab or None)
    names = lab.select_faulty(args.hosts)
    if args.to and not args.tx:
        raise UserError("--to has no rate", "give --tx too, as in: --tx 50% --to h5")
    faults = [option for option in ("tx", "rx", "tx_loss", "rx_loss", "down") if getattr(args, option)]
    if bool(faults) == args.clear:
        raise UserError("a fault and --clear exclude each other" if faults else "no fault given",
                        "give --tx, --rx, --tx-loss, --rx-loss or --down, or --clear alone")  # fmt: skip
    of_cabinet = any(name in lab.cabinets for name in names)
    if of_cabinet and not set(names) <= set(lab.cabinets):
        raise UserError(f"'{args.hosts}' has hosts and cabinets", "give them one after the other")
    if of_cabinet and args.to:
        raise UserError("--to is for hosts: a cabinet's uplink is slow to all others", "leave --to out")
    peers = lab.select(args.to) if args.to else []
    if own := sorted(set(peers) & set(names)):
        raise UserError(f"{own[0]} sends nothing to itself", "give --to other hosts")
    tx = lab.fault_rate(args.tx, "tx", of_cabinet) if args.tx else None
    fault = Fault(
        tx=None if args.to else tx,
        tx_to={peer: tx for peer in peers} if tx else {},
        rx=lab.fault_rate(args.rx, "rx", of_cabinet) if args.rx else None,
        down=args.down,
        tx_loss=parse_loss(args.tx_loss) if args.tx_loss else None,
        rx_loss=parse_loss(args.rx_loss) if args.rx_loss else None,
    )
    lab.fault(names, None if args.clear else fault, args.adapter)
    return EXIT_PASS


def _prepare_down(verbs: Verbs) -> None:
    parser = _add_verb(
        verbs,
        "down",
        "End a lab and whatever runs in it, also what a crash left of one. Nothing stays behind.",
        [
            Example("assay lab down", needs="a lab"),
            Example("assay lab down --lab lopsided", needs="a lab"),
            Example("ASSAY_LAB=lopsided assay lab down", needs="a lab"),
        ],
    )
    parser.set_defaults(sub_verb=_down)


def _down(args: argparse.Namespace) -> int:
    name, ended = take_down(args.lab or None)
    print(f"lab '{name}' is down" if ended else f"no lab '{name}' was up: nothing to do")
    return EXIT_PASS


class Lab(VerbGroup):
    """Make a virtual cluster on this machine to try things on. Its hosts are network namespaces behind a switch with
    the rates that you plant; they run this machine's programs, and 'assay net --lab' measures them. 'assay lab vm'
    boots a guest with NUMA nodes, RDMA devices and persistent memory. Needs root."""

    name = "lab"
    notes = "'assay lab up --help' and so on tell more."
    examples = [
        Example("assay lab up --nodes 8 --cabinets 2 --host-rate 100mbit", needs="root"),
        Example("assay lab fault h3 --tx 50%", "h3 sends at half its rate", "a lab"),
        Example("assay lab down", needs="a lab"),
    ]
    sub_verbs = (_prepare_up, _prepare_status, _prepare_exec, _prepare_fault, _prepare_down, prepare_vm)
