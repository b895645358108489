"""``assay simulate``: Assay's network measurements, or a user's own MPI program, on a platform file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from assay.commands import net, saturate
from assay.commands.options import count, specifications
from assay.errors import UserError
from assay.launch import simulator
from assay.launch.placement import HERE
from assay.launch.simulator import Simulator, platform_hosts
from assay.measure.saturation import SaturationRequest
from assay.model.study import Effort
from assay.model.what_if import change_platform


class Simulate:
    """Run a network measurement of Assay, or an MPI program, in SimGrid on a platform file: one of 'assay model',
    or any other. More hosts than there are, or other links, are asked for with --hosts and --set. An MPI
    program must be compiled with smpicc; a C or C++ source is compiled on the way."""

    name = "simulate"
    takes_program = True
    examples = """
  assay simulate platform.xml -- saturate             every experiment, adaptively, on simulated hosts
  assay simulate platform.xml -- net --sizes 64KiB,1MiB
  assay simulate platform.xml -- ./my_mpi_program arguments
  assay simulate platform.xml --hosts 4 -- my_mpi_program.c
  assay simulate platform.xml --hosts 1000 -- saturate                  clusters grow as far as it takes
  assay simulate platform.xml --set backbone.bandwidth=3GBps -- saturate   what if
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("platform", type=Path, metavar="PLATFORM.xml")
        parser.add_argument(
            "--hosts", type=count, metavar="N", help="so many hosts (default: all of the platform)"
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="ID.ATTRIBUTE=VALUE",
            help="change an element of the platform",
        )
        parser.add_argument(
            "--verbose", "-v", action="store_true", help="show commands and the simulator's own words"
        )

    def run(self, args: argparse.Namespace) -> int:
        words = args.program
        if not words:
            raise UserError("what is to be simulated?", "after --: net, saturate, or an MPI program")
        why = simulator.unavailable()
        if why:
            raise UserError(f"nothing can be simulated here: {why}")
        with tempfile.TemporaryDirectory(prefix="assay-simulate-") as folder:
            platform = change_platform(args.platform, args.hosts, args.set, Path(folder))
            hosts = platform_hosts(platform)[: args.hosts]
            if len(hosts) < 2:
                raise UserError("one host alone has no network", "simulate two hosts at least")
            launcher = Simulator(platform, Path(folder))
            if words[0] == "net":
                return _net(args, words[1:], launcher, hosts)
            if words[0] == "saturate":
                return _saturate(args, words[1:], launcher, hosts)
            return _program(words, launcher, hosts, args.verbose, Path(folder))


def _parsed(
    verb: net.Net | saturate.Saturate, words: list[str], args: argparse.Namespace
) -> argparse.Namespace:
    """The measurement's own options, without those that say where."""
    parser = argparse.ArgumentParser(prog=f"assay simulate -- {verb.name}", allow_abbrev=False)
    verb.prepare_parser(parser)

    def refuse(message: str) -> None:
        raise UserError(f"{parser.prog}: {message}", f"see 'assay {verb.name} --help'")

    parser.error = refuse  # type: ignore[method-assign, assignment]
    parsed = parser.parse_args(words)
    for option in ("lab", "launcher"):
        if getattr(parsed, option) is not None:
            raise UserError(f"--{option} with a simulation", "the platform file says where")
    parsed.words, parsed.resumed = args.words, args.resumed
    parsed.verbose = parsed.verbose or args.verbose
    return parsed


def _net(args: argparse.Namespace, words: list[str], launcher: Simulator, hosts: list[str]) -> int:
    parsed = _parsed(net.Net(), words, args)
    if not parsed.clients and not parsed.servers:
        parsed.clients = ",".join(hosts)
    return net.conduct(parsed, net.build_request(parsed, launcher), built_in=())


def _saturate(args: argparse.Namespace, words: list[str], launcher: Simulator, hosts: list[str]) -> int:
    parsed = _parsed(saturate.Saturate(), words, args)
    if parsed.hosts or parsed.hosts_file:
        raise UserError(
            "-w with a simulation", "the platform file says which hosts there are; --hosts N for the first N"
        )
    cabinets = saturate.read_given(parsed.cabinets) if parsed.cabinets else {}
    # Simulated time costs nothing by lasting, and no two repetitions differ.
    pace = Effort(repeats=1, seconds=1e-4, echoes=4, messages=4)
    request = SaturationRequest(launcher, HERE, hosts, pace, cabinets)
    return saturate.conduct(parsed, request, specifications(parsed), "saturate")


def _program(words: list[str], launcher: Simulator, hosts: list[str], verbose: bool, folder: Path) -> int:
    program = Path(words[0])
    if not program.is_file():
        raise UserError(
            f"{program}: no such program",
            "give the path of an MPI program compiled with smpicc, or of its source",
        )
    if program.suffix in (".c", ".cc", ".cpp", ".cxx"):
        program = _compiled(program, folder)
    elif not _is_simulable(program):
        raise UserError(
            f"{program}: not compiled for SimGrid",
            f"compile it with smpicc or smpicxx: smpicc -O2 -o {program.name} ...",
        )
    command = launcher.smpirun(hosts, [str(program.resolve()), *words[1:]])
    if verbose:
        print("+ " + " ".join(command), file=sys.stderr)
    with subprocess.Popen(command) as process:  # its input and output are the user's; Ctrl-C reaches it too
        status = process.wait()
    return 128 - status if status < 0 else status


def _is_simulable(program: Path) -> bool:
    """SimGrid loads the program as a library, and finds its own library in it."""
    with program.open("rb") as file:
        return b"libsimgrid.so" in file.read()


def _compiled(source: Path, folder: Path) -> Path:
    compiler = "smpicc" if source.suffix == ".c" else "smpicxx"
    target = folder / source.stem
    made = subprocess.run(
        [compiler, "-O2", str(source), "-o", str(target)], capture_output=True, text=True, timeout=300
    )
    if made.returncode != 0:
        first = next(
            (line for line in made.stderr.splitlines() if "error" in line), made.stderr.strip()[:200]
        )
        raise UserError(f"{compiler} cannot compile {source}: {first}")
    return target
