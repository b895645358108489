"""Lost UDP messages on planted counts: each drop point is named with its host. Only what the sender dropped itself is
no fault."""

from __future__ import annotations

import pytest

from assay.explain import explain
from assay.explain.udp import DROP_POINTS
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Scalar, Subject, Summary

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
