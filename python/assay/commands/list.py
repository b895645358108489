"""``assay list``: lists the measurements, and whether each can run on this machine."""

from __future__ import annotations

import argparse
import json

import msgspec
from rich.text import Text

from assay.commands.options import add_option
from assay.commands.parser import Example, Parser
from assay.errors import EXIT_PASS, UserError
from assay.launch.engines import MeasurementDescription, describe, describe_storage, probe
from assay.launch.launchers import default_launcher
from assay.report.console import console
from assay.report.tables import plain_table
from assay.system import in_local_words


class List:
    """List what Assay can measure, and what of it applies here. With a name: its parameters and metrics."""

    name = "list"
    examples = [
        Example("assay list"),
        Example("assay list network.all_to_all", "its parameters and metrics"),
        Example("assay list --json"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument("name", nargs="?", metavar="NAME", help="a measurement, in detail")
        add_option(parser, "--json")

    def run(self, args: argparse.Namespace) -> int:
        description = describe(probe())
        description = msgspec.structs.replace(
            description, measurements=[*description.measurements, *describe_storage()]
        )
        chosen = [description.find(args.name)] if args.name else description.measurements
        waivers = {m.name: waiver(m) for m in chosen}
        if args.json:
            print(json.dumps([_as_json(m, waivers[m.name]) for m in chosen], indent=1))
        elif args.name:
            _show_measurement(chosen[0], waivers[args.name])
        else:
            _show_all(chosen, waivers)
        return EXIT_PASS


def waiver(measurement: MeasurementDescription) -> str | None:
    """Why it cannot run on this machine; None when it can."""
    if measurement.waived:
        return in_local_words(measurement.waived)
    if measurement.scope != "node":
        try:
            default_launcher()
        except UserError as error:
            return in_local_words(error.what)
    return None


def _as_json(m: MeasurementDescription, reason: str | None) -> dict[str, object]:
    return {
        "name": m.name,
        "scope": m.scope,
        "help": m.help,
        "waived": reason,
        "parameters": {p.name: {"default": p.default, "unit": p.unit, "help": p.help} for p in m.parameters},
        "metrics": {x.name: {"unit": x.unit, "better": x.better, "help": x.help} for x in m.metrics},
    }


def _show_all(chosen: list[MeasurementDescription], waivers: dict[str, str | None]) -> None:
    table = plain_table()
    for title in ("measurement", "scope", "here", "what"):
        table.add_column(title, overflow="fold")
    for m in chosen:
        reason = waivers[m.name]
        availability = Text("yes", "green") if reason is None else Text(f"waived: {reason}", "yellow")
        table.add_row(m.name, m.scope, availability, m.help)
    console().print(table)


def _show_measurement(m: MeasurementDescription, reason: str | None) -> None:
    out = console()
    out.print(Text.assemble((m.name, "bold"), f" ({m.scope}): {m.help}"))
    out.print(f"waived here: {reason}" if reason else "applies here")
    for title, rows in (
        ("parameter", [("--" + p.name.replace("_", "-"), p.default, p.unit, p.help) for p in m.parameters]),
        ("metric", [(x.name, x.better, x.unit, x.help) for x in m.metrics]),
    ):
        table = plain_table(title_justify="left")
        for heading in (title, "default" if title == "parameter" else "better", "unit", "what"):
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*row)
        out.print()
        out.print(table)
