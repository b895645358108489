"""The costs of MPI calls: planted costs and thresholds are found, imprecise ones are left out, and no time is counted
twice."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from planted_network import answer_rounds

from assay.cli import main
from assay.launch import simulator
from assay.model.calls import (
    DETACHED,
    EAGER,
    ISEND,
    MAX_CALLS_SHARE,
    MAX_EXACT_SIZE,
    OIS,
    OR,
    OS,
    RECEIVE,
    SEARCH_TOLERANCE,
    SEND,
    Overheads,
    fit_calls,
    parameters,
    time_at,
    time_calls,
)
from assay.model.rounds import NAME, Flow, Result, Round
from assay.model.segments import Segment
from assay.model.study import Effort, Study
from assay.model.times import MessageTimes
from assay.records.run import Run
from assay.records.schema import Capacity, Comparison, Measurement, Subject, Summary

TimeOfSize = Callable[[int], float]
PAIR = ("a", "b")


def two_parts(first: float, gap: float, start: int, second: float, gap_from_there: float) -> TimeOfSize:
    return lambda size: first + size * gap if size < start else second + size * gap_from_there


class PlantedCalls:
    """A pair whose calls take planted times. From ``detached`` bytes on, MPI_Send waits for its receiver. From
    ``eager`` bytes on, a message moves when its receive is posted. ``noise``: relative error of a whole visit."""

    def __init__(
        self,
        message: TimeOfSize = lambda size: 10e-6 + size / 1e9,
        detached: int = 12_345,
        eager: int | None = None,
        noise: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.send = two_parts(1e-6, 0.1e-9, 4096, 3e-6, 0.2e-9)
        self.isend = two_parts(2e-6, 0.1e-9, detached, 1.5e-6, 0.0)
        self.receive = two_parts(0.5e-6, 0.2e-9, 2048, 2e-6, 0.2e-9)
        self.message, self.detached, self.noise = message, detached, noise
        self.eager = detached if eager is None else eager
        self.random = np.random.default_rng(seed)
        self.times = MessageTimes(PAIR)
        self.times.add(self._record("latency", 2**k, message(2**k), {}) for k in range(23))
        self.records: list[Measurement] = []

    def _noisy(self, time: float) -> float:
        return time * (1 + self.noise * self.random.uniform(-1, 1))

    def _record(self, metric: str, size: int, time: float, params: dict) -> Measurement:
        return Measurement(
            id=1, name=NAME, metric=metric, unit="s", subject=Subject(host="a", peer="b"),
            params={**params, "size": size}, summary=Summary(n=3, median=time), samples=[time] * 3,
        )  # fmt: skip

    def answer(self, request: Round) -> Result:
        latencies = []
        for size, pause in zip(request.sizes, request.pauses, strict=True):
            params = {**request.params, "pause_s": pause}
            waits = pause + self.message(size) if size >= self.detached else 0.0
            late = self.message(size) if size >= self.eager else 0.0
            latencies += [
                self._record(SEND, size, self._noisy(self.send(size)) + waits, params),
                self._record(ISEND, size, self._noisy(self.isend(size)), params),
                self._record(RECEIVE, size, self._noisy(self.receive(size)) + late, params),
            ]
        self.records += latencies
        return Result(latencies=latencies)

    def fit(
        self,
        effort: Effort | None = None,
        time_on_wire: Callable[[Flow, int], float] = lambda pair, size: 0.0,
    ) -> Overheads:
        study = Study(list(PAIR), effort or Effort(), {"rack": list(PAIR)})
        study.times = {"inside": self.times}
        answer_rounds(time_calls(study), self.answer)
        return fit_calls(self.records, study.times, time_on_wire)


@pytest.mark.parametrize("detached", [1, 2, 777, 12_345, 65_536, 65_537, 300_000])
def test_planted_call_times_and_thresholds_are_found(detached: int) -> None:
    planted = PlantedCalls(detached=detached)
    overheads = planted.fit()
    assert overheads.detached == pytest.approx(
        detached, rel=1e-9 if detached <= MAX_EXACT_SIZE else SEARCH_TOLERANCE
    )
    for size in [s for s in (1, 16, 1024, 4096, 65_536) if s < detached]:
        assert time_at(overheads.send, size) == pytest.approx(planted.send(size), rel=0.05)
        assert time_at(overheads.isend, size) == pytest.approx(planted.isend(size), rel=0.05)
        if overheads.eager:
            assert time_at(overheads.receive, size) == pytest.approx(planted.receive(size), rel=0.05)
    assert overheads.eager == (
        overheads.detached if detached >= 65_536 else None
    )  # the others are too short to judge


def test_receive_time_is_left_out_if_no_message_arrives_early() -> None:
    overheads = PlantedCalls(detached=65_536, eager=0).fit()
    assert (overheads.detached, overheads.eager, overheads.receive) == (65_536, 0, [])
    assert "left out" in overheads.sources[OR] and OR not in parameters(overheads)


def test_imprecise_times_are_left_out_with_a_reason() -> None:
    overheads = PlantedCalls(detached=65_536, noise=0.6).fit()
    assert overheads.detached == 65_536
    assert not overheads.send and "not precise" in overheads.sources[OS]
    assert OS not in parameters(overheads)


def test_an_inconsistent_threshold_is_left_out() -> None:
    planted = PlantedCalls(detached=4000)
    planted.send = two_parts(1e-6, 0.0, 16_384, -1.0, 0.0)  # negative: from 16 KiB on the send does not wait
    overheads = planted.fit()
    assert overheads.detached is None and DETACHED not in parameters(overheads)
    assert overheads.sources[DETACHED].startswith("left out: MPI_Send of 4000 B waited")


def test_overlapping_calls_are_not_longer_than_the_message() -> None:
    """The receiver works before the send has returned, so both calls together are longer than the message."""
    planted = PlantedCalls(message=lambda size: 2.5e-6 + size / 1e9, detached=65_536)
    overheads = planted.fit()
    for size in (1, 64, 1024):
        assert overheads.time_in_calls(size) == pytest.approx(
            MAX_CALLS_SHARE * planted.message(size), rel=0.1
        )
        assert overheads.time_in_calls(size) < planted.message(size)
    assert "at the same time" in overheads.sources[OIS]


def test_a_single_known_call_is_not_longer_than_the_message() -> None:
    """No message arrives early, so the receive is not known. The send takes longer than the message in ping-pong."""
    planted = PlantedCalls(message=lambda size: 1e-6 + size / 1e9, detached=65_536, eager=0)
    overheads = planted.fit()
    assert not overheads.receive
    for size in (1, 64, 512):
        assert planted.isend(size) > planted.message(size)
        assert time_at(overheads.isend, size) == pytest.approx(
            MAX_CALLS_SHARE * planted.message(size), rel=0.1
        )
    assert time_at(overheads.isend, 65_535) == pytest.approx(planted.isend(65_535), rel=0.05)


@pytest.mark.parametrize("rest", [0.0, 1e-6, -5e-6])
def test_the_calls_of_a_long_message_leave_the_time_on_the_wire(rest: float) -> None:
    """``rest``: what a long message takes longer than on the wire."""
    from_size = 1 << 18
    planted = PlantedCalls(
        message=lambda size: (0 if size >= from_size else 10e-6) + rest + size / 1e9, detached=1 << 23
    )

    def on_wire(pair: Flow, size: int) -> float:
        return size / 1e9 if size >= from_size else 0.0

    overheads = planted.fit(time_on_wire=on_wire)
    for size in (1, 1024, 65_536):
        assert overheads.time_in_calls(size) == pytest.approx(
            planted.isend(size) + planted.receive(size), rel=0.05
        )
    for size in (1 << 18, 1 << 20, 1 << 22):
        assert overheads.time_in_calls(size) == pytest.approx(max(0.0, rest), rel=0.05, abs=1e-12)


def test_noise_of_long_messages_does_not_bring_back_the_calls() -> None:
    """The time on the wire is all of a long message's time, except for noise at single sizes."""
    noisy = {1 << 20: 0.5e-6, 1 << 22: 1.5e-6}  # s longer than on the wire
    planted = PlantedCalls(
        message=lambda size: noisy.get(size, 0.0 if size >= 1 << 18 else 10e-6) + size / 1e9, detached=1 << 23
    )
    overheads = planted.fit(time_on_wire=lambda pair, size: size / 1e9 if size >= 1 << 18 else 0.0)
    assert [overheads.time_in_calls(1 << k) for k in range(18, 23)] == [0.0] * 5
    assert overheads.time_in_calls(1 << 16) == pytest.approx(
        planted.isend(1 << 16) + planted.receive(1 << 16), rel=0.05
    )


def test_a_transport_without_mpi_calls_gives_no_parameters() -> None:
    study = Study(list(PAIR), Effort(), {"rack": list(PAIR)})
    study.times = {"inside": PlantedCalls().times}
    assert len(answer_rounds(time_calls(study), lambda _: Result())) == 1
    assert fit_calls([], study.times) == Overheads()


def test_parameters_are_written_in_simgrids_format() -> None:
    overheads = Overheads(send=[Segment(0, 1e-6, 2e-9), Segment(1024, 3e-6, 1e-10)], detached=2048)
    assert parameters(overheads) == {OS: "0:1e-06:2e-09;1023:3e-06:1e-10", DETACHED: "2048"}


# In SimGrid.

PLANTED = {
    OS: "0:4e-06:5e-10;2047:9e-06:2e-10",
    OIS: "0:6e-06:4e-10;8191:3e-06:0",
    OR: "0:5e-06:1e-09",
    DETACHED: "40000",
    EAGER: "40000",
}
LATENCY, RATE = 30e-6, 1e8  # s, B/s


def write_planted(path: Path, settings: dict[str, str]) -> str:
    props = "".join(f'<prop id="{key}" value="{value}"/>' for key, value in settings.items())
    path.write_text(f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><config id="General"><prop id="network/model" value="SMPI"/>
<prop id="network/crosstraffic" value="0"/><prop id="smpi/bw-factor" value="0:1"/>
<prop id="smpi/lat-factor" value="0:1"/><prop id="network/TCP-gamma" value="0"/>{props}</config>
<zone id="all" routing="Full"><cluster id="c" prefix="n" suffix="" radical="0-4" speed="1Gf" bw="{RATE:g}Bps"
 lat="{LATENCY / 2:g}s" sharing_policy="SPLITDUPLEX" loopback_bw="6GBps" loopback_lat="1us"/></zone></platform>
""")
    return str(path)


def value_of(text: str, size: int) -> float:
    """The time that SimGrid takes from a parameter: that of the last segment with a smaller size."""
    parts = [part.split(":") for part in text.split(";")]
    _, base, factor = [p for p in parts if int(p[0]) < size][-1]
    return float(base) + size * float(factor)


@pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))
def test_the_planted_calls_of_a_simulated_platform_are_found(tmp_path: Path) -> None:
    planted = write_planted(tmp_path / "planted.xml", PLANTED)
    assert main(["simulate", planted, "--", "saturate", "-o", str(tmp_path / "run")]) == 0
    written = tmp_path / "written.xml"
    assert main(["model", str(tmp_path / "run"), "--platform", str(written), "--limit", "2%"]) == 0
    root = ET.parse(written).getroot()
    settings = {str(prop.get("id")): str(prop.get("value")) for prop in root.iter("prop")}
    assert settings[DETACHED] == PLANTED[DETACHED] and EAGER not in settings
    for key in (OS, OIS, OR):
        sizes = [4**k for k in range(9) if key == OIS or 4**k < int(PLANTED[DETACHED])]
        for size in sizes:
            assert value_of(settings[key], size) == pytest.approx(value_of(PLANTED[key], size), rel=0.03), (
                key,
                size,
            )
    (cluster,) = root.iter("cluster")
    assert 2 * float(str(cluster.get("lat")).rstrip("s")) == pytest.approx(LATENCY, rel=0.02)
    records = Run.load(tmp_path / "run").records
    points = [r for r in records if isinstance(r, Comparison)]
    assert all(point.error is not None and abs(point.error) < 0.01 for point in points)
    by_name = {r.resource: r for r in records if isinstance(r, Capacity) and r.level == "network"}
    assert "MPI_Send between n0 and n1" in by_name[OS].reason and by_name[OS].evidence
    assert by_name[DETACHED].value == by_name[EAGER].value == 40_000
    comments = written.read_text()
    assert "smpi/os: MPI_Send between n0 and n1, 1 B to 39999 B" in comments
