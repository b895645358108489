"""The Network Sanitizer: the sweep, then the retest of whatever looks slow.

Two modes, two measurements of the engine: clients against servers (``network.client_server``), or all
against all in rounds of pairs (``network.all_to_all``). A suspect of the sweep is measured again, alone,
against good partners (``network.pairs``): what stays slow is a fault, what recovers was congestion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.explain import PairMatrix, plan_retest, suspects
from assay.launch.launchers import Launcher
from assay.launch.placement import Segment, Site
from assay.measure.adapters import binding
from assay.measure.session import Session
from assay.records.schema import Scalar

# How long an engine may say nothing beyond its own limit for a message, before it is taken for lost.
SILENCE_MARGIN_S = 30.0


@dataclass
class NetworkRequest:
    """A network measurement: who takes part, and with which parameters. Times in seconds, sizes in bytes."""

    launcher: Launcher
    site: Site
    servers: list[str]
    clients: list[str]
    adapters: list[str] = field(default_factory=list)
    params: dict[str, Scalar] = field(default_factory=dict)  # of the engine, both measurements
    timeout: float = 30.0
    retest: bool = True

    @property
    def measurement(self) -> str:
        return "network.client_server" if self.servers else "network.all_to_all"

    def segments(self) -> list[Segment]:
        """Servers first, a rank for each adapter, bound to it; then the clients."""
        bound = [
            Segment([server], binding(self.launcher.flavour, adapter))
            for server in self.servers
            for adapter in self.adapters
        ]
        servers = bound or ([Segment(self.servers)] if self.servers else [])
        return [*servers, Segment(self.clients)]


def measure_network(session: Session, request: NetworkRequest) -> None:
    """The sweep and, when it finished and something looks slow, the retest."""
    segments = request.segments()
    params: dict[str, Scalar] = {**request.params, "timeout": request.timeout}
    if request.site.lab:
        params["yield_us"] = 0  # lab hosts share this machine's cores
    endpoints = len(request.servers) * max(1, len(request.adapters))
    roles: dict[str, Scalar] = {"servers": endpoints} if request.servers else {}
    silence = request.timeout + SILENCE_MARGIN_S
    finished = session.measure(
        request.measurement, request.launcher, request.site, segments, {**params, **roles}, silence
    )
    if finished and request.retest:
        _retest(session, request, segments, params, silence)


def _retest(
    session: Session,
    request: NetworkRequest,
    segments: Sequence[Segment],
    params: dict[str, Scalar],
    silence: float,
) -> None:
    """Suspects against good partners, one pair at a time, with messages as long as those that showed them."""
    labels = rank_labels(segments)
    matrix = PairMatrix.of_bandwidth(session.run.records, labels)
    pairs = plan_retest(suspects(matrix), matrix)
    if not pairs:
        return
    ranks = {label: rank for rank, label in enumerate(labels)}
    chosen: dict[str, Scalar] = {
        "pairs": ",".join(f"{ranks[source]}-{ranks[target]}" for source, target in pairs),
        "size": min(int(size) for _, _, size in matrix.layers),
        "timeout": request.timeout,
    }
    if "yield_us" in params:
        chosen["yield_us"] = params["yield_us"]
    session.err.print(f"retesting {len(pairs)} pairs, each alone")
    session.measure("network.pairs", request.launcher, request.site, segments, chosen, silence)


def rank_labels(segments: Sequence[Segment]) -> list[str]:
    """The engine's name of each rank: its host, or host:0, host:1 where a host has several ranks."""
    hosts = [host for segment in segments for host in segment.hosts]
    several = {host for host, count in Counter(hosts).items() if count > 1}
    seen: Counter[str] = Counter()
    labels = []
    for host in hosts:
        labels.append(f"{host}:{seen[host]}" if host in several else host)
        seen[host] += 1
    return labels
