"""Parses the options of the original benchmarks (IOR, RDBench, h5bench, mdtest) into parameters of the engine.

``assay io bench ior -t 32k -b 192m -C -e`` means the same as for IOR, so scripts keep their options. An option that
Assay does not support is an error; it is never ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.commands.io.h5bench import H5BENCH_HELP, h5bench
from assay.commands.io.mdtest import MDTEST_HELP, mdtest
from assay.commands.io.original import (
    Checked,
    OriginalOptions,
    OriginalParser,
    add_refused,
    integer,
    non_negative_integer,
    size,
    without_program,
    without_unset,
)
from assay.errors import UserError
from assay.records.notes import tell
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
IOR_LONG = {"-c": "--collective", "-l": "--dataPacketType"}  # of IOR 4
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
    "showhints": ("verbose", _switch), "showhelp": ("verbose", _switch), "quitonerror": ("verbose", _switch),
    "summaryfile": ("summary_file", str),
    "summaryformat": ("summary_format", _json),
}  # fmt: skip
IOR_HELP = """IOR's own options (after '--' for those that Assay has too: -w, -o, -v):
  -a MPIIO   -t SIZE transfer   -b SIZE block   -s N segments   -i N repetitions   -o FILE test file
  -w write   -r read   -W check written data   -R check read data   -k keep the file
  -C read another rank's data   -Z a random rank's, -X SEED   -Q N distance in nodes, with -Z least
  -l timestamp|offset|incompressible|random data   -G N signature of the data, also below 0
  -c collective   -F a file per process   -z random order   -p preallocate   -g barriers   -e fsync
  -E existing file   -V file view   -Y sync each write   -d SECONDS pause   -v -q -H -A N: none
  -D SECONDS stonewall   -O NAME=VALUE,... directives, such as stoneWallingWearOut=1,
  stoneWallingWearOutIterations=N, summaryFormat=JSON,summaryFile=FILE, and the options' long names"""


# Options of IOR that Assay does not have, with their meaning there.
IOR_REFUSED = {
    "-m": "a file for each repetition (multiFile)", "-u": "a folder for each file (uniqueDir)",
    "-U": "a file of MPI hints (hintsFileName)", "-K": "keep files with errors (keepFileWithError)",
    "-f": "a script of IOR (scriptFile)", "-j": "a warning of outliers (outlierThreshold)",
    "-M": "memory that is filled on the node (memoryPerNode)", "-N": "a number of tasks (numTasks)",
    "-T": "a limit in minutes (maxTimeDuration)", "-x": "no second try of a transfer (singleXferAttempt)",
    "-y": "two mount points (dualMount)", "-B": "O_DIRECT of POSIX (useO_DIRECT)", "-n": "no fill (noFill)",
    "-P": "a shared file pointer (useSharedFilePointer)", "-S": "strided data types (useStridedDatatype)",
    "-I": "one dataset (individualDataSets)", "-J": "an alignment of HDF5 (setAlignment)",
    "-h": "IOR's help; see 'assay io bench ior --help'",
    "--mpiio.hintsFileName": "a file of MPI hints",
    "--mpiio.useStridedDatatype": "strided data types", "--dryRun": "no input and output at all",
    "--randomPrefill": "a file that is filled before", "--random-offset-seed": "a seed of -z",
    "--warningAsErrors": "warnings as errors", "--posix.odirect": "O_DIRECT of POSIX",
}  # fmt: skip
# They concern IOR's text output, in IOR 2 and 3 too: verbosity, shown hints, shown help, quitting at an error.
IOR_ACCEPTED = ("-v", "-H", "-q", "--mpiio.showHints")


# Flags that IOR counts: given twice they mean something else.
IOR_TWICE = {
    "-z": "random offsets that may overlap", "-Z": "shuffled ranks", "-C": "a shift by several ranks",
}  # fmt: skip


class _Once(Checked):
    """A flag of ``IOR_TWICE``."""

    def take(self, namespace: argparse.Namespace, values: object, option: str) -> str:
        if getattr(namespace, self.dest, False):
            return f"{option} twice is not supported: {IOR_TWICE[self.option_strings[0]]}"
        setattr(namespace, self.dest, True)
        return ""


class _Directives(Checked):
    """-O: sets the parameter of each directive, in the order of the command line."""

    def take(self, namespace: argparse.Namespace, values: object, option: str) -> str:
        for directive in str(values).split(","):
            name, equals, value = (part.strip() for part in directive.partition("="))
            if not equals or name.lower() not in IOR_DIRECTIVES:
                return f"-O {directive}: it is not a directive that is supported"
            destination, read = IOR_DIRECTIVES[name.lower()]
            try:
                setattr(namespace, destination, read(value))
            except argparse.ArgumentTypeError as error:
                return f"-O {directive}: {error}"
        return ""


def ior(arguments: Sequence[str]) -> OriginalOptions:
    """An IOR command line. Without arguments: a default sweep of transfer sizes."""
    if not arguments:
        switches = ("reorder", "read_own", "fsync", "check_write", "write", "read")
        sweep: dict[str, Scalar] = {"transfer": "4096,32768,262144,1048576", "block": 32 << 20}
        return OriginalOptions({**sweep, **dict.fromkeys(switches, True)})
    options = without_program(arguments, "ior", "IOR")
    parsed = vars(_ior_parser().parse_args(options))
    if parsed["api"] is None and len(options) < len(arguments):
        tell("ior: without -a IOR would use POSIX; MPI-IO is measured")
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
        parser.add_argument(*filter(None, (option, IOR_LONG.get(option))), dest=name, type=read)
    for option, name in IOR_FLAGS.items():
        if option in IOR_TWICE:
            parser.add_argument(option, dest=name, action=_Once, nargs=0, default=False)
        else:
            names = filter(None, (option, IOR_LONG.get(option)))
            parser.add_argument(*names, dest=name, action="store_true")
    parser.add_argument("-O", dest="directives", action=_Directives)
    # Assay's records are complete at any verbosity. -A is a number that IOR prints.
    for option in IOR_ACCEPTED:
        parser.add_argument(option, dest="verbose", action="count")
    add_refused(parser, IOR_REFUSED)
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


# Of each benchmark of 'assay io bench': the parser of the original's options, and their help.
ORIGINALS: dict[str, tuple[Callable[[Sequence[str]], OriginalOptions], str]] = {
    "ior": (ior, IOR_HELP),
    "reaction-diffusion": (rdbench, RDBENCH_HELP),
    "hdf5": (h5bench, H5BENCH_HELP),
    "metadata": (mdtest, MDTEST_HELP),
}
