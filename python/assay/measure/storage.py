"""Benchmarks of parallel I/O (``assay io bench``) with the MPI's own I/O ("stock") and with Assay's accelerator.

A step is one start of the engine: a variant on a number of nodes in a round. Rounds are the outermost loop, so that
stock and accelerated of the same round are measured within seconds of each other.
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
from assay.launch.engines import MeasurementDescription, Metric, Parameter, describe, storage_bench
from assay.launch.launchers import Launcher
from assay.launch.mpis import rank_command
from assay.launch.placement import Segment, Site
from assay.launch.supervise import EngineProcess
from assay.measure.engine_processes import option_arguments
from assay.measure.progress import ProgressTracker
from assay.measure.session import Session
from assay.records.schema import Measurement, Scalar, Subject
from assay.records.statistics import summarize
from assay.records.storage import (
    ACCELERATED,
    HDF5,
    IOR,
    METADATA,
    SOLVER,
    SPEEDUP,
    STOCK,
    pair_variants,
    speedups,
)

SILENCE_MARGIN_S = 30.0
# The metrics that are compared, by benchmark.
COMPARED = {
    IOR: ("bandwidth", "rate"),
    SOLVER: ("bandwidth",),
    HDF5: ("raw_rate", "observed_rate"),
    METADATA: ("rate",),
}
SPEEDUP_DESCRIBED = MeasurementDescription(
    name=SPEEDUP,
    scope="group",
    help="ratio of accelerated to stock in the same round: assay io bench --both",
    parameters=[
        Parameter("benchmark", "text", "", "", "the benchmark", 0, 0),
        Parameter("figure", "text", "", "", "the metric", 0, 0),
        Parameter("op", "text", "", "", "write or read", 0, 0),
        Parameter("transfer", "integer", "B", "", "transfer size", 0, 2**62),
    ],
    metrics=[Metric("ratio", "1", "higher", "accelerated divided by stock; a sample per round")],
)


@dataclass(frozen=True)
class AcceleratorOptions:
    """Settings of the accelerator; None: its default."""

    store: str | None = None
    size: int | None = None
    consistency: str | None = None
    until: str | None = None  # when close and sync return: "file" or "memory"


@dataclass
class StorageRequest:
    """A storage measurement to run. ``hosts``: the host of each rank, in rank order."""

    measurement: str
    launcher: Launcher
    site: Site
    hosts: list[str]
    params: dict[str, Scalar]
    variants: Sequence[str]  # of STOCK and ACCELERATED
    nodes: Sequence[int] = ()  # numbers of hosts to use; none: all of them
    rounds: int = 3
    timeout: float = 120.0
    accelerator: AcceleratorOptions = field(default_factory=AcceleratorOptions)
    files: str = ""  # glob of the files to accelerate

    def placements(self) -> list[list[str]]:
        """The ranks' hosts for each number of nodes."""
        distinct = list(dict.fromkeys(self.hosts))
        return [[h for h in self.hosts if h in distinct[:count]] for count in self.nodes or [len(distinct)]]


def measure_storage(session: Session, request: StorageRequest) -> None:
    """Runs all steps, in rounds; stops at the first that fails."""
    steps = [
        (number, hosts, variant)
        for number in range(1, request.rounds + 1)
        for hosts in request.placements()
        for variant in (request.variants if number % 2 else list(reversed(request.variants)))
    ]
    tracker = ProgressTracker([1.0] * len(steps))
    for number, hosts, variant in steps:
        count = len(set(hosts))
        key = f"{request.measurement} {request.launcher.name} {variant}, {count} nodes, round {number}"
        if key not in session.run.info.completed and not session.run_step(
            key,
            _start_command(request, number, hosts, variant),
            tracker.step(f"{variant}, round {number}", 1.0),
            request.timeout + SILENCE_MARGIN_S,
            request.launcher,
        ):
            break
        tracker.completed(1.0)


def _start_command(request: StorageRequest, number: int, hosts: list[str], variant: str) -> EngineProcess:
    engine = storage_bench(request.launcher.flavour)
    params: dict[str, Scalar] = {**request.params, "round": number, "timeout": request.timeout}
    env: dict[str, str] = {}
    if variant == ACCELERATED:
        params["accelerated"] = True
        options = request.accelerator
        files = [request.files] if request.files else []
        # Required: otherwise the MPI's own I/O could be measured as accelerated.
        env = environment(
            request.launcher.flavour,
            files,
            options.store,
            options.size,
            options.consistency,
            required=True,
            until=options.until,
        )
    launcher, arguments = request.launcher, ["run", request.measurement, *option_arguments(params)]
    argv = rank_command(engine, launcher.flavour, launcher.program(), arguments)
    command = request.launcher.command(request.site, [Segment(hosts, env)], argv)
    watched_hosts = [] if request.site.name == "here" else hosts
    return EngineProcess(command, request.launcher.environment(request.site), watched_hosts)


def compare(session: Session, measurement: str) -> None:
    """Appends a speedup record for everything that was measured in both variants."""
    for metric in COMPARED[measurement]:
        for pair in list(pair_variants(session.run.records, measurement, metric)):
            if STOCK not in pair or ACCELERATED not in pair:
                continue
            ratios = speedups(pair[STOCK], pair[ACCELERATED])
            if not ratios:
                continue
            params = {key: value for key, value in pair[STOCK].params.items() if key != "io"}
            session.run.append(
                Measurement(
                    name=SPEEDUP,
                    metric="ratio",
                    unit="1",
                    better="higher",
                    subject=Subject(),
                    params={"benchmark": measurement, "figure": metric, **params},
                    summary=summarize(ratios),
                    samples=ratios,
                )
            )


def waive(session: Session, launcher: Launcher, described: MeasurementDescription, reason: str) -> None:
    """Appends a waived record with the reason for an MPI."""
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


def waived_reason(flavour: str, measurement: str) -> str | None:
    """Why a benchmark cannot run with an MPI; None: it can."""
    return describe(storage_bench(flavour)).find(measurement).waived


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """A temporary folder below ``folder``, which every host must mount; removed at the end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="assay-io-", dir=folder))
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}",
            "give a folder on the file system to measure: --folder",
        ) from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
