"""``assay heap import``: makes a heap profile from a file of heaptrack."""

from __future__ import annotations

import argparse
from pathlib import Path

from assay.commands.heap.runs import HEAP
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.measure.heap import FOLDER, conclude, import_file
from assay.profile.profiles import Profiles
from assay.records.foreign import Wanted, refuse_other

HEAPTRACK = Wanted("a heaptrack file", "give heaptrack.PROGRAM.PID.zst", ("heaptrack",))


def prepare_import(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "import",
        help="read a file of heaptrack",
        description="Makes a run from a file of heaptrack. Lifetimes are then estimates; threads and call times "
        "are unknown. Of a file without its end nothing is judged as never freed, and the exit code is 2; so it is "
        "for a file without an allocation.",
        examples=[
            Example("assay heap import heaptrack.solver.4711.zst", needs="a file"),
            Example("assay heap import heaptrack.solver.4711.zst -o solver", needs="a file"),
            Example("assay heap import heaptrack.solver.4711.zst --sources", needs="a file"),
        ],
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="heaptrack.PROGRAM.PID.zst, or .gz")
    add_option(parser, "-o --output")
    add_option(parser, "--sources")
    parser.set_defaults(sub_verb=import_profile)


def import_profile(args: argparse.Namespace) -> int:
    refuse_other(args.file, HEAPTRACK)
    session = HEAP.new_session(args, {"import": str(args.file)})
    try:
        import_file(session.run.path / FOLDER, args.file)
    except UserError:
        session.run.discard()
        raise
    if any(profile.trace.cut_off for profile in Profiles(session.run.path).processes):
        session.ended_early = f"{args.file.name} lacks its end, so what was not freed in it is not judged"
    elif not any(profile.totals.count for profile in Profiles(session.run.path).processes):
        session.ended_early = f"{args.file.name} has no allocation in it, so nothing is judged"
    conclude(session, sources=args.sources)
    return EXIT_UNUSABLE if session.ended_early else EXIT_PASS
