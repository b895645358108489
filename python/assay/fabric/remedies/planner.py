"""Plans an exchange anew while it runs, for the ranks that are left.

``assay fabric schedule`` writes beside a schedule the links that each pair of ranks takes. A launcher starts this
module as a program: for each line with the ranks of now it answers with a plan for these. It runs apart from the
launcher, so that a plan that takes long delays no rank.

    in   {"kind":"members","ranks":[0,1,3]}
    out  {"kind":"plan","ranks":[0,1,3],"steps":[[1,3,-1,0],...]}
"""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.errors import EXIT_UNUSABLE, UserError
from assay.fabric import schedules
from assay.fabric.remedies.exchange import Demand, conflict_free
from assay.fabric.schedules import IDLE, Ints
from assay.launch.own_python import run_module
from assay.records.text import one_line

MODULE = __name__ if __name__ != "__main__" else "assay.fabric.remedies.planner"
FIELDS = {"leaf": 1, "paths": 3, "links": 0}  # of the file of links, with their number of dimensions


class Members(msgspec.Struct, tag_field="kind", tag="members"):
    ranks: list[int]


class Plan(msgspec.Struct, tag_field="kind", tag="plan"):
    """``steps`` [steps, all ranks]: destinations, -1 for none. Ranks that are none of ``ranks`` come last."""

    ranks: list[int]
    steps: list[list[int]]


def links_of(schedule: Path) -> Path:
    """The file of links beside a schedule."""
    return schedule.with_suffix(".links.npz")


def write_links(demand: Demand) -> bytes:
    """The contents of a file of links."""
    file = io.BytesIO()
    np.savez_compressed(file, leaf=demand.leaf, paths=demand.paths, links=demand.links)
    return file.getvalue()


def read_links(path: Path, ranks: int) -> Demand:
    """Raises UserError for a file that does not fit the ranks, or is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            leaf, paths, links = (np.asarray(file[name]) for name in FIELDS)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds for damaged bytes
        raise UserError(
            f"{path}: no file of links: {one_line(str(error))}", "plan the schedule again"
        ) from None
    shapes = zip((leaf, paths, links), FIELDS.values(), strict=True)
    whole = all(values.dtype.kind in "iu" and values.ndim == dimensions for values, dimensions in shapes)
    if not whole or leaf.shape != (ranks,) or paths.shape[1] != ranks or paths.shape[2] == 0:
        raise UserError(f"{path}: not of {ranks} ranks", "plan the schedule again")
    leaves = paths.shape[0]
    in_bounds = 0 <= links < 1 << 31 and paths.min(initial=-1) >= -1 and paths.max(initial=-1) < links
    if not in_bounds or leaf.min() < 0 or len(np.unique(leaf)) != leaves or leaf.max() != leaves - 1:
        raise UserError(f"{path}: leaves or links that do not exist", "plan the schedule again")
    return Demand(leaf.astype(np.int32), paths.astype(np.int32), int(links))


def restrict(demand: Demand, members: NDArray[np.integer]) -> Demand:
    """The exchange of some of the ranks."""
    leaves, leaf = np.unique(demand.leaf[members], return_inverse=True)
    return Demand(leaf.astype(np.int32), demand.paths[leaves][:, members], demand.links)


def plan_for(demand: Demand, schedule: Ints, members: list[int]) -> Ints:
    """[steps, ranks] an exchange of all ranks, whose first steps are those of the members, without conflicts. After
    them come the pairs with other ranks, in the steps of ``schedule``: a rank that comes back is served at once."""
    ranks = np.array(members, np.int32)
    rest = schedule.copy()
    is_member = np.isin(np.arange(demand.ranks), ranks)
    rest[:, is_member] = np.where(
        is_member[rest[:, is_member]] & (rest[:, is_member] >= 0), IDLE, rest[:, is_member]
    )
    rest = rest[(rest != IDLE).any(axis=1)]
    if len(ranks) < 2:
        return np.asarray(rest, np.int32)
    among_members = conflict_free(restrict(demand, ranks)).array()
    table = np.full((len(among_members), demand.ranks), IDLE, np.int32)
    table[:, ranks] = np.where(among_members == IDLE, IDLE, ranks[among_members])
    return np.asarray(np.concatenate([table, rest]), np.int32)


class Newest:
    """The newest of the lines that a thread reads; the older ones are of no use any more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: bytes | None = None
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        # Not sys.stdin, which the end of the program would wait for.
        for line in open(0, "rb", closefd=False):  # noqa: SIM115
            with self._changed:
                self._line = line
                self._changed.notify()
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self) -> bytes | None:
        """Waits for a line. None: there are no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._line is not None)
            line, self._line = self._line, None
            return None if self._ended else line


def command(schedule: Path, ranks: int) -> list[str]:
    """The planner of a schedule; empty where its links are not known. Raises UserError for links that do not fit."""
    if not links_of(schedule).exists():
        return []
    read_links(links_of(schedule), ranks)
    return run_module(MODULE, str(schedule.resolve()), str(ranks))


def serve(schedule: Path, ranks: int) -> None:
    """Answers until standard input ends. Raises UserError."""
    demand, table = read_links(links_of(schedule), ranks), schedules.read(schedule, ranks).array()
    lines = Newest()
    while (line := lines.take()) is not None:
        members = sorted(set(msgspec.json.decode(line, type=Members).ranks))
        if not members or members[0] < 0 or members[-1] >= ranks:
            raise UserError(f"members that are no ranks of {schedule}")
        steps = plan_for(demand, table, members)
        sys.stdout.buffer.write(msgspec.json.encode(Plan(members, steps.tolist())) + b"\n")
        sys.stdout.buffer.flush()


def main() -> int:
    try:
        serve(Path(sys.argv[1]), int(sys.argv[2]))
    except (UserError, msgspec.MsgspecError) as error:
        print(f"assay: {one_line(str(error))}", file=sys.stderr)
        return EXIT_UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
