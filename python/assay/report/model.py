"""Prints the network's model: a table of capacities by level, and the error of each simulated curve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from assay.records.schema import AnyRecord, Capacity, Comparison
from assay.records.units import format_quantity, format_share

LEVELS = {
    "host": "host",
    "inside": "inside cabinet",
    "cabinet": "cabinet",
    "backbone": "backbone",
    "network": "network",
}
SIMILAR = 0.03  # relative; hosts whose capacities differ less share a line


def show_model(out: Console, records: Sequence[AnyRecord]) -> None:
    capacities = [r for r in records if isinstance(r, Capacity)]
    if capacities:
        _show_capacities(out, capacities)
    points = [r for r in records if isinstance(r, Comparison)]
    if points:
        _show_comparison(out, points)


def _show_capacities(out: Console, capacities: Sequence[Capacity]) -> None:
    table = Table(title="capacities", title_justify="left")
    for heading in ("level", "resource", "direction", "capacity", "95 % interval", "source"):
        table.add_column(heading, justify="right" if heading == "capacity" else "left", overflow="fold")
    for group in _groups(capacities):
        table.add_row(*_row(group))
    out.print(table)


def _groups(capacities: Sequence[Capacity]) -> Iterable[list[Capacity]]:
    """Groups similar hosts of a cabinet for one line; everything else has a line each."""
    groups: dict[tuple[str, str, str, str], list[Capacity]] = {}
    for capacity in capacities:
        key = (capacity.level, capacity.cabinet or capacity.resource, capacity.direction, capacity.state)
        group = groups.setdefault(key, [])
        if group and not _is_similar(group[0], capacity):
            key = (capacity.level, capacity.resource, capacity.direction, capacity.state)
            group = groups.setdefault(key, [])
        group.append(capacity)
    return groups.values()


def _is_similar(first: Capacity, other: Capacity) -> bool:
    if first.value is None or other.value is None:
        return first.value is other.value
    return abs(first.value - other.value) <= SIMILAR * first.value


def _row(group: list[Capacity]) -> list[str]:
    first = group[0]
    resource = first.resource if len(group) == 1 else f"{len(group)} hosts of {first.cabinet}"
    if first.value is None:
        return [LEVELS[first.level], resource, first.direction, "unknown", "", first.reason]
    middle = sorted(group, key=lambda capacity: capacity.value or 0.0)[len(group) // 2]
    value = format_quantity(middle.value or 0.0, middle.unit)
    lows, highs = (
        [capacity.low for capacity in group if capacity.low],
        [capacity.high for capacity in group if capacity.high],
    )
    interval = (
        f"{format_quantity(min(lows), first.unit)} to {format_quantity(max(highs), first.unit)}"
        if lows and highs
        else ""
    )
    capacity = value if first.state == "measured" else f"at least {value}"
    return [LEVELS[first.level], resource, first.direction, capacity, interval, middle.reason]


def _worst(points: Sequence[Comparison]) -> str:
    """Formats the largest error of the points that are judged."""
    judged = [point for point in points if not point.waived]
    if not judged or any(point.error is None for point in judged):
        return "unknown"
    worst = max(judged, key=lambda point: abs(point.error or 0.0))
    uncertainty = f", measured to {format_share(worst.uncertainty)}" if worst.uncertainty > 0 else ""
    return format_share(abs(worst.error or 0.0)) + uncertainty


def _show_comparison(out: Console, points: Sequence[Comparison]) -> None:
    """Prints one line for each curve: its last point and its largest error."""
    table = Table(title="simulated against measured", title_justify="left")
    for heading in ("curve", "points", "at", "measured", "simulated", "largest error"):
        table.add_column(heading, justify="left" if heading == "curve" else "right", overflow="fold")
    for curve in dict.fromkeys(point.curve for point in points):
        curve_points = [point for point in points if point.curve == curve]
        last = curve_points[-1]
        simulated = "not simulated" if last.simulated is None else format_quantity(last.simulated, last.unit)
        worst = _worst(curve_points)
        table.add_row(
            curve,
            str(len(curve_points)),
            last.label or f"{last.x:g} {last.axis}",
            format_quantity(last.measured, last.unit),
            simulated,
            worst,
        )
    out.print(table)
