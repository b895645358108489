"""The pair matrix: which records become its cells, the order of its hosts, and its normalisation."""

import numpy as np
import pytest

from assay.explain.matrix import PairMatrix
from assay.records.schema import AnyRecord, Pairs, Subject


def row(
    host: str, values: dict[str, float], size: int = 1 << 20, op: str = "send", identity: int = 0
) -> Pairs:
    return Pairs(
        id=identity,
        name="network.all_to_all",
        metric="bandwidth",
        unit="B/s",
        subject=Subject(host=host),
        params={"op": op, "size": size},
        peers=list(values),
        values=list(values.values()),
    )


def cells(matrix: PairMatrix) -> dict[tuple[str, str], float]:
    ends = zip(matrix.source, matrix.target, matrix.value, strict=True)
    return {(matrix.hosts[i], matrix.hosts[j]): float(np.exp(value)) for i, j, value in ends}


def test_cells_are_relative_to_the_median() -> None:
    records: list[AnyRecord] = [row("a", {"b": 1e9, "c": 2e9}, identity=4), row("b", {"a": 4e9}, identity=5)]
    matrix = PairMatrix.from_records(records, "network.all_to_all", 1 << 20, "send")
    assert cells(matrix) == pytest.approx({("a", "b"): 0.5, ("a", "c"): 1.0, ("b", "a"): 2.0}, rel=1e-5)
    assert matrix.rows == {"a": [4], "b": [5]}


def test_hosts_are_in_the_given_order_or_that_of_the_rows() -> None:
    records: list[AnyRecord] = [row("b", {"z": 1.0, "a": 1.0}), row("a", {"b": 1.0})]
    assert PairMatrix.of_bandwidth(records).hosts == ["b", "a", "z"]
    assert PairMatrix.of_bandwidth(records, ["a", "b", "unused", "z"]).hosts == ["a", "b", "z"]


def test_a_host_with_itself_and_values_without_a_rate_are_left_out() -> None:
    values = {"a": 5.0, "b": 1.0, "c": 0.0, "d": float("nan"), "e": float("inf")}
    assert list(cells(PairMatrix.of_bandwidth([row("a", values)]))) == [("a", "b")]


def test_ranks_of_a_single_host_have_no_matrix() -> None:
    matrix = PairMatrix.of_bandwidth([row("a", {"a": 1.0}), row("a", {"a": 2.0})])
    assert matrix.hosts == [] and matrix.value.size == 0
    assert PairMatrix.of_bandwidth([]).hosts == []


def test_pairs_of_ranks_on_one_host_are_left_out() -> None:
    values = {"s:1": 9e9, "a": 1e9, "b": 1e9}
    matrix = PairMatrix.of_bandwidth(
        [row("s:0", values), row("a", {"s:0": 1e9, "s:1": 1e9})], ["s", "a", "b"]
    )
    assert matrix.hosts == ["s:0", "a", "s:1", "b"]
    assert set(cells(matrix)) == {("s:0", "a"), ("s:0", "b"), ("a", "s:0"), ("a", "s:1")}


def test_repeated_measurements_are_averaged() -> None:
    records: list[AnyRecord] = [row("a", {"b": 1.0}), row("a", {"b": 4.0}), row("b", {"a": 2.0})]
    assert cells(PairMatrix.of_bandwidth(records)) == pytest.approx(
        {("a", "b"): 1.0, ("b", "a"): 1.0}, rel=1e-5
    )


def test_large_sizes_are_combined_and_small_sizes_left_out() -> None:
    records: list[AnyRecord] = [
        row("a", {"b": 7.0}, size=1024),
        row("b", {"a": 1.0}, size=1024),
        row("a", {"b": 1e9}, size=1 << 19, op="put"),
        row("b", {"a": 1e9}, size=1 << 19, op="put"),
        row("a", {"b": 4e9}, size=1 << 22),
        row("b", {"a": 1e9}, size=1 << 22),
    ]
    matrix = PairMatrix.of_bandwidth(records)
    assert [layer[1:] for layer in matrix.layers] == [("put", 1 << 19), ("send", 1 << 22)]
    by_pair = cells(matrix)
    assert by_pair["a", "b"] / by_pair["b", "a"] == pytest.approx(2.0)  # the mean of 1 and 4, in logarithms


def test_of_small_sizes_alone_the_largest_is_used() -> None:
    records: list[AnyRecord] = [row("a", {"b": 7.0}, size=8), row("a", {"b": 1.0}, size=64)]
    assert [layer[2] for layer in PairMatrix.of_bandwidth(records).layers] == [64]


def test_dense_and_sparse_matrices_agree() -> None:
    rng = np.random.default_rng(1)
    bandwidth = rng.uniform(1, 2, (12, 12))
    bandwidth[rng.random((12, 12)) < 0.9] = np.nan  # so few that cells are sorted, not counted
    hosts = [f"n{i}" for i in range(12)]
    rows: list[AnyRecord] = [
        row(host, {peer: float(bandwidth[i, j]) for j, peer in enumerate(hosts)})
        for i, host in enumerate(hosts)
    ]
    dense, sparse = PairMatrix.from_dense(bandwidth, hosts), PairMatrix.of_bandwidth(rows, hosts)
    assert cells(dense) == pytest.approx(cells(sparse), rel=1e-5)
