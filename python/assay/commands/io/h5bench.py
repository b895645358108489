"""Parses the settings of h5bench: KEY=VALUE, a file of them, its JSON, or its command lines.

A setting means what it means in h5bench (commons/h5bench_util.c). Where that is not what its author can mean, it is
refused: "500ms" without a blank is 500 s there, and NUM_PARTICLES without DIM_1 is one particle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.commands.io.original import OriginalOptions
from assay.errors import UserError
from assay.records.foreign import Wanted, read_text
from assay.records.schema import Scalar

H5BENCH_HELP = """h5bench's own settings, as KEY=VALUE or in a file of them (--config FILE): MEM_PATTERN and
FILE_PATTERN (CONTIG|INTERLEAVED), READ_OPTION (FULL|PARTIAL|STRIDED), TO_READ_NUM_PARTICLES,
STRIDE_SIZE, BLOCK_SIZE, TIMESTEPS, COLLECTIVE_DATA, COLLECTIVE_METADATA, NUM_DIMS, DIM_1, DIM_2,
DIM_3, EMULATED_COMPUTE_TIME_PER_TIMESTEP, CSV_FILE (as --h5bench-csv), BENCHMARK_TYPE=write|read
or IO_OPERATION=WRITE|READ (default: both), FILE (Assay's own: kept). NUM_PARTICLES changes nothing,
as in h5bench: DIM_1 to DIM_3 count. Async I/O and compression are not measured.
h5bench's command lines follow '--': h5bench_write CONFIG FILE, h5bench_read CONFIG FILE. Of a JSON
each takes its own part; h5bench FILE.json measures what is in it."""

SETTINGS = Wanted(
    "settings of h5bench", "give KEY=VALUE lines or h5bench's JSON", ("h5bench", "h5bench.json")
)
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
    "ASYNC_MODE": ("NON", "SYNC"),  # of older versions
    "COMPRESS": ("NO", "N"),
    "FILE_PER_PROC": ("NO", "N"),
    "SUBFILING": ("NO", "N"),
    "ALIGN": ("NO", "N"),
    "DELAYED_CLOSE_TIMESTEPS": ("0", "1", "2"),
}
H5BENCH_OPERATIONS = ("BENCHMARK_TYPE", "IO_OPERATION")
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?)(?: *| *s| +(ms|us|min))", re.IGNORECASE)


H5BENCH_PROGRAMS = {"h5bench_write": "write", "h5bench_read": "read"}
MAX_SHOWN = 200  # characters of a setting in an error
SETUP = "h5bench"  # the script that runs what a JSON says
SETUP_OPTIONS = ("-a", "--abort-on-failure", "-d", "--debug", "-v", "--validate-mode")  # without effect here


def h5bench(arguments: Sequence[str]) -> OriginalOptions:
    """KEY=VALUE settings, with values as in h5bench: "1 K", "8 M", "YES", "1 s"; or a command line of h5bench."""
    params: dict[str, Scalar] = {}
    results = None
    for argument in _h5bench_settings(arguments):
        key, equals, value = (part.strip() for part in argument.partition("="))
        if not equals:
            is_file = len(argument) < MAX_SHOWN and Path(argument).is_file()
            raise UserError(
                f"hdf5: '{argument[:MAX_SHOWN]}' is not a setting",
                f"for a file of them write --config {argument}"
                if is_file
                else "write KEY=VALUE, e.g. DIM_1=1M",
            )
        if key.upper() == "CSV_FILE":
            results = Path(value)
        else:
            params |= _h5bench_setting(key.upper(), value)
    if params.get("read") and params.get("write"):
        raise UserError(
            "hdf5: one setting says write, another read",
            f"for both leave out {' and '.join(H5BENCH_OPERATIONS)}",
        )
    if "num_particles" in params and "dim_1" not in params:
        raise UserError(
            "hdf5: NUM_PARTICLES without DIM_1 is one particle in h5bench", "write the number as DIM_1"
        )
    params.pop("num_particles", None)
    if params.get("read") and "file" not in params:
        raise UserError("hdf5: the file to read is not given", "h5bench_read CONFIG FILE")
    return OriginalOptions(params, results)


def _h5bench_settings(arguments: Sequence[str]) -> list[str]:
    """The settings of a command line of h5bench (``h5bench_write CONFIG FILE``, ``h5bench FILE.json``), whose program
    may be given by a path; other arguments unchanged."""
    if arguments and Path(arguments[0]).name in (SETUP, *H5BENCH_PROGRAMS):
        arguments = [Path(arguments[0]).name, *arguments[1:]]
    if arguments and arguments[0] == SETUP:
        return _of_setup(arguments[1:])
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
        *h5bench_file(Path(positional[1]), H5BENCH_PROGRAMS[program]),
        *others,
        f"BENCHMARK_TYPE={H5BENCH_PROGRAMS[program]}",
        f"FILE={positional[2]}",
    ]


def _of_setup(arguments: Sequence[str]) -> list[str]:
    option = next((x for x in arguments if x.startswith("-") and x not in SETUP_OPTIONS), "")
    if option:
        raise UserError(f"hdf5: {SETUP} {option}: not supported", f"{SETUP} FILE.json")
    files = [argument for argument in arguments if "=" not in argument and not argument.startswith("-")]
    if len(files) != 1:
        raise UserError(
            f"hdf5: {' '.join([SETUP, *files])}: not a command line of h5bench", f"{SETUP} FILE.json"
        )
    return [*h5bench_file(Path(files[0])), *(argument for argument in arguments if "=" in argument)]


def _h5bench_setting(key: str, value: str) -> dict[str, Scalar]:
    if key in H5BENCH_NUMBERS or key == "NUM_PARTICLES":
        return {key.lower(): _parse_number(key, value)}
    if key in H5BENCH_SWITCHES:
        if value.upper() not in ("YES", "NO", "Y", "N"):
            raise UserError(f"hdf5: {key}={value} must be YES or NO", f"e.g. {key}=YES")
        return {key.lower(): True} if value.upper() in ("YES", "Y") else {}
    if key in H5BENCH_CHOICES:
        if value.upper() not in H5BENCH_CHOICES[key]:
            raise UserError(
                f"hdf5: {key}={value} is not supported", f"choose one of {', '.join(H5BENCH_CHOICES[key])}"
            )
        return {key.lower(): value.upper()}
    if key in H5BENCH_OPERATIONS and value.lower() in ("write", "read"):
        return {value.lower(): True}
    if key == "FILE":  # h5bench does not remove the file of a command line
        return {"file": value, "keep": True}
    if key == "EMULATED_COMPUTE_TIME_PER_TIMESTEP":
        return {"compute_time": _parse_seconds(key, value)}
    if key == "IO_MEM_LIMIT":  # of asynchronous I/O, which its mode asks for
        _parse_number(key, value)
        return {}
    if value.upper() in H5BENCH_ACCEPTED.get(key, ()):
        return {}
    if key in H5BENCH_ACCEPTED or key in H5BENCH_OPERATIONS:
        known = H5BENCH_ACCEPTED[key][0] if key in H5BENCH_ACCEPTED else "write or read"
        raise UserError(f"hdf5: {key}={value} is not supported", f"{key}={known}")
    keys = [*H5BENCH_NUMBERS, *H5BENCH_SWITCHES, *H5BENCH_CHOICES, "EMULATED_COMPUTE_TIME_PER_TIMESTEP"]
    raise UserError(f"hdf5: the setting {key} is not supported", f"choose among {', '.join(keys)}")


def _parse_number(key: str, value: str) -> int:
    """A number as h5bench writes it: "1 K" is 1024, "8 M" is 8 * 1024 * 1024."""
    number, factor = value.replace(" ", ""), 1
    if number[-1:].upper() in ("K", "M", "G", "T"):
        factor = 1024 ** (" KMGT".index(number[-1].upper()))
        number = number[:-1]
    if not (number.isascii() and number.isdecimal()):
        raise UserError(f"hdf5: {key}={value} is not a number", "e.g. 1024, 1K or 8M")
    return int(number) * factor


def _parse_seconds(key: str, value: str) -> float:
    """A time as h5bench writes it: "1 s", "500 ms"; seconds without a unit."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise UserError(f"hdf5: {key}={value} is not a time", "e.g. '1 s' or '500 ms'")
    return float(match[1]) * {"ms": 1e-3, "us": 1e-6, "min": 60.0}.get((match[2] or "").lower(), 1.0)


def h5bench_file(path: Path, operation: str = "") -> list[str]:
    """The settings in an h5bench file: KEY=VALUE per line, "#" begins a comment; or JSON, as h5bench ships it, of which
    ``operation`` (write or read) is taken alone."""
    text = read_text(path, SETTINGS)
    if text.lstrip().startswith("{"):
        return _h5bench_json(path, text, operation)
    settings = []
    for number, line in enumerate(text.splitlines(), 1):
        if stripped := line.split("#", 1)[0].strip():
            if "=" not in stripped:
                raise UserError(
                    f"--config {path}:{number}: '{stripped[:MAX_SHOWN]}' is not a setting", SETTINGS.fix
                )
            settings.append(stripped)
    return settings


class _Benchmark(msgspec.Struct):
    benchmark: str
    configuration: dict[str, str | int] = {}


class _Configuration(msgspec.Struct):
    benchmarks: list[_Benchmark]


def _h5bench_json(path: Path, text: str, operation: str) -> list[str]:
    """The settings of one write, of one read, or of both where they agree; of ``operation`` alone if given. Assay
    starts the ranks and knows no VOL, so what the file says of them is not used."""
    try:
        benchmarks = msgspec.json.decode(text, type=_Configuration).benchmarks
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"--config {path}: not a configuration of h5bench: {error}", SETTINGS.fix) from None
    if operation:
        benchmarks = [benchmark for benchmark in benchmarks if benchmark.benchmark == operation]
    kinds = [benchmark.benchmark for benchmark in benchmarks]
    other = next((kind for kind in kinds if kind not in ("write", "read")), "")
    if other or not kinds or len(set(kinds)) < len(kinds):
        problem = f"the benchmark '{other}'" if other else f"{len(kinds)} benchmarks ({', '.join(kinds)})"
        if operation and not kinds:
            problem = f"no benchmark '{operation}'"
        raise UserError(f"--config {path}: {problem}", "keep one write, one read, or one of each in it")
    settings = [{**dict.fromkeys(H5BENCH_SWITCHES, "NO"), **x.configuration} for x in benchmarks]
    for key in settings[0]:
        if settings[0][key] != settings[-1].get(key, settings[0][key]):
            raise UserError(
                f"--config {path}: {key} of write and of read differ",
                f"measure them one by one: -- h5bench_write {path} FILE, then -- h5bench_read {path} FILE",
            )
    merged = {key: value for each in settings for key, value in each.items()}
    return [f"{key}={value}" for key, value in merged.items()] + (
        [f"BENCHMARK_TYPE={kinds[0]}"] if len(kinds) == 1 else []
    )
