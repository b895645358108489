"""``assay fabric blame``: names the slow links of a fabric from the pair bandwidths of a network run."""

from __future__ import annotations

import argparse

from assay.commands.fabric.source import add_rail, add_source, read_source, source_of_run
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.explain import Evidence
from assay.explain.links import blame
from assay.records.run import Run
from assay.records.text import json_line
from assay.report.console import console
from assay.report.terminal import show_findings

EXAMPLES = [
    Example("assay fabric blame runs/net --fabric net.txt --tables fts.txt", needs="a run"),
    Example("assay fabric blame runs/net --fabric net.txt --tables fts.txt --json", needs="a run"),
    Example("assay fabric blame runs/net --fat-tree radix=36,nodes=45", "hosts node00 to node44", "a run"),
]


def prepare_blame(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "blame",
        help="the slow link of a network run: cable, ports and direction",
        description="Takes the bandwidth of each pair of hosts from a run of 'assay net' and its route from the "
        "forwarding tables, and names the directed links that are slow: those whose pairs are all slow, and whose "
        "pairs alone are. Without a fabric it takes that of the run (assay net --fabric). Of hosts with several "
        "adapters the paths of each that may have carried the bytes are judged. Where the data cannot "
        "tell links apart, it names the pairs to measure. Exit code 1 if a link is slow, 2 if some links have too "
        "few pairs to say that none is.",
        examples=EXAMPLES,
    )
    parser.add_argument("run", metavar="RUN", help="run of 'assay net'")
    add_source(parser)
    add_rail(parser)
    add_option(parser, "--json", "the findings, one record per line")
    parser.set_defaults(sub_verb=run_blame)


def run_blame(args: argparse.Namespace) -> int:
    run = Run.load(args.run)
    options = run.info.options
    routes = read_source(source_of_run(args, options))
    rail = args.rail or options.get("rail")
    result = blame(Evidence(run.records, run.info.hosts, {**options, "rail": rail}), routes)
    if result is None:
        raise UserError(f"{args.run}: no bandwidth between pairs of hosts in it", "give a run of 'assay net'")
    if args.json:
        for finding in result.findings:
            print(json_line(finding))
    else:
        show_findings(console(), result.findings)
        if run.info.state != "complete":
            print(f"the run is {run.info.state}: {run.info.reason}")
        print(*result.lines(), sep="\n")
    if result.findings:
        return EXIT_FAIL
    return EXIT_UNUSABLE if result.unjudged or run.info.state != "complete" else EXIT_PASS
