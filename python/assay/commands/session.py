"""How each verb begins to measure: the run of its command line, and the session that fills it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.measure.session import Session
from assay.records.run import Run


def open_session(
    verb: str,
    args: argparse.Namespace,
    hosts: Sequence[str] | None = None,
    options: dict[str, Any] | None = None,
) -> Session:
    """Creates the run of this command, or reopens the run that it continues (--resume). ``hosts``, ``options``: those
    of the run; None: as they are. A simulation with hosts that its platform lacks has the option "enlarged". Under
    --json the session prints its run as JSON when it is concluded."""
    if args.resumed is not None:
        run = Run.reopen(args.resumed)
    else:
        run = Run.create(verb, args.command_line, path=Path(args.output) if args.output else None)
    if hosts is not None:
        run.info.hosts = list(hosts)
    if options is not None:
        run.info.options = options
    if enlarged := getattr(args, "enlarged", ""):
        run.info.options["enlarged"] = enlarged
    run.save()
    return Session(run, verbose=getattr(args, "verbose", False), as_json=getattr(args, "json", False))
