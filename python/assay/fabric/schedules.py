"""Schedules of an all-to-all exchange: steps, in each of which a rank sends to one other rank at most.

shift    step k: rank i sends to (i - k) mod N. N steps; in step 0 a rank sends to itself
xor      step k: rank i sends to rank i xor k if that exists. N steps for a power of two
circle   a round-robin tournament (the polygon method): pairs exchange in both directions; with odd N one rank is idle
random   each step a random permutation of the ranks, N steps; not every pair meets
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.read.text import LineReader
from assay.records.foreign import Wanted

Ints = NDArray[np.int32]
IDLE = -1
MAX_STEPS = 1 << 20  # of a file
MAX_ENTRIES = 1 << 28  # steps times ranks: 1 GiB
MAX_LINE_BYTES = 1 << 20
FILE = Wanted("a schedule", "write a step a line, the destination of each rank")


@dataclass(frozen=True)
class Schedule:
    """``step(k)`` is an array [ranks] of the rank that each rank sends to, -1 where it is idle."""

    name: str
    ranks: int
    steps: int
    step: Callable[[int], Ints]

    def __iter__(self) -> Iterator[Ints]:
        return (self.step(k) for k in range(self.steps))

    def array(self) -> Ints:
        """[steps, ranks]; 4 bytes per entry."""
        return np.stack(list(self)) if self.steps else np.zeros((0, self.ranks), np.int32)


def of_array(name: str, destinations: NDArray[np.integer]) -> Schedule:
    """A schedule from an array [steps, ranks]."""
    table = np.ascontiguousarray(destinations, np.int32)
    return Schedule(name, table.shape[1], table.shape[0], lambda k: table[k])


def shift(ranks: int) -> Schedule:
    order = np.arange(ranks, dtype=np.int32)
    return Schedule("shift", ranks, ranks, lambda k: np.asarray((order - k) % ranks, np.int32))


def xor(ranks: int) -> Schedule:
    order = np.arange(ranks, dtype=np.int32)

    def step(k: int) -> Ints:
        partner = order ^ np.int32(k)
        return np.where(partner < ranks, partner, IDLE).astype(np.int32)

    return Schedule("xor", ranks, 1 << max(0, ranks - 1).bit_length(), step)


def circle(ranks: int) -> Schedule:
    """In round k ranks i and j meet where i + j = k modulo the odd number of players; the last player of an even
    number meets the rank that would meet itself."""
    players = ranks if ranks % 2 else ranks - 1
    order = np.arange(ranks, dtype=np.int32)

    def step(k: int) -> Ints:
        partner = np.where(order < players, (k - order) % players, 0)
        unpaired = int(np.flatnonzero(partner[:players] == order[:players])[0])
        if ranks % 2:
            partner[unpaired] = IDLE
        else:
            partner[unpaired], partner[ranks - 1] = ranks - 1, unpaired
        return partner.astype(np.int32)

    return Schedule("circle", ranks, players if ranks > 1 else 0, step)


def random(ranks: int, seed: int = 1) -> Schedule:
    """The same seed gives the same schedule; steps may be computed in any order."""
    return Schedule(
        "random",
        ranks,
        ranks,
        lambda k: np.random.default_rng([seed, k]).permutation(ranks).astype(np.int32),
    )


SCHEDULES: dict[str, Callable[[int], Schedule]] = {
    "shift": shift,
    "xor": xor,
    "circle": circle,
    "random": random,
}


def read(path: Path, ranks: int) -> Schedule:
    """A file: one step a line, the destination of rank 0, 1, ... separated by blanks, -1 for idle, # for comments.

    Raises UserError with file and line for a line of another length, or a rank that does not exist.
    """
    rows = []
    for number, line in LineReader(path, FILE, MAX_LINE_BYTES):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            row = [int(field) for field in fields]
        except ValueError:
            raise UserError(f"{path}:{number}: not a list of ranks", "write numbers, -1 for idle") from None
        if len(row) != ranks:
            raise UserError(f"{path}:{number}: {len(row)} destinations for {ranks} ranks")
        wrong = [rank for rank in row if not IDLE <= rank < ranks]
        if wrong:
            raise UserError(f"{path}:{number}: there is no rank {wrong[0]} among {ranks}")
        rows.append(np.array(row, np.int32))
        if len(rows) > min(MAX_STEPS, MAX_ENTRIES // ranks):
            raise UserError(f"{path}:{number}: more than {len(rows) - 1} steps for {ranks} ranks")
    if not rows:
        raise UserError(f"{path}: the schedule has no step")
    return of_array(path.name, np.stack(rows))


def find(name: str, ranks: int) -> Schedule:
    """One of ``SCHEDULES``. Raises UserError for another name."""
    if name not in SCHEDULES:
        raise UserError(f"no schedule '{name}'", f"one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name](ranks)
