"""``assay net``: the Network Sanitizer."""

from __future__ import annotations

import argparse
import math
import os

from assay.commands.options import add_lab, add_output, count, open_run, place, quantity, specifications
from assay.errors import UserError
from assay.launch.engines import describe, probe
from assay.launch.hosts import fold, host_list, refuse_shared
from assay.launch.launchers import LAUNCHERS, Launcher, launcher_on
from assay.launch.placement import HERE
from assay.launch.reach import check_hosts
from assay.measure.adapters import parse_adapters
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.session import Session
from assay.records.schema import Scalar
from assay.records.units import parse_size
from assay.report.sweep import netsan_table, sweep_rows

SCHEDULES = ("shift", "circle", "xor", "random")
OPERATIONS = ("send", "put", "get")
SIZES = [2**k for k in range(23)]  # 1 B to 4 MiB


class Net:
    """Qualify a network: which node, side, pair or adapter is slow. Clients against servers, or, with no
    --servers, all against all in rounds of pairs. With no hosts at all, ranks on this machine."""

    name = "net"
    examples = """
  assay net --clients "client[1-8]"                  all to all
  assay net --servers "server[2-3]" --clients "client[1-48]" --servers-hcas mlx5_0:mlx5_1
  assay lab up && assay net --lab                    the virtual cluster of this machine
  assay net --lab --servers h0 --clients "h[1-7]" --op put,get --budget 30s
  assay net                                          the cores of this machine
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        who = parser.add_argument_group("who takes part (lists as ClusterShell reads them: client[1-3,10])")
        who.add_argument("--servers", metavar="LIST", help="servers; none means all to all")
        who.add_argument("--servers-file", metavar="FILE", help="file of servers, a name or list a line")
        who.add_argument(
            "--servers-hcas",
            metavar="HCA1[:HCA2]",
            help="adapters of the servers; each is measured by a rank of its own",
        )
        who.add_argument("--clients", "-w", metavar="LIST", help="clients, or all hosts of an all to all")
        who.add_argument("--clients-file", metavar="FILE", help="file of clients, a name or list a line")
        who.add_argument("--ranks", type=count, metavar="N", help="without hosts: ranks on this machine")
        add_lab(who)
        who.add_argument("--launcher", choices=[x.name for x in LAUNCHERS if x.flavour])
        how = parser.add_argument_group("how they talk")
        how.add_argument(
            "--niters", type=count, metavar="NUM", help="messages per peer and size (default: adaptive)"
        )
        how.add_argument(
            "--nflight", type=count, default=1, metavar="NUM", help="messages in flight (default: 1)"
        )
        how.add_argument("--bsize", metavar="SIZE", help="one message size only, in bytes or as 64KiB")
        how.add_argument("--sizes", metavar="LIST", help="message sizes (default: 1 to 4MiB, powers of two)")
        how.add_argument(
            "--op", metavar="LIST", help="send, put, get (default: all for client/server, send all to all)"
        )
        how.add_argument("--schedule", choices=SCHEDULES, help="rounds of an all to all (default: shift)")
        how.add_argument(
            "--rounds",
            type=count,
            metavar="K",
            help="a sample of K rounds (default: all that fit the budget)",
        )
        how.add_argument(
            "--budget", type=quantity("s"), metavar="TIME", help="time for the sweep (default: 60s)"
        )
        how.add_argument(
            "--confidence",
            type=quantity("1"),
            default=0.05,
            metavar="SHARE",
            help="stop when the median is known this well (default: 5 %%)",
        )
        how.add_argument(
            "--timeout",
            type=quantity("s"),
            default=30.0,
            metavar="TIME",
            help="longest wait for a message (default: 30s)",
        )
        how.add_argument("--no-retest", action="store_true", help="do not measure suspects again")
        add_output(parser)
        parser.add_argument(
            "--compat-netsan", action="store_true", help="print the table of the original, in its semantics"
        )

    def run(self, args: argparse.Namespace) -> int:
        return conduct(args, build_request(args))


def conduct(args: argparse.Namespace, request: NetworkRequest, built_in: tuple[str, ...] = ("net",)) -> int:
    """From the checked request to the exit code; the same on a cluster and on a simulated one, where
    ``built_in`` is left out: no wire is there to be judged."""
    wanted = specifications(args, *built_in)
    check_hosts(request.site, [*request.servers, *request.clients])
    run = open_run("net", args)
    run.info.hosts = [host for segment in request.segments() for host in segment.hosts]
    run.info.options = {
        "servers": request.servers,
        "clients": request.clients,
        "servers_hcas": request.adapters,
        **request.params,
    }
    run.save()
    session = Session(run, verbose=args.verbose, quiet=args.json or args.compat_netsan)
    session.err.print(_introduce(request))
    measure_network(session, request)
    status = session.conclude(wanted)
    if args.json:
        session.print_json()
    elif args.compat_netsan:
        rows = sweep_rows(run.records)
        print(netsan_table(rows, request.servers, len(request.adapters), request.clients))
    return status


def _introduce(request: NetworkRequest) -> str:
    launcher = request.launcher.name
    if request.servers:
        clients = f"{len(request.clients)} clients ({fold(request.clients)})"
        servers = f"{len(request.servers)} servers ({fold(request.servers)})"
        return f"{clients} against {servers} under {launcher}"
    if request.site.name == "here":
        return f"{len(request.clients)} ranks on this machine, all to all, under {launcher}"
    return f"{len(request.clients)} hosts ({fold(request.clients)}), all to all, under {launcher}"


def build_request(args: argparse.Namespace, simulated: Launcher | None = None) -> NetworkRequest:
    """Checks the options against each other; every refusal happens here, before anything is started.

    ``simulated``: the launcher that knows the hosts by itself, in place of the site's.
    """
    servers = host_list(args.servers, args.servers_file, "--servers")
    clients = host_list(args.clients, args.clients_file, "--clients")
    site, clients = (HERE, clients) if simulated else place(args, clients, servers)
    refuse_shared(servers, clients)
    if servers and not clients:
        raise UserError("servers but no clients", "name them: --clients 'client[1-8]'")
    if len(servers) + len(clients) < 2:
        raise UserError("one host alone has no network to measure", "name at least two hosts")
    adapters = parse_adapters(args.servers_hcas) if args.servers_hcas is not None else []
    if adapters and not servers:
        raise UserError("--servers-hcas without --servers", "name the servers that have these adapters")
    request = NetworkRequest(
        launcher=simulated or launcher_on(args.launcher, site),
        site=site,
        servers=servers,
        clients=clients,
        adapters=adapters,
        params=_params(args, servers, clients),
        timeout=args.timeout,
        retest=not args.no_retest,
    )
    if not args.timeout >= 1:
        raise UserError("--timeout under 1 s", "a busy host can take that long to answer; give at least 1s")
    numbers = {**request.params, "timeout": request.timeout}
    describe(probe()).find(request.measurement).check_bounds(numbers)
    return request


def _params(args: argparse.Namespace, servers: list[str], clients: list[str]) -> dict[str, Scalar]:
    if args.bsize is not None and args.sizes is not None:
        raise UserError("--bsize and --sizes are both given", "give one of them")
    if args.json and args.compat_netsan:
        raise UserError("--json and --compat-netsan are both given", "give one of them")
    if args.budget is not None and not 0 < args.budget < math.inf:
        raise UserError(f"--budget {args.budget:g}: no time to measure in", "give a time, such as 60s")
    if args.niters is not None and args.budget is not None:
        raise UserError("--niters and --budget contradict each other", "give a number of messages, or a time")
    if servers and (args.schedule or args.rounds):
        raise UserError("--schedule and --rounds are for all to all", "leave them out with --servers")
    if args.schedule == "xor" and len(clients) & (len(clients) - 1):
        raise UserError(
            f"--schedule xor needs a power of two of hosts, these are {len(clients)}",
            "use shift, or circle for isolated pairs",
        )
    params: dict[str, Scalar] = {
        "sizes": ",".join(str(size) for size in _sizes(args)),
        "op": ",".join(_operations(args, bool(servers))),
        "nflight": args.nflight,
        "confidence": args.confidence,
    }
    if args.niters is not None:
        params["niters"] = args.niters
        params["budget"] = 0
    else:
        params["budget"] = 60.0 if args.budget is None else args.budget
    if not servers:
        params["schedule"] = args.schedule or "shift"
        params["rounds"] = args.rounds or 0
    return params


def _sizes(args: argparse.Namespace) -> list[int]:
    text = args.bsize if args.bsize is not None else args.sizes
    if text is None:
        return SIZES
    sizes = [parse_size(part) for part in text.split(",")]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if max(sizes) * 2 > free:
        raise UserError(
            f"messages of {max(sizes)} bytes do not fit this machine's free memory ({free >> 20} MiB)",
            "give smaller sizes",
        )
    return sizes


def _operations(args: argparse.Namespace, client_server: bool) -> list[str]:
    if args.op is None:
        return list(OPERATIONS) if client_server else ["send"]
    chosen: list[str] = [word.strip() for word in args.op.split(",")]
    for word in chosen:
        if word not in OPERATIONS:
            raise UserError(f"--op {args.op!r}: no operation '{word}'", "there are: " + ", ".join(OPERATIONS))
    return list(dict.fromkeys(chosen))
