"""The table of RDMA rates, in perftest's format; the row of the seed's example is equal to the character."""

from __future__ import annotations

import io

from rich.console import Console

from assay.records.schema import AnyRecord, Measurement, Scalar, Subject, Summary
from assay.report.rdma import HEADER, RULER, rdma_rows, show_rdma, table_row

PARAMS: dict[str, Scalar] = {
    "op": "write",
    "size": 65536,
    "iterations": 5000,
    "depth": 128,
    "qps": 1,
    "peer_device": "mlx4_1:1",
    "bidirectional": False,
    "mtu": 4096,
}


def records(bandwidth: float, corrupted: int = 0, repeats: int = 3, **changed: Scalar) -> list[AnyRecord]:
    subject = Subject(host="n1", peer="n2", device="mlx4_0:1")
    values = {
        "bandwidth": bandwidth,
        "peak": bandwidth * 1.01,
        "message_rate": bandwidth / 65536,
        "corrupted": corrupted,
    }
    return [
        Measurement(
            name="node.rdma",
            metric=metric,
            unit="B/s",
            subject=subject,
            params={**PARAMS, **changed},
            summary=Summary(n=repeats, median=value, mad=0.02 * value),
        )
        for metric, value in values.items()
    ]


def shown(*given: AnyRecord) -> str:
    out = io.StringIO()
    show_rdma(Console(file=out, width=132), given)
    return out.getvalue()


def test_the_row_of_the_seeds_example_is_reproduced() -> None:
    """An FDR card: 51.04 Gb/sec are 97356 messages of 64 KiB a second."""
    row = table_row(65536, 5000, 51.05e9 / 8, 51.04e9 / 8, 97356)
    assert row.split() == ["65536", "5000", "51.05", "51.04", "0.097356"]
    titles = ["#bytes", "#iterations", "BW", "peak[Gb/sec]", "BW", "average[Gb/sec]", "MsgRate[Mpps]"]
    assert HEADER.split() == titles
    for title, value in (("#iterations", "5000"), ("BW peak", "51.05"), ("MsgRate", "0.097356")):
        assert abs(HEADER.index(title) - row.index(value)) <= 3


def test_small_rates_keep_their_digits() -> None:
    assert table_row(64, 10, 24.5e6, 24.1e6, 376000).split()[2:4] == ["0.1960", "0.1928"]


def test_each_operation_has_a_table_and_each_size_a_row() -> None:
    text = shown(*records(6.38e9), *records(3e9, size=4096), *records(5e9, op="read"))
    assert text.count(RULER) == 4
    assert text.count(HEADER) == 2
    assert "RDMA write: n1 mlx4_0:1 -> n2 mlx4_1:1  (RC, 1 queue pair, depth 128, MTU 4096)" in text
    assert text.count("RDMA read: ") == 1
    assert " 65536      5000             51.55              51.04" in text
    assert "median of 3, ± 2.0 %" in text
    assert "corrupted" not in text


def test_both_directions_and_wrong_messages_are_shown() -> None:
    text = shown(*records(6.38e9, corrupted=2, repeats=1, bidirectional=True, qps=4))
    assert "n1 mlx4_0:1 <-> n2 mlx4_1:1" in text
    assert "4 queue pairs" in text
    assert "2 corrupted" in text
    assert "median of" not in text


def test_nothing_measured_shows_nothing() -> None:
    waived = Measurement(name="node.rdma", metric="bandwidth", unit="B/s", status="waived", reason="none")
    assert shown(waived) == ""
    assert rdma_rows([waived]) == []


def test_bytes_of_the_adapter_are_no_row() -> None:
    wire = Measurement(
        name="node.rdma",
        metric="wire",
        unit="1",
        subject=Subject(host="n1", peer="n2", device="mlx4_0:1"),
        params={**PARAMS, "direction": "sent"},
        summary=Summary(n=1, median=1.02),
    )
    assert len(rdma_rows([*records(6.38e9), wire])) == 1
