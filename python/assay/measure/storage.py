"""Benchmarks of parallel I/O: stock and accelerated in turns, over numbers of nodes, in one run.

A step is one start of the engine: one variant, on one number of nodes, in one round. The rounds are outermost, so
that stock and accelerated of the same round are measured within seconds of each other.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import UserError
from assay.launch.accelerator import environment
from assay.launch.engines import Described, Metric, Parameter, describe, storage_bench
from assay.launch.launchers import Launcher
from assay.launch.placement import Segment, Site
from assay.launch.supervise import Started
from assay.measure.course import Course
from assay.measure.session import Session, option_words
from assay.records.schema import Measurement, Scalar, Subject
from assay.records.statistics import summarize
from assay.records.storage import ACCELERATED, HDF5, IOR, SOLVER, SPEEDUP, STOCK, side_by_side, speedups

SILENCE_MARGIN_S = 30.0
# What is compared of each benchmark.
COMPARED = {
    IOR: ("bandwidth", "rate"),
    SOLVER: ("bandwidth",),
    HDF5: ("raw_rate", "observed_rate"),
}
SPEEDUP_DESCRIBED = Described(
    name=SPEEDUP,
    scope="group",
    help="the same benchmark accelerated over stock, round by round: assay io bench --both",
    parameters=[
        Parameter("of", "text", "", "", "the benchmark", 0, 0),
        Parameter("figure", "text", "", "", "which of its metrics", 0, 0),
        Parameter("op", "text", "", "", "write or read", 0, 0),
        Parameter("transfer", "integer", "B", "", "size of a transfer", 0, 2**62),
    ],
    metrics=[Metric("ratio", "1", "higher", "accelerated over stock; each round a sample")],
)


@dataclass(frozen=True)
class Accelerator:
    """How the accelerator is asked to work; None leaves it to its own defaults."""

    store: str | None = None
    size: int | None = None
    consistency: str | None = None


@dataclass
class StorageRequest:
    """What is asked of a storage system, by which benchmark. ``hosts``: one for each rank, in rank order."""

    measurement: str
    launcher: Launcher
    site: Site
    hosts: list[str]
    params: dict[str, Scalar]
    variants: Sequence[str]  # of STOCK and ACCELERATED
    nodes: Sequence[int] = ()  # of so many hosts, one after the other; none: all of them
    rounds: int = 3
    timeout: float = 120.0
    accelerator: Accelerator = field(default_factory=Accelerator)
    files: str = ""  # the glob of what is accelerated

    def placements(self) -> list[list[str]]:
        """The ranks' hosts for each number of nodes."""
        distinct = list(dict.fromkeys(self.hosts))
        return [[h for h in self.hosts if h in distinct[:count]] for count in self.nodes or [len(distinct)]]


def measure_storage(session: Session, request: StorageRequest) -> None:
    """All rounds, then what the accelerator gains; of what was measured, also when it ended early."""
    steps = [
        (number, hosts, variant)
        for number in range(1, request.rounds + 1)
        for hosts in request.placements()
        for variant in (request.variants if number % 2 else list(reversed(request.variants)))
    ]
    course = Course([1.0] * len(steps))
    for number, hosts, variant in steps:
        count = len(set(hosts))
        key = f"{request.measurement} {request.launcher.name} {variant}, {count} nodes, round {number}"
        if key not in session.run.info.completed and not session.run_step(
            key,
            _started(request, number, hosts, variant),
            course.step(f"{variant}, round {number}", 1.0),
            request.timeout + SILENCE_MARGIN_S,
            request.launcher,
        ):
            break
        course.completed(1.0)


def _started(request: StorageRequest, number: int, hosts: list[str], variant: str) -> Started:
    engine = storage_bench(request.launcher.flavour)
    params: dict[str, Scalar] = {**request.params, "round": number, "timeout": request.timeout}
    env: dict[str, str] = {}
    if variant == ACCELERATED:
        params["accelerated"] = True
        wanted = request.accelerator
        files = [request.files] if request.files else []
        # Required: what it hands on to the MPI would be measured under its name.
        env = environment(
            request.launcher.flavour, files, wanted.store, wanted.size, wanted.consistency, required=True
        )
    argv = [str(engine), "run", request.measurement, *option_words(params)]
    command = request.launcher.command(request.site, [Segment(hosts, env)], argv)
    silent = [] if request.site.name == "here" else hosts
    return Started(command, request.launcher.environment(request.site), silent)


def compare(session: Session, measurement: str) -> None:
    """A record of what the accelerator gains for each thing that was measured in both ways."""
    for metric in COMPARED[measurement]:
        for pair in list(side_by_side(session.run.records, measurement, metric)):
            if STOCK not in pair or ACCELERATED not in pair:
                continue
            ratios = speedups(pair[STOCK], pair[ACCELERATED])
            if not ratios:
                continue
            about = {key: value for key, value in pair[STOCK].params.items() if key != "io"}
            session.run.append(
                Measurement(
                    name=SPEEDUP,
                    metric="ratio",
                    unit="1",
                    better="higher",
                    subject=Subject(),
                    params={"of": measurement, "figure": metric, **about},
                    summary=summarize(ratios),
                    samples=ratios,
                )
            )


def waive(session: Session, launcher: Launcher, described: Described, reason: str) -> None:
    """Says why something is not there under an MPI."""
    metric = described.metrics[0]
    session.run.append(
        Measurement(
            name=described.name,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            params={"mpi": launcher.name},
            status="waived",
            reason=f"{launcher.name}: {reason}",
        )
    )


def waived_here(flavour: str, measurement: str) -> str | None:
    """Why a benchmark cannot be run with that MPI; None when it can."""
    return describe(storage_bench(flavour)).find(measurement).waived


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A folder of one's own below ``folder``, which every host must see; removed at the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="assay-io-", dir=folder))
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}",
            "name a folder of the file system to measure: --folder",
        ) from None
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
