"""``assay fabric schedule``: an all-to-all exchange without conflicts, and the order of ranks that suits the fabric."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

from assay.commands.fabric.files import refuse_existing, write_files
from assay.commands.fabric.source import add_members, add_source, read_members, read_source
from assay.commands.options import add_option, duration
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, UserError
from assay.fabric import Routes, schedules
from assay.fabric.conflicts import analyse
from assay.fabric.names import is_usable
from assay.fabric.remedies import placement
from assay.fabric.remedies.counted import meets_each_pair_once
from assay.fabric.remedies.exchange import Demand, conflict_free, demand_of, fits
from assay.fabric.remedies.planner import write_links
from assay.fabric.topology import Ints

SEARCH_S = 60.0
FILES = ("schedule.txt", "schedule.links.npz", "padded.txt", "slots", "rails", *placement.LAUNCHERS)
EXAMPLES = [
    Example("assay fabric schedule --fat-tree radix=36,nodes=45", "what each remedy gains"),
    Example("assay fabric schedule --fabric net.txt --tables fts.txt --into exchange", needs="a fabric"),
    Example(
        'assay fabric schedule --fabric net.txt --tables fts.txt -w "node[1-64]" --json', needs="a fabric"
    ),
]


def prepare_schedule(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "schedule",
        help="an all-to-all exchange without conflicts, and the order of ranks",
        description="Compares a shift in the given order, a shift with the ranks ordered by slots of the leaf "
        "switches, the same with empty slots, and an exchange that is planned on the routes: each pair meets once, "
        "no link between switches carries two flows in a step. Where dead cables or several levels make that hard, "
        "a search follows.",
        notes="files of --into:\n"
        "  schedule.txt, padded.txt   for 'assay fabric conflicts --schedule-file FILE --order DIR/slurm'\n"
        "  schedule.links.npz         what 'assay eb' plans anew with when ranks are lost\n"
        "  slots                      for --order: the hosts with the empty slots\n"
        "  openmpi, mpich, slurm      the hosts by rank: rankfile, host file, SLURM_HOSTFILE\n"
        "  rails                      where hosts have several ports: the port of each rank, for --order",
        examples=EXAMPLES,
    )
    add_source(parser)
    add_members(parser)
    parser.add_argument("--into", type=Path, metavar="DIR", help="where the new files go")
    parser.add_argument(
        "--search",
        type=duration,
        default=SEARCH_S,
        metavar="DURATION",
        help="how long to look for fewer steps where the first plan needs more than the least possible "
        f"(default: {SEARCH_S:.0f}s)",
    )
    add_option(parser, "--json")
    parser.set_defaults(sub_verb=run_schedule)


def run_schedule(args: argparse.Namespace) -> int:
    routes = read_source(args)
    members = read_members(args, routes.fabric)
    members = members[members >= 0]
    if len(members) < 2:
        raise UserError("one host alone has no conflict", "give two hosts at least")
    if len(members) ** 2 > schedules.MAX_ENTRIES:
        raise UserError(
            f"a schedule of {len(members)} ranks is too long: {math.isqrt(schedules.MAX_ENTRIES)} at most",
            "name fewer hosts with -w",
        )
    if args.into is not None:
        refuse_existing([args.into / name for name in FILES])
    demand_of(routes, members)  # raises UserError for routes that do not arrive
    slots = placement.by_slots(routes, members)
    if _shift_rounds(routes, slots) > _shift_rounds(routes, members):
        slots = members  # the given order is better
    ordered = slots[slots >= 0]
    demand = demand_of(routes, ordered)
    plan = conflict_free(demand, args.search) if fits(demand) else None
    padded = placement.padded_shift(slots)
    exchanges = {
        "shift": (schedules.shift(len(members)), members),
        "shift, ranks by slots": (schedules.shift(len(members)), ordered),
        "shift with empty slots": (padded, ordered),
    }
    if plan is not None:
        _require_exchange(plan)
        exchanges["planned"] = (plan, ordered)
    figures = {name: _figures(routes, *exchange) for name, exchange in exchanges.items()}
    if args.json:
        print(json.dumps({"bound": demand.bound(), "exchanges": figures}))
    else:
        _show(routes, members, figures, demand.bound())
    if args.into is not None:
        written = _write(args.into, routes, slots, plan, demand, padded)
        if not args.json:
            print(f"\nwritten: {', '.join(map(str, written))}")
            _show_unnamed(routes, members)
    return EXIT_PASS


def _shift_rounds(routes: Routes, slots: Ints) -> int:
    """The fewer rounds of a shift of all slots, and of the hosts alone."""
    hosts = slots[slots >= 0]
    exchanges = [schedules.shift(len(hosts)), placement.padded_shift(slots)]
    return min(analyse(routes, exchange, hosts).rounds for exchange in exchanges)


def _require_exchange(plan: schedules.Schedule) -> None:
    """Raises UserError for a plan that does not join each pair once: a defect, of which no file is written."""
    if not meets_each_pair_once(plan):
        raise UserError("the planned exchange does not join each pair of hosts once", "report this defect")


def _figures(routes: Routes, schedule: schedules.Schedule, members: Ints) -> dict[str, int]:
    analysed = analyse(routes, schedule, members)
    return {"steps": schedule.steps, "conflicts": analysed.total, "rounds": analysed.rounds}


def _show(routes: Routes, members: Ints, figures: dict[str, dict[str, int]], bound: int) -> None:
    count = routes.fabric.count_text(members)
    print(f"{routes.fabric.source}, {count}; tables: {routes.tables.source}\n")
    print(f"{'exchange':24}{'steps':>8}{'conflicts':>11}{'rounds':>8}")
    for name, row in figures.items():
        print(f"{name:24}{row['steps']:8d}{row['conflicts']:11d}{row['rounds']:8d}")
    if "planned" not in figures:
        print(f"{'planned':24}  not done for {count}: its plan does not fit the memory")
    print(f"{'least possible':24}{'':8}{'':11}{bound:8d}")


def _show_unnamed(routes: Routes, members: Ints) -> None:
    unnamed = [port for port in members if not is_usable(routes.fabric.hosts_of_ports[port])]
    if unnamed:
        print(
            f"no file for launchers: the description of {len(unnamed)} of {len(members)} ports names no host, such as "
            f"{routes.fabric.host_names[unnamed[0]]}; name the hosts that take part with -w"
        )


def _write(
    folder: Path,
    routes: Routes,
    slots: Ints,
    plan: schedules.Schedule | None,
    demand: Demand,
    padded: schedules.Schedule,
) -> list[Path]:
    """Returns the files. Without a plan there is no schedule.txt; with a port of no known host, no launcher's file."""
    fabric = routes.fabric
    names = np.array([*fabric.host_names, "DUMMY"])
    ranks = slots[slots >= 0]
    hosts = [fabric.hosts_of_ports[port] for port in ranks]
    texts: dict[str, str | bytes] = {
        "padded.txt": placement.schedule_text(padded, f"shift of {padded.steps} slots"),
        "slots": "".join(f"{name}\n" for name in names[slots]),
    }
    if len(set(hosts)) < len(hosts):
        texts["rails"] = "".join(f"{name}\n" for name in names[ranks])
    if all(map(is_usable, hosts)):
        texts |= {launcher: write(hosts) for launcher, write in placement.LAUNCHERS.items()}
    if plan is not None:
        text = placement.schedule_text(plan, f"{plan.steps} steps without conflicts")
        texts = {"schedule.txt": text, "schedule.links.npz": write_links(demand), **texts}
    write_files({folder / name: text for name, text in texts.items()})
    return [folder / name for name in texts]
