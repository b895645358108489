"""Parses the options of the original benchmarks (IOR, RDBench, h5bench) into parameters of the engine.

``assay io bench ior -t 32k -b 192m -C -e`` means the same as for IOR, so scripts keep their options. An option that
Assay does not support is an error; it is never ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from assay.errors import UserError
from assay.records.schema import Scalar
from assay.records.units import parse_size


class _Original(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{self.prog}: {message}", f"see 'assay io bench {self.prog} --help'")


def ior_size(text: str) -> int:
    """IOR's sizes: 32k, 192m, 1g are binary."""
    return parse_size(text.upper() if text[-1:] in "mg" and text[:-1].isdigit() else text)


def _size(text: str) -> int:
    try:
        return ior_size(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer")
    return int(text)


def _mpiio(text: str) -> str:
    if text.upper() != "MPIIO":
        raise argparse.ArgumentTypeError(
            f"'{text}': only MPIIO is supported; for a node's own storage see 'assay io device'"
        )
    return text


# IOR's flags and the engine's parameters for them.
IOR_FLAGS = {
    "-w": "write", "-r": "read", "-W": "check_write", "-R": "check_read", "-c": "collective", "-C": "reorder",
    "-e": "fsync", "-F": "file_per_process", "-g": "barriers", "-k": "keep", "-z": "random", "-p": "preallocate",
}  # fmt: skip
IOR_HELP = """IOR's own options (after '--' for those that Assay has too: -w, -o, -v):
  -a MPIIO   -t SIZE transfer   -b SIZE block   -s N segments   -i N repetitions   -o FILE test file
  -w write   -r read   -W check written data   -R check read data   -k keep the file
  -C read another rank's data   -Q N distance in nodes for -C   -G N signature of the data
  -c collective   -F a file per process   -z random order   -p preallocate   -g barriers   -e fsync"""


def ior_parameters(arguments: Sequence[str]) -> dict[str, Scalar]:
    """Parameters of an IOR command line. Without arguments: a default sweep of transfer sizes."""
    if not arguments:
        return {"transfer": "4096,32768,262144,1048576", "block": 32 << 20, "reorder": True, "read_own": True,
                "fsync": True, "check_write": True, "write": True, "read": True}  # fmt: skip
    parser = _Original(prog="ior", add_help=False, allow_abbrev=False)
    parser.add_argument("-a", type=_mpiio)
    parser.add_argument("-t", dest="transfer", type=_size, default=256 << 10)
    parser.add_argument("-b", dest="block", type=_size, default=1 << 20)
    for option, name in (
        ("-s", "segments"),
        ("-i", "repetitions"),
        ("-Q", "task_offset"),
        ("-G", "signature"),
    ):
        parser.add_argument(option, dest=name, type=_number)
    parser.add_argument("-o", dest="file")
    for option, name in IOR_FLAGS.items():
        parser.add_argument(option, dest=name, action="store_true")
    parsed = vars(parser.parse_args(arguments))
    parsed.pop("a")
    if parsed["block"] % parsed["transfer"]:
        raise UserError(
            f"ior: a block (-b) of {parsed['block']} B is not a multiple of a transfer (-t) of {parsed['transfer']} B",
            "e.g. -t 32k -b 192m",
        )
    return {name: value for name, value in parsed.items() if value not in (None, False)}


RDBENCH_HELP = """RDBench's own options:
  -L N edge of the square   -s N steps   -i N steps between snapshots   --iotype manual|view|chunk
  -c collective   --nosync   --xnp N, --ynp N ranks in x and y
  -o PREFIX prefix of the files, which are then kept (after '--')"""


def rdbench_parameters(arguments: Sequence[str]) -> dict[str, Scalar]:
    parser = _Original(prog="reaction-diffusion", add_help=False, allow_abbrev=False)
    for options, name in (
        (("-L", "--length"), "length"),
        (("-s", "--steps"), "steps"),
        (("-i", "--interval"), "interval"),
        (("--xnp",), "xnp"),
        (("--ynp",), "ynp"),
    ):
        parser.add_argument(*options, dest=name, type=_number)
    parser.add_argument("--iotype", choices=["manual", "view", "chunk"])
    parser.add_argument("-c", "--collective", action="store_true")
    parser.add_argument("--nosync", action="store_true")
    parser.add_argument("-o", "--output", dest="file")
    parsed = vars(parser.parse_args(list(arguments)))
    parsed["keep"] = parsed["file"] is not None  # as RDBench does
    return {name: value for name, value in parsed.items() if value not in (None, False)}


H5BENCH_HELP = """h5bench's own settings, as KEY=VALUE or in a file of them (--config FILE): MEM_PATTERN and
FILE_PATTERN (CONTIG|INTERLEAVED), READ_OPTION (FULL|PARTIAL|STRIDED), TO_READ_NUM_PARTICLES,
STRIDE_SIZE, BLOCK_SIZE, TIMESTEPS, COLLECTIVE_DATA, COLLECTIVE_METADATA, NUM_DIMS, DIM_1, DIM_2,
DIM_3, EMULATED_COMPUTE_TIME_PER_TIMESTEP. Async I/O and compression are not measured."""

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
    "BENCHMARK_TYPE": ("write", "read"),
    "COMPRESS": ("NO",),
    "DELAYED_CLOSE_TIMESTEPS": ("0", "1", "2"),
}


def h5bench_parameters(arguments: Sequence[str]) -> dict[str, Scalar]:
    """Parameters of KEY=VALUE settings, with values as in h5bench: "1 K", "8 M", "YES", "1 s"."""
    params: dict[str, Scalar] = {}
    for argument in arguments:
        key, equals, value = (part.strip() for part in argument.partition("="))
        if not equals:
            raise UserError(f"hdf5: '{argument}' is not a setting", "write KEY=VALUE, e.g. DIM_1=1M")
        params |= _h5bench_setting(key.upper(), value)
    return params


def _h5bench_setting(key: str, value: str) -> dict[str, Scalar]:
    if key in H5BENCH_NUMBERS:
        return {key.lower(): _scaled(key, value)}
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
    if key == "EMULATED_COMPUTE_TIME_PER_TIMESTEP":
        return {"compute_time": _seconds(key, value)}
    if value in H5BENCH_ACCEPTED.get(key, ()):
        return {}
    keys = [*H5BENCH_NUMBERS, *H5BENCH_SWITCHES, *H5BENCH_CHOICES, "EMULATED_COMPUTE_TIME_PER_TIMESTEP"]
    raise UserError(f"hdf5: {key}={value} is not supported", f"choose one of {', '.join(keys)}")


def _scaled(key: str, value: str) -> int:
    """h5bench's counts: "1 K" is 1024 of them, "8 M" 8 * 1024 * 1024."""
    number, factor = value.replace(" ", ""), 1
    if number[-1:].upper() in ("K", "M", "G"):
        factor = 1024 ** (" KMG".index(number[-1].upper()))
        number = number[:-1]
    if not number.isdigit():
        raise UserError(f"hdf5: {key}={value} is not a number", "e.g. 1024, 1K or 8M")
    return int(number) * factor


def _seconds(key: str, value: str) -> float:
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
        raise UserError(
            f"--config {path}: cannot be read: {error}", "give a file of h5bench settings"
        ) from None
    return [text for line in lines if (text := line.split("#", 1)[0].strip())]


READERS: dict[str, tuple[Callable[[Sequence[str]], dict[str, Scalar]], str]] = {
    "ior": (ior_parameters, IOR_HELP),
    "reaction-diffusion": (rdbench_parameters, RDBENCH_HELP),
    "hdf5": (h5bench_parameters, H5BENCH_HELP),
}
