"""Prints UDP measurements: speed and loss in the format of eth-test, then losses by place, gaps and settings.

eth-test is the network acceptance test of COBALT, the correlator of the LOFAR radio telescope.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

from assay.explain.udp import COUNTED, at_sockets
from assay.records.schema import AnyRecord, Measurement, Subject
from assay.records.units import format_bit_rate, format_quantity, format_size

RECEIVE, SEND = "node.udp_receive", "node.udp_send"
LOSS_LOCATIONS = {
    "lost_socket": "in the socket receive buffers",
    "lost_softnet": "in the kernel's backlog queue",
    "lost_nic": "in the adapter",
    "lost_reassembly": "in IP reassembly",
    "lost_sender": "in the sender's transmit queue",
    "lost_unattributed": "before this host: no counter of it has seen them",
}

Figures = Mapping[str, Measurement]


def show_udp(console: Console, records: Iterable[AnyRecord]) -> None:
    """Prints a block for each reception and each sending."""
    for (name, subject, _), figures in _groups(records).items():
        if "bandwidth" not in figures:
            continue
        lines = _received(subject, figures) if name == RECEIVE else _sent(subject, figures)
        for line in lines:
            console.print(Text(line), soft_wrap=True)
        console.print()


def _groups(records: Iterable[AnyRecord]) -> dict[tuple[str, Subject, str], dict[str, Measurement]]:
    """Groups the totals over all streams: (measurement, subject, settings) -> metric -> record."""
    groups: dict[tuple[str, Subject, str], dict[str, Measurement]] = {}
    for record in records:
        if not isinstance(record, Measurement) or record.name not in (RECEIVE, SEND) or not record.summary:
            continue
        if record.params.get("stream") != "all":
            continue
        settings = repr(
            [record.params.get(key) for key in ("streams", "size", "offered", "requested_rate", "sender")]
        )
        groups.setdefault((record.name, record.subject, settings), {})[
            str(record.params.get("counter", record.metric))
        ] = record
    return groups


def _value(figures: Figures, metric: str) -> float:
    record = figures.get(metric)
    return record.summary.median if record and record.summary else 0.0


def _streams(figures: Figures, rate_parameter: str) -> str:
    params = figures["bandwidth"].params
    seconds = float(params.get("budget") or params["seconds"])  # "seconds" in older runs
    return (
        f"{params['streams']} streams of {format_size(int(params['size']))} messages, "
        f"target {format_bit_rate(float(params[rate_parameter]))} for {seconds:g} s"
    )


def _received(subject: Subject, figures: Figures) -> list[str]:
    bandwidth, loss = figures["bandwidth"], figures.get("loss")
    params = bandwidth.params
    lines = [
        f"UDP to {subject.host} {subject.device} from {params.get('sender')}: {_streams(figures, 'offered')}",
        f"    Total speed:  {format_bit_rate(_value(figures, 'bandwidth'))}",
        f"    Average loss: {_percent(_value(figures, 'loss'))}",
    ]
    if loss and loss.params.get("lost"):
        lines[-1] += f"   {loss.params['lost']} of {loss.params['messages']} messages"
        lines += [
            f"        {_lost(figures, metric)} {location}"
            for metric, location in LOSS_LOCATIONS.items()
            if _value(figures, metric)
        ]
    duplicates, reordered = (_percent(_value(figures, metric)) for metric in ("duplicates", "reordered"))
    lines.append(f"    duplicates {duplicates}, reordered {reordered}{_corrupted(figures)}")
    intervals = figures.get("interval_bandwidth")  # of intervals of 0.1 s
    if intervals and intervals.summary and intervals.summary.min is not None:
        gap = format_quantity(_value(figures, "longest_gap"), "s")
        lines.append(f"    slowest 0.1 s: {format_bit_rate(intervals.summary.min)}, longest gap {gap}")
    lines.append(
        f"    {params.get('sockets')} sockets of {format_size(int(params.get('buffer', 0)))} buffer, "
        f"{params.get('threads')} threads, MTU {params.get('mtu')}"
    )
    if foreign := _value(figures, "foreign"):
        lines.append(f"    ignored {foreign:.0f} datagrams of another run or program")
    for metric in ("bandwidth", "loss"):
        record = figures.get(metric)
        if record and record.status != "ok":
            lines.append(f"    {metric} not valid: {record.reason}")
    return lines


def _lost(figures: Figures, metric: str) -> str:
    """The messages that one place has lost; from the least to the most where the kernel counts joined ones."""
    most = least = _value(figures, metric)
    if metric == "lost_socket":
        counted = figures[COUNTED].median if COUNTED in figures else None
        least, _ = at_sockets(most, int(figures["bandwidth"].params.get("gro", 1)), counted)
    return f"{least:.0f} to {most:.0f}" if least < most else f"{most:.0f}"


def _percent(share: float) -> str:
    """Formats with three decimals as eth-test does. A loss that would round to 0.000% keeps two significant digits."""
    text = f"{100 * share:.3f}%"
    return f"{100 * share:.1e}%" if share and text == "0.000%" else text


def _corrupted(figures: Figures) -> str:
    if "corrupted" not in figures:
        return "; payload not compared"
    count = _value(figures, "corrupted")
    return f", {count:.0f} CORRUPTED" if count else "; every byte compared"


def _sent(subject: Subject, figures: Figures) -> list[str]:
    lines = [
        f"UDP from {subject.host} {subject.device} to {subject.peer}: {_streams(figures, 'requested_rate')}",
        f"    sent {format_bit_rate(_value(figures, 'bandwidth'))}, "
        f"{100 * _value(figures, 'offered'):.2f}% of the target; "
        f"at most {format_quantity(_value(figures, 'longest_pause'), 's')} behind the schedule",
    ]
    if dropped := _value(figures, "dropped"):
        lines.append(f"    up to {dropped:.0f} messages were dropped in this host's transmit queue")
    if "delivered" in figures:
        lines.append(f"    the receiver has {100 * _value(figures, 'delivered'):.3f}% of the messages")
    return lines
