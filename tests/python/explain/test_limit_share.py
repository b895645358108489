"""How much of a loss a host's own limit explains, on planted clusters of eight hosts: the limit is the cause of what it
explains alone, stands beside the network where it explains a part, and is not named for what it does not touch."""

from __future__ import annotations

from planted import RATE, TwoCabinets

from assay.explain import explain
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Subject, Summary

HOSTS = [f"h{i}" for i in range(8)]


def quota(host: str, held: float, record: int = 900) -> Context:
    """A quota that took effect in each slice of 10 s, and held the host back for ``held`` of the time."""
    facts = {
        "grown.cpu.periods": 100,
        "grown.cpu.throttled_periods": 100,
        "cpu.period": 0.1,
        "cpu.quota": 1.0,
    }
    return Context(
        id=record, subject=Subject(host=host), facts={**facts, "grown.cpu.throttled_us": round(held * 1e7)}
    )


def shaper(host: str, rate: float, dropped: int = 5) -> Context:
    name = "queue.eth0.tbf"
    facts = {f"grown.{name}.overlimits": 8000, f"grown.{name}.dropped": dropped, f"{name}.rate": rate}
    return Context(id=901, subject=Subject(host=host), facts=facts)


def cluster(**planted: dict[int, float]) -> list[AnyRecord]:
    return list(TwoCabinets(3, uplink=100.0, noise=0.01, **planted).rows())  # type: ignore[arg-type]


def slow_and_limits(records: list[AnyRecord]) -> tuple[Finding, list[str]]:
    """The one finding about a slow host, and the causes of the warnings of limits beside it."""
    findings = explain(records, HOSTS)
    (slow,) = [f for f in findings if f.rule == "slow_host"]
    return slow, [f.cause for f in findings if f.rule == "host_limit"]


def test_a_quota_that_explains_the_loss_is_its_cause_and_is_said_once() -> None:
    slow, limits = slow_and_limits([*cluster(transmit={2: 0.4}), quota("h2", 0.58)])
    assert slow.cause.endswith("h2 was held back by its quota of 1 processors for 58 % of the time at most")
    assert "not the network: this limit explains the loss" in slow.details
    assert slow.fix.startswith("raise the quota")
    assert 900 in slow.evidence
    assert limits == []


def test_a_quota_that_explains_a_part_of_the_loss_is_named_beside_the_network() -> None:
    slow, limits = slow_and_limits([*cluster(transmit={2: 0.25}), quota("h2", 0.5)])
    (line,) = [line for line in slow.details if "quota" in line]
    assert line.startswith("not the network alone: h2 was held back")
    assert "that explains 50" in line  # the half of a loss to a quarter: limits multiply
    assert "cable" in slow.fix
    assert len(limits) == 1


def test_a_quota_that_explains_next_to_nothing_leaves_the_network_accused() -> None:
    slow, limits = slow_and_limits([*cluster(transmit={2: 0.1}), quota("h2", 0.12)])
    assert not [line for line in slow.details if "quota" in line]
    assert len(limits) == 1  # true of the host, but no cause of this


def test_the_same_quota_on_all_hosts_does_not_explain_why_one_is_slower() -> None:
    quotas = [quota(host, 0.5, 900 + number) for number, host in enumerate(HOSTS)]
    slow, limits = slow_and_limits([*cluster(transmit={2: 0.5}), *quotas])
    assert not [line for line in slow.details if "quota" in line]
    assert len(limits) == 8


def test_a_shaper_whose_rate_the_host_reaches_is_the_cause_and_is_said_once() -> None:
    # Payload is 95 % of what a token bucket counts.
    slow, limits = slow_and_limits([*cluster(transmit={1: 0.5}), shaper("h1", 0.5 * RATE / 0.95)])
    assert "h1 sends through a shaper of" in slow.cause
    assert slow.fix.startswith("look at 'tc -s qdisc show dev eth0'")
    assert limits == []


def test_a_host_far_below_its_own_shaper_has_another_fault_too() -> None:
    slow, limits = slow_and_limits([*cluster(transmit={1: 0.2}), shaper("h1", 0.5 * RATE)])
    (line,) = [line for line in slow.details if "shaper" in line]
    assert line.startswith("not the network alone: ")
    assert len(limits) == 1


def test_a_shaper_does_not_explain_what_its_host_receives() -> None:
    slow, limits = slow_and_limits([*cluster(receive={1: 0.5}), shaper("h1", 0.5 * RATE)])
    assert not [line for line in slow.details if "shaper" in line]
    assert len(limits) == 1


def test_where_both_sides_are_slow_a_shaper_is_named_beside_the_network() -> None:
    slow, limits = slow_and_limits(
        [*cluster(transmit={1: 0.5}, receive={1: 0.5}), shaper("h1", 0.5 * RATE / 0.95)]
    )
    (line,) = [line for line in slow.details if "shaper" in line]
    assert line.startswith("perhaps not the network: ")
    assert line.endswith("how much of this it explains is not known")
    assert len(limits) == 1


def counted(host: str, metric: str, value: float) -> Measurement:
    return Measurement(
        name="network.counters",
        metric=metric,
        subject=Subject(host=host),
        unit="1",
        summary=Summary(n=1, median=value),
    )


def lossy(host: str, again: float) -> list[AnyRecord]:
    """Counters of TCP in which ``host`` sends ``again`` of 100,000 segments twice, behind gaps at the others."""
    records: list[AnyRecord] = []
    for other in HOSTS:
        records += [
            counted(other, "tcp_sent", 100_000.0),
            counted(other, "tcp_retransmitted", again if other == host else 0.0),
            counted(other, "tcp_out_of_order", 0.0 if other == host else again / 4),
        ]
    return records


def test_packets_that_a_hosts_own_queue_dropped_are_no_loss_of_the_network() -> None:
    def loss(dropped: int) -> tuple[Finding, list[Finding]]:
        findings = explain([*cluster(), *lossy("h1", 5000.0), shaper("h1", 0.9 * RATE, dropped)], HOSTS)
        (found,) = [f for f in findings if f.rule == "packet_loss"]
        return found, [f for f in findings if f.rule == "host_limit"]

    found, limits = loss(4900)
    assert "h1 sends through a shaper" in found.cause
    assert limits == []
    found, limits = loss(2000)
    assert "explains 40 % of the loss at most" in "".join(found.details)
    assert len(limits) == 1
    found, limits = loss(100)
    assert "shaper" not in "".join(found.details)
