"""``assay run``: runs a measurement by its name. ``read_parameters`` reads a measurement's parameters for all verbs
(the commands of ``assay``)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from assay.commands.options import add_option, add_output, site_and_hosts
from assay.commands.parser import Example, Parser, nearest
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.launch.engines import Parameter, describe, describe_storage, probe
from assay.launch.hosts import host_list
from assay.launch.launchers import Local, launcher_on
from assay.launch.placement import Segment
from assay.launch.reach import check_hosts
from assay.records.schema import Scalar
from assay.records.units import parse_in


class Run:
    """Run one measurement by its name. It is not judged unless --spec is given. Options that are not listed here are
    the measurement's: see 'assay list NAME'."""

    name = "run"
    examples = [
        Example("assay run node.memory --budget 100ms"),
        Example("assay run network.all_to_all -n 2 --sizes 1KiB,1MiB --budget 5s", needs="an MPI"),
        Example("assay run --resume runs/20261121-040000-net-1f2e", "any run that ended early", "a run"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.usage = "%(prog)s NAME [options]  |  %(prog)s --resume RUN"
        parser.add_argument("measurement", nargs="?", metavar="NAME", help="a measurement (see 'assay list')")
        add_option(parser, "--resume", "with its command; what it has measured is left out")
        add_option(parser, "-w --hosts", "one rank on each")
        add_option(parser, "-n --ranks", "on this machine, without hosts")
        add_option(parser, "--lab")
        add_option(parser, "--launcher")
        add_output(parser)
        # An option that argparse does not know may be a parameter of the measurement: it goes to args.unknown.
        parser.set_defaults(takes_unknown=True)

    def run(self, args: argparse.Namespace) -> int:
        if args.measurement is None:
            raise UserError("no measurement is named", "give its name: 'assay list' shows all")
        if any(measurement.name == args.measurement for measurement in describe_storage()):
            raise UserError(
                f"{args.measurement} is not run by 'assay run'",
                "use 'assay io bench', see 'assay io bench --help'",
            )
        described = describe(probe()).find(args.measurement)
        params = read_parameters(described.name, described.parameters, args.unknown)
        described.check_bounds(params)
        single_host = described.scope == "node"  # no communication: one rank, no MPI
        site, hosts = site_and_hosts(
            args, host_list(args.hosts, None, "--hosts"), ranks_here=1 if single_host else 0
        )
        if args.launcher:
            launcher = launcher_on(args.launcher, site)
        else:
            launcher = Local() if single_host and len(hosts) == 1 else launcher_on(None, site)
        specs = specifications(args)
        check_hosts(site, hosts)
        session = open_session("run", args, hosts)
        # The flavour of an engine is the MPI that it is built for. "": the engine without MPI; None: the launcher's.
        flavour = "" if single_host else None
        with session.interruptible():
            session.measure(described.name, launcher, site, [Segment(hosts)], params, flavour=flavour)
        return session.conclude(specs)


def read_parameters(
    name: str, parameters: Sequence[Parameter], arguments: Sequence[str]
) -> dict[str, Scalar]:
    """Returns the parameters that ``arguments`` give to measurement ``name``, by the names in its descriptor.

    ``--nflight 4 --no-verify --budget 20s`` becomes ``{"nflight": "4", "no_verify": True, "budget": 20.0}``: real
    times, rates and shares in base units, other values as text, which the engine reads. Raises UserError.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    params: dict[str, Scalar] = {}
    remaining = list(arguments)
    while remaining:
        option, _, value = remaining.pop(0).partition("=")
        key = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or key not in by_name:
            suggestion = nearest(option, ["--" + parameter.replace("_", "-") for parameter in by_name])
            raise UserError(f"{name} has no parameter '{option}'{suggestion}", f"see 'assay list {name}'")
        if by_name[key].kind == "flag":
            params[key] = True
        elif value or remaining:
            params[key] = _in_base_unit(option, by_name[key], value or remaining.pop(0))
        else:
            raise UserError(f"{option} without a value", f"see 'assay list {name}'")
    return params


def _in_base_unit(option: str, parameter: Parameter, text: str) -> Scalar:
    """A time, rate or share in s, B/s or 1. Sizes and bare numbers stay as they are: the engine reads them."""
    if parameter.kind != "real" or parameter.unit not in ("s", "B/s", "1"):
        return text
    try:
        float(text)
    except ValueError:
        pass
    else:
        return text
    try:
        return parse_in(text, parameter.unit)
    except UserError as error:
        raise UserError(f"{option}: {error.what}", error.fix) from None
