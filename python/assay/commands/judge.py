"""``assay judge``: hold a run that is already on disk against a specification, any number of times."""

from __future__ import annotations

import argparse

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNUSABLE
from assay.explain import RULES
from assay.judge import find_specification, judge, load_specification, overall
from assay.records import run as runs
from assay.records.schema import Verdict, encode
from assay.records.units import format_quantity, format_share

EXIT_OF = {"PASS": EXIT_PASS, "FAIL": EXIT_FAIL, "INCONCLUSIVE": EXIT_UNUSABLE}
COLOUR_OF = {"PASS": "green", "FAIL": "bold red", "INCONCLUSIVE": "yellow"}


class Judge:
    """Hold a run against a specification, again or against another one. The run itself is not changed:
    the verdicts are printed, and the exit code says 0 pass, 1 fail, 2 inconclusive."""

    name = "judge"
    examples = """\
  assay judge runs/20261121-040000-net-1f2e net
  assay judge runs/20261121-040000-net-1f2e acceptance.toml --json
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="run directory")
        parser.add_argument("specification", metavar="SPEC", help="TOML file, or a built-in name: self, net")
        parser.add_argument(
            "--json", action="store_true", help="print the verdicts as records, one JSON line each"
        )

    def run(self, args: argparse.Namespace) -> int:
        path = find_specification(args.specification)
        specification = load_specification(path, rules=RULES)
        run = runs.Run.load(args.run)
        verdicts = judge(specification, run.records, run.info.hosts)
        outcome = overall(verdicts)
        if args.json:
            for verdict in verdicts:
                print(encode(verdict).decode())
        else:
            console = Console()
            console.print(verdict_table(verdicts, specification.title or specification.name))
            console.print(Text(outcome, style=COLOUR_OF[outcome]))
        return EXIT_OF[outcome]


def verdict_table(verdicts: list[Verdict], title: str) -> Table:
    """The verdicts as people read them; the reason stands under the criterion."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("criterion", overflow="fold")
    for heading in ("observed", "required", "margin"):
        table.add_column(heading, justify="right")
    table.add_column("outcome")
    for verdict in verdicts:
        criterion = Text(verdict.criterion)
        if verdict.reason:
            criterion.append(f"\n{verdict.reason}", style="dim")
        table.add_row(
            criterion,
            _figure(verdict.observed, verdict.unit),
            _figure(verdict.required, verdict.unit),
            "" if verdict.margin is None else f"{verdict.margin:+.0%}",
            Text(verdict.outcome, style=COLOUR_OF[verdict.outcome]),
        )
    return table


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    is_share = unit == "1" and value != int(value)
    return format_share(value) if is_share else format_quantity(value, unit)
