"""``assay simulate``: Assay's network measurements, or a user's own MPI program, on a platform file."""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from pathlib import Path

from assay.commands import eb, net, saturate
from assay.commands.eb.options import given_for_deaths
from assay.commands.options import add_option
from assay.commands.parser import Example, Parser
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.fabric.platform import CONFIGURATION
from assay.launch import simulator
from assay.launch.flows import Flows, write_network
from assay.launch.hosts import fold
from assay.launch.placement import HERE
from assay.launch.platform_routes import require_routes
from assay.launch.platforms import computing, platform_hosts, require_listable
from assay.launch.simulator import Simulator, pass_messages
from assay.launch.without_mpi import missing_engine
from assay.measure.saturation import SaturationRequest
from assay.model.study import Effort
from assay.model.what_if import change_platform


class Simulate:
    """Run a network measurement or an MPI program on a simulated network. The platform file is one of 'assay
    model', or any other. --nodes asks for more hosts, --set for other links. An MPI program must be compiled with
    smpicc; a C or C++ source is compiled on the way."""

    name = "simulate"
    takes_program = True
    examples = [
        Example("assay simulate platform.xml -- saturate", "every experiment", "a platform"),
        Example("assay simulate platform.xml -- ./my_mpi_program", "compiled with smpicc", "a platform"),
        Example(
            "assay simulate platform.xml --nodes 1000 --set backbone.bandwidth=3GBps -- saturate",
            "what if",
            "a platform",
        ),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = "%(prog)s PLATFORM.xml [options] -- net|saturate|eb|PROGRAM [ARGUMENT ...]"
        parser.add_argument("platform", type=Path, metavar="PLATFORM.xml", help="a platform file of SimGrid")
        add_option(
            parser,
            "--nodes",
            "use the first N hosts of the platform, or enlarge its clusters to N hosts; default: all",
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="ID.ATTRIBUTE=VALUE",
            help="change an element of the platform; repeatable",
        )
        parser.add_argument(
            "--compute",
            type=parse_computing_speed,
            default=1.0,
            metavar="FACTOR",
            help="speed of the platform's processors over this machine's, for a program's own computing; "
            "0: it takes no time (default: 1)",
        )
        parser.add_argument(
            "--cfg",
            action="append",
            default=[],
            metavar="KEY:VALUE",
            help="an option of SimGrid, for a program; repeatable",
        )
        parser.add_argument(
            "--flows",
            action="store_true",
            help="eb on a platform of 'assay fabric platform', without SimGrid: for hundreds of hosts",
        )
        add_option(parser, "-v --verbose")

    def run(self, args: argparse.Namespace) -> int:
        arguments = args.program
        if not arguments:
            raise UserError("what is to be simulated?", "after --: net, saturate, eb, or an MPI program")
        if args.flows and arguments[0] != "eb":
            raise UserError(f"--flows with {arguments[0]}", "flows simulate eb alone; leave out --flows")
        reason = missing_engine() if args.flows else simulator.unavailable()
        if reason:
            raise UserError(f"nothing can be simulated here: {reason}")
        with simulator.temporary_folder() as folder:
            platform = change_platform(args.platform, args.nodes, args.set, Path(folder))
            hosts = platform_hosts(platform)[: args.nodes]
            args.enlarged = _describe_added(args, hosts)
            if len(hosts) < 2:
                raise UserError("one host alone has no network", "simulate two hosts at least")
            if arguments[0] in ("net", "saturate", "eb"):
                require_listable(hosts, args.platform)
            require_routes(platform, hosts, args.platform)
            if args.flows:
                network = Path(folder) / "network"
                write_network(platform, hosts, CONFIGURATION, network)
                return _simulate_eb(args, arguments[1:], Flows(network), hosts)
            launcher = Simulator(platform, Path(folder), args.platform)
            launcher.require_known_settings(args.platform)
            if arguments[0] == "net":
                return _simulate_net(args, arguments[1:], launcher, hosts)
            if arguments[0] == "saturate":
                return _simulate_saturate(args, arguments[1:], launcher, hosts)
            if arguments[0] == "eb":
                return _simulate_eb(args, arguments[1:], launcher, hosts)
            options = [*computing(platform, args.compute), *_configuration(args.cfg)]
            return _simulate_program(arguments, launcher, hosts, options, args, Path(folder))


def _parse_options(
    verb: net.Net | saturate.Saturate | eb.Eb, arguments: list[str], args: argparse.Namespace
) -> argparse.Namespace:
    """Parses the measurement's own options. Raises UserError for --lab and --launcher."""
    parser = Parser(prog=f"assay simulate -- {verb.name}")
    verb.prepare_parser(parser)
    parsed = parser.parse_args(arguments)
    for option in ("lab", "launcher"):
        if getattr(parsed, option) is not None:
            raise UserError(f"--{option} with a simulation", "the platform file says where")
    parsed.command_line, parsed.resumed = args.command_line, args.resumed
    parsed.enlarged = args.enlarged
    parsed.verbose = parsed.verbose or args.verbose
    return parsed


def _describe_added(args: argparse.Namespace, hosts: list[str]) -> str:
    """Which of the hosts --nodes has added to the platform's clusters; empty without any."""
    own = set(platform_hosts(args.platform))
    added = [host for host in hosts if host not in own]
    if not added:
        return ""
    return (
        f"{len(added)} of {len(hosts)} hosts are made up: {args.platform.name} has {len(own)}, and --nodes added "
        f"{fold(added)} to its clusters in turn"
    )


def _simulate_net(
    args: argparse.Namespace, arguments: list[str], launcher: Simulator, hosts: list[str]
) -> int:
    parsed = _parse_options(net.Net(), arguments, args)
    named = ("hosts", "clients", "servers", "hosts_file", "clients_file", "servers_file")
    if not any(getattr(parsed, name) for name in named):
        parsed.hosts = ",".join(hosts)
    return net.run_request(parsed, net.build_request(parsed, launcher), built_in=())


def _simulate_saturate(
    args: argparse.Namespace, arguments: list[str], launcher: Simulator, hosts: list[str]
) -> int:
    parsed = _parse_options(saturate.Saturate(), arguments, args)
    if parsed.hosts or parsed.hosts_file:
        raise UserError(
            "-w with a simulation", "the platform file says which hosts there are; --nodes N for the first N"
        )
    cabinets = saturate.read_topology(parsed.topology) if parsed.topology else {}
    # The simulation is deterministic: a short measurement and one repetition are enough.
    effort = Effort(repeats=1, seconds=1e-4, round_trips=4, messages=4)
    request = SaturationRequest(launcher, HERE, hosts, effort, cabinets)
    return saturate.run_request(parsed, request, specifications(parsed), "saturate")


def _simulate_eb(
    args: argparse.Namespace, arguments: list[str], launcher: Simulator | Flows, hosts: list[str]
) -> int:
    parsed = _parse_options(eb.Eb(), arguments, args)
    if args.flows and (parsed.processes or 1) > 1:
        raise UserError("--processes with --flows", "a host has one rank there; leave one of them out")
    if parsed.eb_command is not None:
        raise UserError(f"eb {parsed.eb_command} with a simulation", "give eb alone")
    if parsed.hosts or parsed.hosts_file or parsed.ranks or parsed.transport:
        raise UserError(
            "hosts or a transport with a simulation",
            "the platform file says which hosts; --nodes N for the first N",
        )
    if option := given_for_deaths(parsed):
        raise UserError(f"{option} with a simulation", "no host dies there; leave it out")
    return eb.run_eb(parsed, launcher, hosts)


def parse_computing_speed(text: str) -> float:
    """Parses --compute: a factor, or "no" for 0."""
    try:
        factor = 0.0 if text == "no" else float(text)
    except ValueError:
        factor = math.nan
    if not 0 <= factor < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a factor such as 1.5, or 0 for no time")
    return factor


def _configuration(settings: list[str]) -> list[str]:
    for setting in settings:
        if not re.fullmatch(r"[A-Za-z0-9_-]+/[A-Za-z0-9_/-]+:[^\0]+", setting):
            raise UserError(f"--cfg {setting}: not KEY:VALUE", "write it like smpi/coll-selector:ompi")
    return [f"--cfg={setting}" for setting in settings]


def _print_computing_speed(factor: float) -> None:
    text = "takes no time" if factor == 0 else "takes as long as here"
    if factor not in (0, 1):
        text = f"is {factor:g} times as fast as here"
    print(f"the program's own computing {text} (--compute)", file=sys.stderr)


def _simulate_program(
    arguments: list[str],
    launcher: Simulator,
    hosts: list[str],
    options: list[str],
    args: argparse.Namespace,
    folder: Path,
) -> int:
    program = Path(arguments[0])
    if not program.is_file():
        raise UserError(
            f"{program}: no such program",
            "give the path of an MPI program compiled with smpicc, or of its source",
        )
    if program.suffix in (".c", ".cc", ".cpp", ".cxx"):
        program = _compile(program, folder)
    elif not _is_simulable(program):
        raise UserError(
            f"{program}: not compiled for SimGrid",
            f"compile it with smpicc or smpicxx: smpicc -O2 -o {program.name} ...",
        )
    command = launcher.smpirun(hosts, [str(program.resolve()), *arguments[1:]], options)
    _print_computing_speed(args.compute)
    if args.enlarged:
        print(args.enlarged, file=sys.stderr)
    if args.verbose:
        print("+ " + " ".join(command), file=sys.stderr)
    # Its input and output are the user's; Ctrl-C reaches it too.
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            problem = pass_messages(process)
        except KeyboardInterrupt:  # SIGTERM reaches Assay alone
            process.terminate()
            raise
    if problem is not None:
        raise UserError(problem, f"see {args.platform}, or --cfg")
    status = process.returncode
    return 128 - status if status < 0 else status


def _is_simulable(program: Path) -> bool:
    """SimGrid loads the program as a library, and finds its own library in it."""
    with program.open("rb") as file:
        return b"libsimgrid.so" in file.read()


def _compile(source: Path, folder: Path) -> Path:
    compiler = "smpicc" if source.suffix == ".c" else "smpicxx"
    target = folder / source.stem
    result = subprocess.run(
        [compiler, "-O2", str(source), "-o", str(target)], capture_output=True, text=True, timeout=300
    )
    if result.returncode != 0:
        first = next(
            (line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip()[:200]
        )
        raise UserError(f"{compiler} cannot compile {source}: {first}")
    return target
