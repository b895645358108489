"""The conductor of a saturation study, which sends rounds to the engine and receives results, without an engine."""

from __future__ import annotations

from collections.abc import Generator

from assay.measure.saturation import Conductor
from assay.model.rounds import NAME, Result, Round
from assay.records.schema import Measurement, Subject


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
