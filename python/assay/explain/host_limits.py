"""Names what limited a host itself, by the counters that its kernel kept during the run ("grown.NAME" in a context,
engines/core/host_counters.cpp): a quota on processors, a shaper on its own interface, full receive buffers, fragments
that were not put together. The network is no cause of what these explain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding
from assay.records.units import format_quantity, format_share

GROWN = "grown."
MIN_THROTTLED = 0.1  # share of a quota's periods in which it took effect
MIN_SLOWER = 0.9  # a shaper below this share of the other hosts' rate is a limit of its host alone
MIN_DROPPED = 0.01  # share of the datagrams; fewer are normal while a host is busy
# Rules whose findings on a host that has a limit of its own name the limit too.
OF_THE_NETWORK = (
    "slow_host",
    "slow_pair",
    "packet_loss",
    "congestion",
    "event_dip",
    "event_backpressure",
    "udp_loss",
)


class Limit(NamedTuple):
    """``cause`` completes a sentence about the host."""

    record: Context
    cause: str
    fix: str


def host_limit(evidence: Evidence) -> list[Finding]:
    """A warning for each limit of a host."""
    return [
        Finding(
            rule="host_limit",
            cause=limit.cause,
            subject=limit.record.subject,
            side="node",
            severity="warning",
            evidence=[limit.record.id],
            details=grown_counters(limit.record),
            fix=limit.fix,
        )
        for limit in limits(evidence)
    ]


def name_limits(evidence: Evidence, findings: Sequence[Finding]) -> None:
    """Adds the limits of a host to the findings about it that would send a user to the network."""
    causes = [(limit.record.subject.host, limit.cause) for limit in limits(evidence)]
    for finding in findings:
        if finding.rule in OF_THE_NETWORK:
            finding.details += [
                f"not the network: {cause}"
                for host, cause in causes
                if host in (finding.subject.host, finding.subject.peer)
            ]


def limits(evidence: Evidence) -> Iterator[Limit]:
    """The limits of all hosts, of each host and kind one."""
    contexts = host_counters(evidence)
    for host, record in contexts.items():
        yield from _quota(host, record)
        yield from _shaper(
            host, record, [other for name, other in contexts.items() if name != host], evidence
        )
        if evidence.measurements("node.udp_receive"):
            continue  # the engine has attributed each lost message (assay.explain.udp)
        yield from _datagrams(host, record)


def host_counters(evidence: Evidence) -> dict[str, Context]:
    """The record of each host whose counters grew; of several the one with the most growth: ranks count alike."""
    contexts: dict[str, Context] = {}
    for record in evidence.records:
        if not isinstance(record, Context) or not record.subject.host or record.subject.device:
            continue
        if any(name.startswith(GROWN) for name in record.facts):
            other = contexts.get(record.subject.host)
            if other is None or _growth(record) >= _growth(other):
                contexts[record.subject.host] = record
    return contexts


def grown(record: Context, name: str) -> float:
    return float(record.facts.get(GROWN + name, 0))


def grown_counters(record: Context) -> list[str]:
    return [
        f"{name.removeprefix(GROWN)} grew by {value}"
        for name, value in sorted(record.facts.items())
        if name.startswith(GROWN)
    ]


def dropped_by_queues(record: Context) -> float:
    """Packets that the queues of the host's own interfaces have dropped."""
    return sum(
        grown(record, name.removeprefix(GROWN))
        for name in record.facts
        if name.startswith(GROWN + "queue.") and name.endswith(".dropped")
    )


def _growth(record: Context) -> float:
    return sum(float(value) for name, value in record.facts.items() if name.startswith(GROWN))


def _quota(host: str, record: Context) -> Iterator[Limit]:
    throttled, periods = grown(record, "cpu.throttled_periods"), grown(record, "cpu.periods")
    if not periods or throttled < MIN_THROTTLED * periods:
        return
    quota = record.facts.get("cpu.quota")
    processors = f" of {float(quota):g} processors" if quota else ""
    yield Limit(
        record,
        f"{host} was held back by its quota{processors} in {format_share(throttled / periods)} of the time slices",
        "raise the quota of the job's control group (cpu.max; --cpus-per-task of Slurm, --cpus of containers)",
    )


def _shaper(host: str, record: Context, others: Sequence[Context], evidence: Evidence) -> Iterator[Limit]:
    rates = _shapers(record)
    if not rates:
        return
    name = min(rates, key=lambda queue: rates[queue])
    if evidence.measurements("node.udp_send") and not grown(record, f"queue.{name}.dropped"):
        return  # one host sends, and lost nothing there
    # Hosts without a record held nothing back. Where all have the same shaper, it is the network's rate.
    peers = [min(_shapers(other).values(), default=math.inf) for other in others]
    peers += [math.inf] * (len(set(evidence.hosts) - {host}) - len(peers))
    if not peers or rates[name] >= MIN_SLOWER * median(peers):
        return
    yield Limit(
        record,
        f"{host} sends through a shaper of {format_quantity(rates[name], 'B/s')} on its own interface ({name}), which "
        f"made packets wait {grown(record, f'queue.{name}.overlimits'):.0f} times and dropped "
        f"{grown(record, f'queue.{name}.dropped'):.0f}",
        f"look at 'tc -s qdisc show dev {name.rpartition('.')[0]}' on {host}: who has set it?",
    )


def _shapers(record: Context) -> dict[str, float]:
    """The rates in B/s of the host's shapers that held packets back, by their names ("eth0.tbf")."""
    names = [
        name.removeprefix("queue.").removesuffix(".rate")
        for name in record.facts
        if name.startswith("queue.") and name.endswith(".rate")
    ]
    return {
        name: float(record.facts[f"queue.{name}.rate"])
        for name in names
        if grown(record, f"queue.{name}.overlimits")
    }


def _datagrams(host: str, record: Context) -> Iterator[Limit]:
    dropped, taken = grown(record, "udp.receive_buffer_errors"), grown(record, "udp.in_datagrams")
    if dropped > MIN_DROPPED * (dropped + taken):
        yield Limit(
            record,
            f"{host} dropped {dropped:.0f} datagrams ({format_share(dropped / (dropped + taken))}) in its own full "
            "receive buffers",
            "its processes read too slowly: sysctl -w net.core.rmem_max=16777216, fewer processes on the host",
        )
    failed = max(
        grown(record, f"{ip}.{what}")
        for ip in ("ip", "ip6")
        for what in ("reassembly_failures", "reassembly_timeouts")
    )
    whole = grown(record, "ip.reassembled") + grown(record, "ip6.reassembled")
    if failed > MIN_DROPPED * (failed + whole):
        yield Limit(
            record,
            f"{host} could not put {failed:.0f} datagrams together from their fragments "
            f"({format_share(failed / (failed + whole))}): one lost fragment loses them whole",
            "let frames pass whole: ip link set INTERFACE mtu 9000, on all hosts and on the way",
        )
