"""Finds the slow links of a network run from its pair matrix and the routes of its hosts through a fabric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.explain.evidence import Evidence
from assay.explain.matrix import PairMatrix
from assay.explain.rails import Rails, find_rails
from assay.fabric import Routes
from assay.fabric.platform import own_rates
from assay.fabric.tomography import MIN_PAIRS, contention, find_slow_links, finding
from assay.fabric.topology import Ints
from assay.records.schema import Finding

MAX_SHOWN = 5  # links that were not judged, in the text
RAIL_UNKNOWN = (
    "the hosts have several rails, and no record says which of them a message used: a link of each rail's path is a "
    "candidate; bind the ranks to one adapter and measure again (UCX_NET_DEVICES, --rail)"
)


@dataclass(frozen=True)
class Blame:
    """The result: a finding for each slow link, and what was judged."""

    findings: list[Finding]
    unjudged: list[str]  # links between the hosts that too few pairs crossed
    pairs: int
    hosts: int
    used: int  # links that at least one pair crossed
    is_shift: bool  # the schedule was a shift, whose conflicts are known
    uncertain: int  # pairs that may have used one of several rails, or all of them

    def lines(self) -> list[str]:
        """Lines for the terminal: the number of pairs and links, and the links that were not judged."""
        is_counted = self.is_shift and not self.uncertain
        accounting = "taken into account" if is_counted else "not taken into account"
        which = "conflicts of the shift" if self.is_shift else "conflicts"
        lines = [f"{self.pairs} pairs of {self.hosts} hosts across {self.used} links; {which} {accounting}"]
        if self.uncertain:
            lines.append(
                f"{self.uncertain} of the pairs may have used several rails: all of their paths are candidates"
                + (", and pairs with conflicts are left out" if self.is_shift else "")
                + "; --rail names the adapter that was used"
            )
        if self.unjudged:
            more = f" and {len(self.unjudged) - MAX_SHOWN} more" if len(self.unjudged) > MAX_SHOWN else ""
            lines.append(
                f"fewer than {MIN_PAIRS} pairs, so not judged: {'; '.join(self.unjudged[:MAX_SHOWN])}{more}"
            )
        if not self.findings:
            lines.append("no slow link found" + (" among the others" if self.unjudged else ""))
        return lines


def blame(evidence: Evidence, routes: Routes) -> Blame | None:
    """The slow links of a run, whose options name its schedule and rail. None where the run has no bandwidth between
    pairs of hosts. Raises UserError for a host or an adapter that the fabric does not have, or a route that does not
    arrive."""
    matrix = evidence.matrix
    if not len(matrix.value):
        return None
    rails = find_rails(evidence, routes, matrix.hosts)
    crossed, is_uncertain = rails.links(matrix.source, matrix.target)
    value = matrix.value.astype(np.float64)
    judged = np.ones(len(value), np.bool_)
    is_shift = evidence.options.get("schedule") == "shift"
    if is_shift:
        lost = contention(crossed, (matrix.target - matrix.source) % len(matrix.hosts))
        if is_uncertain.any():  # then the loss by a conflict is not known
            judged = np.asarray(lost == 0)
        else:
            value += lost
            judged = _pairs_to_judge(crossed, lost, routes.fabric.links)
    value = _as_if_alike(value, _path_rates(crossed, own_rates(routes.fabric)), judged)
    measured = rails.certain_pairs(matrix.source, matrix.target)
    findings = []
    for suspect in find_slow_links(crossed[judged], value[judged], routes.fabric.links):
        findings.append(finding(routes, suspect, rails.members, measured))
        findings[-1].evidence = _evidence(matrix, crossed, suspect.links[0])
        if is_uncertain[(crossed == suspect.links[0]).any(axis=1)].any():
            findings[-1].details.append(RAIL_UNKNOWN)
    return Blame(
        findings,
        [routes.fabric.link_name(int(link)) for link in _unjudged_links(rails, crossed[judged])],
        len(matrix.value),
        len(matrix.hosts),
        len(np.unique(crossed[crossed >= 0])),
        is_shift,
        int(is_uncertain.sum()),
    )


def _path_rates(crossed: Ints, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """[pairs] the rate (B/s) of the slowest cable on each pair's path; infinite where none is known. ``crossed``
    [pairs, hops]: links."""
    known = np.where(rates > 0, rates, np.inf)
    return np.asarray(np.where(crossed >= 0, known[crossed], np.inf).min(axis=1))


def _as_if_alike(
    value: NDArray[np.float64], path_rate: NDArray[np.float64], judged: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """[pairs] ``value`` (logarithm of a rate) as if all cables had the rate of the fastest: a pair with a cable that
    was built slower is raised in that proportion, but not above what pairs of the fastest cables have, since something
    else may hold it back as well."""
    known = np.isfinite(path_rate)
    fastest = path_rate[known].max(initial=0.0)
    unhindered = value[known & judged & (path_rate == fastest)]
    if not len(unhindered):
        return value
    raised = value + np.log(fastest / np.where(known, path_rate, fastest))
    return np.asarray(np.maximum(value, np.minimum(raised, np.median(unhindered))))


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


def _unjudged_links(rails: Rails, crossed: Ints) -> Ints:
    """The links on paths between the ranks that fewer than MIN_PAIRS judged pairs have crossed."""
    ranks, links = np.arange(len(rails.ports)), rails.routes.fabric.links
    is_used = np.zeros(links, np.bool_)
    for src in ranks:
        others = ranks[ranks != src]
        path, _ = rails.links(np.full(len(others), src), others)
        is_used[path[path >= 0]] = True
    counts = np.bincount(crossed[crossed >= 0], minlength=links)
    return np.flatnonzero(is_used & (counts < MIN_PAIRS)).astype(np.int32)
