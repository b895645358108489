"""Finds slow directed links from the bandwidths of pairs of hosts and their routes (network tomography).

A pair is as fast as the slowest link on its route, so a slow link slows all pairs that cross it and no others. For each
link, ``gain`` is the logarithm of a likelihood ratio: how much more likely the values of its pairs are if the link is
slow by their median than if it is healthy. The link with the highest gain is suspected, its effect is subtracted from
its pairs, and the search is repeated. A suspect must be slow by more than 10 %, and neither the normal distribution of
the noise nor the share of equally slow pairs elsewhere (binomial, which allows for heavy tails) may explain it: less
than 0.001 such healthy links are expected.

Links that explain the values about equally well cannot be distinguished by the data. ``separating`` finds pairs of
hosts that distinguish them, as they cross only one of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.fabric.routes import PAD, Routes
from assay.fabric.topology import Ints
from assay.records.schema import Finding, Subject
from assay.records.statistics import median, robust_sigma
from assay.records.units import format_share

Floats = NDArray[np.float64]

CHANCE = 0.001  # expected number of healthy links of a fabric that look as bad
MIN_LOSS = 0.10  # of a link; adapters of equal hosts differ by some percent
SIGMA_FLOOR = 0.005  # relative; no bandwidth is known more precisely
MIN_PAIRS = 3  # pairs that cross a suspect; a single slow pair has many possible causes
# A link that is 1000 times less likely to be slow than another is not an alternative to it.
MAX_GAIN_GAP = math.log(1000)
MAX_GAIN_OF_PAIR = 8.0  # gain of one pair at most, so that one outlier decides nothing
MEDIAN_ERROR = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean
MAX_SUSPECTS = 32


@dataclass(frozen=True)
class Suspect:
    """A slow link, or several links of which one is slow."""

    links: tuple[int, ...]
    effect: float  # logarithm of the link's rate over that of the others
    z: float  # the effect in standard deviations
    chance: float  # expected number of healthy links of the fabric that look as bad
    pairs: int  # pairs that cross the first of the links
    slow: int  # of these, pairs that lost at least half of the effect


def find_slow_links(crossed: NDArray[np.integer], value: Floats, links: int) -> list[Suspect]:
    """The slow links, the surest first.

    ``crossed`` [pairs, hops]: directed links of each pair, padded with -1; ``value`` [pairs]: logarithm of bandwidth.
    """
    model = _Model(crossed, value, links)
    suspects: list[Suspect] = []
    while len(suspects) < MAX_SUSPECTS and (suspect := model.next_suspect()) is not None:
        suspects.append(suspect)
    return suspects


class _Model:
    def __init__(self, crossed: NDArray[np.integer], value: Floats, links: int) -> None:
        self.pair, hop = np.nonzero(crossed != PAD)
        self.link = crossed[self.pair, hop].astype(np.int64)
        self.size = np.bincount(self.link, minlength=links)
        self.start = np.cumsum(self.size) - self.size
        self.residual = np.asarray(value, np.float64) - (median(value) if len(value) else 0.0)
        self.sigma = max(robust_sigma(self.residual), SIGMA_FLOOR) if len(value) else 1.0
        self.crossed_links = int((self.size > 0).sum())
        self.reported: set[int] = set()

    def next_suspect(self) -> Suspect | None:
        """The next suspect; None if there is no more. Subtracts the suspect's effect from its pairs."""
        effect = np.minimum(self._medians(), 0.0)
        gain = self._gain(effect)
        gain[list(self.reported)] = -np.inf
        eligible = (self.size >= MIN_PAIRS) & (effect < math.log1p(-MIN_LOSS))
        if not eligible.any():
            return None
        # Gains of links whose pairs are all slow may be equal, since each pair's is capped.
        surest = np.flatnonzero(eligible & (gain == gain[eligible].max()))
        best = int(surest[effect[surest].argmin()])
        suspect = self._assess(best, float(effect[best]))
        if gain[best] <= 0 or suspect.chance > CHANCE:
            return None
        pairs = self.pair[self.link == best]
        self.residual[pairs] -= effect[best]
        alternatives = self._alternatives(best, effect, gain, pairs)
        self.reported.update((best, *alternatives))
        return Suspect(
            (best, *alternatives), suspect.effect, suspect.z, suspect.chance, suspect.pairs, suspect.slow
        )

    def _medians(self) -> Floats:
        """[links] median residual of the pairs that cross a link, 0 if no pair does."""
        order = np.lexsort((self.residual[self.pair], self.link))
        value = self.residual[self.pair[order]]
        if not len(value):
            return np.zeros(len(self.size))
        last = np.maximum(self.start + self.size - 1, 0)
        low = np.minimum(self.start + np.maximum(self.size - 1, 0) // 2, last)
        high = np.minimum(self.start + self.size // 2, last)
        return np.where(self.size > 0, (value[low] + value[high]) / 2, 0.0)

    def _gain(self, effect: Floats) -> Floats:
        """[links] the logarithm of the likelihood ratio of a slow link and a healthy one."""
        value, shift = self.residual[self.pair], effect[self.link]
        ratio = shift * (2 * value - shift) / (2 * self.sigma**2)
        return np.bincount(
            self.link, np.clip(ratio, -MAX_GAIN_OF_PAIR, MAX_GAIN_OF_PAIR), len(self.size)
        ).astype(np.float64)

    def _assess(self, link: int, effect: float) -> Suspect:
        from scipy.special import bdtrc, ndtr  # slow to import, rarely needed

        count = int(self.size[link])
        slow = int((self.residual[self.pair[self.link == link]] < effect / 2).sum())
        others = len(self.residual) - count
        slow_share_elsewhere = (float((self.residual < effect / 2).sum() - slow) + 0.5) / (others + 1)
        z = effect * math.sqrt(count) / (self.sigma * MEDIAN_ERROR)
        probability = max(float(ndtr(z)), float(bdtrc(slow - 1, count, min(slow_share_elsewhere, 1.0))))
        return Suspect((link,), effect, z, self.crossed_links * probability, count, slow)

    def _alternatives(self, best: int, effect: Floats, gain: Floats, pairs: Ints) -> list[int]:
        """Links with about the gain of the best link, most of whose pairs also cross the best link."""
        similar = np.flatnonzero((gain > gain[best] - MAX_GAIN_GAP) & (effect < math.log1p(-MIN_LOSS)))
        similar = similar[(similar != best) & (self.size[similar] > 0)]
        is_explained = np.zeros(len(self.residual), np.bool_)
        is_explained[pairs] = True
        return [
            int(link) for link in similar
            if is_explained[self.pair[self.link == link]].mean() > 0.5 and int(link) not in self.reported
        ]  # fmt: skip


def separating(routes: Routes, links: tuple[int, ...], hosts: NDArray[np.integer]) -> list[tuple[int, int]]:
    """For each of ``links`` a pair of ``hosts`` (end ports of different machines) whose route crosses it and none of
    the others, on one rail if there is one; (-1, -1) where there is no such pair."""
    link_numbers = np.array(links)
    suspects = [(-1, -1)] * len(links)
    machines = np.array(routes.fabric.hosts_of_ports)
    rails = np.array([routes.fabric.device_of(port) for port in range(routes.fabric.hosts)])
    for src in hosts:
        others = hosts[(hosts != src) & ((machines[hosts] != machines[src]) | (machines[hosts] == ""))]
        others = others[routes.arrives(np.full(len(others), src), others)]
        others = others[np.argsort(rails[others] != rails[src], kind="stable")]
        crossed = routes.links(np.full(len(others), src), others)
        crosses = (crossed[:, :, None] == link_numbers).any(axis=1)
        crosses_only = crosses & (crosses.sum(axis=1) == 1)[:, None]
        for number in np.flatnonzero(crosses_only.any(axis=0)):
            if suspects[number] == (-1, -1):
                suspects[number] = (int(src), int(others[crosses_only[:, number].argmax()]))
        if (-1, -1) not in suspects:
            break
    return suspects


def contention(crossed: NDArray[np.integer], step: NDArray[np.integer]) -> Floats:
    """[pairs] the loss of each pair by conflicts on a healthy fabric: the logarithm of the number of pairs of the same
    ``step`` on its fullest link."""
    if not len(crossed):
        return np.zeros(0)
    links = int(crossed.max(initial=0)) + 1
    key = np.where(crossed != PAD, step[:, None].astype(np.int64) * links + crossed, -1)
    _, inverse = np.unique(key, return_inverse=True)
    load = np.bincount(inverse.ravel())[inverse].reshape(key.shape)
    fullest = np.where(crossed != PAD, load, 1).max(axis=1)
    return np.asarray(np.log(fullest), np.float64)


def finding(
    routes: Routes, suspect: Suspect, hosts: NDArray[np.integer], measured: set[tuple[int, int]]
) -> Finding:
    """The finding about a suspect. ``hosts`` took part in the run; ``measured``: their pairs with a value."""
    fabric = routes.fabric
    names = [fabric.link_name(link) for link in suspect.links]
    share = format_share(math.exp(suspect.effect))
    details = [
        f"{suspect.slow} of {suspect.pairs} pairs across {names[0]} lost at least half of that; "
        f"{-suspect.z:.0f} standard deviations",
    ]
    if len(names) == 1:
        cause = f"the link {names[0]} carries {share} of the rate of the others"
        details += _direction(routes, suspect.links[0])
    else:
        cause = f"one of {len(names)} links carries {share} of the rate of the others: {'; '.join(names)}"
        details += _separating_measurements(routes, suspect.links, hosts, measured)
    node = int(fabric.link_from[suspect.links[0]])
    return Finding(
        rule="slow_link",
        cause=cause,
        subject=Subject(device=names[0]) if node < fabric.switches else
        Subject(host=fabric.node_name(node), device=names[0]),
        side="transmit",
        severity="fault" if len(names) == 1 else "warning",
        effect=math.expm1(suspect.effect),
        confidence=0.95 if len(names) == 1 else 0.95 / len(names),
        details=details,
        fix="look at the error counters of both ports (perfquery), reseat the cable, then replace it",
    )  # fmt: skip


def _direction(routes: Routes, link: int) -> list[str]:
    fabric = routes.fabric
    lines = [
        f"the direction from {fabric.node_name(int(fabric.link_from[link]))} is slow; the cable is shared"
    ]
    if not fabric.between_switches[link]:
        lines.append(
            "the cable, the adapter and the host itself have the same pairs: no pair tells them apart"
        )
    return lines


def _separating_measurements(
    routes: Routes, links: tuple[int, ...], hosts: NDArray[np.integer], measured: set[tuple[int, int]]
) -> list[str]:
    """For each link the measurement that would tell whether it is the slow one."""
    names, lines = routes.fabric.host_names, []
    for link, (src, dst) in zip(links, separating(routes, links, hosts), strict=True):
        name = routes.fabric.link_name(link)
        if src < 0:
            lines.append(f"no pair of these hosts crosses {name} without the others")
        else:
            action = "measure again, for longer: " if (src, dst) in measured else "measure "
            lines.append(f"{action}{names[src]} -> {names[dst]}: of these links it crosses {name} alone")
    return lines
