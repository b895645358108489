"""Finds where UDP messages were lost, from the receiving engine's counts of each drop point. What no counter of the
receiving host has seen is held against those of the sending host and its pace, before the network is named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from assay.explain.evidence import Evidence
from assay.explain.host_limits import HostCounters, dropped_by_queues, grown, grown_counters, host_counters
from assay.records.schema import Context, Finding, Measurement
from assay.records.units import format_quantity, format_share

NAME = "node.udp_receive"
MIN_LATE_S = 0.01  # a sender that was later than this caught up faster than its pace
# A sender that is late catches up at 1.25 times its rate (engines/node/udp/pace.hpp): so it sends five times the
# messages that it owed before it is on time again, and each may meet a full queue.
CATCH_UP = 1.25 / 0.25


class DropPoint(NamedTuple):
    where: str  # completes "... messages were lost"
    fix: str  # {device} is the interface


DROP_POINTS = {
    "lost_socket": DropPoint(
        "in the sockets' buffers: the receiving threads did not keep up",
        "sysctl -w net.core.rmem_max=16777216 (and --buffer), --realtime, more --threads; keep other work off "
        "the cores of the adapter's NUMA node",
    ),
    "lost_softnet": DropPoint(
        "in the kernel's queue of a processor",
        "sysctl -w net.core.netdev_max_backlog=250000; spread the adapter's interrupts over more cores",
    ),
    "lost_nic": DropPoint(
        "in the adapter {device}, or were refused by its driver",
        "ethtool -G {device} rx 4096 (see ethtool -g {device}); look at ethtool -S {device}, its PCIe link and "
        "which cores take its interrupts",
    ),
    "lost_reassembly": DropPoint(
        "as fragments that did not all arrive",
        "let frames pass whole: ip link set {device} mtu 9000, on both sides and on the way",
    ),
    "lost_sender": DropPoint(
        "in the sender's own queue, before the wire",
        "take a sender with more capacity, or offer less (--rate)",
    ),
    "lost_unattributed": DropPoint(
        "in the network: no counter of the receiving host has seen them",
        "look at the counters of the switch's ports, at cables and transceivers, at flow control (ethtool -a "
        "{device})",
    ),
}


COUNTED = "udp.receive_buffer_errors"  # the kernel's count of drops at full socket buffers, of the whole host


# Drop points that the receiving engine cannot see.
ALL_POINTS = {
    **DROP_POINTS,
    "lost_burst": DropPoint(
        "after the sender had been {late} late: it caught up at 1.25 times its rate, and a queue on the way may have "
        "been full",
        "let the sender keep its pace (--realtime, more --threads, no quota on its processors), and measure again",
    ),
}
BEFORE = "lost before: in the network, the adapter or the sender"
OF_THE_SENDER = ("lost_sender", "lost_burst")


def udp_loss(evidence: Evidence) -> list[Finding]:
    """Returns a finding for each drop point with losses; those that the sender has caused are only a warning."""
    findings = []
    for metric in DROP_POINTS:
        for record in evidence.measurements(NAME, metric):
            count = record.median
            if count <= 0:
                continue
            sender = _counters_of_sender(evidence, record)
            parts = (
                _not_seen(evidence, record, sender) if metric == "lost_unattributed" else [(metric, count)]
            )
            findings += [_finding(evidence, record, point, part, sender) for point, part in parts]
    return findings


def _finding(
    evidence: Evidence, record: Measurement, point: str, count: float, sender: HostCounters | None
) -> Finding:
    drop_point, of_sender = ALL_POINTS[point], point in OF_THE_SENDER
    device = record.subject.device or "the interface"
    loss = _loss_record(evidence, record)
    share = count / float(loss.params["messages"]) if loss and loss.params.get("messages") else None
    share_text = f" ({format_share(share)})" if share is not None else ""
    counters = _counters(evidence, record)
    counted = next(
        (other.median for other in _counter_records(evidence, record) if other.params["counter"] == COUNTED),
        None,
    )
    least, notes = count, []
    if point == "lost_socket":
        least, note = at_sockets(count, _joined(evidence, record), counted)
        notes = [note] if note else []
    elif point == "lost_unattributed" and counted and not _lost_at_sockets(evidence, record):
        notes = [f"the kernel counts {counted:.0f} drops at full socket buffers of {record.subject.host}, which may be "
                 f"of these messages or another program's; the rest was {BEFORE}"]  # fmt: skip
    if of_sender and sender is not None:
        counters += [f"{sender.host}: {text}" for text in grown_counters(sender)]
    return Finding(
        rule="udp_loss",
        cause=f"{record.subject.host} {device}: {f'{least:.0f} to ' if least < count else ''}{count:.0f} "
        f"messages{share_text} were lost "
        + drop_point.where.format(device=device, late=format_quantity(_lateness(evidence, record), "s")),
        subject=record.subject,
        side="none" if of_sender else "receive",
        severity="warning" if of_sender else "fault",
        effect=-share if share is not None else None,
        evidence=[
            record.id,
            *([loss.id] if loss else []),
            *(sorted(set(sender.ids.values())) if of_sender and sender else []),
        ],
        details=[*_of_fragments(point, loss, share), *notes, *counters],
        fix=drop_point.fix.format(device=device),
    )


def at_sockets(count: float, joined: int, counted: float | None) -> tuple[float, str]:
    """The least number of messages that were lost at full sockets, where ``count`` is the most, and why it is not
    exact: the kernel counts a block of ``joined`` messages (GRO) once. ``counted``: its drops; None: unknown."""
    if joined <= 1:
        return count, ""
    blocks = f"of up to {joined} messages that the kernel had joined (GRO)"
    if counted is None:
        return math.ceil(
            count / joined
        ), f"drops {blocks}, of which it gives no count; what they do not hold was {BEFORE}"
    least = min(count, max(counted, math.ceil(count / joined)))
    return least, f"the kernel counts {counted:.0f} drops, each {blocks}; what they do not hold was {BEFORE}"


def _joined(evidence: Evidence, record: Measurement) -> int:
    """The most messages that the kernel has delivered as one block, also where the bandwidth is doubtful."""
    blocks = [
        int(other.params["gro"])
        for other in evidence.records
        if isinstance(other, Measurement)
        and (other.name, other.metric) == (NAME, "bandwidth")
        and "gro" in other.params
        and _same_reception(record, other)
    ]
    return max(blocks, default=1)


def _lost_at_sockets(evidence: Evidence, record: Measurement) -> bool:
    return any(
        other.median for other in evidence.measurements(NAME, "lost_socket") if _same_reception(record, other)
    )


def _not_seen(
    evidence: Evidence, record: Measurement, sender: HostCounters | None
) -> Iterator[tuple[str, float]]:
    """Splits the messages that no counter of the receiving host has seen, by what the sending host says. The counters
    are upper bounds, as the engine's are."""
    count = record.median
    dropped = dropped_by_queues(sender) + grown(sender, "udp.send_buffer_errors") if sender else 0.0
    dropped -= sum(
        other.median for other in evidence.measurements(NAME, "lost_sender") if _same_reception(record, other)
    )
    if at_sender := max(0.0, min(count, dropped)):
        yield "lost_sender", at_sender
    if rest := count - at_sender:
        late, offered, size = (
            _lateness(evidence, record),
            record.params.get("offered"),
            record.params.get("size"),
        )
        owed = late * float(offered or 0) / float(size or 1)
        yield ("lost_burst" if late > MIN_LATE_S and rest <= CATCH_UP * owed else "lost_unattributed"), rest


def _lateness(evidence: Evidence, record: Measurement) -> float:
    """The longest delay in s of a message at the sender."""
    return max(
        (
            float(other.params.get("sender_late", 0.0))
            for other in evidence.measurements(NAME, "longest_gap")
            if _same_reception(record, other)
        ),
        default=0.0,
    )


def _counters_of_sender(evidence: Evidence, record: Measurement) -> HostCounters | None:
    """The counters of the host that sent. It calls itself by its own name, which its host list may not have."""
    hosts, sender = host_counters(evidence), str(record.params.get("sender"))
    if sender in hosts:
        return hosts[sender]
    listed = {
        context.subject.host
        for context in evidence.records
        if isinstance(context, Context) and sender in _other_names(context)
    } or {host for host in hosts if _short(host) == _short(sender)}
    return hosts.get(listed.pop() or "") if len(listed) == 1 else None


def _other_names(context: Context) -> list[str]:
    """The names of a host beside the listed one (assay.launch.identity)."""
    return [str(context.facts.get("host.own_name")), *str(context.facts.get("host.aliases", "")).split(",")]


def _short(host: str) -> str:
    """The name without its domain."""
    return host.partition(".")[0].lower()


def _of_fragments(point: str, loss: Measurement | None, share: float | None) -> list[str]:
    """What the loss of packets is where a message is several: one lost packet loses the message."""
    fragments = int(loss.params.get("fragments", 1)) if loss else 1
    if loss is None or fragments < 2 or not share or point not in ("lost_reassembly", "lost_unattributed"):
        return []
    packets = 1 - (1 - min(share, 1.0)) ** (1 / fragments)
    return [
        f"a message of {loss.params.get('size')} B is cut into {fragments} fragments: {format_share(packets)} of lost "
        "packets explain it; measure with --size 1472, or an MTU of 9000 everywhere"
    ]


def _same_reception(record: Measurement, other: Measurement) -> bool:
    return record.subject == other.subject and all(
        record.params.get(key) == other.params.get(key) for key in ("sender", "offered", "size", "budget")
    )


def _loss_record(evidence: Evidence, record: Measurement) -> Measurement | None:
    return next(
        (
            other
            for other in evidence.records
            if isinstance(other, Measurement)
            and (other.name, other.metric) == (NAME, "loss")
            and "messages" in other.params
            and _same_reception(record, other)
        ),
        None,
    )


def _counters(evidence: Evidence, record: Measurement) -> list[str]:
    """Returns the counters of the host and its adapter that grew during the reception."""
    return [
        f"{other.params.get('counter')} grew by {other.median:.0f}"
        for other in _counter_records(evidence, record)
    ]


def _counter_records(evidence: Evidence, record: Measurement) -> list[Measurement]:
    return [
        other
        for other in evidence.measurements(NAME, "device_counter")
        if "counter" in other.params and _same_reception(record, other)
    ]
