"""``assay eb tune``: a search for the event builder's best parameters."""

from __future__ import annotations

import argparse
import math

from assay.commands.eb.options import add_host_options, choose_launchers, site_and_rank_hosts
from assay.commands.options import add_option, add_output, count
from assay.commands.parser import Example
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.commands.sub_verbs import Verbs
from assay.errors import UserError
from assay.events.figures import BUILD
from assay.events.space import Axis, Space
from assay.events.tuner import budget_of
from assay.launch.engines import describe, probe
from assay.launch.reach import check_hosts
from assay.measure.events import check_ranks
from assay.measure.events_tune import TuneRequest, measure_tuning
from assay.records.schema import Scalar
from assay.records.units import format_size, parse_size

# The grid without --try. It lies around the best parameters of event builders on 16 and 512 nodes: messages of 512 KiB,
# 2 credits, 8 messages in flight for each event, 2 processes on a node.
GRID: dict[str, tuple[Scalar, ...]] = {
    "fragment": tuple(1 << k for k in range(15, 23)),  # 32 KiB to 4 MiB
    "credits": (1, 2, 4, 8),
    "parallel": (1, 2, 4, 8, 16),
    "schedule": ("shift", "random", "all"),
    "protocol": ("push", "pull"),
    "processes": (1, 2),
}
UNORDERED = ("schedule", "protocol", "policy", "units")  # parameters whose values are names
POINT_S = 1.0  # time to measure a point of the grid
MAX_POINTS = 100_000
EXAMPLES = [
    Example(
        "assay eb tune --transport null -n 4 --budget 0.2s --points 12", "on this machine", "half a minute"
    ),
    Example('assay eb tune -w "node[1-16]" --transport tcp', needs="a cluster"),
    Example("assay eb tune --lab --try credits=1,2,4 --try fragment=64KiB,512KiB", "this grid", "a lab"),
]


def prepare_tune(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "tune",
        help="search for the best parameters",
        description="Measures a tenth of the grid, chosen by the results so far, and the best points again. The "
        "report shows which parameter matters.",
        notes=_grid_text(),
        examples=EXAMPLES,
    )
    add_host_options(parser)
    search = parser.add_argument_group("search")
    search.add_argument(
        "--try",
        action="append",
        default=[],
        dest="axes",
        metavar="PARAMETER=VALUES",
        help="values of one parameter, such as credits=1,2,4; repeatable; others keep the values below",
    )
    search.add_argument(
        "--points", type=count, metavar="N", help="points to measure (default: a tenth of the grid)"
    )
    search.add_argument("--full", action="store_true", help="the full grid")
    add_option(search, "--budget", f"each point; default: {POINT_S:g}s", default=POINT_S)
    add_option(parser.advanced, "--timeout", "a message; default: 30s", default=30.0)
    add_output(parser)
    parser.set_defaults(sub_verb=run_tune)


def run_tune(args: argparse.Namespace) -> int:
    space = read_space(args.axes)
    if args.full and args.points:
        raise UserError("--full and --points are both given", "give one of them")
    site, hosts = site_and_rank_hosts(args)
    check_ranks(hosts, 0, "folded")
    if site.name == "here" and "processes" in space.names:
        space = _without_axis(space, "processes")  # on this machine --ranks gives their number
    launcher, _ = choose_launchers(args, site, len(hosts), survives_losses=False)
    specs = specifications(args)
    check_hosts(site, hosts, launcher.name)
    points = space.size if args.full else args.points or budget_of(space)
    request = TuneRequest(launcher, site, hosts, space, points, args.budget, args.timeout)
    session = open_session(
        "eb-tune",
        args,
        list(dict.fromkeys(hosts)),
        {
            "transport": args.transport or "mpi",
            "grid": [f"{axis.name}={','.join(map(str, axis.values))}" for axis in space.axes],
            "points": points,
            "duration": args.budget,
        },
    )
    session.err.print(
        f"{points} of {space.size} points, {args.budget:g} s each, over {launcher.name}: about "
        f"{math.ceil(points * (args.budget + 2) / 60)} min"
    )
    with session.interruptible():
        measure_tuning(session, request)
    return session.conclude(specs)


def _grid_text() -> str:
    lines = ["grid without --try:"]
    for name, values in GRID.items():
        texts = [format_size(int(value)) if name == "fragment" else str(value) for value in values]
        lines.append(f"  {name:11}{', '.join(texts)}")
    return "\n".join(lines)


def read_space(texts: list[str]) -> Space:
    """The grid of parameters. ``texts``, such as ``["credits=1,2,4"]``, replace axes of ``GRID``. Raises UserError."""
    grid = dict(GRID)
    for text in texts:
        name, separated, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not separated or not values.strip():
            raise UserError(f"--try '{text}' is not PARAMETER=VALUES", "write it like credits=1,2,4")
        grid[name] = _axis_values(name, values)
    space = Space(tuple(Axis(name, values, name not in UNORDERED) for name, values in grid.items()))
    if space.size > MAX_POINTS:
        raise UserError(f"the grid has {space.size} points", f"give at most {MAX_POINTS}")
    return space


def _axis_values(name: str, text: str) -> tuple[Scalar, ...]:
    """The values of an axis, checked against the engine's description of the parameter. Raises UserError."""
    described = describe(probe()).find(BUILD)
    kinds = {p.name: p for p in described.parameters if p.kind in ("integer", "text")}
    if name != "processes" and name not in kinds:
        raise UserError(f"--try {name}: no such parameter", f"one of processes, {', '.join(sorted(kinds))}")
    values: list[Scalar] = []
    for value_text in (value_text.strip() for value_text in text.split(",")):
        if name != "processes" and kinds[name].kind == "text":
            _check_choice(name, value_text, kinds[name].help)
            values.append(value_text)
            continue
        try:
            value = parse_size(value_text)
        except UserError as error:
            raise UserError(f"--try {name}: {error.what}", error.fix) from None
        if value < 1:
            raise UserError(f"--try {name}={value_text}: out of bounds", "give at least 1")
        if name != "processes":
            described.check_bounds({name: value})
        values.append(value)
    return tuple(values if name in UNORDERED else sorted(values))


CHOICES = {
    "protocol": ("push", "pull"),
    "schedule": ("shift", "random", "all"),
    "policy": ("drop", "mark", "wait"),
    "units": ("folded", "split"),
}


def _check_choice(name: str, value_text: str, help: str) -> None:
    if value_text not in CHOICES.get(name, ()):
        known = ", ".join(CHOICES[name]) if name in CHOICES else help
        raise UserError(f"--try {name}={value_text}: no such value", f"one of {known}")


def _without_axis(space: Space, name: str) -> Space:
    return Space(tuple(axis for axis in space.axes if axis.name != name))
