"""The options of ``assay eb`` and ``assay eb tune``: where the ranks of the event builder run, how their bytes move,
and the engine's parameters."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from assay.commands.options import (
    add_alias,
    add_option,
    argument_type,
    check_timeout,
    count,
    duration,
    site_and_hosts,
)
from assay.commands.parser import Parser
from assay.errors import UserError
from assay.events.figures import BUILD
from assay.fabric import schedules
from assay.fabric.remedies import planner
from assay.launch.direct import OFI, TRANSPORTS, Direct, check_transport
from assay.launch.engines import check_settings, describe, probe
from assay.launch.hosts import host_list
from assay.launch.launchers import Launcher, launcher_on
from assay.launch.placement import HERE, Site
from assay.launch.threads import Threads
from assay.measure.engine_processes import option_arguments
from assay.measure.events import (
    EventRequest,
    check_memory,
    check_ranks,
    network_credits,
    network_in_flight,
    per_rank,
)
from assay.records.foreign import Wanted, require_plain
from assay.records.schema import Scalar
from assay.records.units import parse_in

MPI, NULL = "mpi", "null"
OVER_SHM = f"{OFI}:shm"  # its job ends with a lost rank
# Options that are parameters of the engine under the same name.
SIZES = Wanted("a file of sizes", "write SOURCES KIND NUMBERS a line, such as 0-7 fixed 64KiB")
PARAMETERS = (
    "protocol",
    "in_flight",
    "credits",
    "parallel",
    "synchronised",
    "events",
    "units",
    "filters",
    "filter_rate",
    "policy",
    "slice",
    "seed",
    "no_verify",
)


def _parse_rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = parse_in(text, "B/s")
    if not 0 <= rate < float("inf"):
        raise UserError(f"'{text}' is not a rate")
    return rate


rate = argument_type(_parse_rate, "give a rate, such as 1.25GB/s or 10Gbit/s")


def add_host_options(parser: Parser) -> None:
    """Adds the options that say where ranks run, and which transport they use."""
    hosts = parser.add_argument_group("hosts")
    add_option(hosts, "-w --hosts")
    add_option(hosts, "-n --ranks", "on this machine, without hosts")
    add_option(hosts, "--lab")
    add_option(hosts, "--transport", "or null: threads")
    add_option(hosts, "--launcher")
    add_option(parser.advanced, "--hosts-file")


def add_builder_options(parser: Parser) -> None:
    """Adds the parameters of the event builder."""
    building = parser.add_argument_group("event building")
    building.add_argument(
        "--protocol",
        choices=["push", "pull"],
        metavar="NAME",
        help="push: sources send; pull: builders ask (default: push)",
    )
    add_option(building, "--schedule", "default: shift")
    add_option(building, "--size", "of a message; default: 512KiB")
    building.add_argument(
        "--credits",
        type=count,
        metavar="N",
        help="events that a builder gathers at once (default: 2 or more)",
    )
    building.add_argument(
        "--parallel", type=count, metavar="N", help="pull: requests in flight of one event (default: 8)"
    )
    building.add_argument("--processes", type=count, metavar="N", help="ranks on each host (default: 1)")
    add_alias(parser, "--message-size", "--size")
    _add_advanced(parser)


def _add_advanced(parser: Parser) -> None:
    advanced = parser.advanced
    add_option(advanced, "--schedule-file")
    advanced.add_argument(
        "--at-once", action="store_true", help="no schedule: a source sends to all builders at once"
    )
    advanced.add_argument(
        "--in-flight",
        type=count,
        metavar="N",
        help="sends in flight of one source (default: 4; over a network 2 to each builder, 16 at most)",
    )
    advanced.add_argument(
        "--input-rate", type=rate, metavar="RATE", help="of each source (default: as fast as possible)"
    )
    advanced.add_argument(
        "--synchronised",
        action="store_true",
        help="all end a step of the schedule before one begins the next",
    )
    advanced.add_argument("--sizes-file", metavar="FILE", help="sizes of fragments by source")
    advanced.add_argument(
        "--units",
        choices=["folded", "split"],
        metavar="NAME",
        help="folded: each rank is source and builder (default); split: one of them",
    )
    advanced.add_argument("--filters", type=count, metavar="N", help="the last N ranks take the built events")
    advanced.add_argument("--filter-rate", type=rate, metavar="RATE", help="intake of each of these")
    advanced.add_argument(
        "--policy",
        choices=["drop", "mark", "wait"],
        metavar="NAME",
        help="of an event that lost a fragment: drop (default), mark or wait",
    )
    advanced.add_argument("--events", type=count, metavar="N", help="events to build, instead of --budget")
    advanced.add_argument("--slice", type=duration, metavar="DURATION", help="time of each row over time")
    advanced.add_argument("--seed", type=count, metavar="N", help="of random schedules and sizes")
    advanced.add_argument(
        "--heartbeat-ms", type=count, metavar="N", help="a host silent for three of these is lost"
    )
    advanced.add_argument(
        "--restart",
        type=duration,
        metavar="DURATION",
        help="start a lost rank again after this (default: it stays lost)",
    )
    advanced.add_argument("--no-verify", action="store_true", help="do not compare payloads")
    add_option(advanced, "--timeout", "a message; default: 30s", default=30.0)


def site_and_rank_hosts(args: argparse.Namespace) -> tuple[Site, list[str]]:
    """Returns the site, and the host of each rank. Raises UserError."""
    hosts = host_list(args.hosts, args.hosts_file, "--hosts")
    site, hosts = site_and_hosts(args, hosts)
    return site, per_rank(hosts, getattr(args, "processes", None) or 1)


def choose_launchers(
    args: argparse.Namespace, site: Site, ranks: int, survives_losses: bool = True
) -> tuple[Launcher, Launcher | None]:
    """Returns the launcher of the event builder, and the MPI launcher that measures the network alone for comparison
    (None without an MPI). ``survives_losses``: the event builder goes on when a rank dies. Raises UserError."""
    transport = args.transport or MPI
    option = given_for_deaths(args)
    if option and (transport in (MPI, NULL) or (transport == OVER_SHM and option == "--restart")):
        raise UserError(
            f"{option} with --transport {transport}: its job ends with the first rank that is lost",
            f"choose one of {', '.join(TRANSPORTS)}",
        )
    if transport not in (MPI, NULL):
        check_transport(transport)
    if transport == MPI:
        launcher = launcher_on(args.launcher, site)
        return launcher, launcher
    if args.launcher:
        raise UserError(f"--launcher with --transport {transport}", "a launcher is for MPI alone")
    if transport == NULL:
        if site.name != HERE.name:
            raise UserError("--transport null has no network", "leave the hosts out")
        return Threads(ranks), None
    try:
        network_launcher: Launcher | None = launcher_on(None, site)
    except UserError:
        network_launcher = None
    heartbeat = getattr(args, "heartbeat_ms", None) or 0
    start_s = math.ceil(args.timeout)
    restart_s = getattr(args, "restart", None)
    schedule_file = getattr(args, "schedule_file", None)
    direct = Direct(
        transport,
        survives_losses,
        restart_s,
        heartbeat_ms=heartbeat,
        start_s=start_s,
        planner=planner.command(schedule_file, ranks) if schedule_file else (),
    )
    return direct, network_launcher


def given_for_deaths(args: argparse.Namespace) -> str | None:
    """The first given option that only a transport with losses of ranks obeys."""
    given = [name for name in ("restart", "heartbeat_ms") if getattr(args, name, None) is not None]
    return "--" + given[0].replace("_", "-") if given else None


def engine_params(args: argparse.Namespace, ranks: int) -> dict[str, Scalar]:
    """The given options as the engine's parameters, checked against its description. Raises UserError."""
    params: dict[str, Scalar] = {}
    for name in PARAMETERS:
        value = getattr(args, name, None)
        if value is not None and value is not False:
            params[name] = value
    if args.size is not None:
        params["fragment"] = args.size
    if args.input_rate is not None:
        params["rate"] = args.input_rate
    if args.sizes_file is not None:
        require_plain(Path(args.sizes_file), SIZES)
        params["sizes_file"] = str(Path(args.sizes_file).resolve())
    params |= _schedule_params(args, ranks)
    if args.synchronised and (args.at_once or args.protocol == "pull"):
        other = "--at-once" if args.at_once else "--protocol pull"
        raise UserError(f"--synchronised with {other}: there are no steps", "leave one of them out")
    check_timeout(args.timeout)
    describe(probe()).find(BUILD).check_bounds({**params, "timeout": args.timeout})
    return params


def _schedule_params(args: argparse.Namespace, ranks: int) -> dict[str, Scalar]:
    given = [name for name in ("schedule", "schedule_file", "at_once") if getattr(args, name, None)]
    if len(given) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        raise UserError(f"{names} are both given", "give one of them")
    if args.at_once:
        return {"schedule": "all"}
    if args.schedule_file is not None:
        schedules.read(args.schedule_file, ranks)  # reports mistakes of the file with their line
        require_plain(args.schedule_file, schedules.FILE)
        return {"schedule": "file", "schedule_file": str(Path(args.schedule_file).resolve())}
    if args.schedule in ("circle", "xor"):
        raise UserError(
            f"--schedule {args.schedule} is for exchanges in pairs",
            "choose shift or random, or --schedule-file",
        )
    return {"schedule": args.schedule} if args.schedule else {}


def build_request(
    args: argparse.Namespace, simulated: Launcher | None = None, platform: Sequence[str] = ()
) -> EventRequest:
    """Checks the options against each other; every refusal happens here, before anything is started.

    ``simulated``: the launcher of a simulation, whose hosts are ``platform``. The network alone is not measured then:
    the platform says how fast its links are.
    """
    if simulated is not None:
        site, hosts = HERE, per_rank(list(platform), args.processes or 1)
    else:
        site, hosts = site_and_rank_hosts(args)
    check_ranks(hosts, args.filters or 0, args.units or "folded")
    launcher, mpi = (simulated, None) if simulated else choose_launchers(args, site, len(hosts))
    params = engine_params(args, len(hosts))
    check_settings(BUILD, len(hosts), option_arguments(params))
    if simulated is None and len(set(hosts)) > 1:
        params.setdefault("credits", network_credits(len(hosts)))
        if not args.synchronised and args.schedule_file is None:
            params.setdefault("in_flight", network_in_flight(len(hosts)))
    request = EventRequest(launcher, site, hosts, params, mpi, args.timeout)
    check_memory(request)
    return request
