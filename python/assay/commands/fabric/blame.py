"""``assay fabric blame``: the link that slows the pairs of a network run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from assay.commands.fabric.source import add_source, read_source
from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_FAIL, EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.explain.matrix import PairMatrix, host_of
from assay.fabric import Routes
from assay.fabric.tomography import FEWEST_PAIRS, contention, find_slow_links, finding
from assay.fabric.topology import Ints
from assay.records.run import Run
from assay.records.schema import encode
from assay.report.terminal import console, show_findings

if TYPE_CHECKING:
    from assay.commands.fabric import Verbs

SHOWN = 5  # links without data
EXAMPLES = [
    Example("assay fabric blame runs/net --fabric net.txt --tables fts.txt", needs="a run"),
    Example("assay fabric blame runs/net --fabric net.txt --tables fts.txt --json", needs="a run"),
    Example("assay fabric blame runs/net --fat-tree radix=36,nodes=45", "hosts node00 to node44", "a run"),
]


class Blame:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "blame",
            help="the slow link of a network run: cable, ports and direction",
            description="Takes the bandwidth of each pair of hosts from a run of 'assay net' and its route from the "
            "forwarding tables, and names the directed links that are slow: those whose pairs are all slow, and whose "
            "pairs alone are. Where the data cannot tell links apart, it names the pairs to measure. Exit code 1 if a "
            "link is slow, 2 if some links have too few pairs to say that none is.",
            examples=EXAMPLES,
        )
        parser.add_argument("run", metavar="RUN", help="run of 'assay net'")
        add_source(parser)
        add(parser, "--json", "the findings, one record a line")
        parser.set_defaults(fabric_verb=run_blame)


def run_blame(args: argparse.Namespace) -> int:
    run = Run.load(args.run)
    matrix = PairMatrix.of_bandwidth(run.records, run.info.hosts)
    if not len(matrix.value):
        raise UserError(f"{args.run}: no bandwidth between pairs of hosts in it", "give a run of 'assay net'")
    routes = read_source(args)
    labels = [host_of(label) for label in matrix.hosts]
    number = routes.fabric.find_hosts(labels)
    src, dst = number[matrix.source], number[matrix.target]
    crossed = routes.links(src, dst)
    value = matrix.value.astype(np.float64)
    is_shift = run.info.options.get("schedule") == "shift"
    if is_shift:
        value += contention(crossed, (matrix.target - matrix.source) % len(labels))
    suspects = find_slow_links(crossed, value, routes.fabric.links)
    hosts = np.unique(number)
    measured = set(zip(src.tolist(), dst.tolist(), strict=True))
    findings = []
    for suspect in suspects:
        findings.append(finding(routes, suspect, hosts, measured))
        findings[-1].evidence = _evidence(matrix, crossed, suspect.links[0])
    unseen = _unseen(routes, hosts, crossed)
    if args.json:
        for found in findings:
            print(encode(found).decode())
    else:
        out = console()
        show_findings(out, findings)
        print(_summary(routes, crossed, matrix, is_shift))
        if run.info.state != "complete":
            print(f"the run is {run.info.state}: {run.info.reason}")
        if len(unseen):
            names = [routes.fabric.link_name(int(link)) for link in unseen[:SHOWN]]
            more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
            print(f"fewer than {FEWEST_PAIRS} pairs, so not judged: {'; '.join(names)}{more}")
        if not findings:
            print("no slow link found" + (" among the others" if len(unseen) else ""))
    if findings:
        return EXIT_FAIL
    return EXIT_UNUSABLE if len(unseen) or run.info.state != "complete" else EXIT_PASS


def _evidence(matrix: PairMatrix, crossed: Ints, link: int) -> list[int]:
    """The ids of the records with the pairs that cross a link."""
    senders = np.unique(matrix.source[(crossed == link).any(axis=1)])
    return sorted({number for sender in senders for number in matrix.rows.get(matrix.hosts[sender], [])})


def _unseen(routes: Routes, hosts: Ints, crossed: Ints) -> Ints:
    """The links on routes between the hosts that fewer pairs have crossed than a judgement needs."""
    is_used = np.zeros(routes.fabric.links, np.bool_)
    for src in hosts:
        way = routes.links(np.full(len(hosts), src), hosts)  # none for a host with itself
        is_used[way[way >= 0]] = True
    counts = np.bincount(crossed[crossed >= 0], minlength=routes.fabric.links)
    return np.flatnonzero(is_used & (counts < FEWEST_PAIRS)).astype(np.int32)


def _summary(routes: Routes, crossed: Ints, matrix: PairMatrix, is_shift: bool) -> str:
    links = len(np.unique(crossed[crossed >= 0]))
    conflicts = (
        "conflicts of the shift taken into account" if is_shift else "conflicts not taken into account"
    )
    return f"{len(matrix.value)} pairs of {len(matrix.hosts)} hosts across {links} links; {conflicts}"
