"""What a study asks for and knows, and how a round is asked until its figure is as sure as was asked."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from assay.errors import UserError
from assay.model.estimate import estimate, summed
from assay.model.network import Topology
from assay.model.rounds import REPLACES, Result, Round
from assay.model.segments import Segment

Course = Generator[Round, Result, None]

MIB = 1 << 20
MESSAGES = 16  # of one flow in a round, about: what is under way at its ends is then little of it
TRIES = 9  # of a round, each three times as long: from a tenth of a millisecond to seconds
PLATEAU = 0.97  # of what the parts could do: less is a limit of what they share


@dataclass
class Pace:
    """How much is asked of each round. In a simulator nothing is gained by repeating or by waiting."""

    confidence: float = 0.02
    repeats: int = 4
    seconds: float = 0.5  # of one round, at least
    echoes: int = 100
    least_size: int = 256 << 10
    messages: int = MESSAGES


@dataclass
class Study:
    """What the course has come to know, for whoever conducts it."""

    hosts: list[str]
    pace: Pace
    cabinets: Topology = field(default_factory=dict)
    found_by: str = "the user"  # who says who stands where; empty where nobody can
    segments: list[Segment] = field(default_factory=list)
    size: int = MIB
    single: float = 0.0  # B/s of one pair alone
    doing: str = ""
    asked: int = 0

    def seconds(self, slowest: float) -> float:
        """For a round in which a flow may be as slow as that."""
        return max(self.pace.seconds, self.pace.messages * self.size / slowest)


def until_steady(study: Study, asked: Round, messages: int | None = None) -> Generator[Round, Result, Result]:
    """Longer and longer, until all flows have run at one time and moved half as many messages each as was meant. What
    was too short says in the record of the next one that it is replaced: it counts for nothing."""
    least = (messages or study.pace.messages) / 2
    for _ in range(TRIES):
        study.asked += 1
        result = yield asked
        if result.flows is not None and result.flows.values and _few(result, asked) >= least:
            return result
        params = {**asked.params, REPLACES: asked.key}
        asked = Round(asked.flows, asked.size, asked.seconds * 3, params=params)
    raise UserError(
        f"the flows of '{asked.params.get('experiment')}' did not run at one time within {asked.seconds / 3:.0f} s",
        "a host is far slower than the others, or does not answer: leave it out",
    )


def _few(result: Result, asked: Round) -> float:
    assert result.flows is not None
    window = float(result.flows.params.get("window_s", 0.0))
    return min(result.flows.values) * window / asked.size


def repeat(
    study: Study, asked: Round, groups: Sequence[Collection[str]] = ()
) -> Generator[Round, Result, Result]:
    """Once more and once more, until the sum is as sure as was asked: of all flows, or of those that touch each
    group of hosts."""
    result = yield from until_steady(study, asked)
    wanted = [[i for i, (a, b) in enumerate(asked.flows) if a in one or b in one] for one in groups]
    chosen = [own for own in wanted if own] or [list(range(len(asked.flows)))]
    samples = [_sums(result, own) for own in chosen]
    for again in range(1, study.pace.repeats):
        if max(estimate(own).doubt for own in samples) <= study.pace.confidence:
            break
        seconds = float(result.flows.params["window_s"]) if result.flows else asked.seconds
        params = {**asked.params, "again": again}
        result = yield from until_steady(
            study, Round(asked.flows, asked.size, max(asked.seconds, round(seconds, 3)), params=params)
        )
        samples = [before + _sums(result, own) for before, own in zip(samples, chosen, strict=True)]
    return result


def _sums(result: Result, chosen: Sequence[int]) -> list[float]:
    return summed([result.flows.slices[i] for i in chosen]) if result.flows else []
