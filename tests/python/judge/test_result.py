"""The result of a run in one line: the figures that its verb is run for, with units."""

from __future__ import annotations

from assay.judge import result
from assay.records.schema import AnyRecord, Capacity, Failure, Measurement, Subject, Summary


def measured(
    name: str, metric: str, value: float, unit: str, host: str | None = None, **params: object
) -> Measurement:
    better = "lower" if unit == "s" else "higher"
    summary, subject = Summary(n=3, median=value), Subject(host=host)
    return Measurement(
        name=name, metric=metric, unit=unit, better=better, summary=summary, subject=subject, params=params,  # type: ignore[arg-type]
    )  # fmt: skip


def conflicts(total: float) -> list[AnyRecord]:
    values = {"conflicts_total": total, "conflicts_share": total / 400, "rounds": 25.0, "rounds_bound": 20.0}
    return [
        measured("fabric.conflicts", metric, value, "1", schedule="shift", ranks=20)
        for metric, value in values.items()
    ]


def test_conflicts_are_counted_and_their_absence_is_said() -> None:
    step = measured("fabric.conflicts", "conflicts", 7.0, "1", schedule="shift", ranks=20, step=3)
    text = "8 conflicts of shift among 20 ranks, 0.02 a pair of ranks; 25 rounds, bound 20"
    assert result([*conflicts(8.0), step]) == text
    assert result(conflicts(0.0)).startswith("no conflict of shift")


def test_memory_of_one_host_is_its_peak_and_of_several_the_range() -> None:
    def rates(host: str, value: float) -> list[AnyRecord]:
        return [
            measured("node.memory", "bandwidth", value, "B/s", host, operation="copy"),
            measured("node.memory", "bandwidth", value / 2, "B/s", host, operation="read"),
        ]

    assert result(rates("h1", 12e9)) == "memory 12 GB/s at most (copy)"
    assert (
        result([*rates("h1", 12e9), *rates("h2", 9e9)])
        == "memory 9 GB/s to 12 GB/s on 2 hosts at most (copy)"
    )


def test_a_network_has_its_best_rate_and_its_least_latency() -> None:
    points: list[AnyRecord] = [
        measured("network.all_to_all", "bandwidth", 3e9, "B/s", size=2**20, op="send"),
        measured("network.all_to_all", "bandwidth", 1e9, "B/s", size=1, op="send"),
        measured("network.all_to_all", "latency", 4e-6, "s", size=1, op="put"),
        measured("network.all_to_all", "latency", 9e-6, "s", size=2**20, op="send"),
    ]
    assert result(points) == "aggregate bandwidth 3 GB/s at 1 MiB send, latency 4 µs at 1 B put"


def test_capacities_are_ranges_by_level_and_unknown_ones_are_counted() -> None:
    def capacity(level: str, value: float | None, state: str = "measured") -> Capacity:
        return Capacity(level=level, resource="x", direction="up", unit="B/s", state=state, value=value)  # type: ignore[arg-type]

    capacities = [capacity("host", 117e6), capacity("host", 118e6), capacity("backbone", 4e8, "at_least")]
    text = "capacities: hosts 117 MB/s to 118 MB/s, backbone at least 400 MB/s"
    assert result(capacities) == text
    assert result([*capacities, capacity("cabinet", None, "unknown")]).endswith("1 of 4 capacities unknown")


def test_any_other_measurement_has_its_first_metric() -> None:
    other: list[AnyRecord] = [measured("node.other", "delay", 2e-3, "s", "h1")]
    assert result(other) == "node.other delay: 2 ms"


def test_what_has_no_value_has_no_result() -> None:
    waived = Measurement(
        name="node.memory", metric="bandwidth", unit="B/s", status="waived", reason="no time"
    )
    assert result([waived, Failure(problem="rank 1 died")]) == ""
