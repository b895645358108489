"""Lost UDP messages on planted counts: each drop point is named with its host. Only what the sender dropped itself is
no fault."""

from __future__ import annotations

import pytest
from rich.console import Console

from assay.explain import explain
from assay.explain.udp import DROP_POINTS
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Scalar, Subject, Summary
from assay.report.udp import show_udp

MESSAGES = 6000


def received(metric: str, value: float, host: str = "h1", **params: Scalar) -> Measurement:
    common: dict[str, Scalar] = {
        "stream": "all",
        "sender": "h0",
        "offered": 3.75e7,
        "size": 8900,
        "budget": 1.5,
    }
    return Measurement(
        name="node.udp_receive",
        metric=metric,
        unit="1",
        subject=Subject(host=host, device="eth0"),
        params={**common, **params},
        summary=Summary(n=1, median=value),
    )


def reception(host: str = "h1", **lost: float) -> list[AnyRecord]:
    """The records of one reception, with the messages that each drop point has lost."""
    share = sum(lost.values()) / MESSAGES
    counts = [received(point, lost.get(point, 0.0), host) for point in DROP_POINTS]
    return [received("loss", share, host, messages=MESSAGES), *counts]


def losses(*records: AnyRecord) -> list[Finding]:
    return [finding for finding in explain(records) if finding.rule == "udp_loss"]


def test_a_reception_without_loss_has_no_finding() -> None:
    assert losses(*reception()) == []


@pytest.mark.parametrize("point", DROP_POINTS)
def test_the_drop_point_is_named_with_its_host_and_share(point: str) -> None:
    (finding,) = losses(*reception(**{point: 60.0}))
    assert (finding.subject.host, finding.subject.device) == ("h1", "eth0")
    assert finding.severity == ("warning" if point == "lost_sender" else "fault")
    assert finding.effect == pytest.approx(-0.01)
    assert "h1 eth0: 60 messages" in finding.cause and finding.fix
    assert DROP_POINTS[point].where.format(device="eth0") in finding.cause


def test_only_the_host_that_loses_is_named() -> None:
    found = losses(*reception("h1", lost_unattributed=60.0), *reception("h2"))
    assert [finding.subject.host for finding in found] == ["h1"] and "in the network" in found[0].cause


def joined(lost: float, messages: int, **counters: float) -> list[AnyRecord]:
    """A reception whose kernel has joined up to ``messages``, and what its counters say."""
    bandwidth = received("bandwidth", 3.7e7, gro=messages)
    bandwidth.status, bandwidth.reason = "error", "the sender could only send 90 %"  # counts as well
    records = [*reception(lost_socket=lost), bandwidth]
    return records + [
        received("device_counter", value, counter=f"udp.{name}") for name, value in counters.items()
    ]


def test_drops_of_joined_messages_are_a_range() -> None:
    """The case from the field: 145 drops of the kernel beside 4,205 lost messages."""
    (finding,) = losses(*joined(4205.0, 64, receive_buffer_errors=145.0, in_errors=145.0))
    assert "h1 eth0: 145 to 4205 messages (70.1 %) were lost in the sockets' buffers" in finding.cause
    (note,) = [detail for detail in finding.details if "GRO" in detail]
    assert "the kernel counts 145 drops, each of up to 64 messages" in note
    assert "lost before: in the network, the adapter or the sender" in note
    assert "udp.receive_buffer_errors grew by 145" in finding.details


def test_a_quota_of_the_receiver_is_told_beside_its_full_sockets() -> None:
    facts: dict[str, Scalar] = {
        "grown.cpu.throttled_periods": 60, "grown.cpu.periods": 100, "cpu.quota": 0.05
    }  # fmt: skip
    quota = Context(id=99, subject=Subject(host="h1"), facts=facts)
    found = explain([*joined(4205.0, 64, receive_buffer_errors=145.0), quota])
    causes = {finding.rule: finding.cause for finding in found}
    assert "in the sockets' buffers" in causes["udp_loss"]
    assert "h1 was held back by its quota of 0.05 processors for 60 % of the time" in causes["host_limit"]


def test_a_count_that_the_kernel_does_not_give_is_not_shown_as_none() -> None:
    (finding,) = losses(*joined(4205.0, 64))
    assert "66 to 4205 messages" in finding.cause  # 66 blocks of 64 hold them
    assert any("of which it gives no count" in detail for detail in finding.details)


def test_drops_of_single_messages_are_exact() -> None:
    (finding,) = losses(*joined(145.0, 1, receive_buffer_errors=145.0))
    assert "h1 eth0: 145 messages" in finding.cause and not any("GRO" in text for text in finding.details)


def test_drops_that_no_socket_of_the_run_has_counted_are_told_beside_the_rest() -> None:
    counted = received("device_counter", 145.0, counter="udp.receive_buffer_errors")
    (finding,) = losses(*reception(lost_unattributed=4205.0), counted)
    assert any("145 drops at full socket buffers of h1" in detail for detail in finding.details)
    first, second = losses(*reception(lost_unattributed=4060.0, lost_socket=145.0), counted)
    assert not any("another program" in detail for detail in first.details + second.details)


def test_the_report_has_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    records = joined(4205.0, 64, receive_buffer_errors=145.0)
    for record in records:
        record.params |= {"streams": 1, "lost": 4205}  # type: ignore[union-attr]
    show_udp(Console(width=120), records)
    out = capsys.readouterr().out
    assert "4205 of 6000 messages" in out and "        145 to 4205 in the socket receive buffers" in out


def sent_from(**grown: float) -> Context:
    return Context(
        id=9, subject=Subject(host="h0"), facts={f"grown.{k.replace('__', '.')}": v for k, v in grown.items()}
    )


def test_what_the_senders_own_queue_dropped_is_not_the_networks() -> None:
    (found,) = losses(*reception(lost_unattributed=60.0), sent_from(queue__eth0__fq__dropped=75))
    assert found.severity == "warning" and DROP_POINTS["lost_sender"].where in found.cause
    assert "h0: queue.eth0.fq.dropped grew by 75" in found.details and 9 in found.evidence
    network, sender = losses(*reception(lost_unattributed=60.0), sent_from(udp__send_buffer_errors=20))
    assert (
        "20 messages" in sender.cause and "40 messages" in network.cause and "in the network" in network.cause
    )


@pytest.mark.parametrize(
    ("own_name", "facts"),
    [
        ("ion-7.site", {"host.own_name": "ion-7.site"}),  # a list of other names
        ("h0-ib", {"host.aliases": "h0-eth,h0-ib"}),
        ("h0.site.org", {}),  # a list of short names
    ],
)
def test_a_sender_is_found_by_its_own_name_among_several_listed_hosts(
    own_name: str, facts: dict[str, Scalar]
) -> None:
    records = reception(lost_unattributed=60.0)
    for record in records:
        record.params["sender"] = own_name  # type: ignore[union-attr]
    counted = [sent_from(queue__eth0__fq__dropped=75)]
    counted += [
        Context(
            id=10 + k, subject=Subject(host=host), facts={"grown.udp.in_errors": 3, "host.own_name": f"x{k}"}
        )
        for k, host in enumerate(["h1", "h2", "h3"])
    ]
    named = Context(id=20, subject=Subject(host="h0"), facts=facts)
    found = explain([*records, *counted, named], ["h0", "h1", "h2", "h3"])
    (loss,) = [finding for finding in found if finding.rule == "udp_loss"]
    assert loss.severity == "warning" and DROP_POINTS["lost_sender"].where in loss.cause
    assert "h0: queue.eth0.fq.dropped grew by 75" in loss.details


def test_of_two_hosts_with_the_senders_short_name_none_is_taken() -> None:
    records = reception(lost_unattributed=60.0)
    for record in records:
        record.params["sender"] = "n0"  # type: ignore[union-attr]
    facts: dict[str, Scalar] = {"grown.queue.eth0.fq.dropped": 75}
    others = [Context(id=9, subject=Subject(host=host), facts=facts) for host in ("n0.a", "n0.b")]
    (found,) = losses(*records, *others)
    assert "in the network" in found.cause


def test_a_sender_that_caught_up_is_named_and_not_the_network() -> None:
    # 4213 messages a second: 50 ms late are 210 owed, and 1053 sent too fast.
    late = received("longest_gap", 0.1, sender_late=0.05)
    (found,) = losses(*reception(lost_unattributed=60.0), late)
    assert found.severity == "warning" and "the sender had been 50 ms late" in found.cause
    (found,) = losses(*reception(lost_unattributed=2000.0), late)
    assert found.severity == "fault" and "in the network" in found.cause
    (found,) = losses(*reception(lost_unattributed=60.0), received("longest_gap", 0.1, sender_late=0.002))
    assert "in the network" in found.cause


def test_messages_in_fragments_are_told_as_such() -> None:
    records = reception(lost_reassembly=402.0)
    records[0].params["fragments"] = 7  # type: ignore[union-attr]
    (found,) = losses(*records)
    assert "as fragments that did not all arrive" in found.cause and "in the network" not in found.cause
    assert "cut into 7 fragments: 0.986 % of lost packets" in found.details[0]
    assert "measure with --size 1472, or an MTU of 9000 everywhere" in found.details[0]
