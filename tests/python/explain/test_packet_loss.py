"""Packet loss: the host and the side, from planted counters of TCP."""

from __future__ import annotations

import numpy as np
import pytest

from assay.explain import explain
from assay.explain.matrix import ONE_WAY
from assay.records.schema import AnyRecord, Measurement, Pairs, Subject, Summary

SENT = 15_000.0  # segments of a host
BEHIND = 13  # segments behind each gap, as a lab shows


def counted(
    count: int,
    transmit: dict[int, float],
    receive: dict[int, float],
    usual: float = 0.0003,
    by_pair: bool = False,
) -> list[AnyRecord]:
    """A one-way measurement in which each host sends evenly to its four neighbours in a ring. ``transmit``,
    ``receive``: by host, the share of packets that it loses; ``usual``: of all others. ``by_pair``: the kernel tells
    the receivers of a host apart."""
    again, behind = [0.0] * count, [0.0] * count
    pairs: list[AnyRecord] = []
    rows: list[AnyRecord] = []
    for i in range(count):
        peers = sorted({(i + d) % count for d in (1, 2, -1, -2)} - {i})
        for j in peers:
            lost = SENT / len(peers) * (transmit.get(i, 0.0) + receive.get(j, 0.0) + usual)
            again[i] += lost
            behind[j] += lost * BEHIND
            pairs += pair_counts(i, j, SENT / len(peers), lost) if by_pair else []
        rows.append(
            Pairs(
                name=ONE_WAY, metric="bandwidth", unit="B/s", subject=Subject(host=f"h{i}"),
                params={"size": 1 << 20, "op": "send"}, peers=[f"h{j}" for j in peers],
                values=[1e9] * len(peers),
            )
        )  # fmt: skip
    metrics = {"tcp_sent": [SENT] * count, "tcp_retransmitted": again, "tcp_out_of_order": behind}
    return rows + pairs + [
        Measurement(
            name="network.counters", metric=metric, unit="1", subject=Subject(host=f"h{i}", device="tcp"),
            params={"during": ONE_WAY}, summary=Summary(n=1, median=value),
        )
        for metric, values in metrics.items() for i, value in enumerate(values)
    ]  # fmt: skip


def pair_counts(source: int, target: int, sent: float, lost: float) -> list[AnyRecord]:
    return [
        Measurement(
            name="network.counters", metric=metric, unit="1", params={"during": ONE_WAY},
            subject=Subject(host=f"h{source}", peer=f"h{target}", device="tcp"), summary=Summary(n=1, median=value),
        )
        for metric, value in (("tcp_sent", sent), ("tcp_retransmitted", lost))
    ]  # fmt: skip


def named(records: list[AnyRecord]) -> list[tuple[str | None, str]]:
    return [(f.subject.host, f.side) for f in explain(records) if f.rule == "packet_loss"]


@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize("count", [3, 4, 8, 100])
def test_the_side_that_loses_is_named_and_its_partners_are_not(count: int, by_pair: bool) -> None:
    assert named(counted(count, {1: 0.01}, {}, by_pair=by_pair)) == [("h1", "transmit")]
    assert named(counted(count, {}, {1: 0.01}, by_pair=by_pair)) == [("h1", "receive")]


@pytest.mark.parametrize("by_pair", [False, True])
def test_two_hosts_at_once(by_pair: bool) -> None:
    found = named(counted(12, {1: 0.01}, {8: 0.02}, by_pair=by_pair))
    assert set(found) == {("h1", "transmit"), ("h8", "receive")}


def test_a_single_pair_that_loses_is_a_warning_and_neither_host_is_blamed() -> None:
    records = counted(8, {}, {}, by_pair=True)
    for record in records:
        pair = record.subject.host, getattr(record.subject, "peer", None)
        if isinstance(record, Measurement) and pair == ("h2", "h3") and record.metric == "tcp_retransmitted":
            record.summary = Summary(n=1, median=SENT / 4 * 0.02)
    (finding,) = [f for f in explain(records) if f.rule == "packet_loss"]
    assert (finding.subject.host, finding.subject.peer, finding.severity) == ("h2", "h3", "warning")


def test_counts_of_pairs_are_used_only_if_all_pairs_have_them() -> None:
    """Half of the pairs without a count: the fit of hosts still finds the side."""
    records = counted(8, {1: 0.01}, {}, by_pair=True)
    kept = [r for r in records if not (isinstance(r, Measurement) and r.subject.peer in ("h2", "h5"))]
    assert len(kept) < len(records) and named(kept) == [("h1", "transmit")]


def at_random(
    rng: np.random.Generator,
    count: int,
    transmit: dict[int, float],
    receive: dict[int, float],
    usual: float,
    sent: float,
    unevenness: float,
    by_pair: bool,
) -> list[AnyRecord]:
    """``counted``, but each segment is lost by chance. ``unevenness``: the deviation of the logarithm of each pair's
    window (8 segments in the median); half of it is that of the segments that a host sends to each receiver."""
    again, behind = [0] * count, [0] * count
    pairs: list[AnyRecord] = []
    for i in range(count):
        peers = sorted({(i + d) % count for d in (1, 2, -1, -2)} - {i})
        for j in peers:
            share = transmit.get(i, 0.0) + receive.get(j, 0.0) + usual
            to_peer = sent / len(peers) * rng.lognormal(0.0, unevenness / 2)
            lost = int(rng.poisson(to_peer * share))
            pairs += pair_counts(i, j, to_peer, lost) if by_pair else []
            window = 8 * rng.lognormal(0.0, unevenness)
            again[i] += lost
            behind[j] += int(rng.geometric(min(1.0, 1 / window), lost).sum())
    records = counted(count, {}, {})
    for record in records:
        if isinstance(record, Measurement):
            host = int((record.subject.host or "h0")[1:])
            value = {"tcp_sent": sent, "tcp_retransmitted": again[host], "tcp_out_of_order": behind[host]}
            record.summary = Summary(n=1, median=value[record.metric])
    return records + pairs


@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize("unevenness", [0.0, 0.6])
def test_among_random_losses_hardly_a_side_is_missed_or_wrong(unevenness: float, by_pair: bool) -> None:
    """100 networks of 5 to 12 hosts with up to two lossy sides of 1 to 3 %: 30 to 450 segments each."""
    rng = np.random.default_rng(0)
    planted_sides = missed = wrong = 0
    for _ in range(100):
        count = int(rng.integers(5, 13))
        lossy: dict[str, dict[int, float]] = {"transmit": {}, "receive": {}}
        for _ in range(int(rng.integers(0, 3))):
            side = str(rng.choice(["transmit", "receive"]))
            lossy[side][int(rng.integers(count))] = float(rng.uniform(0.01, 0.03))
        usual = float(rng.choice([0.0002, 0.0005, 0.001]))
        sent = float(rng.choice([3000, 7000, 15000]))
        records = at_random(rng, count, lossy["transmit"], lossy["receive"], usual, sent, unevenness, by_pair)
        found = set(named(records))
        planted = {(f"h{host}", side) for side, hosts in lossy.items() for host in hosts}
        planted_sides += len(planted)
        missed += len(planted - found)
        wrong += len(found - planted)
    assert missed <= 0.04 * planted_sides and wrong <= 2


@pytest.mark.parametrize("usual", [0.0, 0.0005, 0.01])
def test_what_all_lose_alike_is_nobodys_fault(usual: float) -> None:
    assert named(counted(8, {}, {}, usual)) == []


@pytest.mark.parametrize("late", [0.0, 0.02])
def test_segments_that_were_late_are_not_lost(late: float) -> None:
    """Many were sent again, by one host or by all, and one single gap was seen."""
    records = counted(8, {2: late}, {}, 0.001)
    gaps = [r for r in records if isinstance(r, Measurement) and r.metric == "tcp_out_of_order"]
    for record in gaps:
        record.summary = Summary(n=1, median=float(record is gaps[3]))
    assert named(records) == []


@pytest.mark.parametrize("sweep", ["network.all_to_all", "network.client_server"])
def test_under_load_only_equals_are_compared_and_a_host_has_to_stand_out(sweep: str) -> None:
    def loaded(share: float) -> list[AnyRecord]:
        records = counted(8, {1: share}, {}, 0.002)
        for record in records:
            if isinstance(record, Pairs):
                record.name = sweep
            elif isinstance(record, Measurement):
                record.params = {}
        return records

    assert named(loaded(0.005)) == []
    assert named(loaded(0.02)) == ([("h1", "transmit")] if sweep == "network.all_to_all" else [])


def test_a_server_is_not_blamed_for_its_many_segments() -> None:
    """It sends ten times as many as the others, and as large a share of them again."""
    records = counted(8, {}, {}, 0.001)
    for record in records:
        if isinstance(record, Measurement) and record.subject.host == "h0" and "order" not in record.metric:
            assert record.summary
            record.summary = Summary(n=1, median=record.summary.median * 10)
    assert named(records) == []


def test_the_figures_are_shares_of_packets() -> None:
    (finding,) = [f for f in explain(counted(8, {1: 0.01}, {})) if f.rule == "packet_loss"]
    assert finding.cause.startswith("h1 loses 1.03 % of the packets that it sends")
    assert finding.severity == "fault" and finding.details and finding.fix
