"""The options that several verbs share, and the functions that parse their values.

``SHARED`` defines each of them once: one spelling, one type and one text, whatever the verb. A verb may add a note
in brackets, a default, and whether the option is required.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from assay.commands.parser import Parser
from assay.errors import UserError
from assay.lab import Lab
from assay.launch.direct import TRANSPORTS
from assay.launch.launchers import LAUNCHERS, Launcher, launcher_on
from assay.launch.placement import HERE, REMOTE, Site, lab_site
from assay.records.units import parse_in, parse_size

Group = argparse._ArgumentGroup | argparse.ArgumentParser
T = TypeVar("T")
SIZE_FACTOR = 4  # between successive sizes of a range


def argument_type(parse: Callable[[str], T], fix: str = "") -> Callable[[str], T]:
    """Makes ``parse`` a type for argparse, which puts the option's name before the error. ``fix`` is added to errors
    that have none, and to those of texts that are not quantities."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except UserError as error:
            if fix and (not error.fix or error.what.endswith("is not a quantity")):
                error = UserError(error.what, fix)
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _parse_quantity(text: str, unit: str) -> float:
    """Parses a quantity in base units. A number without a unit is in ``unit``."""
    try:
        return float(text)
    except ValueError:
        return parse_in(text, unit)


def _parse_duration(text: str) -> float:
    try:
        seconds, has_unit = float(text), False
    except ValueError:
        seconds, has_unit = parse_in(text.removeprefix("-"), "s"), True
    if not 0 < seconds < math.inf or text.startswith("-"):
        raise UserError(f"'{text}' is not a time above zero")
    if not has_unit:
        raise UserError(f"'{text}' has no unit", f"write {text}s or {text}min")
    return seconds


def _parse_folder(text: str) -> str:
    if not text.strip():
        raise UserError("no directory is named", "give one that holds no run yet, such as runs/first")
    return text


def parse_sizes(text: str) -> list[int]:
    """Parses "16B:4GiB" (in steps of a factor of four, with both ends) or "16,20MB"; ascending."""
    first, colon, last = text.partition(":")
    if not colon:
        return sorted({parse_size(size) for size in text.split(",")})
    low, high = parse_size(first), parse_size(last)
    if low > high:
        raise UserError(f"'{text}' begins above its end", "write the smaller size first: 16B:4GiB")
    sizes = []
    while low < high:
        sizes.append(low)
        low *= SIZE_FACTOR
    return [*sizes, high]


def parse_threads(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isascii() and count.isdigit() and 1 <= int(count) <= 1024 for count in counts):
        raise UserError(f"'{text}' is not a list of thread counts", "write it as 1,2,4, each at most 1024")
    return sorted({int(count) for count in counts})


# Seconds above zero, with a unit: 5 may have been meant in minutes.
duration = argument_type(_parse_duration, "give a time, such as 20s or 3min")
# Bytes; a bare number is in bytes, and k, m and g are binary, as in IOR and fio.
size = argument_type(parse_size, "give a size, such as 4096, 64KiB or 1m")
# "4KiB,1MiB", or "16B:4GiB", a factor of four each.
sizes = argument_type(parse_sizes, "give sizes, such as 4KiB,1MiB or 16B:4GiB")
share = argument_type(lambda text: _parse_quantity(text, "1"), "give a share, such as 5% or 0.05")
# With more ranks the time of the scheduler is measured; thousands exhaust memory and file descriptors.
MAX_RANKS_PER_PROCESSOR = 64


def _parse_confidence(text: str) -> float:
    value = _parse_quantity(text, "1")
    if not 0 < value < 1:
        raise UserError(f"'{text}' is not a share between 0 and 1")
    return value


confidence = argument_type(_parse_confidence, "write it like 2%")


def check_ranks_here(ranks: int) -> None:
    """Raises UserError for more ranks than this machine's processors can run."""
    processors = len(os.sched_getaffinity(0))
    max_ranks = MAX_RANKS_PER_PROCESSOR * processors
    if ranks > max_ranks:
        raise UserError(
            f"{ranks} ranks on this machine's {processors} processors: too many", f"give at most {max_ranks}"
        )


@argument_type
def count(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"'{text}' is not a whole number of at least 1", "write it like 3")
    return int(text)


SHARED: dict[str, dict[str, Any]] = {
    "-w --hosts": {"metavar": "LIST", "help": "hosts, such as 'node[1-48]'"},
    "--hosts-file": {"metavar": "FILE", "help": "file of hosts, a name or list per line"},
    "--peer": {"metavar": "HOST", "help": "the host of the other side"},
    "-n --ranks": {"type": count, "metavar": "N", "help": "number of ranks"},
    "--lab": {"nargs": "?", "const": "", "metavar": "NAME", "help": "the virtual cluster of 'assay lab'"},
    "--launcher": {
        "choices": [x.name for x in LAUNCHERS if x.flavour],
        "metavar": "NAME",
        "help": "how ranks are started: " + ", ".join(x.name for x in LAUNCHERS if x.flavour),
    },
    "--mpi": {"metavar": "NAME", "help": "openmpi, mpich or mpich-wheel"},
    "--nodes": {"type": count, "metavar": "N", "help": "number of hosts"},
    "--schedule": {"choices": ["shift", "circle", "xor", "random"], "help": "rounds of an all to all"},
    "--schedule-file": {
        "type": Path,
        "metavar": "FILE",
        "help": "a schedule of your own: a step a line, the destination of each rank, -1 for none",
    },
    "--transport": {
        "metavar": "NAME",
        "help": "how bytes move: mpi, " + ", ".join(TRANSPORTS) + "[:PROVIDER]",
    },
    "--budget": {"type": duration, "metavar": "DURATION", "help": "time to measure, such as 20s or 3min"},
    "--timeout": {"type": duration, "metavar": "DURATION", "help": "limit of one wait"},
    "--repeats": {"type": count, "metavar": "N", "help": "number of repetitions"},
    "--confidence": {
        "type": confidence,
        "metavar": "SHARE",
        "help": "repeat until a median is known this well",
    },
    "--size": {"type": size, "metavar": "SIZE", "help": "one size, such as 64KiB"},
    "--sizes": {"type": sizes, "metavar": "SIZES", "help": "sizes, such as 4KiB,1MiB or 16B:4GiB"},
    "--threads": {
        "type": argument_type(parse_threads),
        "metavar": "LIST",
        "help": "numbers of threads, such as 1,2,4",
    },
    "--op": {"metavar": "LIST", "help": "operations, comma-separated"},
    "--realtime": {"action": "store_true", "help": "real-time priority, as chrt -f 1"},
    "--store": {"metavar": "PATH", "help": "node-local memory: a folder, a file or /dev/dax*"},
    "--store-size": {"type": size, "metavar": "SIZE", "help": "size of the store on each node"},
    "--consistency": {
        "choices": ["immediate", "collective", "commit"],
        "metavar": "NAME",
        "help": "when ranks see each other's writes: immediate, collective, commit",
    },
    "--until": {
        "choices": ["file", "memory"],
        "help": "close and sync return when the data are safe in the file system (file, the default) or in the nodes' "
        "memory (memory; the rest goes on in the background, also after the program)",
    },
    "--sources": {"action": "store_true", "help": "put this machine's source files into the report"},
    "--discard": {"action": "store_true", "help": "drop data that are not in the file system"},
    "--resume": {"metavar": "RUN", "help": "continue a run that ended early"},
    "-o --output": {
        "type": argument_type(_parse_folder),
        "metavar": "DIR",
        "help": "run directory (default: runs/DATE-...)",
    },
    "--spec": {
        "action": "append",
        "default": [],
        "metavar": "SPEC",
        "help": "judge by this specification: a TOML file or a built-in name; repeatable",
    },
    "--json": {"action": "store_true", "help": "JSON on standard output"},
    "-v --verbose": {"action": "store_true", "help": "show commands and the engines' messages"},
}


def add_option(parser: Group, option: str, note: str = "", **more: Any) -> None:
    """Adds the shared option ``option`` ("-w --hosts"). ``note`` is put in brackets after its help. ``more`` may hold
    a default, or ``required``."""
    if not more.keys() <= {"default", "required", "dest"}:
        raise ValueError(f"{option} is defined in SHARED")
    settings = dict(SHARED[option])
    if note:
        settings["help"] += f" ({note})"
    settings["help"] = settings["help"].replace("%", "%%")
    parser.add_argument(*option.split(), **{**settings, **more})


def add_alias(parser: Group, alias: str, option: str) -> None:
    """Adds ``alias`` as another name of the shared option, without help: scripts of another tool use it."""
    settings = {key: value for key, value in SHARED[option].items() if key in ("type", "metavar", "nargs")}
    name = option.split()[-1].removeprefix("--").replace("-", "_")
    parser.add_argument(alias, dest=name, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **settings)


def add_output(parser: Parser) -> None:
    """Adds the options of every verb that creates and judges a run."""
    for option in ("-o --output", "--spec", "--json", "-v --verbose"):
        add_option(parser, option)


def chosen_launcher(args: argparse.Namespace) -> tuple[Launcher | None, str]:
    """The launcher, or the reason why there is none."""
    site = lab_site(Lab.load(args.lab or None)) if args.lab is not None else REMOTE
    try:
        return launcher_on(args.launcher, site), ""
    except UserError as error:
        if args.launcher:
            raise
        return None, str(error)


def check_timeout(seconds: float) -> None:
    """Raises UserError for a timeout that is too short."""
    if seconds < 1:
        raise UserError("--timeout under 1 s", "a busy host can take that long to answer; give at least 1s")


def site_and_hosts(
    args: argparse.Namespace, hosts: list[str], others: list[str] | None = None, ranks_here: int = 0
) -> tuple[Site, list[str]]:
    """Returns the site, and the host of each rank: the named hosts, the lab's, or ``ranks_here`` ranks on this machine
    (0: one per core, at least 2). ``others``: hosts with another role, such as servers, which are left out."""
    others = others or []
    rank_count = getattr(args, "ranks", None)
    if rank_count and (hosts or others or args.lab is not None):
        raise UserError("--ranks goes with no hosts", "leave it out, or leave the hosts out")
    if args.lab is not None:
        lab = Lab.load(args.lab or None)
        return lab_site(lab), hosts or [h for h in lab.hosts if h not in others]
    if hosts or others:
        return REMOTE, hosts
    ranks = rank_count or ranks_here or max(2, len(os.sched_getaffinity(0)))
    check_ranks_here(ranks)
    return HERE, [socket.gethostname()] * ranks
