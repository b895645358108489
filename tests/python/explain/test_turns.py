"""Two hosts whose directions take turns are told from hosts with a limiter, which applies to all their partners.

A limiter is a limit on the sum of a host's traffic in both directions."""

from __future__ import annotations

from assay.explain import explain
from assay.records.schema import Flows

NAME = "network.saturation"


def study(pair: float, both: float) -> list[Flows]:
    """Flows of a saturation study: the rate of a pair in both directions, and of a host with two partners, in B/s."""

    def flows(number: int, params: dict, ends: list[tuple[str, str]], rate: float) -> Flows:
        sources, targets = [a for a, _ in ends], [b for _, b in ends]
        return Flows(
            id=number, name=NAME, metric="rate", unit="B/s", params=params, sources=sources, targets=targets,
            values=[rate / 2] * 2, slices=[[rate / 2] * 8] * 2,
        )  # fmt: skip

    host = {"experiment": "host", "direction": "both"}
    return [
        flows(1, {"experiment": "pairs", "shape": "sendrecv", "count": 1}, [("a", "b"), ("b", "a")], pair),
        flows(2, {**host, "centres": "a"}, [("a", "c"), ("d", "a")], both),
        flows(3, {**host, "centres": "b"}, [("b", "c"), ("d", "b")], both),
    ]


def test_directions_that_take_turns_are_found():
    (finding,) = explain(study(pair=12e6, both=19e6), ["a", "b", "c", "d"])
    assert finding.rule == "taking_turns" and finding.evidence == [1]
    assert {finding.subject.host, finding.subject.peer} == {"a", "b"}
    assert "btl_tcp_flags" in finding.fix


def test_a_limiter_does_not_count_as_taking_turns():
    assert explain(study(pair=18.5e6, both=19e6), ["a", "b", "c", "d"]) == []
