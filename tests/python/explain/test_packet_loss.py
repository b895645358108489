"""Packet loss: the lossy host and side are found in planted TCP counters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest
from planted import TwoCabinets

from assay.explain import Evidence, explain
from assay.explain.loss import packet_loss
from assay.explain.matrix import ONE_WAY
from assay.explain.retest import Outcome
from assay.records.schema import AnyRecord, Measurement, Pairs, Subject, Summary

SENT = 15_000.0  # segments of a host
SEGMENTS_BEHIND_GAP = 13  # out-of-order segments after each lost one, as measured in a lab


def planted_counters(
    count: int,
    transmit: dict[int, float],
    receive: dict[int, float],
    usual: float = 0.0003,
    by_pair: bool = False,
    pairs: Mapping[tuple[int, int], float] = MappingProxyType({}),
) -> list[AnyRecord]:
    """A one-way measurement in which each host sends evenly to its four neighbours in a ring. ``transmit``,
    ``receive``: by host, the share of packets that it loses; ``usual``: of all others; ``pairs``: what a
    pair loses besides. ``by_pair``: the kernel tells the receivers of a host apart."""
    retransmitted, out_of_order = [0.0] * count, [0.0] * count
    counts: list[AnyRecord] = []
    rows: list[AnyRecord] = []
    for i in range(count):
        peers = sorted({(i + d) % count for d in (1, 2, -1, -2)} - {i})
        for j in peers:
            share = transmit.get(i, 0.0) + receive.get(j, 0.0) + usual + pairs.get((i, j), 0.0)
            lost = SENT / len(peers) * share
            retransmitted[i] += lost
            out_of_order[j] += lost * SEGMENTS_BEHIND_GAP
            counts += pair_counts(i, j, SENT / len(peers), lost) if by_pair else []
        rows.append(
            Pairs(
                name=ONE_WAY, metric="bandwidth", unit="B/s", subject=Subject(host=f"h{i}"),
                params={"size": 1 << 20, "op": "send"}, peers=[f"h{j}" for j in peers],
                values=[1e9] * len(peers),
            )
        )  # fmt: skip
    metrics = {
        "tcp_sent": [SENT] * count,
        "tcp_retransmitted": retransmitted,
        "tcp_out_of_order": out_of_order,
    }
    return rows + counts + [
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


def named_sides(records: list[AnyRecord]) -> list[tuple[str | None, str]]:
    return [(f.subject.host, f.side) for f in explain(records) if f.rule == "packet_loss"]


@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize("count", [3, 4, 8, 100])
def test_the_side_that_loses_is_named_and_its_partners_are_not(count: int, by_pair: bool) -> None:
    assert named_sides(planted_counters(count, {1: 0.01}, {}, by_pair=by_pair)) == [("h1", "transmit")]
    assert named_sides(planted_counters(count, {}, {1: 0.01}, by_pair=by_pair)) == [("h1", "receive")]


@pytest.mark.parametrize("by_pair", [False, True])
def test_two_lossy_hosts_are_both_named(by_pair: bool) -> None:
    found = named_sides(planted_counters(12, {1: 0.01}, {8: 0.02}, by_pair=by_pair))
    assert set(found) == {("h1", "transmit"), ("h8", "receive")}


def test_a_single_pair_that_loses_is_a_warning_and_neither_host_is_blamed() -> None:
    records = planted_counters(8, {}, {}, by_pair=True)
    for record in records:
        pair = record.subject.host, getattr(record.subject, "peer", None)
        if isinstance(record, Measurement) and pair == ("h2", "h3") and record.metric == "tcp_retransmitted":
            record.summary = Summary(n=1, median=SENT / 4 * 0.02)
    (finding,) = [f for f in explain(records) if f.rule == "packet_loss"]
    assert (finding.subject.host, finding.subject.peer, finding.severity) == ("h2", "h3", "warning")


def test_counts_of_pairs_are_used_only_if_all_pairs_have_them() -> None:
    """Half of the pairs have no counts. The side is still found from the counts of hosts."""
    records = planted_counters(8, {1: 0.01}, {}, by_pair=True)
    kept = [r for r in records if not (isinstance(r, Measurement) and r.subject.peer in ("h2", "h5"))]
    assert len(kept) < len(records) and named_sides(kept) == [("h1", "transmit")]


def planted_random_counters(
    rng: np.random.Generator,
    count: int,
    transmit: dict[int, float],
    receive: dict[int, float],
    usual: float,
    sent: float,
    unevenness: float,
    by_pair: bool,
) -> list[AnyRecord]:
    """``planted_counters``, but each segment is lost by chance. ``unevenness``: the deviation of the logarithm of each
    pair's window (8 segments in the median); half of it is that of the segments that a host sends to each receiver."""
    retransmitted, out_of_order = [0] * count, [0] * count
    pairs: list[AnyRecord] = []
    for i in range(count):
        peers = sorted({(i + d) % count for d in (1, 2, -1, -2)} - {i})
        for j in peers:
            share = transmit.get(i, 0.0) + receive.get(j, 0.0) + usual
            to_peer = sent / len(peers) * rng.lognormal(0.0, unevenness / 2)
            lost = int(rng.poisson(to_peer * share))
            pairs += pair_counts(i, j, to_peer, lost) if by_pair else []
            window = 8 * rng.lognormal(0.0, unevenness)
            retransmitted[i] += lost
            out_of_order[j] += int(rng.geometric(min(1.0, 1 / window), lost).sum())
    records = planted_counters(count, {}, {})
    for record in records:
        if isinstance(record, Measurement):
            host = int((record.subject.host or "h0")[1:])
            value = {
                "tcp_sent": sent,
                "tcp_retransmitted": retransmitted[host],
                "tcp_out_of_order": out_of_order[host],
            }
            record.summary = Summary(n=1, median=value[record.metric])
    return records + pairs


@pytest.mark.slow
@pytest.mark.parametrize("by_pair", [False, True])
@pytest.mark.parametrize("unevenness", [0.0, 0.6])
def test_random_losses_rarely_hide_a_side_or_name_a_wrong_one(unevenness: float, by_pair: bool) -> None:
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
        records = planted_random_counters(
            rng, count, lossy["transmit"], lossy["receive"], usual, sent, unevenness, by_pair
        )
        found = set(named_sides(records))
        planted = {(f"h{host}", side) for side, hosts in lossy.items() for host in hosts}
        planted_sides += len(planted)
        missed += len(planted - found)
        wrong += len(found - planted)
    assert missed <= 0.04 * planted_sides and wrong <= 2


@pytest.mark.parametrize("usual", [0.0, 0.0005, 0.01])
def test_equal_loss_of_all_hosts_is_no_finding(usual: float) -> None:
    assert named_sides(planted_counters(8, {}, {}, usual)) == []


@pytest.mark.parametrize("late", [0.0, 0.02])
def test_late_segments_do_not_count_as_lost(late: float) -> None:
    """Many segments were retransmitted, by one host or by all, but the receivers saw a single gap."""
    records = planted_counters(8, {2: late}, {}, 0.001)
    gaps = [r for r in records if isinstance(r, Measurement) and r.metric == "tcp_out_of_order"]
    for record in gaps:
        record.summary = Summary(n=1, median=float(record is gaps[3]))
    assert named_sides(records) == []


@pytest.mark.parametrize("sweep", ["network.all_to_all", "network.client_server"])
def test_under_load_only_equal_hosts_with_large_differences_are_named(sweep: str) -> None:
    def loaded(share: float) -> list[AnyRecord]:
        records = planted_counters(8, {1: share}, {}, 0.002)
        for record in records:
            if isinstance(record, Pairs):
                record.name = sweep
            elif isinstance(record, Measurement):
                record.params = {}
        return records

    assert named_sides(loaded(0.005)) == []
    assert named_sides(loaded(0.02)) == ([("h1", "transmit")] if sweep == "network.all_to_all" else [])


@pytest.mark.parametrize("by_pair", [False, True])
def test_senders_are_not_blamed_for_what_a_slow_uplink_drops(by_pair: bool) -> None:
    """The uplink from the last six hosts to the first six is slow, and its queue drops 2 %. A lossy host that does not
    use it is still named."""
    cluster = TwoCabinets(3, 12, 3.0, 0.02, cabinet_pairs={(1, 0): 0.5})
    dropped = {(i, j): 0.02 for i in range(6, 12) for j in range(6)}
    counters = planted_counters(12, {2: 0.02}, {}, by_pair=by_pair, pairs=dropped)
    assert len(named_sides(counters)) > 1  # without the rates
    found = [f for f in explain(cluster.rows() + counters, cluster.hosts) if f.rule == "packet_loss"]
    assert [(f.subject.host, f.side) for f in found if f.severity == "fault"] == [("h2", "transmit")]
    warnings = [f for f in found if f.severity == "warning"]
    assert (warnings == []) if by_pair else warnings
    for warning in warnings:
        assert "the path from h[6-11] to h[0-5] is slow" in warning.details[-1]
    evidence = Evidence(cluster.rows() + counters, cluster.hosts)
    confirmed = Outcome(-0.7, True, 5e8, 1e9, 3, 9, [], is_group=True)
    evidence.suspects = [(suspect, confirmed) for suspect, _ in evidence.suspects]
    assert [(f.subject.host, f.severity) for f in packet_loss(evidence)] == [("h2", "fault")]


@pytest.mark.parametrize(
    ("alone", "severity"),
    [({}, "warning"), ({1: 0.02}, "fault"), ({1: 0.008}, "fault")],
)
def test_a_side_that_loses_in_the_sweep_alone_is_a_warning(alone: dict[int, float], severity: str) -> None:
    """Host 1 loses 2 % in the sweep. One way the slow receive side of host 0 drops packets of all senders."""
    one_way = planted_counters(8, alone, {0: 0.2}, by_pair=True)
    sweep = planted_counters(8, {1: 0.02}, {})
    for record in sweep:
        if isinstance(record, Pairs):
            record.name = "network.all_to_all"
        elif isinstance(record, Measurement):
            record.params = {}
    found = [f for f in explain(one_way + sweep) if f.rule == "packet_loss" and f.side == "transmit"]
    assert [(f.subject.host, f.severity) for f in found] == [("h1", severity)]
    assert ("one way it loses less" in found[0].details[-1]) == (severity == "warning")


def test_a_server_with_many_segments_is_not_named() -> None:
    """The server sends ten times as many segments as the others, and retransmits the same share."""
    records = planted_counters(8, {}, {}, 0.001)
    for record in records:
        if isinstance(record, Measurement) and record.subject.host == "h0" and "order" not in record.metric:
            assert record.summary
            record.summary = Summary(n=1, median=record.summary.median * 10)
    assert named_sides(records) == []


def test_a_finding_states_the_share_of_lost_packets() -> None:
    (finding,) = [f for f in explain(planted_counters(8, {1: 0.01}, {})) if f.rule == "packet_loss"]
    assert finding.cause.startswith("h1 loses 1.03 % of the packets that it sends")
    assert finding.severity == "fault" and finding.details and finding.fix
