"""``assay report``: the HTML file of a run that is already on disk."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from assay.commands.parser import Example, Parser
from assay.errors import EXIT_PASS, UserError
from assay.records.run import newest_run
from assay.report.html import build_report


class Report:
    """Write the HTML report of a run. The report is one file that loads nothing: open it from disk,
    mail it, keep it with the acceptance."""

    name = "report"
    examples = [
        Example("assay report", "the newest run under runs/", needs="a run"),
        Example("assay report runs/20261121-040000-net-1f2e --open", needs="a run"),
        Example("assay report runs/20261121-040000-net-1f2e --html acceptance.html", needs="a run"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument(
            "run", nargs="?", type=Path, metavar="RUN", help="run directory (default: the newest under runs/)"
        )
        parser.add_argument(
            "--html", type=Path, metavar="FILE", help="where to write the report (default: RUN/report.html)"
        )
        parser.add_argument("--open", action="store_true", help="show it in the browser")

    def run(self, args: argparse.Namespace) -> int:
        path = build_report(args.run or newest_run(), args.html)
        print(path)
        if args.open and not webbrowser.open(path.resolve().as_uri()):
            raise UserError("no browser could be started", f"open {path} by hand")
        return EXIT_PASS
