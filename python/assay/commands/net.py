"""``assay net``: the Network Sanitizer: bandwidth and latency of all pairs of hosts, and which host, side, pair or
adapter is slow."""

from __future__ import annotations

import argparse
import os

from assay.commands.fabric.source import (
    add_rail,
    add_routes,
    is_named,
    options_of_source,
    rail_of,
    read_source,
)
from assay.commands.options import (
    add_alias,
    add_option,
    add_output,
    check_timeout,
    count,
    site_and_hosts,
)
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.explain import Evidence
from assay.explain.links import blame
from assay.fabric import Routes, schedules
from assay.launch.direct import Direct
from assay.launch.engines import describe, probe
from assay.launch.hosts import fold, host_list, refuse_shared
from assay.launch.launchers import Launcher, launcher_on
from assay.launch.placement import HERE, Site
from assay.launch.reach import check_hosts
from assay.measure.adapters import parse_adapters
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.session import Session
from assay.records.foreign import require_plain
from assay.records.schema import Finding, Scalar
from assay.records.units import format_quantity
from assay.report.sweep import netsan_table, sweep_rows
from assay.report.terminal import show_findings

MPI = "mpi"  # the transport of a run under a launcher
OPERATIONS = ("send", "put", "get")
SIZES = [2**k for k in range(23)]  # 1 B to 4 MiB


class Net:
    """Qualify a network: which node, side, pair or adapter is slow. All hosts against all in rounds of pairs, or
    clients against servers. Without hosts: ranks on this machine."""

    name = "net"
    examples = [
        Example("assay net --budget 5s", "the cores of this machine", needs="an MPI"),
        Example("assay net --transport tcp --size 1MiB --budget 4s", "the same without MPI"),
        Example('assay net --servers "server[2-3]" --clients "client[1-48]"', needs="a cluster"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        hosts = parser.add_argument_group("hosts (lists as ClusterShell reads them: client[1-3,10])")
        add_option(hosts, "-w --hosts", "all to all")
        hosts.add_argument("--servers", metavar="LIST", help="servers, for clients against servers")
        hosts.add_argument("--clients", metavar="LIST", help="clients; without --servers as --hosts")
        add_option(hosts, "-n --ranks", "on this machine, without hosts")
        add_option(hosts, "--lab")
        add_option(hosts, "--launcher")
        add_option(hosts, "--transport")
        measurement = parser.add_argument_group("measurement")
        add_option(measurement, "--sizes", "messages; default: 1 B to 4 MiB, powers of two")
        add_option(measurement, "--op", "send, put, get; default: all with --servers, else send")
        add_option(measurement, "--budget", "with the retest; default: 60s")
        add_option(measurement, "--repeats", "messages per peer and size, instead of --budget")
        add_output(parser)
        self._add_advanced(parser)

    def _add_advanced(self, parser: Parser) -> None:
        advanced = parser.advanced
        add_option(advanced, "--hosts-file")
        advanced.add_argument("--servers-file", metavar="FILE", help="file of servers, likewise")
        advanced.add_argument("--clients-file", metavar="FILE", help="file of clients, likewise")
        advanced.add_argument(
            "--servers-hcas",
            metavar="HCA1[:HCA2]",
            help="adapters of the servers; each is measured by a rank of its own",
        )
        add_option(advanced, "--size", "this message size alone")
        advanced.add_argument(
            "--nflight", type=count, default=1, metavar="N", help="messages in flight (default: 1)"
        )
        add_option(advanced, "--schedule", "default: shift")
        add_option(advanced, "--schedule-file", "such as schedule.txt of 'assay fabric schedule'")
        advanced.add_argument(
            "--rounds",
            type=count,
            metavar="N",
            help="a sample of N rounds of the schedule (default: all that fit the budget)",
        )
        add_routes(advanced)
        add_rail(advanced)
        add_option(advanced, "--confidence", "default: 5%", default=0.05)
        add_option(advanced, "--timeout", "a message; default: 30s", default=30.0)
        advanced.add_argument("--no-retest", action="store_true", help="do not measure suspects again")
        advanced.add_argument(
            "--compat-netsan", action="store_true", help="print the Network Sanitizer's table"
        )
        # The Network Sanitizer's own spellings: run_netsan.sh takes its scripts as they are.
        add_alias(parser, "--bsize", "--size")
        add_alias(parser, "--niters", "--repeats")

    def run(self, args: argparse.Namespace) -> int:
        return run_request(args, build_request(args))


def run_request(
    args: argparse.Namespace, request: NetworkRequest, built_in: tuple[str, ...] = ("net",)
) -> int:
    """Measures and judges a checked request. Returns the exit code. ``built_in``: names of built-in specifications to
    judge by; none for a simulated cluster, whose rates are given."""
    specs = specifications(args, *built_in)
    routes = _read_routes(args, request)
    check_hosts(request.site, [*request.servers, *request.clients], request.launcher.name)
    options = {
        "servers": request.servers,
        "clients": request.clients,
        "servers_hcas": request.adapters,
        **request.params,
        **options_of_source(args),
        **({"rail": rail_of(args)} if routes is not None and rail_of(args) else {}),
    }
    hosts = [host for segment in request.segments() for host in segment.hosts]
    session = open_session("net", args, hosts, options)
    session.quiet = args.compat_netsan
    session.err.print(_describe_request(request))
    with session.interruptible():
        measure_network(session, request)
    if routes is not None:
        _add_slow_links(session, routes)
    status = session.conclude(specs)
    if args.compat_netsan and not args.json:
        records = session.run.records
        show_findings(session.err, [r for r in records if isinstance(r, Finding)])
        rows = sweep_rows(records)
        print(netsan_table(rows, request.servers, len(request.adapters), request.clients))
    return status


def _read_routes(args: argparse.Namespace, request: NetworkRequest) -> Routes | None:
    """The routes of the fabric that the options name. Raises UserError, also for a host that the fabric lacks."""
    if not is_named(args):
        return None
    if request.servers:
        raise UserError(
            "a fabric is analysed with all to all only", "leave out --servers, or use 'assay fabric blame'"
        )
    routes = read_source(args)
    for client in request.clients:
        routes.fabric.find_rails(client, rail_of(args))
    return routes


def _add_slow_links(session: Session, routes: Routes) -> None:
    """Adds a finding for each slow link."""
    run = session.run
    result = blame(Evidence(run.records, run.info.hosts, run.info.options), routes)
    for finding in result.findings if result else []:
        run.append(finding)
    lines = result.lines() if result else ["no bandwidth between pairs of hosts, so no link is judged"]
    session.err.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _describe_request(request: NetworkRequest) -> str:
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

    ``simulated``: the launcher of a simulation; its platform holds the hosts.
    """
    servers = host_list(args.servers, args.servers_file, "--servers")
    clients = _clients(args, bool(servers))
    site, clients = (HERE, clients) if simulated else site_and_hosts(args, clients, servers)
    refuse_shared(servers, clients)
    if servers and not clients:
        raise UserError("servers but no clients", "name them: --clients 'client[1-8]'")
    if len(servers) + len(clients) < 2:
        raise UserError("one host alone has no network to measure", "name at least two hosts")
    adapters = parse_adapters(args.servers_hcas) if args.servers_hcas is not None else []
    if adapters and not servers:
        raise UserError("--servers-hcas without --servers", "name the servers that have these adapters")
    request = NetworkRequest(
        launcher=simulated or _launcher(args, site),
        site=site,
        servers=servers,
        clients=clients,
        adapters=adapters,
        params=_engine_params(args, servers, clients),
        timeout=args.timeout,
        retest=not args.no_retest,
    )
    check_timeout(args.timeout)
    numbers = {**request.params, "timeout": request.timeout}
    describe(probe()).find(request.measurement).check_bounds(numbers)
    return request


def _launcher(args: argparse.Namespace, site: Site) -> Launcher:
    transport = args.transport or MPI
    if transport == MPI:
        return launcher_on(args.launcher, site)
    if args.launcher:
        raise UserError(
            f"--launcher with --transport {transport}",
            "leave --launcher out: Assay starts these ranks itself",
        )
    if args.servers_hcas is not None:
        raise UserError(f"--servers-hcas with --transport {transport}", "adapters are chosen under MPI only")
    return Direct(transport)


def _clients(args: argparse.Namespace, have_servers: bool) -> list[str]:
    """The hosts of --clients, or all hosts of an all-to-all."""
    clients = host_list(args.clients, args.clients_file, "--clients")
    hosts = host_list(args.hosts, args.hosts_file, "--hosts")
    if hosts and (clients or have_servers):
        raise UserError(
            "--hosts is for all to all", "name the clients with --clients, the servers with --servers"
        )
    return clients or hosts


def _engine_params(args: argparse.Namespace, servers: list[str], clients: list[str]) -> dict[str, Scalar]:
    if args.size is not None and args.sizes is not None:
        raise UserError("--size and --sizes are both given", "give one of them")
    if args.json and args.compat_netsan:
        raise UserError("--json and --compat-netsan are both given", "give one of them")
    if args.repeats is not None and args.budget is not None:
        raise UserError(
            "--repeats and --budget contradict each other", "give a number of messages, or a time"
        )
    if servers and (args.schedule or args.schedule_file or args.rounds):
        raise UserError("--schedule and --rounds are for all to all", "leave them out with --servers")
    if args.schedule and args.schedule_file:
        raise UserError("--schedule and --schedule-file are both given", "give one of them")
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
    if args.repeats is not None:
        params["repeats"] = args.repeats
        params["budget"] = 0
    else:
        params["budget"] = 60.0 if args.budget is None else args.budget
    if not servers:
        params |= _schedule_params(args, len(clients))
        params["rounds"] = args.rounds or 0
    return params


def _schedule_params(args: argparse.Namespace, ranks: int) -> dict[str, Scalar]:
    """The schedule of all to all. Raises UserError with file and line."""
    if args.schedule_file is None:
        return {"schedule": args.schedule or "shift"}
    schedules.read(args.schedule_file, ranks)  # reports mistakes of the file before anything is started
    require_plain(args.schedule_file, schedules.FILE)
    return {"schedule": "file", "schedule_file": str(args.schedule_file.resolve())}


def _sizes(args: argparse.Namespace) -> list[int]:
    sizes: list[int] = [args.size] if args.size is not None else args.sizes or SIZES
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if max(sizes) * 2 > free:
        raise UserError(
            f"messages of {format_quantity(max(sizes), 'B')} do not fit this machine's free memory "
            f"({format_quantity(free, 'B')})",
            "give smaller sizes",
        )
    return sizes


def _operations(args: argparse.Namespace, client_server: bool) -> list[str]:
    if args.op is None:
        return list(OPERATIONS) if client_server else ["send"]
    chosen: list[str] = [operation.strip() for operation in args.op.split(",")]
    for operation in chosen:
        if operation not in OPERATIONS:
            raise UserError(
                f"--op {args.op!r}: no operation '{operation}'", "choose one of " + ", ".join(OPERATIONS)
            )
    return list(dict.fromkeys(chosen))
