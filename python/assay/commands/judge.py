"""``assay judge``: judges a run that is already on disk by a specification, any number of times."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from assay.commands.options import add_option
from assay.commands.parser import Example, Parser
from assay.commands.specifications import read_specification
from assay.errors import EXIT_OF, UserError
from assay.judge import Specification, deciding_criteria, doubt, integrity, judge, overall
from assay.records import run as runs
from assay.records.schema import Context, Flows, Matrix, Measurement, Pairs
from assay.records.text import json_line
from assay.report.console import console
from assay.report.terminal import show_outcome, show_verdicts


class Judge:
    """Judge a run by a specification, again or by another one. The run itself is not changed: the verdicts are
    printed, and the exit code is 0 for pass, 1 for fail, 2 for inconclusive."""

    name = "judge"
    examples = [
        Example("assay judge runs/20261121-040000-net-1f2e net", needs="a run"),
        Example("assay judge runs/20261121-040000-net-1f2e site.toml", needs="a run"),
        Example("assay judge runs/20261121-040000-net-1f2e site.toml --json", needs="a run"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument("run", metavar="RUN", help="run directory")
        parser.add_argument("specification", metavar="SPEC", help="TOML file, or a built-in name: self, net")
        add_option(parser, "--json", "the verdicts, one record per line")

    def run(self, args: argparse.Namespace) -> int:
        specification = read_specification(args.specification)
        run = runs.Run.load(args.run)
        _check_related(specification, run)
        verdicts = judge(specification, run.records, run.info.hosts)
        verdicts += integrity(run.records, verdicts)
        doubt(verdicts, run.records, run.info.busy)
        outcome = overall(verdicts)
        reason = deciding_criteria(verdicts)
        if outcome == "PASS" and run.info.state != "complete":  # a missing measurement might have failed
            outcome, reason = "INCONCLUSIVE", f"the run is {run.info.state}: {run.info.reason}"
        if args.json:
            for verdict in verdicts:
                print(json_line(verdict))
        else:
            out = console()
            show_verdicts(out, verdicts, specification.title or specification.name)
            show_outcome(out, outcome, reason)
        return EXIT_OF[outcome]


def _check_related(specification: Specification, run: runs.Run) -> None:
    """Raises UserError if the run measured something, and nothing of it is what the specification is about."""
    measured = {r.name for r in run.records if isinstance(r, Measurement | Pairs | Matrix | Flows)}
    facts = {key for r in run.records if isinstance(r, Context) and r.subject.host for key in r.facts}
    metrics = [criterion.metric.partition("/")[0] for criterion in specification.criteria if criterion.metric]
    about_facts = any(criterion.fact in facts for criterion in specification.criteria if criterion.fact)
    if not measured or not metrics or about_facts or (facts and specification.inventory.devices):
        return
    if not any(fnmatchcase(name, pattern) for name in measured for pattern in metrics):
        needed, done = (", ".join(sorted(names)) for names in (set(metrics), measured))
        raise UserError(
            f"{specification.name} asks for {needed}; {run.path} measured {done}",
            "judge it by a specification of what it measured, or measure what this one asks for: assay comply",
        )
