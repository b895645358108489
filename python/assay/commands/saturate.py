"""``assay saturate``: the capacities of a network: of each host, of each cabinet, and between cabinets."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.commands.options import add_option, add_output, check_timeout, site_and_hosts
from assay.commands.parser import Example, Parser
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.judge import Specification
from assay.launch.hosts import fold, host_list, parse_hosts
from assay.launch.launchers import launcher_on
from assay.launch.reach import check_hosts
from assay.measure.model import fit_capacities
from assay.measure.saturation import SaturationRequest, measure_saturation
from assay.model.network import Topology
from assay.model.study import Effort, Study
from assay.records.foreign import Wanted, read_text

CABINETS = Wanted("a file of cabinets", "give CABINET=HOSTS, or a file of such lines")


class Saturate:
    """Find a network's capacities: hosts, cabinets, and between cabinets. It measures what each host can send, receive
    and both at once, what a cabinet can, and what goes between cabinets. Cabinets are given, or found by measurement.
    'assay model RUN' makes a platform of SimGrid of it."""

    name = "saturate"
    examples = [
        Example('assay saturate -w "node[1-144]"', "cabinets are measured", "a cluster"),
        Example(
            'assay saturate -w "node[1-144]" --topology "a=node[1-72]" "b=node[73-144]"', needs="a cluster"
        ),
        Example("assay saturate --lab --launcher mpich-wheel --confidence 4%", needs="a lab"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        hosts = parser.add_argument_group("hosts")
        add_option(hosts, "-w --hosts")
        add_option(hosts, "--hosts-file")
        hosts.add_argument(
            "--topology",
            nargs="+",
            metavar="CABINET=HOSTS",
            help="the hosts of each cabinet, or a file of such lines (default: measured)",
        )
        add_option(hosts, "--lab")
        add_option(hosts, "--launcher")
        measurement = parser.add_argument_group("measurement")
        add_option(measurement, "--budget", "each round, at least; default: 0.5s", default=0.5)
        add_option(measurement, "--confidence", "default: 2%", default=0.02)
        add_option(measurement, "--timeout", "a message; default: 30s", default=30.0)
        add_option(parser, "--resume")
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        request = build_request(args)
        specs = specifications(args)
        check_hosts(request.site, request.hosts, request.launcher.name)
        return run_request(args, request, specs, "saturate")


def run_request(
    args: argparse.Namespace, request: SaturationRequest, specs: list[Specification], verb: str
) -> int:
    """Runs the study and shows its results, on a cluster or on a simulated one. Returns the exit code."""
    session = open_session(verb, args, request.hosts)
    run = session.run
    run.info.options.setdefault("hosts", request.hosts)
    run.save()
    session.err.print(f"{len(request.hosts)} hosts ({fold(request.hosts)}) under {request.launcher.name}")
    with session.interruptible():
        study = measure_saturation(session, request)
        if not request.cabinets and study.cabinets:
            session.err.print(_describe_cabinets(study), soft_wrap=True)
        fit_capacities(run, study.cabinets)
    status = session.conclude(specs)
    if not args.json and study.segments:
        session.out.print(f"a platform for SimGrid: assay model {run.path}", soft_wrap=True)
    return status


def _describe_cabinets(study: Study) -> str:
    if study.grouped_by:
        return f"{len(study.cabinets)} cabinets, found by {study.grouped_by}"
    return (
        "the cabinets are not known: neither latency nor contention separates the hosts; taken as one cabinet, "
        "give --topology where it is known"
    )


def build_request(args: argparse.Namespace) -> SaturationRequest:
    hosts = host_list(args.hosts, args.hosts_file, "--hosts")
    cabinets = read_topology(args.topology) if args.topology else {}
    named = [host for members in cabinets.values() for host in members]
    if not hosts and args.lab is None:
        hosts = named
    if not hosts and args.lab is None:
        raise UserError("no hosts to saturate", "name them: -w 'node[1-8]', or try --lab")
    site, hosts = site_and_hosts(args, hosts)
    if len(hosts) < 2:
        raise UserError("one host alone has no network to saturate", "name at least two hosts")
    _check_cabinets(cabinets, hosts)
    if args.budget > 600:
        raise UserError(f"--budget {args.budget:g}: out of bounds", "give from 1ms to 600s")
    check_timeout(args.timeout)
    effort = Effort(confidence=args.confidence, seconds=args.budget)
    launcher = launcher_on(args.launcher, site)
    return SaturationRequest(launcher, site, hosts, effort, cabinets, {"timeout": args.timeout})


def read_topology(items: list[str]) -> Topology:
    """The hosts of each cabinet. ``items``: ``a=n[1-4]`` for each cabinet, or the name of a file of such lines."""
    lines = [(item, "--topology") for item in items]
    if len(items) == 1 and "=" not in items[0]:
        path = Path(items[0])
        text = read_text(path, CABINETS)
        stripped = [(line.split("#", 1)[0].strip(), i) for i, line in enumerate(text.splitlines(), 1)]
        lines = [(line, f"--topology {path}:{i}:") for line, i in stripped if line]
    cabinets: Topology = {}
    for item, where in lines:
        name, separated, hosts = item.partition("=")
        if not separated or not name.strip():
            raise UserError(f"{where} '{item}': not CABINET=HOSTS", "write it like a=node[1-4]")
        if name.strip() in cabinets:
            raise UserError(f"{where} '{name.strip()}' is there twice", "give each cabinet once")
        cabinets[name.strip()] = parse_hosts(hosts.strip(), where)
    return cabinets


def _check_cabinets(cabinets: Topology, hosts: list[str]) -> None:
    if not cabinets:
        return
    named = [host for members in cabinets.values() for host in members]
    twice = sorted({host for host in named if named.count(host) > 1})
    if twice:
        raise UserError(f"{fold(twice)}: in two cabinets", "give each host one cabinet")
    if set(named) != set(hosts):
        unmatched = sorted(set(named) ^ set(hosts))
        raise UserError(
            f"{fold(unmatched)}: in the hosts or in the cabinets, but not in both",
            "give every host its cabinet",
        )
