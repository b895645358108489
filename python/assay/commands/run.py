"""``assay run``: any one measurement, by its name."""

from __future__ import annotations

import argparse

from assay.commands.options import add_lab, add_output, count, open_run, place, specifications
from assay.errors import UserError
from assay.launch.engines import describe, described_storage, probe
from assay.launch.hosts import host_list
from assay.launch.launchers import LAUNCHERS, Local, default_launcher, find_launcher
from assay.launch.placement import Segment
from assay.launch.reach import check_hosts
from assay.measure.session import Session
from assay.records.schema import Scalar


class Run:
    """Run one measurement with parameters of its own (see 'assay list NAME'), without judging by default.
    Options that are not of this command are the measurement's."""

    name = "run"
    examples = """
  assay run node.memory --seconds 1
  assay run network.all_to_all --ranks 2 --sizes 1KiB,1MiB
  assay run network.all_to_all --lab --op put --budget 10
  assay run --resume runs/20261121-040000-net-1f2e     goes on with a run that ended early, of any command
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("measurement", nargs="?", metavar="NAME", help="a measurement (see 'assay list')")
        parser.add_argument(
            "--resume", metavar="RUN", help="go on with a run that ended early: its command, less what it has"
        )
        parser.add_argument("--hosts", "-w", metavar="LIST", help="hosts, one rank on each")
        parser.add_argument("--ranks", type=count, metavar="N", help="without hosts: ranks on this machine")
        add_lab(parser)
        parser.add_argument("--launcher", choices=[x.name for x in LAUNCHERS])
        add_output(parser)
        # What argparse does not know here may be the measurement's.
        parser.set_defaults(takes_others=True)

    def run(self, args: argparse.Namespace) -> int:
        if args.measurement is None:
            raise UserError("which measurement?", "'assay list' names them")
        if any(one.name == args.measurement for one in described_storage()):
            raise UserError(f"{args.measurement} has a verb of its own", "see 'assay io bench --help'")
        described = describe(probe()).find(args.measurement)
        params = read_parameters(described.name, {p.name: p.kind for p in described.parameters}, args.others)
        described.check_bounds(params)
        alone = described.scope == "node"
        site, hosts = place(args, host_list(args.hosts, None, "--hosts"), ranks_here=1 if alone else 0)
        if args.launcher:
            launcher = find_launcher(args.launcher)
        else:
            launcher = Local() if alone and len(hosts) == 1 else default_launcher()
        wanted = specifications(args)
        check_hosts(site, hosts)
        run = open_run("run", args)
        run.info.hosts = hosts
        run.save()
        session = Session(run, verbose=args.verbose, quiet=args.json)
        flavour = "" if alone else None
        session.measure(described.name, launcher, site, [Segment(hosts)], params, flavour=flavour)
        status = session.conclude(wanted)
        if args.json:
            session.print_json()
        return status


def read_parameters(name: str, kinds: dict[str, str], words: list[str]) -> dict[str, Scalar]:
    """``--nflight 4 --no-verify`` against the measurement's own parameters; values go as they are."""
    params: dict[str, Scalar] = {}
    rest = list(words)
    while rest:
        word, _, value = rest.pop(0).partition("=")
        key = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or key not in kinds:
            raise UserError(f"{name} has no parameter '{word}'", f"see 'assay list {name}'")
        if kinds[key] == "flag":
            params[key] = True
        elif value or rest:
            params[key] = value or rest.pop(0)
        else:
            raise UserError(f"{word} without a value", f"see 'assay list {name}'")
    return params
