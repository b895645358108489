"""The time budget of a network run: if engines start slowly, they get less time to measure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.explain.retest import OWN_PAIRS
from assay.launch.launchers import Launcher, Local
from assay.launch.placement import Segment, Site
from assay.measure import network
from assay.measure.network import (
    GROUP_OVERRUN,
    LAUNCH_S,
    LEAST_EFFORT,
    MIN_S,
    PAIRS_OF_ONE,
    SHORTEST_GROUP_S,
    SWEEP_SHARE,
    NetworkRequest,
    TimeBudget,
)
from assay.measure.session import Conductor, Session
from assay.records.run import Run
from assay.records.schema import Flows, Measurement, Pairs, Progress, Scalar, Subject, Summary

BUDGET = 30.0


@pytest.mark.parametrize("start", [0.3, 2.0, 4.0])
def test_the_budget_is_kept_within_20_percent_for_any_start_time(start: float) -> None:
    """The engines of the sweep, of single directions and of the retest each use their start time and their given
    time."""
    now = 0.0
    time_budget = TimeBudget(BUDGET, lambda: now)
    sweep_budget = SWEEP_SHARE * BUDGET
    now += start + sweep_budget
    time_budget.measure_launch(sweep_budget)
    assert time_budget.launch == max(LAUNCH_S, start)
    now += start + time_budget.next(time_budget.launch + PAIRS_OF_ONE * time_budget.pair)
    now += start + time_budget.next()
    assert now <= 1.2 * BUDGET
    assert now >= 0.9 * BUDGET or start > 1


def test_a_late_engine_still_gets_the_minimum_time() -> None:
    now = 0.0
    time_budget = TimeBudget(BUDGET, lambda: now)
    now = 2 * BUDGET
    assert time_budget.next() == MIN_S


def test_without_a_budget_there_is_no_limit() -> None:
    assert TimeBudget(0.0).next(5.0) == 0.0


class SimulatedSession(Session):
    """A session whose engines take planted times and report a cluster of 32 hosts, with two cabinets of four that send
    slowly."""

    def __init__(self, run: Run, start: float) -> None:
        super().__init__(run, quiet=True)
        self.start = start  # s of an engine, besides its budget
        self.now = 0.0
        self.groups = 0
        self.budgets: dict[str, float] = {}  # s that each engine got
        self.pairs: list[str] = []  # measured again
        self.labels = [f"h{i}" for i in range(32)]
        rate = np.random.default_rng(3).lognormal(np.log(1e9), 0.02, (32, 32))
        for first in (8, 20):
            rate[first : first + 4, :first] *= 0.5
            rate[first : first + 4, first + 4 :] *= 0.5
        self.rate = rate

    def measure(
        self,
        measurement: str,
        launcher: Launcher,
        site: Site,
        segments: Sequence[Segment],
        params: Mapping[str, Scalar],
        silence_s: float = 90.0,
        flavour: str | None = None,
        more_follow: bool = False,
    ) -> bool:
        self.budgets[measurement] = float(params["budget"])
        self.now += self.start + self.budgets[measurement]
        common: dict[str, Any] = {"name": measurement, "metric": "bandwidth", "unit": "B/s",
                                  "params": {"size": 1 << 20, "op": "send"}}  # fmt: skip
        if measurement == "network.pairs":
            self.pairs = str(params["pairs"]).split(",")
            for pair in self.pairs:
                a, b = (self.labels[int(rank)] for rank in pair.split("-"))
                self.run.append(
                    Measurement(subject=Subject(host=a, peer=b), summary=Summary(n=1, median=1e9), **common)
                )
            return True
        for i, host in enumerate(self.labels):
            peers = [peer for peer in self.labels if peer != host]
            values = [float(self.rate[i, self.labels.index(peer)]) for peer in peers]
            if measurement == "network.one_way":  # a pair alone does not fill the uplink
                values = [1e9] * len(peers)
            self.run.append(Pairs(subject=Subject(host=host), peers=peers, values=values, **common))
        return True

    def converse(
        self,
        measurement: str,
        launcher: Launcher,
        site: Site,
        segments: Sequence[Segment],
        params: Mapping[str, Scalar],
        conductor: Conductor,
        progress: Callable[[], Progress],
        silence_s: float,
        keep: bool = True,
    ) -> bool:
        self.now += self.start / 2
        with os.fdopen(os.dup(conductor.stdin)) as asked:
            conductor.ready()
            while not conductor.finished:
                request = json.loads(asked.readline())
                self.now += GROUP_OVERRUN * request["seconds"] + 0.01
                flows = [(self.labels[a], self.labels[b]) for a, b in request["flows"]]
                record = Flows(
                    name=measurement, metric="rate", unit="B/s", params=request["params"],
                    sources=[a for a, _ in flows], targets=[b for _, b in flows], values=[1e9] * len(flows),
                )  # fmt: skip
                self.run.append(conductor.receive(record))
                self.groups += 1
                conductor.ready()
        self.now += self.start / 2
        return True


@pytest.mark.parametrize(
    ("budget", "start"),
    [(8.0, 0.2), (12.0, 1.0), (20.0, 0.2), (20.0, 1.0), (20.0, 2.0), (60.0, 2.0), (60.0, 6.0)],
)
def test_the_retest_of_groups_keeps_the_budget(
    budget: float, start: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two slow uplinks are suspects. Their pairs are measured alone, then groups of flows. Five engines start, each
    with a planted time."""
    session = SimulatedSession(Run.create("net", ["net"], path=tmp_path / "run"), start)
    monkeypatch.setattr(network, "TimeBudget", lambda limit: TimeBudget(limit, lambda: session.now))
    request = NetworkRequest(Local(), Site("ssh"), [], session.labels, params={"budget": budget})
    network.measure_network(session, request)
    assert session.now <= 1.2 * budget, session.now
    if budget >= 20.0 * max(1.0, start):
        assert session.groups >= 8, "each of the suspected groups and others, for comparison"
    if budget == 60.0:
        assert session.groups % 2 == 0  # all of them, twice


def measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, budget: float, slow: int | None
) -> SimulatedSession:
    """A session in which the host ``slow`` sends at half of the others' rate; None: the cabinets do."""
    session = SimulatedSession(Run.create("net", ["net"], path=folder), 0.2)
    if slow is not None:
        session.rate = np.full((32, 32), 1e9)
        session.rate[slow] *= 0.5
    monkeypatch.setattr(network, "TimeBudget", lambda limit: TimeBudget(limit, lambda: session.now))
    request = NetworkRequest(Local(), Site("ssh"), [], session.labels, params={"budget": budget})
    network.measure_network(session, request)
    return session


def test_little_time_measures_the_worst_suspect_again_with_few_controls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = measured(tmp_path / "long", monkeypatch, 60.0, 3)
    short = measured(tmp_path / "short", monkeypatch, 5.0, 3)
    assert len(long.pairs) == PAIRS_OF_ONE
    assert len(short.pairs) == sum(LEAST_EFFORT) < PAIRS_OF_ONE
    assert sum(pair.startswith("3-") for pair in short.pairs) == OWN_PAIRS


def test_time_is_kept_for_groups_before_single_directions_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cabinets are measured again by groups, besides pairs."""
    host = measured(tmp_path / "host", monkeypatch, 60.0, 8)
    cabinet = measured(tmp_path / "cabinet", monkeypatch, 60.0, None)
    kept = host.budgets["network.one_way"] - cabinet.budgets["network.one_way"]
    assert cabinet.groups == 16
    assert kept >= cabinet.groups * GROUP_OVERRUN * SHORTEST_GROUP_S
