"""Parses the options of the original benchmarks (IOR, RDBench, h5bench, mdtest) into parameters of the engine.

``assay io bench ior -t 32k -b 192m -C -e`` means the same as for IOR, so scripts keep their options. An option that
Assay does not support is an error; it is never ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.commands.io.mdtest import MDTEST_HELP, mdtest
from assay.commands.io.original import (
    OriginalOptions,
    OriginalParser,
    integer,
    non_negative_integer,
    size,
    without_program,
    without_unset,
)
from assay.errors import UserError
from assay.records.schema import Scalar


def _mpiio(text: str) -> str:
    if text.upper() != "MPIIO":
        raise argparse.ArgumentTypeError(
            f"'{text}': only MPIIO is supported; for a node's own storage see 'assay io device'"
        )
    return text


def _packet(text: str) -> str:
    """IOR's -l: a name or its first letter."""
    names = {name[:1]: name for name in ("timestamp", "offset", "incompressible", "random")}
    if text not in names and text not in names.values():
        raise argparse.ArgumentTypeError(f"'{text}' is not one of {', '.join(names.values())}")
    return names[text[0]]


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise argparse.ArgumentTypeError(f"'{text}' is not 0 or 1")
    return text == "1"


def _json(text: str) -> str:
    if text.upper() != "JSON":
        raise argparse.ArgumentTypeError(f"'{text}': only JSON is supported")
    return text


# IOR's flags and the engine's parameters for them.
IOR_FLAGS = {
    "-w": "write", "-r": "read", "-W": "check_write", "-R": "check_read", "-c": "collective", "-C": "reorder",
    "-e": "fsync", "-F": "file_per_process", "-g": "barriers", "-k": "keep", "-z": "random", "-p": "preallocate",
    "-Z": "reorder_random", "-E": "existing", "-Y": "fsync_each", "-V": "view",
}  # fmt: skip
IOR_VALUES: dict[str, tuple[str, Callable[[str], Scalar]]] = {
    "-a": ("api", _mpiio), "-t": ("transfer", size), "-b": ("block", size), "-s": ("segments", non_negative_integer),
    "-i": ("repetitions", non_negative_integer), "-Q": ("task_offset", non_negative_integer),
    "-G": ("signature", integer), "-o": ("file", str),
    "-l": ("packet", _packet), "-D": ("stonewall", non_negative_integer), "-X": ("random_seed", integer),
    "-d": ("delay", non_negative_integer),
}  # fmt: skip
# IOR's directives (-O NAME=VALUE) in lower case. Most stand for an option; some have no option.
IOR_DIRECTIVES: dict[str, tuple[str, Callable[[str], Scalar]]] = {
    "api": IOR_VALUES["-a"], "transfersize": IOR_VALUES["-t"], "blocksize": IOR_VALUES["-b"],
    "segmentcount": IOR_VALUES["-s"], "repetitions": IOR_VALUES["-i"], "taskpernodeoffset": IOR_VALUES["-Q"],
    "settimestampsignature": IOR_VALUES["-G"], "testfile": IOR_VALUES["-o"],
    "deadlineforstonewalling": IOR_VALUES["-D"], "reordertasksrandomseed": IOR_VALUES["-X"],
    "stonewallingwearoutiterations": ("stonewall_transfers", non_negative_integer),
    "stonewallingwearout": ("wear_out", _switch),
    "writefile": ("write", _switch), "readfile": ("read", _switch), "checkwrite": ("check_write", _switch),
    "checkread": ("check_read", _switch), "collective": ("collective", _switch), "fsync": ("fsync", _switch),
    "reordertasks": ("reorder", _switch), "reordertasksconstant": ("reorder", _switch),
    "reordertasksrandom": ("reorder_random", _switch), "fileperproc": ("file_per_process", _switch),
    "intratestbarriers": ("barriers", _switch), "keepfile": ("keep", _switch), "randomoffset": ("random", _switch),
    "preallocate": ("preallocate", _switch), "useexistingtestfile": ("existing", _switch),
    "fsyncperwrite": ("fsync_each", _switch), "usefileview": ("view", _switch), "intertestdelay": IOR_VALUES["-d"],
    "stonewallingstatusfile": ("status_file", str), "verbose": ("verbose", non_negative_integer),
    "refnum": ("reference", non_negative_integer),
    "summaryfile": ("summary_file", str),
    "summaryformat": ("summary_format", _json),
}  # fmt: skip
IOR_HELP = """IOR's own options (after '--' for those that Assay has too: -w, -o, -v):
  -a MPIIO   -t SIZE transfer   -b SIZE block   -s N segments   -i N repetitions   -o FILE test file
  -w write   -r read   -W check written data   -R check read data   -k keep the file
  -C read another rank's data   -Z a random rank's, -X SEED   -Q N distance in nodes, with -Z least
  -l timestamp|offset|incompressible|random data   -G N signature of the data, also below 0
  -c collective   -F a file per process   -z random order   -p preallocate   -g barriers   -e fsync
  -E existing file   -V file view   -Y sync each write   -d SECONDS pause   -v, -A N no effect here
  -D SECONDS stonewall   -O NAME=VALUE,... directives, such as stoneWallingWearOut=1,
  stoneWallingWearOutIterations=N, summaryFormat=JSON,summaryFile=FILE, and the options' long names"""


class _Directives(argparse.Action):
    """-O: sets the parameter of each directive, in the order of the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        for directive in str(values).split(","):
            name, equals, value = (part.strip() for part in directive.partition("="))
            if not equals or name.lower() not in IOR_DIRECTIVES:
                parser.error(f"-O {directive}: it is not a directive that is supported")
            destination, read = IOR_DIRECTIVES[name.lower()]
            try:
                setattr(namespace, destination, read(value))
            except argparse.ArgumentTypeError as error:
                parser.error(f"-O {directive}: {error}")


def ior(arguments: Sequence[str]) -> OriginalOptions:
    """An IOR command line. Without arguments: a default sweep of transfer sizes."""
    if not arguments:
        switches = ("reorder", "read_own", "fsync", "check_write", "write", "read")
        sweep: dict[str, Scalar] = {"transfer": "4096,32768,262144,1048576", "block": 32 << 20}
        return OriginalOptions({**sweep, **dict.fromkeys(switches, True)})
    parsed = vars(_ior_parser().parse_args(without_program(arguments, "ior")))
    for name in ("api", "verbose", "reference"):
        parsed.pop(name, None)
    if parsed["block"] % parsed["transfer"]:
        raise UserError(
            f"ior: a block (-b) of {parsed['block']} B is not a multiple of a transfer (-t) of {parsed['transfer']} B",
            "e.g. -t 32k -b 192m",
        )
    return OriginalOptions(results=_summary_file(parsed), params=without_unset(parsed))


def _ior_parser() -> argparse.ArgumentParser:
    parser = OriginalParser(prog="ior", add_help=False, allow_abbrev=False)
    for option, (name, read) in IOR_VALUES.items():
        parser.add_argument(option, dest=name, type=read)
    for option, name in IOR_FLAGS.items():
        parser.add_argument(option, dest=name, action="store_true")
    parser.add_argument("-O", dest="directives", action=_Directives)
    # -v and -A concern IOR's text output. Assay's records are complete at any verbosity.
    parser.add_argument("-v", dest="verbose", action="count")
    parser.add_argument("-A", dest="reference", type=non_negative_integer)
    parser.add_argument("--mpiio.preallocate", dest="preallocate", action="store_true")
    parser.add_argument("--mpiio.useFileView", dest="view", action="store_true")
    parser.set_defaults(transfer=256 << 10, block=1 << 20, summary_file=None, summary_format=None)
    return parser


def _summary_file(parsed: dict[str, Any]) -> Path | None:
    """The file of -O summaryFile. IOR has other formats too; only JSON is supported."""
    file, style = parsed.pop("summary_file"), parsed.pop("summary_format")
    if (file is None) != (style is None):
        raise UserError(
            "ior: summaryFile and summaryFormat=JSON are not both given",
            "e.g. -O summaryFormat=JSON,summaryFile=ior.json",
        )
    return Path(file) if file else None


RDBENCH_HELP = """RDBench's own options:
  -L N edge of the square   -s N steps   -i N steps between snapshots   --iotype manual|view|chunk
  -c collective   --nosync   --xnp N, --ynp N ranks in x and y
  -o PREFIX prefix of the files, which are then kept (after '--')   --nomkdir its folder exists
  --novalidate snapshots are not read back   --disable-initial-output none before the first step
  --prettify the file of --rdbench-json is indented"""

RDBENCH_FLAGS = ("nosync", "nomkdir", "novalidate", "disable_initial_output")


def rdbench(arguments: Sequence[str]) -> OriginalOptions:
    parser = OriginalParser(prog="reaction-diffusion", add_help=False, allow_abbrev=False)
    for options, name in (
        (("-L", "--length"), "length"),
        (("-s", "--steps"), "steps"),
        (("-i", "--interval"), "interval"),
        (("--xnp",), "xnp"),
        (("--ynp",), "ynp"),
    ):
        parser.add_argument(*options, dest=name, type=non_negative_integer)
    parser.add_argument("--iotype", choices=["manual", "view", "chunk"])
    parser.add_argument("-c", "--collective", action="store_true")
    for name in (*RDBENCH_FLAGS, "prettify"):
        parser.add_argument("--" + name.replace("_", "-"), action="store_true")
    parser.add_argument("-o", "--output", dest="file")
    parsed = vars(parser.parse_args(without_program(arguments, "rdbench")))
    parsed["keep"] = parsed["file"] is not None  # as RDBench does
    pretty = parsed.pop("prettify")
    return OriginalOptions(without_unset(parsed), pretty=pretty)


H5BENCH_HELP = """h5bench's own settings, as KEY=VALUE or in a file of them (--config FILE): MEM_PATTERN and
FILE_PATTERN (CONTIG|INTERLEAVED), READ_OPTION (FULL|PARTIAL|STRIDED), TO_READ_NUM_PARTICLES,
STRIDE_SIZE, BLOCK_SIZE, TIMESTEPS, COLLECTIVE_DATA, COLLECTIVE_METADATA, NUM_DIMS, DIM_1, DIM_2,
DIM_3, EMULATED_COMPUTE_TIME_PER_TIMESTEP, CSV_FILE (as --h5bench-csv), BENCHMARK_TYPE=write|read
(default: both), FILE (Assay's own: kept). Async I/O and compression are not measured.
h5bench's command lines follow '--': h5bench_write CONFIG FILE, h5bench_read CONFIG FILE."""

H5BENCH_NUMBERS = (
    "TIMESTEPS",
    "NUM_DIMS",
    "DIM_1",
    "DIM_2",
    "DIM_3",
    "TO_READ_NUM_PARTICLES",
    "STRIDE_SIZE",
    "BLOCK_SIZE",
)
H5BENCH_SWITCHES = ("COLLECTIVE_DATA", "COLLECTIVE_METADATA")
H5BENCH_CHOICES = {
    "MEM_PATTERN": ("CONTIG", "INTERLEAVED"),
    "FILE_PATTERN": ("CONTIG", "INTERLEAVED"),
    "READ_OPTION": ("FULL", "PARTIAL", "STRIDED"),
}
# Settings of h5bench's samples that need no action here.
H5BENCH_ACCEPTED = {
    "MODE": ("SYNC",),
    "COMPRESS": ("NO",),
    "DELAYED_CLOSE_TIMESTEPS": ("0", "1", "2"),
}


H5BENCH_PROGRAMS = {"h5bench_write": "write", "h5bench_read": "read"}


def h5bench(arguments: Sequence[str]) -> OriginalOptions:
    """KEY=VALUE settings, with values as in h5bench: "1 K", "8 M", "YES", "1 s"; or a command line of h5bench."""
    params: dict[str, Scalar] = {}
    results = None
    for argument in _h5bench_settings(arguments):
        key, equals, value = (part.strip() for part in argument.partition("="))
        if not equals:
            raise UserError(f"hdf5: '{argument}' is not a setting", "write KEY=VALUE, e.g. DIM_1=1M")
        if key.upper() == "CSV_FILE":
            results = Path(value)
        else:
            params |= _h5bench_setting(key.upper(), value)
    if params.get("read") and "file" not in params:
        raise UserError("hdf5: the file to read is not given", "h5bench_read CONFIG FILE")
    return OriginalOptions(params, results)


def _h5bench_settings(arguments: Sequence[str]) -> list[str]:
    """The settings of a command line of h5bench (``h5bench_write CONFIG FILE``); other arguments unchanged."""
    program = next((argument for argument in arguments if argument in H5BENCH_PROGRAMS), None)
    if program is None:
        return list(arguments)
    positional = [argument for argument in arguments if "=" not in argument]
    if len(positional) != 3 or positional[0] != program:
        raise UserError(
            f"hdf5: {' '.join(positional)}: not a command line of h5bench", f"{program} CONFIG FILE"
        )
    others = [argument for argument in arguments if "=" in argument]
    return [
        *h5bench_file(Path(positional[1])),
        *others,
        f"BENCHMARK_TYPE={H5BENCH_PROGRAMS[program]}",
        f"FILE={positional[2]}",
    ]


def _h5bench_setting(key: str, value: str) -> dict[str, Scalar]:
    if key in H5BENCH_NUMBERS:
        return {key.lower(): _parse_number(key, value)}
    if key in H5BENCH_SWITCHES:
        if value.upper() not in ("YES", "NO"):
            raise UserError(f"hdf5: {key}={value} must be YES or NO", f"e.g. {key}=YES")
        return {key.lower(): True} if value.upper() == "YES" else {}
    if key in H5BENCH_CHOICES:
        if value.upper() not in H5BENCH_CHOICES[key]:
            raise UserError(
                f"hdf5: {key}={value} is not supported", f"choose one of {', '.join(H5BENCH_CHOICES[key])}"
            )
        return {key.lower(): value.upper()}
    if key == "BENCHMARK_TYPE" and value in ("write", "read"):
        return {value: True}
    if key == "FILE":  # h5bench does not remove the file of a command line
        return {"file": value, "keep": True}
    if key == "EMULATED_COMPUTE_TIME_PER_TIMESTEP":
        return {"compute_time": _parse_seconds(key, value)}
    if value in H5BENCH_ACCEPTED.get(key, ()):
        return {}
    keys = [*H5BENCH_NUMBERS, *H5BENCH_SWITCHES, *H5BENCH_CHOICES, "EMULATED_COMPUTE_TIME_PER_TIMESTEP"]
    raise UserError(f"hdf5: {key}={value} is not supported", f"choose one of {', '.join(keys)}")


def _parse_number(key: str, value: str) -> int:
    """A number as h5bench writes it: "1 K" is 1024, "8 M" is 8 * 1024 * 1024."""
    number, factor = value.replace(" ", ""), 1
    if number[-1:].upper() in ("K", "M", "G"):
        factor = 1024 ** (" KMG".index(number[-1].upper()))
        number = number[:-1]
    if not number.isdigit():
        raise UserError(f"hdf5: {key}={value} is not a number", "e.g. 1024, 1K or 8M")
    return int(number) * factor


def _parse_seconds(key: str, value: str) -> float:
    parts = value.split()
    units = {"s": 1.0, "ms": 1e-3, "min": 60.0}
    try:
        return float(parts[0]) * units[parts[1] if len(parts) > 1 else "s"]
    except (ValueError, KeyError, IndexError):
        raise UserError(f"hdf5: {key}={value} is not a time", "e.g. '1 s' or '500 ms'") from None


def h5bench_file(path: Path) -> list[str]:
    """The settings in an h5bench file: KEY=VALUE per line, "#" begins a comment."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(
            f"--config {path}: cannot be read: {reason}", "give a file of h5bench settings"
        ) from None
    return [text for line in lines if (text := line.split("#", 1)[0].strip())]


# Of each benchmark of 'assay io bench': the parser of the original's options, and their help.
ORIGINALS: dict[str, tuple[Callable[[Sequence[str]], OriginalOptions], str]] = {
    "ior": (ior, IOR_HELP),
    "reaction-diffusion": (rdbench, RDBENCH_HELP),
    "hdf5": (h5bench, H5BENCH_HELP),
    "metadata": (mdtest, MDTEST_HELP),
}
