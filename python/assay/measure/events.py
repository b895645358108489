"""Event building (``assay eb``): reference measurements of the network, then the event builder itself, in one run.

Ranks start under MPI, or without MPI over one of Assay's own transports. The rates of pairs of hosts
(``network.all_to_all``, one size, pairs in both directions) and of MPI_Alltoall (``events.alltoall``) are measured
first: the event builder's rate is shown as a share of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.errors import UserError
from assay.events.figures import ALLTOALL, BUILD
from assay.launch.launchers import Launcher
from assay.launch.placement import HERE, Segment, Site
from assay.launch.simulator import simulates
from assay.measure.session import Session
from assay.records.memory import available_memory
from assay.records.schema import Context, Scalar
from assay.records.units import format_size

PAIRS = "network.all_to_all"
DEFAULT_MESSAGE = 512 << 10
# Messages of a builder unit from all sources together. Sources are not equally fast, and those ahead wait for the last
# fragment of an event: more of them keep the links busy.
MESSAGES_AWAITED = 48
MAX_CREDITS = 24  # enough for two hosts, where no source waits for another one
SENDS_TO_EACH = 2  # of a source, to each builder unit: the second one follows the first at once
MAX_SENDS = 16  # of a source in flight, as of DAQPIPE's best point: 2 gathers of 8
MAX_MEMORY = 0.8  # of the free memory, as in the event manager
REFERENCE_S = 10.0  # time limit of each measurement for comparison
# Open MPI over TCP asks a message's receiver before it sends more than this, and the answer waits behind the data of
# the other direction. A builder unit has room for what it has given credits for: nothing need be asked.
EAGER_LIMIT = "OMPI_MCA_btl_tcp_eager_limit"
MAX_EAGER = 4 << 20  # Open MPI keeps buffers of the limit's size
HEADERS = 64 << 10  # more than any message has
EAGER_BUFFERS = 40  # that a rank of Open MPI may allocate at once: 8 at the start, then 32
SILENCE_MARGIN_S = 30.0  # beyond the engine's own limit for a message
SIMULATED_SILENCE_S = 600.0  # minutes of computing may pass between two lines


@dataclass
class EventRequest:
    """The hosts and parameters of an event builder. ``launcher`` starts it; ``mpi`` starts the measurements for
    comparison (None: there are none). ``hosts``: one for each rank, in rank order."""

    launcher: Launcher
    site: Site
    hosts: list[str]
    params: dict[str, Scalar] = field(default_factory=dict)
    mpi: Launcher | None = None
    timeout: float = 30.0

    def eager_limit(self, launcher: Launcher) -> int | None:
        """Open MPI's limit (B) for these messages; None where it keeps its own, or the user's."""
        size = self.params.get("fragment", DEFAULT_MESSAGE)
        if launcher.flavour != "openmpi" or EAGER_LIMIT in os.environ:
            return None
        return size + HEADERS if isinstance(size, int) and size <= MAX_EAGER else None

    def segments(self, launcher: Launcher) -> list[Segment]:
        """The ranks as a launcher starts them, with what its MPI needs for messages of this size."""
        limit = self.eager_limit(launcher)
        return [Segment(self.hosts, {} if limit is None else {EAGER_LIMIT: str(limit)})]

    @property
    def is_simulated(self) -> bool:
        return simulates(self.launcher)

    @property
    def silence_s(self) -> float:
        return SIMULATED_SILENCE_S if self.is_simulated else self.timeout + SILENCE_MARGIN_S

    def common(self) -> dict[str, Scalar]:
        """Parameters of every measurement of the run."""
        common: dict[str, Scalar] = {"timeout": self.timeout}
        crowded = len(set(self.hosts)) < len(self.hosts)
        if self.site.lab or crowded or self.is_simulated:
            common["yield_us"] = 0  # ranks share cores
        return common


def per_rank(hosts: Sequence[str], processes: int) -> list[str]:
    """The host of each rank, ``processes`` on each host, those of a host in a row."""
    return [host for host in hosts for _ in range(processes)]


def measure_events(session: Session, request: EventRequest) -> None:
    """Measures the reference rates, then the event builder."""
    if (limit := request.eager_limit(request.launcher)) is not None:
        session.run.append(Context(facts={"openmpi.btl_tcp_eager_limit": limit}))
    measure_reference(session, request)
    session.measure(
        BUILD,
        request.launcher,
        request.site,
        request.segments(request.launcher),
        {**request.common(), **request.params},
        request.silence_s,
        late_s=request.timeout,
    )


def measure_reference(session: Session, request: EventRequest) -> None:
    """Measures the rates of pairs and of MPI_Alltoall. A failure is recorded and does not end the run."""
    if request.mpi is None:
        return
    size = request.params.get("fragment", "512KiB")
    budget = min(REFERENCE_S, float(request.params.get("duration", REFERENCE_S)) or REFERENCE_S)
    measurements: list[tuple[str, Mapping[str, Scalar]]] = [
        (ALLTOALL, {"fragment": size, "budget": budget}),
    ]
    if len(set(request.hosts)) > 1:
        measurements.insert(0, (PAIRS, {"sizes": size, "budget": budget, "op": "send", "nflight": 4}))
    for name, params in measurements:
        session.measure(
            name,
            request.mpi,
            request.site,
            request.segments(request.mpi),
            {**request.common(), **params},
            request.silence_s,
            late_s=request.timeout,
        )
        session.continue_after_failure()


def network_credits(ranks: int) -> int:
    """The default number of events that a builder unit gathers at once over a network.

    A builder's link is idle if its events arrive faster than the event manager answers, whose messages wait behind
    others. An event has few messages where there are few ranks, so they need more events.
    """
    return min(MAX_CREDITS, max(2, -(-MESSAGES_AWAITED // max(1, ranks - 1))))


def network_in_flight(ranks: int) -> int:
    """The default number of sends in flight of a source over a network.

    With fewer sends than builders, some links are idle while others are shared by several sources.
    """
    return max(4, min(MAX_SENDS, SENDS_TO_EACH * (ranks - 1)))


def check_ranks(hosts: Sequence[str], filters: int, units: str) -> None:
    """Raises UserError where the ranks cannot take the units that are asked for."""
    if len(hosts) < 2:
        raise UserError("one rank alone builds no events", "name at least two hosts")
    if filters > len(hosts) - 2:
        raise UserError(
            f"--filters {filters} leaves no two of {len(hosts)} ranks to build events",
            f"give at most {len(hosts) - 2}",
        )
    if units == "split" and len(hosts) - filters < 2:
        raise UserError("--units split needs a readout and a builder unit", "name more hosts")


def check_memory(request: EventRequest) -> None:
    """Raises UserError where all ranks share this machine's memory, and their buffers do not fit into it. The event
    manager checks the memory of ranks on other hosts when they connect."""
    if request.is_simulated or not (request.site.lab or request.site.name == HERE.name):
        return
    size = request.params.get("fragment", DEFAULT_MESSAGE)
    ranks, credits = len(request.hosts), request.params.get("credits", 2)
    if request.params.get("sizes_file") or not isinstance(size, int) or not isinstance(credits, int):
        return
    sources = ranks - int(request.params.get("filters", 0))
    if request.params.get("units") == "split":
        sources //= 2
    # A builder unit gathers a message of every source for each credit; a source keeps as many.
    eager = EAGER_BUFFERS * ranks * (request.eager_limit(request.launcher) or 0)
    needed, free = 2 * sources * sources * credits * size + eager, available_memory()
    if needed > MAX_MEMORY * free:
        raise UserError(
            f"--size {format_size(size)}: the buffers of {ranks} ranks need {needed / 2**30:.1f} GiB, "
            f"{free / 2**30:.1f} GiB are free here",
            "lower --size, --credits or the ranks",
        )
