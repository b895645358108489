"""Finds the slow links of a network run from its pair matrix and the routes of its hosts through a fabric."""

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

MAX_SHOWN = 5  # links that were not judged, in the text


@dataclass(frozen=True)
class Blame:
    """The result: a finding for each slow link, and what was judged."""

    findings: list[Finding]
    unjudged: list[str]  # links between the hosts that too few pairs crossed
    pairs: int
    hosts: int
    used: int  # links that at least one pair crossed
    is_shift: bool  # the schedule was a shift, whose conflicts are known

    def lines(self) -> list[str]:
        """Lines for the terminal: the number of pairs and links, and the links that were not judged."""
        accounting = "taken into account" if self.is_shift else "not taken into account"
        which = "conflicts of the shift" if self.is_shift else "conflicts"
        lines = [f"{self.pairs} pairs of {self.hosts} hosts across {self.used} links; {which} {accounting}"]
        if self.unjudged:
            more = f" and {len(self.unjudged) - MAX_SHOWN} more" if len(self.unjudged) > MAX_SHOWN else ""
            lines.append(
                f"fewer than {MIN_PAIRS} pairs, so not judged: {'; '.join(self.unjudged[:MAX_SHOWN])}{more}"
            )
        if not self.findings:
            lines.append("no slow link found" + (" among the others" if self.unjudged else ""))
        return lines


def blame(
    records: Sequence[AnyRecord], hosts: Sequence[str], schedule: str, routes: Routes, rail: str = ""
) -> Blame | None:
    """``hosts`` in rank order, ``schedule`` of the run, ``rail``: the adapter that hosts with several used. None where
    the run has no bandwidth between pairs of hosts. Raises UserError for a host that the fabric does not have or whose
    port is not known, or a route that does not arrive."""
    matrix = PairMatrix.of_bandwidth(records, hosts)
    if not len(matrix.value):
        return None
    labels = [host_of(label) for label in matrix.hosts]
    host_index = routes.fabric.find_hosts(labels, rail)
    src, dst = host_index[matrix.source], host_index[matrix.target]
    crossed = routes.links(src, dst)
    value = matrix.value.astype(np.float64)
    judged = np.ones(len(value), np.bool_)
    if schedule == "shift":
        lost = contention(crossed, (matrix.target - matrix.source) % len(labels))
        value += lost
        judged = _pairs_to_judge(crossed, lost, routes.fabric.links)
    members = np.unique(host_index)
    measured = set(zip(src.tolist(), dst.tolist(), strict=True))
    findings = []
    for suspect in find_slow_links(crossed[judged], value[judged], routes.fabric.links):
        findings.append(finding(routes, suspect, members, measured))
        findings[-1].evidence = _evidence(matrix, crossed, suspect.links[0])
    return Blame(
        findings,
        [routes.fabric.link_name(int(link)) for link in _unjudged_links(routes, members, crossed)],
        len(matrix.value),
        len(matrix.hosts),
        len(np.unique(crossed[crossed >= 0])),
        schedule == "shift",
    )


def _pairs_to_judge(crossed: Ints, lost: NDArray[np.float64], links: int) -> NDArray[np.bool_]:
    """[pairs] whether a pair is judged: every pair without a conflict, and a pair with a conflict if one of its links
    has too few pairs without one. ``crossed`` [pairs, hops]: links; ``lost`` [pairs]: loss by conflicts (logarithm).

    A pair is as slow as the worst of its links. So a pair with both a conflict and a slow link loses less than the sum
    of both, and the correction for the conflict would hide part of the slow link's loss.
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
    return sorted({record for sender in senders for record in matrix.rows.get(matrix.hosts[sender], [])})


def _unjudged_links(routes: Routes, hosts: Ints, crossed: Ints) -> Ints:
    """The links on routes between the hosts that fewer than MIN_PAIRS pairs have crossed."""
    is_used = np.zeros(routes.fabric.links, np.bool_)
    for src in hosts:
        path = routes.links(np.full(len(hosts), src), hosts)  # none for a host with itself
        is_used[path[path >= 0]] = True
    counts = np.bincount(crossed[crossed >= 0], minlength=routes.fabric.links)
    return np.flatnonzero(is_used & (counts < MIN_PAIRS)).astype(np.int32)
