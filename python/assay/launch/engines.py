"""The engines' executables: their paths, and the measurements that they describe (``--describe``).

Options, documentation, the list of measurements and the check of specifications come from these descriptions, so Python
does not repeat them.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from assay.errors import ORIGIN, REPAIR, UserError
from assay.launch.obstacles import cannot_start
from assay.records.schema import SCHEMA_VERSION, Scalar
from assay.records.units import format_quantity, format_size, parse_size

DESCRIBE_LIMIT_S = 120  # against hangs: an engine loads its MPI, maybe from a slow file system


class Parameter(Struct):
    """A parameter of a measurement."""

    name: str
    kind: Literal["integer", "real", "text", "flag", "integers"]
    unit: str
    default: str
    help: str
    min: float
    max: float

    def bounds(self) -> str:
        """ "from 3 to 100"; of a size "from 4 KiB to 1 TiB", in the shorter of its two notations."""

        def text(bound: float) -> str:
            if self.unit != "B":
                return f"{bound:g}"
            return min(format_size(int(bound)), format_quantity(bound, "B"), key=len)

        return f"from {text(self.min)} to {text(self.max)}"


class Metric(Struct):
    """A figure that a measurement reports."""

    name: str
    unit: str
    better: Literal["higher", "lower", "none"]
    help: str


class MeasurementDescription(Struct):
    """One measurement. ``waived`` is the reason why it cannot run on this host, None when it can."""

    name: str
    scope: Literal["node", "pair", "group"]
    help: str
    parameters: list[Parameter]
    metrics: list[Metric]
    waived: str | None = None

    def check_bounds(self, params: Mapping[str, Scalar]) -> None:
        """Raises UserError for a number out of bounds, before the engine is started; the engine checks lists."""
        for parameter in self.parameters:
            if parameter.name not in params or parameter.kind not in ("integer", "real"):
                continue
            option, value = "--" + parameter.name.replace("_", "-"), params[parameter.name]
            try:
                if parameter.unit == "B":
                    number: float = parse_size(str(value))
                else:
                    number = int(value) if parameter.kind == "integer" else float(value)
            except UserError as error:
                raise UserError(f"{option}: {error.what}", "give " + parameter.bounds()) from None
            except ValueError:
                kind = "a whole number" if parameter.kind == "integer" else "a number"
                raise UserError(f"{option} {value}: not {kind}", parameter.help) from None
            if not parameter.min <= number <= parameter.max:
                raise UserError(f"{option} {value}: out of bounds", "give " + parameter.bounds())


class Fact(Struct):
    """One fact of a host or a device; ``unit`` is empty for a text."""

    name: str
    unit: str
    help: str


class Description(Struct):
    """The output of ``--describe``."""

    schema: int
    version: str
    measurements: list[MeasurementDescription]
    facts: list[Fact]

    def find(self, name: str) -> MeasurementDescription:
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        close = difflib.get_close_matches(name, [m.name for m in self.measurements], n=1, cutoff=0.75)
        suggestion = f"did you mean '{close[0]}'? " if close else ""
        raise UserError(f"no measurement is called '{name}'", f"{suggestion}'assay list' shows all")


def metrics_of(measurements: Iterable[MeasurementDescription]) -> dict[str, str]:
    """Returns every metric with its unit: {"network.all_to_all/bandwidth": "B/s"}."""
    return {
        f"{measurement.name}/{metric.name}": metric.unit
        for measurement in measurements
        for metric in measurement.metrics
    }


def engines_folder() -> Path:
    """Returns the executables' folder: $ASSAY_ENGINES, else an installed package's bin, else the build."""
    if "ASSAY_ENGINES" in os.environ:
        return Path(os.environ["ASSAY_ENGINES"])
    package = Path(__file__).resolve().parent.parent
    installed = package / "bin"
    return installed if installed.is_dir() else package.parent.parent / "build" / "bin"


def probe(flavour: str = "") -> Path:
    """Returns the executable of a flavour: the MPI that it is built for ("openmpi", "mpich", "mpich-wheel"; "" is
    without MPI). Raises UserError."""
    name = f"assay-probe-{flavour}" if flavour else "assay-probe"
    path = engines_folder() / name
    if not path.is_file():
        raise _missing(path, flavour)
    return path


def engine_library(name: str) -> Path:
    """The library of an engine that is built for an ABI of MPI; the engine of that name loads it."""
    return engines_folder() / f"lib{name}.so"


def storage_bench(flavour: str) -> Path:
    """Returns the executable that measures parallel I/O through an MPI's MPI-IO. Raises UserError."""
    path = engines_folder() / f"assay-io-bench-{flavour}"
    if not path.is_file():
        raise _missing(path, flavour)
    return path


def _missing(path: Path, flavour: str) -> UserError:
    if ORIGIN != "checkout":
        return UserError(f"{path} is missing: the package is incomplete", REPAIR)
    reason = f": no {flavour} development files were found when the engines were built" if flavour else ""
    return UserError(f"the engine {path.name} is not built{reason}", f"see 'assay doctor', then '{REPAIR}'")


def flavours() -> list[str]:
    """Returns the MPIs for which an engine is built."""
    return sorted(p.name.removeprefix("assay-probe-") for p in engines_folder().glob("assay-probe-*"))


@functools.cache
def describe(executable: Path) -> Description:
    """Reads an executable's description. Raises UserError, also for another version of the schema."""
    try:
        output = subprocess.run(
            [executable, "--describe"], capture_output=True, timeout=DESCRIBE_LIMIT_S, check=True
        ).stdout
        description = msgspec.json.decode(output, type=Description)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        stderr = getattr(error, "stderr", None) or b""
        raise cannot_start(executable, error, stderr.decode(errors="replace")) from error
    if description.schema != SCHEMA_VERSION:
        raise UserError(
            f"{executable} writes record schema {description.schema}, not {SCHEMA_VERSION}",
            REPAIR,
        )
    return description


def check_transport_here(transport: str) -> None:
    """Checks with the engine whether this host can use a transport ("ofi:shm"). Raises UserError with its message."""
    _ask_engine("--check-transport", transport)


def check_settings(measurement: str, ranks: int, arguments: Sequence[str]) -> None:
    """Lets the engine judge the settings and files of a measurement before ranks start. Raises UserError with its
    message."""
    _ask_engine("check", measurement, str(ranks), *arguments)


def _ask_engine(*arguments: str) -> None:
    """Runs the engine without MPI on a question whose answer is its exit code. Raises UserError with its message."""
    executable = probe()
    try:
        result = subprocess.run(
            [executable, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DESCRIBE_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{executable} does not answer: {error}", REPAIR) from error
    if result.returncode:
        last = result.stderr.strip().rpartition("\n")[2].removeprefix("assay-probe: ")
        message, _, fix = last.partition("; fix: ")
        raise UserError(message or f"{executable} ended with status {result.returncode}", fix)


def describe_if_built() -> Description | None:
    """Returns the description of the measurements without MPI; None if no engine is built."""
    return describe(probe()) if (engines_folder() / "assay-probe").is_file() else None


def describe_storage() -> list[MeasurementDescription]:
    """Returns the benchmarks of parallel I/O, as the first executable that starts describes them: the library of an MPI
    may be missing, which 'assay doctor' tells. Empty if none starts."""
    for executable in sorted(engines_folder().glob("assay-io-bench-*")):
        with contextlib.suppress(UserError):
            return describe(executable).measurements
    return []


def profilers() -> list[Path]:
    """Returns the profilers' executables that are built."""
    paths = [engines_folder() / name for name in ("assay-alloc", "assay-heap")]
    return [path for path in paths if path.is_file()]


def describe_profilers() -> list[MeasurementDescription]:
    """Returns the measurements of the profilers' executables; empty if none is built."""
    return [measurement for path in profilers() for measurement in describe(path).measurements]
