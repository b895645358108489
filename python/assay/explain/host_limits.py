"""Names what limited a host itself, by the counters that its kernel kept during the run ("grown.NAME" in a context,
engines/core/host_counters.cpp): a quota on processors, a shaper on its own interface, full receive buffers, fragments
that were not put together. How much of a loss a limit explains: ``assay.explain.limit_share``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding, Scalar, Subject
from assay.records.units import format_quantity, format_share

GROWN = "grown."
MIN_HELD = 0.1  # share of the time for which a quota held a host back at most
PERIOD_S = 0.1  # of a quota; the kernel's default, for records that do not have "cpu.period"
MIN_SLOWER = 0.9  # a shaper below this share of the other hosts' rate is a limit of its host alone
MIN_DROPPED = 0.01  # share of the datagrams; fewer are normal while a host is busy
# The counters of a kind that tell which of several records saw the limit at its worst, the first that differs; those of
# a kind have one unit. A queue's are made from its name.
LEADING = {
    "cpu": ("cpu.throttled_us", "cpu.throttled_periods"),
    "udp": ("udp.receive_buffer_errors", "udp.send_buffer_errors"),
    "ip": ("ip.reassembly_failures", "ip.reassembly_timeouts"),
    "ip6": ("ip6.reassembly_failures", "ip6.reassembly_timeouts"),
}


@dataclass
class HostCounters:
    """The facts about a host's limits; those of a kind (``kind_of``) are all from one record: ``ids[kind]``."""

    host: str
    facts: dict[str, Scalar] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)


class Limit(NamedTuple):
    """What held a host back. ``cause`` is a sentence about the host."""

    counters: HostCounters
    kind: str  # "cpu", "queue.eth0.tbf", "udp", "ip"
    cause: str
    fix: str


def host_limit(evidence: Evidence) -> list[Finding]:
    """A warning for each limit of a host."""
    return [
        Finding(
            rule="host_limit",
            cause=limit.cause,
            subject=Subject(host=limit.counters.host),
            side="node",
            severity="warning",
            evidence=[limit.counters.ids[limit.kind]],
            details=grown_counters(limit.counters),
            fix=limit.fix,
        )
        for limit in limits(evidence)
    ]


def limits(evidence: Evidence) -> Iterator[Limit]:
    """The limits of all hosts, of each host and kind one."""
    counted = host_counters(evidence)
    for host, counters in counted.items():
        yield from _quota(counters)
        yield from _shaper(counters, [other for name, other in counted.items() if name != host], evidence)
        if evidence.measurements("node.udp_receive"):
            continue  # the engine has attributed each lost message (assay.explain.udp)
        yield from _datagrams(counters)


def host_counters(evidence: Evidence) -> dict[str, HostCounters]:
    """The counters of each host where some grew. Ranks of a host count alike, so of several records that have a kind of
    counter the one counts in which it grew most."""
    hosts: dict[str, HostCounters] = {}
    for record in evidence.records:
        if not isinstance(record, Context) or not record.subject.host or record.subject.device:
            continue
        if any(name.startswith(GROWN) for name in record.facts):
            counters = hosts.setdefault(record.subject.host, HostCounters(record.subject.host))
            _merge(counters, record)
    return hosts


def _merge(counters: HostCounters, record: Context) -> None:
    """Takes each kind of counter that grew more in ``record``, with all facts of the kind."""
    for kind in {kind_of(name) for name in record.facts if name.startswith(GROWN)}:
        if kind in counters.ids and _leading(record.facts, kind) < _leading(counters.facts, kind):
            continue
        counters.ids[kind] = record.id
        others = {name: value for name, value in counters.facts.items() if kind_of(name) != kind}
        counters.facts = others | {
            name: value for name, value in record.facts.items() if kind_of(name) == kind
        }


def kind_of(name: str) -> str:
    """ "cpu" of "grown.cpu.periods", "queue.eth0.tbf" of "queue.eth0.tbf.rate"."""
    name = name.removeprefix(GROWN)
    return name.rpartition(".")[0] if name.startswith("queue.") else name.partition(".")[0]


def _leading(facts: Mapping[str, Scalar], kind: str) -> list[float]:
    names = LEADING.get(kind, (f"{kind}.overlimits", f"{kind}.dropped"))
    return [float(facts.get(GROWN + name, 0)) for name in names]


def grown(counters: HostCounters, name: str) -> float:
    return float(counters.facts.get(GROWN + name, 0))


def grown_counters(counters: HostCounters) -> list[str]:
    return [
        f"{name.removeprefix(GROWN)} grew by {value}"
        for name, value in sorted(counters.facts.items())
        if name.startswith(GROWN)
    ]


def dropped_by_queues(counters: HostCounters) -> float:
    """Packets that the queues of the host's own interfaces have dropped."""
    return sum(
        grown(counters, name.removeprefix(GROWN))
        for name in counters.facts
        if name.startswith(GROWN + "queue.") and name.endswith(".dropped")
    )


def held_share(counters: HostCounters) -> float:
    """The share of the time for which a quota held the host's processes back, at most: the throttled time of its
    processors, or the slices in which the quota took effect if these are shorter. The kernel adds up the throttled time
    of all processors (Documentation/scheduler/sched-bwc.rst), and counts only slices in which some process ran."""
    periods, throttled = grown(counters, "cpu.periods"), grown(counters, "cpu.throttled_periods")
    if not periods:
        return 0.0
    period = float(counters.facts.get("cpu.period", PERIOD_S))
    time = counters.facts.get(GROWN + "cpu.throttled_us")
    share = throttled / periods
    return min(1.0, share if time is None else min(share, float(time) * 1e-6 / (periods * period)))


def _quota(counters: HostCounters) -> Iterator[Limit]:
    held = held_share(counters)
    if held < MIN_HELD:
        return
    quota = counters.facts.get("cpu.quota")
    processors = f" of {float(quota):g} processors" if quota else ""
    yield Limit(
        counters,
        "cpu",
        f"{counters.host} was held back by its quota{processors} for {format_share(held)} of the time at most",
        "raise the quota of the job's control group (cpu.max; --cpus-per-task of Slurm, --cpus of containers)",
    )


def _shaper(counters: HostCounters, others: Sequence[HostCounters], evidence: Evidence) -> Iterator[Limit]:
    host, rates = counters.host, _shapers(counters)
    if not rates:
        return
    name = min(rates, key=lambda queue: rates[queue])
    if evidence.measurements("node.udp_send") and not grown(counters, f"queue.{name}.dropped"):
        return  # one host sends, and lost nothing there
    # Hosts without a record held nothing back. Where all have the same shaper, it is the network's rate.
    peers = [min(_shapers(other).values(), default=math.inf) for other in others]
    peers += [math.inf] * (len(set(evidence.hosts) - {host}) - len(peers))
    if not peers or rates[name] >= MIN_SLOWER * median(peers):
        return
    yield Limit(
        counters,
        f"queue.{name}",
        f"{host} sends through a shaper of {format_quantity(rates[name], 'B/s')} on its own interface ({name}), which "
        f"made packets wait {grown(counters, f'queue.{name}.overlimits'):.0f} times and dropped "
        f"{grown(counters, f'queue.{name}.dropped'):.0f}",
        f"look at 'tc -s qdisc show dev {name.rpartition('.')[0]}' on {host}: who has set it?",
    )


def _shapers(counters: HostCounters) -> dict[str, float]:
    """The rates in B/s of the host's shapers that held packets back, by their names ("eth0.tbf")."""
    names = [
        name.removeprefix("queue.").removesuffix(".rate")
        for name in counters.facts
        if name.startswith("queue.") and name.endswith(".rate")
    ]
    return {
        name: float(counters.facts[f"queue.{name}.rate"])
        for name in names
        if grown(counters, f"queue.{name}.overlimits")
    }


def _datagrams(counters: HostCounters) -> Iterator[Limit]:
    host = counters.host
    dropped, taken = grown(counters, "udp.receive_buffer_errors"), grown(counters, "udp.in_datagrams")
    if dropped > MIN_DROPPED * (dropped + taken):
        yield Limit(
            counters,
            "udp",
            f"{host} dropped {dropped:.0f} datagrams ({format_share(dropped / (dropped + taken))}) in its own full "
            "receive buffers",
            "its processes read too slowly: sysctl -w net.core.rmem_max=16777216, fewer processes on the host",
        )
    failures = {
        ip: max(grown(counters, f"{ip}.reassembly_failures"), grown(counters, f"{ip}.reassembly_timeouts"))
        for ip in ("ip", "ip6")
    }
    failed, ip = sum(failures.values()), max(failures, key=lambda ip: failures[ip])
    whole = grown(counters, "ip.reassembled") + grown(counters, "ip6.reassembled")
    if failed > MIN_DROPPED * (failed + whole):
        yield Limit(
            counters,
            ip,
            f"{host} could not put {failed:.0f} datagrams together from their fragments "
            f"({format_share(failed / (failed + whole))}): one lost fragment loses them whole",
            "let frames pass whole: ip link set INTERFACE mtu 9000, on all hosts and on the way",
        )
