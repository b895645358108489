"""A saturation study without an engine: the conductor, which sends rounds to the engine and receives results; and the
verdict of a study that was disturbed."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.measure import model as validation
from assay.measure.saturation import Conductor
from assay.measure.session import Session
from assay.model.rounds import NAME, Result, Round
from assay.records.run import Run
from assay.records.schema import Comparison, Measurement, Subject


def latency(request: Round, host: str, peer: str) -> Measurement:
    return Measurement(
        name=NAME,
        metric="latency",
        unit="s",
        subject=Subject(host=host, peer=peer),
        params={"round": request.key, "size": 8},
        samples=[1e-6],
    )


def test_a_record_of_an_unlisted_host_ends_the_study():
    """Two of the listed names are one machine, which has another name."""
    request = Round((("a", "b"),), sizes=(8,), count=1)
    answers: list[Result] = []

    def experiments() -> Generator[Round, Result, None]:
        while True:
            answers.append((yield request))

    conductor = Conductor(experiments(), ["a", "b"], {})
    conductor.ready()
    conductor.receive(latency(request, "a", "b"))
    conductor.ready()
    assert conductor.failure is None and len(answers) == 1
    conductor.receive(latency(request, "a", "vm:1"))
    conductor.ready()
    assert conductor.failure is not None and "'vm:1'" in str(conductor.failure)
    assert len(answers) == 1 and conductor.stdin == -1


@pytest.mark.parametrize(
    ("error", "busy", "outcome"),
    [
        (0.2, "", "FAIL"),
        (0.2, "this machine was busy: other programs took 1.3 of 2 processors", "INCONCLUSIVE"),
        (0.01, "this machine was busy: other programs took 1.3 of 2 processors", "PASS"),
    ],
)
def test_figures_of_a_busy_machine_are_no_failure(
    error: float, busy: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = Comparison(
        curve="time of a message", axis="message size", x=512, unit="s", measured=1.0, simulated=1.0 + error,
        error=error, uncertainty=0.0,
    )  # fmt: skip
    for name, result in (("rounds_to_simulate", []), ("simulate_rounds", []), ("comparisons", [point])):
        monkeypatch.setattr(validation, name, lambda *_, result=result: result)
    run = Run.create("saturate", [], path=tmp_path / "run")
    run.info.busy = busy
    model: Any = SimpleNamespace(capacities=[], network=SimpleNamespace(capacity={}))
    judged = validation.validate(Session(run, quiet=True), model, tmp_path / "platform.xml", 0.05)
    assert judged.outcome == outcome and (busy in judged.reason or outcome != "INCONCLUSIVE")
