"""The measurements of ``assay net``: the sweep, each direction alone, then the retest of suspects.

The sweep has two modes: clients against servers (``network.client_server``), or all against all in rounds of pairs
(``network.all_to_all``). Both load the two directions of a host at once, so each direction is also measured alone
(``network.one_way``). A suspect is measured again, alone, against good partners (``network.pairs``): if it stays slow
it is a fault, if it recovers it was congestion. A suspected group of hosts is measured again with all its flows at
once, and so are other groups for comparison (``network.saturation``).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from assay.explain import PairMatrix, join_suspects, one_way_suspects, plan_groups, plan_retest, suspects
from assay.explain.group_retest import SHAPE
from assay.explain.matrix import BANDWIDTH_SIZE, host_of
from assay.explain.retest import CONTROL_PAIRS, MORE_CONTROL_PAIRS, MORE_OWN_PAIRS, OWN_PAIRS
from assay.explain.suspect import Suspect
from assay.lab.traffic import planted_rate
from assay.launch.launchers import Launcher
from assay.launch.placement import Segment, Site
from assay.launch.simulator import simulates
from assay.measure.adapters import binding
from assay.measure.engine_processes import SIMULATED_START_S
from assay.measure.saturation import SaturationRequest, measure_rounds
from assay.measure.session import Session
from assay.model.rounds import Round
from assay.model.study import Effort
from assay.records.schema import Context, Scalar, Subject

# An engine that prints nothing for this long beyond its own limit for a message counts as lost.
SILENCE_MARGIN_S = 30.0
# Share of the time budget for the sweep. Of the rest, the retest gets the time for what the sweep suspects, at most
# RETEST_SHARE of it but that for one suspect at least; the one-way measurement gets what is left.
SWEEP_SHARE, RETEST_SHARE = 0.45, 0.6
MIN_S = 1.0  # least time of a measurement, however little of the budget is left
LAUNCH_S = 1.0  # time to start and end an MPI job
# To retest a pair (engines/network/pairs.cpp): its ping-pong, its first messages and one burst, which is longer than
# requested where a shaper or a buffer takes the first messages faster than the rest.
PING_PONG_S, FIRST_MESSAGES, BURST_S = 0.05, 3, 0.3
PAIRS_OF_ONE = OWN_PAIRS + CONTROL_PAIRS  # to retest one suspect
# Pairs of a suspect and controls: with time, with little time, and where not even a single suspect fits.
EFFORTS = ((MORE_OWN_PAIRS, MORE_CONTROL_PAIRS), (OWN_PAIRS, CONTROL_PAIRS))
LEAST_EFFORT = (OWN_PAIRS, OWN_PAIRS)
GROUP_S, SHORTEST_GROUP_S, SIMULATED_S = 0.4, 0.1, 1e-3  # to retest a group: usual, least, in a simulation
# The flows of a group keep so many messages in flight. Those of the first and last moment do not count: their time is
# at most this share of a group's.
IN_FLIGHT, SHARE_IN_FLIGHT = 2, 0.25
# The flows of a group run longer than requested, so that all overlap (engines/network/saturation/flows.cpp).
GROUP_OVERRUN = 1.5
GROUPS_SHARE = 0.5  # largest share of the retest's time that is kept for groups
PASSES = 8  # of the one-way measurement, at most


Pair = tuple[str, str]


@dataclass
class NetworkRequest:
    """A network measurement: who takes part, and with which parameters. Times in seconds, sizes in bytes."""

    launcher: Launcher
    site: Site
    servers: list[str]
    clients: list[str]
    adapters: list[str] = field(default_factory=list)
    params: dict[str, Scalar] = field(default_factory=dict)  # of the engine's sweep
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


class TimeBudget:
    """The time of a run, from its first launch on. ``budget`` in seconds; 0: no limit. A simulation has no limit,
    because simulated time is not this clock's.

    ``launch``: seconds that an engine takes beyond its own budget, to start and to end; on a busy machine several.
    ``pair``: seconds to retest a pair."""

    def __init__(self, budget: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.launch = LAUNCH_S
        self.pair = PING_PONG_S + BURST_S
        self._clock = clock
        self._begun = clock()

    def next(self, reserve: float = 0.0) -> float:
        """Returns the time for the next engine, if ``reserve`` is to be left after it; 0 without a limit."""
        return max(MIN_S, self.left() - reserve - self.launch) if self.budget else 0.0

    def left(self) -> float:
        return self.budget - (self._clock() - self._begun)

    def measure_launch(self, engine_budget: float) -> None:
        """Sets ``launch`` from the time that the first engine took beyond ``engine_budget``."""
        self.launch = max(LAUNCH_S, self.budget - self.left() - engine_budget)

    def expect_pairs(self, size: int, rate: float) -> None:
        """Sets ``pair`` for messages of ``size`` bytes at ``rate`` B/s."""
        self.pair = PING_PONG_S + BURST_S + FIRST_MESSAGES * size / rate


def measure_network(session: Session, request: NetworkRequest) -> None:
    """Measures the sweep; when it finished, each direction alone; and retests suspects, if there are any."""
    segments = request.segments()
    budget = float(request.params.get("budget", 0))
    time_budget = TimeBudget(0.0 if simulates(request.launcher) else budget)
    common: dict[str, Scalar] = {"timeout": request.timeout}
    if request.site.lab:
        common["yield_us"] = 0  # lab hosts share this machine's cores
    endpoints = len(request.servers) * max(1, len(request.adapters))
    roles: dict[str, Scalar] = {"servers": endpoints} if request.servers else {}
    silence = request.timeout + SILENCE_MARGIN_S
    if simulates(request.launcher):
        silence = max(silence, SIMULATED_START_S)

    def measure(name: str, params: dict[str, Scalar]) -> bool:
        return session.measure(name, request.launcher, request.site, segments, {**common, **params}, silence)

    sweep = {**request.params, **roles}
    if time_budget.budget and request.retest:
        sweep["budget"] = SWEEP_SHARE * time_budget.budget
    finished = measure(request.measurement, sweep)
    _record_planted_rate(session, request.site)
    if not finished or not request.retest:
        return
    time_budget.measure_launch(float(sweep.get("budget", 0.0)))
    labels = session.labels or rank_labels(segments)
    session.run.info.hosts = [host_of(label) for label in labels]
    matrix = PairMatrix.of_bandwidth(session.run.records, labels)
    if not matrix.value.size:
        return  # ranks of one host
    size = min(int(size) for _, _, size in matrix.layers)
    time_budget.expect_pairs(size, matrix.typical)
    has_own_ranks = not request.servers and len(set(map(host_of, labels))) == len(labels)
    loaded = suspects(matrix)
    groups = plan_groups(loaded, matrix) if has_own_ranks else []
    retest_s = _seconds_for_retest(loaded, matrix, groups, time_budget)
    one_way_s = time_budget.next(time_budget.launch + retest_s)
    if not measure("network.one_way", {**roles, "size": size, "repeats": PASSES, "budget": one_way_s}):
        return
    one_way = PairMatrix.of_one_way(session.run.records, labels)
    suspected = join_suspects(loaded, one_way_suspects(one_way))
    ranks = {label: rank for rank, label in enumerate(labels)}

    groups = plan_groups(suspected, matrix) if has_own_ranks else []
    reserve = _seconds_for_groups(groups, time_budget)
    pairs = _affordable_pairs(suspected, matrix, time_budget, reserve)
    if not pairs:
        return
    session.err.print(f"retesting {len(pairs)} pairs, each alone")
    chosen = ",".join(f"{ranks[source]}-{ranks[target]}" for source, target in pairs)
    if not measure("network.pairs", {"pairs": chosen, "size": size, "budget": time_budget.next(reserve)}):
        return
    if groups:
        slowest = min(suspect.effect for suspect in suspected if suspect.side == "block")
        rate = matrix.typical * math.exp(slowest)
        _measure_groups(session, request, labels, groups, (size, rate), time_budget)


def _record_planted_rate(session: Session, site: Site) -> None:
    """Records the planted rate of a lab's hosts, since the links of a lab report no rate."""
    rates = [planted_rate(site.lab.rates, side) for side in ("tx", "rx")] if site.lab else []
    slowest = min((rate for rate in rates if rate is not None), default=None)
    if site.lab is None or slowest is None:
        return
    known = {r.subject.host for r in session.run.records if isinstance(r, Context) and "lab.rate" in r.facts}
    for host in site.lab.hosts:
        if host not in known:
            subject = Subject(host=host, device=site.interface)
            session.run.append(Context(subject=subject, facts={"lab.rate": slowest}))


def _seconds_for_retest(
    loaded: Sequence[Suspect], matrix: PairMatrix, groups: Sequence[list[Pair]], time_budget: TimeBudget
) -> float:
    """The seconds to keep for the retest, by what the sweep suspects."""
    pairs = plan_retest(loaded, matrix, len(loaded), OWN_PAIRS, CONTROL_PAIRS) if time_budget.budget else []
    seconds = len(pairs) * time_budget.pair + _seconds_for_groups(groups, time_budget)
    return max(PAIRS_OF_ONE * time_budget.pair, min(seconds, RETEST_SHARE * time_budget.left()))


def _seconds_for_groups(groups: Sequence[list[Pair]], time_budget: TimeBudget) -> float:
    """The seconds to keep for measuring groups again: their job, and each group once for a moment at least."""
    if not groups or not time_budget.budget:
        return 0.0
    needed = time_budget.launch + len(groups) * GROUP_OVERRUN * SHORTEST_GROUP_S
    return min(needed, GROUPS_SHARE * max(0.0, time_budget.left()))


def _measure_groups(
    session: Session,
    request: NetworkRequest,
    labels: list[str],
    groups: Sequence[list[Pair]],
    message: tuple[int, float],
    time_budget: TimeBudget,
) -> None:
    """Measures groups of concurrent flows, one group after the other, until the next one could not end within the
    budget. ``message``: its size in bytes, and the rate at which the slowest flow sends such, B/s."""
    group_seconds = SIMULATED_S if simulates(request.launcher) else GROUP_S
    time_for_all = math.inf
    if time_budget.budget:
        time_for_all = max(0.0, time_budget.left() - time_budget.launch)
        group_seconds = min(GROUP_S, max(SHORTEST_GROUP_S, time_for_all / GROUP_OVERRUN / len(groups)))
    size, group_seconds = message_and_seconds(*message, group_seconds)
    if time_for_all < 2 * GROUP_OVERRUN * group_seconds:  # a single group has no group to be compared with
        session.err.print(
            f"{len(groups)} groups of flows are not measured again: no time is left; give a longer --budget"
        )
        return
    session.err.print(f"retesting {len(groups)} groups of flows, each group at once")
    rounds = [
        Round(tuple(flows), size, group_seconds, params={"shape": SHAPE, "turn": turn})
        for turn, flows in enumerate(groups)
    ]
    fits = lambda: not time_budget.budget or time_budget.left() > GROUP_OVERRUN * group_seconds  # noqa: E731
    measure_rounds(session, SaturationRequest(request.launcher, request.site, labels, Effort()), rounds, fits)


def message_and_seconds(size: int, rate: float, seconds: float) -> tuple[int, float]:
    """The size of a message, and the seconds of a group whose slowest flow has ``rate``, B/s: smaller messages and a
    longer time, until the messages in flight take only their share of it."""
    size = min(size, max(BANDWIDTH_SIZE, int(SHARE_IN_FLIGHT * seconds * rate / IN_FLIGHT)))
    return size, max(seconds, IN_FLIGHT * size / rate / SHARE_IN_FLIGHT)


def _affordable_pairs(
    suspects: Sequence[Suspect], matrix: PairMatrix, time_budget: TimeBudget, reserve: float
) -> list[Pair]:
    """The pairs to retest in the remaining time less ``reserve``: many pairs of every suspect, else few pairs of every
    suspect, else those of as many of the worst suspects as fit, at least few pairs of one."""
    seconds = time_budget.left() - time_budget.launch - reserve
    for count in range(len(suspects), 0, -1):
        for suspect_pairs, controls in EFFORTS if count > 1 else (*EFFORTS, LEAST_EFFORT):
            pairs = plan_retest(suspects, matrix, count, suspect_pairs, controls)
            if not time_budget.budget or len(pairs) * time_budget.pair <= seconds:
                return pairs
    return plan_retest(suspects, matrix, 1, *LEAST_EFFORT)


def rank_labels(segments: Sequence[Segment]) -> list[str]:
    """The expected name of each rank: its host, or host:0, host:1 where a host has several ranks."""
    hosts = [host for segment in segments for host in segment.hosts]
    several = {host for host, count in Counter(hosts).items() if count > 1}
    labelled: Counter[str] = Counter()
    labels = []
    for host in hosts:
        labels.append(f"{host}:{labelled[host]}" if host in several else host)
        labelled[host] += 1
    return labels
