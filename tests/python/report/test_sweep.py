"""The Network Sanitizer's table, reproduced from each client's time, peers and iterations.

The original published sums over clients only. What the clients' own times were follows from two of its
columns: iops is the sum of PN/t, lat the sum of t/(PN 10e-6), so their product is C^2 / (1 - d^2) when the
times are a (1 + d) and a (1 - d) in equal numbers. Those times, fed in, must print the other columns too.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from assay.records.schema import Measurement, Summary
from assay.report.sweep import SweepRow, netsan_row, netsan_table, sweep_rows

GOLDEN = Path(__file__).parents[2] / "golden"
CLIENTS = 8
ITERATIONS = 1024


def client_times(latency: float, iops: float, operations: int) -> list[float]:
    """Times (s) of eight clients whose sums are these two columns."""
    spread = math.sqrt(max(0.0, 1 - CLIENTS**2 / (latency * iops / 1e5)))
    mean = latency * operations * 10e-6 / CLIENTS
    if spread == 0:  # the latency is rounded to two digits; the iops are exact
        mean = CLIENTS * operations / iops
    return [mean * (1 + spread), mean * (1 - spread)] * (CLIENTS // 2)


@pytest.mark.parametrize(
    ("golden", "peers", "servers", "adapters"),
    [("netsan_client_server.txt", 4, ["server2", "server3"], 2), ("netsan_all_to_all.txt", 7, [], 0)],
)
def test_prints_the_published_table(golden: str, peers: int, servers: list[str], adapters: int) -> None:
    published = (GOLDEN / golden).read_text().splitlines()
    rows = []
    for line in published[4:]:
        size, _time, _bandwidth, latency, iops = line.split()
        times = client_times(float(latency), float(iops), peers * ITERATIONS)
        rows.append(SweepRow("network", int(size), "put", times=times, peers=peers, iterations=ITERATIONS))
    clients = [f"client{i}" for i in range(1, 9)]
    printed = netsan_table(rows, servers, adapters, clients).splitlines()
    assert printed[:4] == published[:4]
    for printed_row, published_row in zip(printed[4:], published[4:], strict=True):
        size, time, bandwidth, latency, iops = printed_row.split()
        size0, time0, bandwidth0, latency0, iops0 = published_row.split()
        assert len(printed_row) == len(published_row)
        assert (size, time) == (size0, time0)
        # The last printed digit may differ: the input is the rounded output.
        assert abs(int(bandwidth) - int(bandwidth0)) <= max(1, int(bandwidth0) * 2e-3)
        assert float(latency) == pytest.approx(float(latency0), abs=0.0051, rel=2e-3)
        assert int(iops) == pytest.approx(int(iops0), rel=2e-3)


def test_a_row_is_sums_over_clients() -> None:
    row = netsan_row(1 << 20, [1.0, 2.0], peers=1, iterations=100)
    # time 3 s; bandwidth 100 + 50 MiB/s; latency (1 + 2)/(100 * 1e-5); iops 100 + 50
    assert row.split() == ["1048576", "3.0", "150", "3000.00", "150"]


def test_rows_gather_the_metrics_of_a_size_and_operation() -> None:
    def measured(metric: str, value: float, op: str = "send", **more: object) -> Measurement:
        return Measurement(
            name="network.all_to_all",
            metric=metric,
            unit="1",
            params={"size": 64, "op": op, "peers": 7, "iterations": 10},
            summary=Summary(n=1, median=value, p99=2 * value),
            **more,  # type: ignore[arg-type]
        )

    rows = sweep_rows(
        [measured("bandwidth", 5.0), measured("latency", 1e-6), measured("time", 2.0, samples=[1.0, 3.0]),
         measured("corrupted", 2.0), measured("bandwidth", 9.0, op="get")]
    )  # fmt: skip
    assert [(r.op, r.bandwidth) for r in rows] == [("send", 5.0), ("get", 9.0)]
    assert rows[0].latency_p99 == 2e-6 and rows[0].corrupted == 2
    assert (rows[0].time, rows[0].times, rows[0].peers, rows[0].iterations) == (3.0, [1.0, 3.0], 7, 10)

    both = [measured("wall_time", 3.5), measured("time", 2.0, samples=[1.0, 3.0])]
    for records in (both, both[::-1]):
        assert sweep_rows(records)[0].time == 3.5, "all of it, not the slowest client's share"


def test_columns_never_touch_whatever_the_figures() -> None:
    row = netsan_row(4 << 20, [123.4] * 100, peers=99, iterations=1)
    assert len(row.split()) == 5
