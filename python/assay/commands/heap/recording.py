"""The options of ``assay heap record`` and ``assay heap attach`` that say what is recorded."""

from __future__ import annotations

import argparse

from assay.commands.options import argument_type, size
from assay.commands.parser import Parser
from assay.errors import UserError
from assay.measure.heap_recorder import Recording


def add_recording(parser: Parser) -> None:
    """Adds the options that both sub-verbs have."""
    group = parser.advanced
    group.add_argument(
        "--at-least", type=size, default=0, metavar="SIZE", help="record only blocks of at least this size"
    )
    group.add_argument(
        "--sample",
        type=size,
        default=0,
        metavar="SIZE",
        help="record a random sample, about one block per SIZE allocated bytes; figures are then estimates",
    )
    group.add_argument(
        "--no-python",
        action="store_true",
        help="record native stacks without Python functions (saves about 12 ns per call)",
    )
    group.add_argument(
        "--no-faults",
        action="store_true",
        help="do not record which code first touches memory (saves about 0.5 us per page fault)",
    )
    group.add_argument(
        "--dump-at",
        type=size,
        default=0,
        metavar="SIZE",
        help="write a profile when a process's resident memory reaches SIZE; also on SIGUSR1",
    )


def add_ranks(parser: Parser) -> None:
    """Adds the option that selects ranks, which ``attach`` lacks."""
    parser.advanced.add_argument(
        "--only-ranks",
        type=argument_type(_ranks),
        default=[],
        metavar="LIST",
        help="only these ranks of an MPI program, such as 0,3",
    )


def _ranks(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UserError(
            f"'{text}' is not a list of ranks", "expected comma-separated ranks, e.g. 0,3"
        ) from None


def read_recording(args: argparse.Namespace) -> Recording:
    """The options as the settings of the recorder."""
    return Recording(
        at_least=args.at_least,
        sample=args.sample,
        ranks=getattr(args, "only_ranks", []),
        python=not args.no_python,
        faults=not args.no_faults,
        dump_at=args.dump_at,
    )
