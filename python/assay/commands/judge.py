"""``assay judge``: hold a run that is already on disk against a specification, any number of times."""

from __future__ import annotations

import argparse

from assay.errors import EXIT_OF, UserError
from assay.explain import RULES
from assay.judge import find_specification, judge, load_specification, overall
from assay.launch.engines import known_metrics
from assay.records import run as runs
from assay.records.schema import encode
from assay.report.terminal import console, show_outcome, show_verdicts


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
        specification = load_specification(path, _known_metrics(), RULES)
        run = runs.Run.load(args.run)
        verdicts = judge(specification, run.records, run.info.hosts)
        outcome = overall(verdicts)
        because = ""
        if outcome == "PASS" and run.info.state != "complete":  # what is missing might have failed
            outcome, because = "INCONCLUSIVE", f"the run is {run.info.state}: {run.info.reason}"
        if args.json:
            for verdict in verdicts:
                print(encode(verdict).decode())
        else:
            out = console()
            show_verdicts(out, verdicts, specification.title or specification.name)
            show_outcome(out, outcome, because)
        return EXIT_OF[outcome]


def _known_metrics() -> dict[str, str] | None:
    """The metrics of the engines; None where there are none, since a run can be judged anywhere."""
    try:
        return known_metrics()
    except UserError:
        return None
