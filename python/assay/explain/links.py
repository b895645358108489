"""The slow links of a network run: its pair matrix, joined with the routes of its hosts through a fabric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix, host_of
from assay.fabric import Routes
from assay.fabric.tomography import MIN_PAIRS, contention, find_slow_links, finding
from assay.fabric.topology import Ints
from assay.records.schema import AnyRecord, Finding

SHOWN = 5  # links without data


@dataclass(frozen=True)
class Blame:
    """``unseen``: links between the hosts that too few pairs crossed to be judged; ``used``: those that any crossed."""

    findings: list[Finding]
    unseen: list[str]
    pairs: int
    hosts: int
    used: int
    of_shift: bool

    def lines(self) -> list[str]:
        """Text: the number of pairs and links that were judged, and the links that were not."""
        taken = "taken into account" if self.of_shift else "not taken into account"
        which = "conflicts of the shift" if self.of_shift else "conflicts"
        lines = [f"{self.pairs} pairs of {self.hosts} hosts across {self.used} links; {which} {taken}"]
        if self.unseen:
            more = f" and {len(self.unseen) - SHOWN} more" if len(self.unseen) > SHOWN else ""
            lines.append(
                f"fewer than {MIN_PAIRS} pairs, so not judged: {'; '.join(self.unseen[:SHOWN])}{more}"
            )
        if not self.findings:
            lines.append("no slow link found" + (" among the others" if self.unseen else ""))
        return lines


def blame(records: Sequence[AnyRecord], hosts: Sequence[str], schedule: str, routes: Routes) -> Blame | None:
    """``hosts`` in rank order, ``schedule`` of the run. None where the run has no bandwidth between pairs of hosts.
    Raises UserError for a host that the fabric does not have, or a route that does not arrive."""
    matrix = PairMatrix.of_bandwidth(records, hosts)
    if not len(matrix.value):
        return None
    labels = [host_of(label) for label in matrix.hosts]
    number = routes.fabric.find_hosts(labels)
    src, dst = number[matrix.source], number[matrix.target]
    crossed = routes.links(src, dst)
    value = matrix.value.astype(np.float64)
    judged = np.ones(len(value), np.bool_)
    if schedule == "shift":
        lost = contention(crossed, (matrix.target - matrix.source) % len(labels))
        value += lost
        judged = _clear(crossed, lost, routes.fabric.links)
    members = np.unique(number)
    measured = set(zip(src.tolist(), dst.tolist(), strict=True))
    findings = []
    for suspect in find_slow_links(crossed[judged], value[judged], routes.fabric.links):
        findings.append(finding(routes, suspect, members, measured))
        findings[-1].evidence = _evidence(matrix, crossed, suspect.links[0])
    return Blame(
        findings,
        [routes.fabric.link_name(int(link)) for link in _unseen(routes, members, crossed)],
        len(matrix.value),
        len(matrix.hosts),
        len(np.unique(crossed[crossed >= 0])),
        schedule == "shift",
    )


def _clear(crossed: Ints, lost: NDArray[np.float64], links: int) -> NDArray[np.bool_]:
    """[pairs] whether a pair is used: all pairs without a conflict; with a conflict only where one of their links has
    too few pairs without one.

    A pair is as slow as the worst of its links, so a conflict hides a slow link: correcting for the conflict would
    then hide part of the slow link's loss.
    """
    clear: NDArray[np.bool_] = np.asarray(lost == 0)
    pair, hop = np.nonzero(crossed >= 0)
    link = crossed[pair, hop]
    few = np.bincount(link[clear[pair]], minlength=links) < MIN_PAIRS
    clear[pair[few[link]]] = True
    return clear


def _evidence(matrix: PairMatrix, crossed: Ints, link: int) -> list[int]:
    """The ids of the records with the pairs that cross a link."""
    senders = np.unique(matrix.source[(crossed == link).any(axis=1)])
    return sorted({number for sender in senders for number in matrix.rows.get(matrix.hosts[sender], [])})


def _unseen(routes: Routes, hosts: Ints, crossed: Ints) -> Ints:
    """The links on routes between the hosts that fewer pairs have crossed than a judgement needs."""
    is_used = np.zeros(routes.fabric.links, np.bool_)
    for src in hosts:
        way = routes.links(np.full(len(hosts), src), hosts)  # none for a host with itself
        is_used[way[way >= 0]] = True
    counts = np.bincount(crossed[crossed >= 0], minlength=routes.fabric.links)
    return np.flatnonzero(is_used & (counts < MIN_PAIRS)).astype(np.int32)
