"""The state of a saturation study, and how a round is repeated until its result is precise enough."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from assay.errors import UserError
from assay.model.estimate import estimate, summed
from assay.model.network import Topology
from assay.model.rounds import REPLACES, Result, Round
from assay.model.segments import Segment
from assay.model.times import MessageTimes

Rounds = Generator[Round, Result, None]

MIB = 1 << 20
MESSAGES = 16  # of a flow in a round; with this many, those cut off at its start and end hardly matter
TRIES, LONGER = 9, 3  # of a round, each so many times as long as the previous one: from 0.1 ms to seconds
ESTIMATED = 2  # tries whose duration follows from the one before
MARGIN = 1.1  # of the estimated duration of another try; a simulated rate repeats, a measured one nearly
# Where not all flows ran at one time, the time until they would have, and this share of it more: then most rounds need
# no third try (bench/model_recovery.py).
BEYOND_START = 1.25
# A rate is measured until its interval reaches no further than this. A curve of one such point fails its proof in 99 of
# 100 studies where it is off by twice the default limit (see proof.py).
RATE_CONFIDENCE = 0.015
PLATEAU = 0.97  # a sum below this share of its parts shows a shared limit
# Repetitions of a host's rounds ("partners" of the record): with fewer hosts at once, with faster partners. A later
# kind replaces the former.
FEWER, FASTER = "fewer", "faster"
# Rounds of a cabinet whose link shows a plateau: all its hosts with others outside than before, and every second host.
OTHER_PARTNERS, EVERY_SECOND = "other_partners", "every_second"


@dataclass
class Effort:
    """How precisely a round is measured. A simulator gains nothing from repetitions or long rounds."""

    confidence: float = 0.02
    repeats: int = 64
    seconds: float = 0.5  # least duration of a round
    round_trips: int = 100
    min_size: int = 256 << 10
    messages: int = MESSAGES


@dataclass
class Study:
    """The hosts of a study and what its rounds have shown so far."""

    hosts: list[str]
    effort: Effort
    cabinets: Topology = field(default_factory=dict)
    grouped_by: str = (
        "the user"  # how the cabinets were found: by "latency", by "contention"; empty if they were not
    )
    times: dict[str, MessageTimes] = field(default_factory=dict)  # ping-pong times by level (see sweep)
    segments: list[Segment] = field(default_factory=list)
    size: int = MIB
    pair_rate: float = 0.0  # B/s of a pair that is measured alone
    rates: dict[tuple[str, str], float] = field(default_factory=dict)  # B/s by host and direction, so far
    inside: dict[str, float] = field(default_factory=dict)  # B/s: the most that was seen inside each cabinet
    crowded: set[str] = field(
        default_factory=set
    )  # cabinets whose hosts share a limit when several are measured
    phase: str = ""
    rounds_requested: int = 0

    @property
    def home(self) -> dict[str, str]:
        """The cabinet of each host."""
        return {host: name for name, hosts in self.cabinets.items() for host in hosts}

    def seconds(self, slowest: float) -> float:
        """The duration of a round whose slowest flow has that rate in B/s."""
        return max(self.effort.seconds, self.effort.messages * self.size / slowest)


def until_steady(
    study: Study, request: Round, messages: int | None = None
) -> Generator[Round, Result, Result]:
    """Repeats a round with longer durations until all flows ran at the same time and moved half of ``messages``.

    Two more tries are as long as the one before shows to be enough; those after them are three times as long each. The
    record of a repeated round names the round that was too short in its parameter ``REPLACES``; the fit ignores that
    one. Raises UserError after TRIES rounds.
    """
    least = (messages or study.effort.messages) / 2
    for number in range(TRIES):
        study.rounds_requested += 1
        result = yield request
        if result.flows is not None and result.flows.values and _fewest_messages(result, request) >= least:
            result.seconds = request.seconds
            return result
        params = {**request.params, REPLACES: request.key}
        seconds = _seconds_needed(result, request, least) if number < ESTIMATED else LONGER * request.seconds
        request = Round(request.flows, request.size, seconds, params=params)
    raise UserError(
        f"the flows of '{request.params.get('experiment')}' did not run at one time within {request.seconds / 3:.0f} s",
        "a host is far slower than the others, or does not answer: leave it out",
    )


def _seconds_needed(result: Result, request: Round, least: float) -> float:
    """The estimated duration in s after which each flow has moved ``least`` messages while all flows ran."""
    if result.flows is None or "window_s" not in result.flows.params:
        return LONGER * request.seconds
    window = float(result.flows.params["window_s"])
    until_all_run = max(0.0, request.seconds - window)
    if not result.flows.values or min(result.flows.values) <= 0:
        needed = until_all_run * (1 + BEYOND_START)
    else:
        needed = until_all_run + MARGIN * least * request.size / min(result.flows.values)
    return min(max(needed, MARGIN * request.seconds), LONGER**2 * request.seconds)


def _fewest_messages(result: Result, request: Round) -> float:
    assert result.flows is not None
    window = float(result.flows.params.get("window_s", 0.0))
    return min(result.flows.values) * window / request.size


def repeat(
    study: Study, request: Round, groups: Sequence[Collection[str]] = ()
) -> Generator[Round, Result, Result]:
    """Repeats a round until the sum of its flows, or of those of each group of hosts, is precise enough."""
    result = yield from until_steady(study, request)
    group_indices = [
        [i for i, (a, b) in enumerate(request.flows) if a in group or b in group] for group in groups
    ]
    chosen = [indices for indices in group_indices if indices] or [list(range(len(request.flows)))]
    samples = [_sums(result, indices) for indices in chosen]
    for repetition in range(1, study.effort.repeats):
        if max(estimate(group).uncertainty for group in samples) <= min(
            study.effort.confidence, RATE_CONFIDENCE
        ):
            break
        seconds = float(result.flows.params["window_s"]) if result.flows else request.seconds
        params = {**request.params, "repetition": repetition}
        result = yield from until_steady(
            study, Round(request.flows, request.size, max(request.seconds, round(seconds, 3)), params=params)
        )
        samples = [before + _sums(result, indices) for before, indices in zip(samples, chosen, strict=True)]
    return result


def _sums(result: Result, chosen: Sequence[int]) -> list[float]:
    return summed([result.flows.slices[i] for i in chosen]) if result.flows else []
