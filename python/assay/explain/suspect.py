"""A suspect: something that looks slow in a pair matrix, and how likely that is by chance."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix

CHANCE = 0.5  # expected number of suspects of a kind in a healthy matrix of any size
CONSISTENT = 0.5  # share of a subject's cells that have to show at least half of its effect
NORMAL = NormalDist()

Side = Literal["transmit", "receive", "pair", "block"]


@dataclass(frozen=True)
class Suspect:
    """Traffic from ``hosts`` to ``peers`` that looks slow. For one side of a host, ``hosts`` is that host and ``peers``
    is empty; a host that is slow on both sides is two suspects.

    ``effect`` is the logarithm of the relative rate (-0.69: half the speed), ``z`` the same in standard deviations, and
    ``chance`` the expected number of healthy subjects of this matrix that look as bad. ``with_best``: the comparison is
    with the best, not with the median, as there are too few of a kind for a majority (two servers, three hosts).
    ``one_way``: it was measured without traffic in the other direction.
    """

    side: Side
    hosts: tuple[str, ...]
    peers: tuple[str, ...]
    effect: float
    z: float
    chance: float
    with_best: bool = False
    one_way: bool = False

    def covers(self, source: str, target: str) -> bool:
        """Whether a transfer from ``source`` to ``target`` uses the suspected side or path."""
        if self.side == "receive":
            return target in self.hosts
        return source in self.hosts and (not self.peers or target in self.peers)


def covered(suspect: Suspect, matrix: PairMatrix) -> NDArray[np.bool_]:
    """Returns a mask of the cells that involve the suspect: ``Suspect.covers`` for all cells at once."""
    sends = np.isin(matrix.hosts, suspect.hosts)
    if suspect.side == "receive":
        return sends[matrix.target]
    receives = np.isin(matrix.hosts, suspect.peers) if suspect.peers else np.ones(len(matrix.hosts), bool)
    both: NDArray[np.bool_] = sends[matrix.source] & receives[matrix.target]
    return both
