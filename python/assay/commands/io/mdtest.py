"""Parses the options of ``assay io bench metadata``, with mdtest's names and their long forms."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from assay.commands.io.original import (
    OriginalOptions,
    OriginalParser,
    add_refused,
    non_negative_integer,
    size,
    without_program,
    without_unset,
)
from assay.errors import UserError

MDTEST_HELP = """Options, with mdtest's names (-n and -w after '--', since Assay has them too):
  -n, --items N files and directories of each rank   -i, --iterations N   -y, --fsync
  -u, --unique a directory for each rank   -N, --shift N ranks to the one whose items are used
  -F, --files-only   -D, --directories-only   -W, --stonewall SECONDS limit of each phase
  -w, --bytes SIZE written to each file, and read   -e SIZE read: as -w   -d, --directory DIR
  -I N without -n: as -n   -z 0 and any -b: no tree of directories
  -a, --api posix|mpiio|both (default: both)"""

# Options of mdtest that Assay does not have, with their meaning there.
MDTEST_REFUSED = {
    "-C": "create alone", "-T": "stat alone", "-E": "read alone", "-r": "remove alone", "-U": "a phase of renames",
    "-L": "files at the leaves of a tree alone",
    "-f": "a first number of tasks", "-l": "a last number of tasks", "-s": "a stride of the number of tasks",
    "-S": "one file of all ranks", "-c": "creation by rank 0", "-k": "creation by mknod", "-R": "stat in random order",
    "-B": "no barriers between phases", "-p": "a pause before each iteration", "-t": "the time of own directories",
    "-g": "a directory layout of Lustre", "-G": "an offset of the data", "-x": "a status file of the stonewall",
    "-X": "a check of what is read", "-Y": "sync of all file systems after each phase",
}  # fmt: skip
# They concern mdtest's text output.
MDTEST_ACCEPTED = ("-v", "-P", "-Z")


def _api(text: str) -> str:
    if text.lower() not in ("posix", "mpiio", "both"):
        raise argparse.ArgumentTypeError(f"'{text}' is not one of posix, mpiio, both")
    return text.lower()


def mdtest(arguments: Sequence[str]) -> OriginalOptions:
    parser = OriginalParser(prog="metadata", add_help=False, allow_abbrev=False)
    parser.add_argument("-n", "--items", type=non_negative_integer)
    parser.add_argument("-i", "--iterations", type=non_negative_integer)
    parser.add_argument("-d", "--directory")
    parser.add_argument("-u", "--unique", action="store_true")
    parser.add_argument("-N", "--shift", type=non_negative_integer)
    parser.add_argument("-F", "--files-only", action="store_true")
    parser.add_argument("-D", "--directories-only", action="store_true")
    parser.add_argument("-W", "--stonewall", type=non_negative_integer)
    parser.add_argument("-w", "--bytes", type=size)
    parser.add_argument("-e", dest="read", type=size)
    parser.add_argument("-y", "--fsync", action="store_true")
    parser.add_argument("-a", "--api", type=_api)
    for option in MDTEST_ACCEPTED:
        parser.add_argument(option, dest="verbose", action="count")
    parser.add_argument("-V", dest="verbose", type=non_negative_integer)
    parser.add_argument("-z", dest="depth", type=non_negative_integer)
    parser.add_argument("-b", dest="branches", type=non_negative_integer)
    parser.add_argument("-I", dest="items_of_directory", type=non_negative_integer)
    add_refused(parser, MDTEST_REFUSED)
    parsed = vars(parser.parse_args(without_program(arguments, "mdtest")))
    parsed.pop("verbose")
    _take_tree(parsed)
    read, directory = parsed.pop("read"), parsed.pop("directory")
    if read is not None and read != (parsed["bytes"] or 0):
        raise UserError(
            f"metadata: -e {read}: all of a file is read", "give -e the size of -w, or leave it out"
        )
    if "@" in (directory or ""):
        raise UserError(f"metadata: -d {directory}: mdtest uses several directories", "name one directory")
    if directory is not None:
        parsed["file"] = f"{directory.rstrip('/') or '/'}/assay-metadata"
    return OriginalOptions(without_unset(parsed))


def _take_tree(parsed: dict[str, Any]) -> None:
    """Takes the options of a tree of directories, of which one directory is measured. Raises UserError for more."""
    depth, _, of_directory = parsed.pop("depth"), parsed.pop("branches"), parsed.pop("items_of_directory")
    if depth:
        raise UserError(
            "metadata: -z is not supported: a tree of directories (depth)", "give -z 0, or leave it out"
        )
    if not of_directory:  # 0 is mdtest's "not given", as it is of -n
        return
    if parsed["items"] not in (None, 0, of_directory):
        raise UserError(
            f"metadata: -I {of_directory} with -n {parsed['items']}: mdtest makes several directories",
            "leave out -I: all items are in one",
        )
    parsed["items"] = of_directory
