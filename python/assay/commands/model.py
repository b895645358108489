"""``assay model``: writes a SimGrid platform fitted to a saturation run, and validates it by simulation."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from assay.commands.options import add_option, share
from assay.commands.parser import Example, Parser
from assay.errors import UserError
from assay.launch import simulator
from assay.measure.model import fit_run, validate
from assay.measure.session import Session
from assay.model.platform import write_platform
from assay.records.run import Run, newest_run
from assay.report.model import show_model


class Model:
    """Make a SimGrid platform of a saturation run, and verify it. Every experiment of the run is repeated in the
    simulator; a platform whose error is above --limit is not good: exit code 1. The report compares both curves, and
    has a picture of the platform."""

    name = "model"
    examples = [
        Example("assay model", "the newest run; writes platform.xml into it", "a run"),
        Example("assay model runs/20261121-040000-saturate-1f2e --platform platform.xml", needs="a run"),
        Example("assay model runs/20261121-040000-saturate-1f2e --limit 2%", needs="a run"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument(
            "run", nargs="?", metavar="RUN", help="run of 'assay saturate' (default: the newest)"
        )
        parser.add_argument(
            "--platform", metavar="FILE", help="the platform file (default: RUN/platform.xml)"
        )
        parser.add_argument(
            "--limit",
            type=share,
            default=0.05,
            metavar="SHARE",
            help="largest error of a good platform (default: 5%%)",
        )
        parser.add_argument(
            "--no-simulation", action="store_true", help="write the file without validating it"
        )
        add_option(parser, "--json")
        add_option(parser, "-v --verbose")

    def run(self, args: argparse.Namespace) -> int:
        if not 0 < args.limit < math.inf:
            raise UserError(f"--limit {args.limit:g}: not a positive share", "write it like 5%")
        run = Run.load(args.run or newest_run())
        state, reason = run.info.state, run.info.reason
        model = fit_run(run)
        target = Path(args.platform) if args.platform else run.path / "platform.xml"
        write_platform(model, target, str(run.info.id))
        session = Session(run, verbose=args.verbose)
        no_simulation = "not asked for" if args.no_simulation else simulator.unavailable()
        if no_simulation:
            session.err.print(f"not simulated: {no_simulation}; this platform is not validated")
            self._show(session, args, target)
            return _finish(session, args, state, reason, 0 if args.no_simulation else 2)
        result = validate(session, model, target, args.limit)
        self._show(session, args, target)
        if not args.json:
            session.out.print(
                f"{result.outcome}: {result.reason or result.observed_text}; required {result.required_text}"
            )
        if session.ended_early:
            state, reason = "partial", session.ended_early
            session.err.print(f"the simulation ended early: {session.ended_early}", soft_wrap=True)
        code = {"PASS": 0, "FAIL": 1}.get(result.outcome, 2)
        return _finish(session, args, state, reason, 130 if session.interrupted else code)

    def _show(self, session: Session, args: argparse.Namespace, target: Path) -> None:
        if not args.json:
            show_model(session.out, session.run.records)
            session.out.print(f"platform: {target}", soft_wrap=True)


def _finish(session: Session, args: argparse.Namespace, state: str, reason: str, code: int) -> int:
    report = session.publish(state, reason)
    if args.json:
        session.print_json()
    else:
        session.out.print(f"report: {report}", soft_wrap=True)
    return code
