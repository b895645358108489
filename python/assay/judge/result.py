"""The result of a run in one line: what it measured, with units. "81 conflicts of shift among 45 ranks, ...".

A run without criteria has a result and no verdict; a run with criteria has both. The terminal and the page show the
same line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from assay.records.schema import AnyRecord, Capacity, Flows, Measurement, Scalar
from assay.records.units import format_quantity, format_share, format_size

MAX_PARTS = 3  # measurements that the line names; the tables have the rest
SWEEPS = ("network.all_to_all", "network.client_server")
LEVELS = {"host": "hosts", "inside": "inside cabinets", "cabinet": "cabinets", "backbone": "backbone"}


def result(records: Iterable[AnyRecord]) -> str:
    """The main figures of the records; "" where none has a value."""
    records = list(records)
    by_name: dict[str, list[Measurement]] = {}
    for record in records:
        if isinstance(record, Measurement) and record.status == "ok" and record.summary:
            by_name.setdefault(record.name, []).append(record)
    parts = [_capacities([r for r in records if isinstance(r, Capacity)])]
    for name, describe in _DESCRIBED.items():
        parts.append(describe(by_name.get(name, [])))
    parts = [part for part in parts if part]
    if not parts and any(isinstance(r, Flows) for r in records):
        return ""  # a study without capacities has only its rounds
    return "; ".join(parts[:MAX_PARTS] or [text for text in map(_first, by_name.values()) if text][:1])


def _best(records: Iterable[Measurement], metric: str, **params: object) -> Measurement | None:
    """The best record of a metric, by its own direction."""
    chosen = [r for r in records if r.metric == metric and params.items() <= r.params.items()]
    return max(chosen, key=lambda r: -r.median if r.better == "lower" else r.median, default=None)


def _show(record: Measurement) -> str:
    is_share = record.unit == "1" and record.median != int(record.median)
    return format_share(record.median) if is_share else format_quantity(record.median, record.unit)


def _span(records: Sequence[Measurement]) -> str:
    """The values of one or of several subjects: "12.3 GB/s", or "11.9 GB/s to 12.3 GB/s on 8 hosts"."""
    ordered = sorted(records, key=lambda r: r.median)
    low, high = _show(ordered[0]), _show(ordered[-1])
    values = low if low == high else f"{low} to {high}"
    return values if len(ordered) == 1 else f"{values} on {len(ordered)} hosts"


def _each_host(records: Iterable[Measurement], metric: str, **params: object) -> list[Measurement]:
    """The best record of a metric of each host."""
    records = list(records)
    hosts = dict.fromkeys(r.subject.host for r in records)
    best = (_best([r for r in records if r.subject.host == host], metric, **params) for host in hosts)
    return [record for record in best if record]


def _conflicts(records: Sequence[Measurement]) -> str:
    values = {r.metric: r for r in records if "step" not in r.params}
    if "conflicts_total" not in values:
        return ""
    total, share = values["conflicts_total"], values["conflicts_share"]
    count = (
        f"{total.median:.0f} conflict{'' if total.median == 1 else 's'}" if total.median else "no conflict"
    )
    return (
        f"{count} of {total.params['schedule']} among {total.params['ranks']} ranks, "
        f"{share.median:.3g} a pair of ranks; {values['rounds'].median:.0f} rounds, "
        f"bound {values['rounds_bound'].median:.0f}"
    )


def _capacities(capacities: Sequence[Capacity]) -> str:
    """The least and the largest capacity of each level in one direction, and how many are unknown."""
    parts = []
    rates = [c for c in capacities if c.unit == "B/s" and c.direction != "limiter"]
    for level, title in LEVELS.items():
        known = [c for c in rates if c.level == level and c.value is not None]
        if known:
            values = [c.value or 0.0 for c in known]
            low, high = (format_quantity(value, "B/s") for value in (min(values), max(values)))
            bound = "at least " if any(c.state == "at_least" for c in known) else ""
            parts.append(f"{title} {bound}{low if low == high else f'{low} to {high}'}")
    unknown = sum(c.value is None for c in rates)
    parts += [f"{unknown} of {len(rates)} capacities unknown"] if unknown else []
    return "capacities: " + ", ".join(parts) if parts else ""


def _memory(records: Sequence[Measurement]) -> str:
    peaks = _each_host(records, "bandwidth")
    if not peaks:
        return ""
    operations = sorted({str(r.params.get("operation", "")) for r in peaks})
    return f"memory {_span(peaks)} at most ({', '.join(operations)})"


def _paced(records: Sequence[Measurement]) -> str:
    shares = _each_host(records, "achieved")
    return f"{_span(shares)} of the paced workload's rate" if shares else ""


def _noise(records: Sequence[Measurement]) -> str:
    lost = _each_host(records, "lost")
    return f"a busy loop loses {_span(lost)} of its core" if lost else ""


def _udp(records: Sequence[Measurement]) -> str:
    rate, loss = _best(records, "bandwidth", stream="all"), _best(records, "loss", stream="all")
    if rate is None:
        return ""
    return f"UDP {_show(rate)}" + (f", {format_share(loss.median)} lost" if loss else "")


def _rate(title: str, metric: str) -> Callable[[Sequence[Measurement]], str]:
    def describe(records: Sequence[Measurement]) -> str:
        best = _best(records, metric)
        return f"{title} {_show(best)}{_where(best)}" if best else ""

    return describe


def _by_operation(title: str, metric: str) -> Callable[[Sequence[Measurement]], str]:
    """The best rate of each operation: "write 3.1 GB/s, read 5 GB/s at most"."""

    def describe(records: Sequence[Measurement]) -> str:
        by_operation: dict[Scalar, list[Measurement]] = {}
        for record in records:
            operation = record.params.get("op", record.params.get("operation", ""))
            by_operation.setdefault(operation, []).append(record)
        best = {operation: _best(own, metric) for operation, own in by_operation.items()}
        shown = [f"{operation} {_show(record)}".strip() for operation, record in best.items() if record]
        return f"{title}: {', '.join(shown)} at most" if shown else ""

    return describe


def _network(records: Sequence[Measurement]) -> str:
    together = [r for r in records if r.subject.host is None]
    rate, latency = _best(together, "bandwidth"), _best(together, "latency")
    shown = [
        f"{title} {_show(best)}{_where(best)}"
        for title, best in (("aggregate bandwidth", rate), ("latency", latency))
        if best
    ]
    return ", ".join(shown)


def _where(record: Measurement) -> str:
    size, operation = record.params.get("size"), record.params.get("op", "")
    return f" at {format_size(int(size))} {operation}".rstrip() if isinstance(size, int | float) else ""


def _first(records: Sequence[Measurement]) -> str:
    """The first metric of a measurement that has no line of its own."""
    chosen = _each_host(records, records[0].metric)
    return f"{records[0].name} {records[0].metric}: {_span(chosen)}" if chosen else ""


_DESCRIBED: dict[str, Callable[[Sequence[Measurement]], str]] = {
    "fabric.conflicts": _conflicts,
    "network.all_to_all": _network,
    "network.client_server": _network,
    "events.build": _rate("events built at", "throughput"),
    "storage.ior": _by_operation("I/O", "bandwidth"),
    "storage.device": _by_operation("storage", "bandwidth"),
    "node.memory": _memory,
    "node.memory_paced": _paced,
    "node.noise": _noise,
    "node.gpu_copy": _rate("GPU copies", "total"),
    "node.udp_receive": _udp,
    "node.udp_send": _rate("UDP sent at", "bandwidth"),
    "node.rdma": _rate("RDMA", "bandwidth"),
}
