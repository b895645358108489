"""Measures a fabric's topology and forwarding tables, and yields records. Nothing is sent through the fabric."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from assay.errors import UserError
from assay.explain.fabric import MAX_LOST
from assay.fabric import Fabric, Routes, cables, conflicts, faults, picture
from assay.fabric.names import is_usable
from assay.fabric.remedies.slurm import fold
from assay.fabric.schedules import Schedule
from assay.fabric.topology import ROUTER, Ints
from assay.launch.engines import MeasurementDescription, Metric, Parameter
from assay.records.schema import AnyRecord, Context, Flows, Measurement, Scalar, Subject, Summary
from assay.records.statistics import summarize

CONFLICTS, LINKS, ROUTES = "fabric.conflicts", "fabric.links", "fabric.routes"
MAX_SHARED = 20_000  # shared links that are recorded with their pairs; those of the worst steps come first
MAX_PLACES = 20  # cables of a group, and ports without a host, that are recorded by name
MAX_RAILS = 4  # adapters of an island in a line
BITS_PER_BYTE = 8.0
SEED = 1  # of the random matchings
LANES_UNKNOWN = (
    "some engines (dfsssp, lash, nue, torus-2QoS) keep such routes apart by virtual lanes, which the tables do not "
    "have; with another engine give --one-lane"
)

DESCRIBED = [
    MeasurementDescription(
        name=CONFLICTS,
        scope="group",
        help="flows of a schedule that share links between switches: assay fabric conflicts",
        parameters=[
            Parameter("schedule", "text", "", "shift", "the schedule", 0, 0),
            Parameter("step", "integer", "", "", "the step, from 0", 0, 2**20),
        ],
        metrics=[
            Metric(
                "conflicts", "1", "lower", "sum of load - 1 over the links of a step with more than one flow"
            ),
            Metric("max_load", "1", "lower", "flows on the fullest link of a step"),
            Metric("conflicts_total", "1", "lower", "conflicts of all steps"),
            Metric("conflicts_share", "1", "lower", "conflicts of all steps, for each ordered pair of ranks"),
            Metric(
                "rounds", "1", "lower", "sum of the largest loads, at least 1 a step: the time in lockstep"
            ),
            Metric("rounds_bound", "1", "none", "steps: the rounds without a conflict"),
            Metric("bisection", "1", "higher", "effective bisection bandwidth over the hosts' own rate"),
        ],
    ),
    MeasurementDescription(
        name=LINKS,
        scope="group",
        help="rates of a fabric's cables: assay fabric check",
        parameters=[
            Parameter("cable_kind", "text", "", "", "host (to a host) or switch (between switches)", 0, 0)
        ],
        metrics=[
            Metric(
                "slow_cables", "1", "lower", "cables slower than most of their kind, or than both their ports"
            ),
            Metric("slow_rate", "B/s", "higher", "signalling rate of such a cable"),
            Metric("usual_rate", "B/s", "none", "most frequent signalling rate"),
            Metric("grouped_cables", "1", "none", "slower cables that were built so, or may have been"),
            Metric("pairs_apart", "1", "lower", "ordered pairs of hosts that no cables join"),
            Metric("island", "1", "none", "hosts of one of several parts that no cables join"),
            Metric("self_loop", "1", "lower", "a cable from a switch to itself"),
            Metric("no_lid", "1", "lower", "a cabled end port that the subnet manager gave no LID"),
        ],
    ),
    MeasurementDescription(
        name=ROUTES,
        scope="group",
        help="faults of a fabric's forwarding tables: assay fabric check",
        parameters=[Parameter("fault", "text", "", "", "why a route does not arrive", 0, 0)],
        metrics=[
            Metric("unreachable_pairs", "1", "lower", "ordered pairs of hosts without a route"),
            Metric("lost_pairs", "1", "lower", "of these, the pairs lost at one entry"),
            Metric("credit_loops", "1", "lower", "groups of links that can wait for each other in a circle"),
            Metric("credit_loop", "1", "lower", "links in one such circle"),
            Metric(
                "crowded_ports", "1", "lower", "up ports with twice the destinations of their switch's mean"
            ),
            Metric("crowded_port", "1", "lower", "destinations of such a port"),
        ],
    ),
]
_METRICS = {(described.name, metric.name): metric for described in DESCRIBED for metric in described.metrics}


def record(
    name: str, metric: str, value: float, params: dict[str, Scalar], subject: Subject | None = None
) -> Measurement:
    """A measurement of one of ``DESCRIBED``."""
    described = _METRICS[name, metric]
    return Measurement(
        name=name,
        metric=metric,
        unit=described.unit,
        better=described.better,
        subject=subject or Subject(),
        params=params,
        summary=Summary(n=1, median=float(value)),
    )


def tells_of_own_tables(routes: Routes) -> bool:
    """Whether the tables are those of the fabric: read from a file, or of a described fabric, which has no others."""
    return not routes.tables.is_computed or not len(routes.fabric.node_lines)


def describe_fabric(fabric: Fabric, routes: Routes | None) -> Context:
    """``routes``: None where no tables are given."""
    if routes is None:
        tables = "none given, so none are judged"
    elif tells_of_own_tables(routes):
        tables = routes.tables.source
    else:
        tables = f"{routes.tables.source}, computed here; the fabric's own are not judged"
    unnamed = [fabric.host_names[k] for k in np.flatnonzero(fabric.is_host) if not fabric.hosts_of_ports[k]]
    return Context(
        facts={
            "fabric.topology": fabric.source,
            "fabric.tables": tables,
            "fabric.hosts": len(fabric.ports_of),
            "fabric.ports": int(fabric.is_host.sum()) - len(unnamed),
            "fabric.aggregation_nodes": int(fabric.is_aggregation.sum()),
            "fabric.router_ports": fabric.host_kinds.count(ROUTER),
            "fabric.unnamed_ports": len(unnamed),
            "fabric.unnamed": "; ".join(unnamed[:MAX_PLACES]),
            "fabric.switches": fabric.switches,
            "fabric.cables": fabric.links // 2,
            "fabric.leaves": len(fabric.leaves),
        }
    )


def describe_picture(routes: Routes, schedule: Schedule, members: Ints) -> Iterator[Context]:
    """Yields the data from which the report draws the fabric; nothing for a fabric that is too large."""
    if text := picture.pack_picture(routes, schedule, members):
        yield Context(subject=Subject(device=routes.fabric.source), facts={"fabric.picture": text})


def conflict_records(
    routes: Routes, schedule: Schedule, members: Ints, matchings: int
) -> Iterator[AnyRecord]:
    """The totals first, then each step, then the shared links of the worst steps with their pairs.

    ``matchings``: random ones for the bisection bandwidth. Raises UserError for a route that does not arrive.
    """
    conflict_counts = conflicts.analyse(routes, schedule, members)
    params: dict[str, Scalar] = {"schedule": schedule.name, "ranks": schedule.ranks}
    yield record(CONFLICTS, "conflicts_total", conflict_counts.total, params)
    yield record(CONFLICTS, "conflicts_share", conflict_counts.share, params)
    yield record(CONFLICTS, "rounds", conflict_counts.rounds, params)
    yield record(CONFLICTS, "rounds_bound", conflict_counts.bound, params)
    if matchings:
        yield _bisection_record(routes, members, matchings)
    for step in range(schedule.steps):
        step_params: dict[str, Scalar] = {**params, "step": step}
        yield record(CONFLICTS, "conflicts", conflict_counts.conflicts[step], step_params)
        yield record(CONFLICTS, "max_load", conflict_counts.max_load[step], step_params)
    yield from _shared_link_records(routes, schedule, members, conflict_counts, params)


def _bisection_record(routes: Routes, members: Ints, matchings: int) -> Measurement:
    samples = conflicts.bisection(routes, members, matchings, SEED)
    summary = summarize(samples.tolist())
    measurement = record(
        CONFLICTS,
        "bisection",
        summary.median,
        {"matchings": matchings, "seed": SEED, "ranks": int((members >= 0).sum())},
    )
    measurement.summary = summary
    return measurement


def _shared_link_records(
    routes: Routes,
    schedule: Schedule,
    members: Ints,
    conflict_counts: conflicts.Conflicts,
    params: dict[str, Scalar],
) -> Iterator[AnyRecord]:
    loads, names = conflicts.Loads(routes, members), routes.fabric.host_names
    links_left, listed = MAX_SHARED, 0
    with_conflicts = int((conflict_counts.conflicts > 0).sum())
    for step in conflicts.worst_steps(conflict_counts, schedule.steps):
        shared = loads.shared_links(schedule.step(step))
        if len(shared) > links_left and listed:
            break
        links_left, listed = links_left - len(shared), listed + 1
        for link in shared:
            yield Flows(
                name=CONFLICTS,
                metric="share_of_link",
                unit="1",
                subject=Subject(device=routes.fabric.link_name(link.link)),
                params={**params, **_ends(routes.fabric, link.link), "step": step, "load": len(link.src)},
                sources=[names[host] for host in link.src],
                targets=[names[host] for host in link.dst],
                values=[1 / len(link.src)] * len(link.src),
            )
    if with_conflicts:
        yield Context(
            facts={"fabric.steps_with_conflicts": with_conflicts, "fabric.steps_with_pairs": listed}
        )


def _ends(fabric: Fabric, link: int) -> dict[str, Scalar]:
    return {
        "from": fabric.node_name(int(fabric.link_from[link])),
        "to": fabric.node_name(int(fabric.link_to[link])),
    }


def check_records(routes: Routes, one_lane: bool = False) -> Iterator[AnyRecord]:
    """The faults of a fabric, one record each, and their numbers. ``one_lane``: all routes are known to share a virtual
    lane, so a credit loop of given tables is one."""
    yield from cable_records(routes.fabric)
    engine: dict[str, Scalar] = {}
    if routes.tables.is_computed:
        engine = {"computed": routes.tables.source, "judged": tells_of_own_tables(routes)}
    broken = faults.broken_routes(routes, MAX_LOST)
    yield record(ROUTES, "unreachable_pairs", faults.unreachable_pairs(routes), {})
    for route, pairs in broken:
        names = routes.fabric
        yield record(
            ROUTES,
            "lost_pairs",
            pairs,
            {**engine, "fault": route.fault, "place": route.text},
            Subject(host=names.host_names[route.host], device=names.switch_names[route.switch]),
        )
    loops = faults.credit_loops(routes)
    total = record(ROUTES, "credit_loops", len(loops), {})
    lanes: dict[str, Scalar] = {}
    if loops and not routes.tables.is_computed and not one_lane:
        total.status, total.summary, total.reason = "waived", None, LANES_UNKNOWN
        lanes = {"lanes": "unknown"}
    yield total
    for loop in loops:
        links = "; ".join(routes.fabric.link_name(int(link)) for link in loop)
        yield record(ROUTES, "credit_loop", len(loop), {**engine, **lanes, "links": links})
    crowded = faults.crowded_ports(routes)
    yield record(ROUTES, "crowded_ports", len(crowded), {})
    for port in crowded:
        yield record(
            ROUTES,
            "crowded_port",
            port.destinations,
            {**engine, "mean": port.mean, **_guids(routes.fabric, port.link)},
            Subject(device=routes.fabric.link_name(port.link)),
        )


def cable_records(fabric: Fabric) -> Iterator[AnyRecord]:
    """The faults of the cables, one record each, and their numbers."""
    yield from _rate_records(fabric)
    parts = cables.islands(fabric)
    yield record(LINKS, "pairs_apart", parts.pairs, {"islands": len(parts.hosts)})
    for hosts, rails in zip(parts.hosts, parts.rails, strict=True) if len(parts.hosts) > 1 else []:
        params: dict[str, Scalar] = {"hosts": _folded(hosts) + _rails_text(rails), "pairs": parts.pairs}
        yield record(LINKS, "island", len(hosts), params)
    for link in cables.self_loops(fabric):
        yield record(LINKS, "self_loop", 1, _guids(fabric, link), Subject(device=fabric.link_name(link)))
    for port in cables.ports_without_lid(fabric):
        switch = (
            fabric.switch_names[fabric.host_switch[port]] if fabric.host_switch[port] >= 0 else "no switch"
        )
        yield record(LINKS, "no_lid", 1, {"at": switch}, Subject(host=fabric.host_names[port]))


def _guids(fabric: Fabric, link: int) -> dict[str, Scalar]:
    """The GUIDs of a link's switches whose description others have: their names alone do not tell which they are."""
    guids = fabric.guids_of_numbered([int(fabric.link_from[link]), int(fabric.link_to[link])])
    return {"guids": "; ".join(dict.fromkeys(guids))} if guids else {}


def _folded(names: list[str]) -> str:
    """A list of hosts, node[0-3] for those that a list can name."""
    usable = [name for name in names if is_usable(name)]
    others = [name for name in names if not is_usable(name)]
    more = [f"{len(others)} ports of no known host, such as {others[0]}"] if others else []
    return ", ".join([*([fold(usable)] if usable else []), *more])


def _rails_text(rails: list[str]) -> str:
    """ " (mlx5_0, mlx5_1)"; empty where the hosts' names tell the islands apart."""
    more = f" and {len(rails) - MAX_RAILS} more" if len(rails) > MAX_RAILS else ""
    return f" ({', '.join(rails[:MAX_RAILS])}{more})" if rails else ""


def _rate_records(fabric: Fabric) -> Iterator[AnyRecord]:
    cable_rates = cables.cable_rates(fabric)
    total = record(LINKS, "slow_cables", len(cable_rates.slow), {"cables": cable_rates.cables})
    if cable_rates.unknown:
        total.status, total.summary = "waived", None
        total.reason = (
            f"{fabric.source} gives no rate of {cable_rates.unknown} of {cable_rates.cables} cables"
        )
    elif not cable_rates.slow and (unproven := sum(group.unproven for group in cable_rates.groups)):
        total.status, total.summary = "waived", None
        total.reason = (
            f"{unproven} {'cable is' if unproven == 1 else 'cables are'} slower than most, and {fabric.source} does "
            "not tell whether both ends could be faster"
        )
    yield total
    for kind, typical in cable_rates.usual.items():
        params: dict[str, Scalar] = {"cable_kind": kind, "width": typical.width, "speed": typical.speed}
        yield record(
            LINKS,
            "usual_rate",
            typical.rate / BITS_PER_BYTE,
            {**params, "supported_known": cable_rates.supported, "cables": cable_rates.cables},
        )
    for group in cable_rates.groups:
        places = [fabric.link_name(int(link)) for link in group.links[:MAX_PLACES]]
        yield record(
            LINKS,
            "grouped_cables",
            len(group.links),
            {
                "cable_kind": group.kind,
                "width": group.width,
                "speed": group.speed,
                "share_of_usual": group.rate / group.usual,
                "built_so": group.are_many,
                **({"extenders": ", ".join(group.extenders)} if group.extenders else {}),
                "of": group.of,
                "places": "; ".join(places),
            },
        )
    for cable in cable_rates.slow:
        yield record(
            LINKS,
            "slow_rate",
            cable.rate / BITS_PER_BYTE,
            {
                "cable_kind": cable.kind,
                "width": cable.width,
                "speed": cable.speed,
                "usual": cable.usual / BITS_PER_BYTE,
                "supported": cable.supported / BITS_PER_BYTE,
                **_guids(fabric, cable.link),
            },
            Subject(device=fabric.link_name(cable.link)),
        )


def members_of(fabric: Fabric, hosts: list[str] | None, order: Ints | None) -> Ints:
    """[ranks] The host number of each rank: those of ``order``, else the named ``hosts``, else all, without
    aggregation nodes and routers. Raises UserError for fewer than two."""
    typical = np.flatnonzero(fabric.is_host)
    chosen: Ints = typical.astype(np.int32)
    if order is not None:
        chosen = order
    elif hosts:
        chosen = fabric.find_ports(hosts)
    if (chosen >= 0).sum() < 2:
        raise UserError("one host alone has no conflict", "give two hosts at least")
    return chosen
