"""Which sides of which hosts lose packets: a sparse fit to each host's counts.

Two counts are known of each host: the segments that it sent again, and those that arrived there behind a gap. A host
that loses a share of what it sends raises its own first count and the second of each of its receivers; one that loses
what it receives raises its own second count and the first of each of its senders. So the counts are a sum over the
sides that lose, and few sides lose more than the usual share. Orthogonal least squares (Chen, Billings and Luo 1989)
adds one side after the other: each time that which improves the weighted fit most, until none improves it enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

# Relative errors of the two counts. Segments sent again are lost segments, but senders share their time unevenly.
# The segments behind a gap are as many as the window is long, which differs between pairs.
AGAIN_ERROR, BEHIND_ERROR = 0.3, 0.6
OVERDISPERSION = 2.0  # variance of a count over its mean: losses come in bursts
MIN_SCORE = 12.0  # squared error that a side must explain, in variances: 3.5 standard deviations
ROUNDS = 3  # the weights depend on the fit; they change little after so many

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossShares:
    """``usual``: the share of segments that every side loses. ``transmit``, ``receive``: by index of the host, the
    share that this side loses, the usual share included."""

    usual: float
    transmit: dict[int, float]
    receive: dict[int, float]


def fit_losses(flow: csr_array, again: Floats, behind: Floats, max_sides: int) -> LossShares:
    """Fits the shares that explain the counts.

    ``flow``: segments from each host to each, shape (hosts, hosts). ``again``, ``behind``: lost segments by host, as
    its repetitions and as the gaps at it show them; their sums are equal.
    """
    hosts = len(again)
    sides = _counts_of_a_side(flow)
    passed = sides[:, [2 * hosts]].toarray().ravel()
    counts = np.concatenate([again, behind])
    relative = np.repeat([AGAIN_ERROR, BEHIND_ERROR], hosts)
    chosen = [2 * hosts]
    # The lowest share is free of the losses that are sought; later fits raise it.
    shares = np.array([np.min(again / np.maximum(1.0, passed[:hosts]))])
    weights = _weights(passed * shares[0], relative)
    while len(chosen) <= max_sides:
        side = _best_side(sides, chosen, counts - sides[:, chosen] @ shares, weights)
        if side is None:
            break
        chosen.append(side)
        shares, weights = _refit(sides[:, chosen].toarray(), counts, weights, relative)
    usual = float(shares[0])
    found = {side: usual + float(share) for side, share in zip(chosen[1:], shares[1:], strict=True)}
    return LossShares(
        usual,
        {side: share for side, share in found.items() if side < hosts},
        {side - hosts: share for side, share in found.items() if side >= hosts},
    )


def _counts_of_a_side(flow: csr_array) -> csc_array:
    """Returns the counts if one side lost everything; columns: transmit of each host, receive of each, every host."""
    from scipy.sparse import block_array, csc_array, diags_array  # slow to import, rarely needed

    sent, received = flow.sum(axis=1), flow.sum(axis=0)
    every = np.concatenate([sent, received])[:, None]
    one = block_array([[diags_array(sent), flow], [flow.T, diags_array(received)]])
    return csc_array(block_array([[one, every]]))


def _weights(fitted: Floats, relative: Floats) -> Floats:
    return 1 / (OVERDISPERSION * np.maximum(1.0, fitted) + (relative * fitted) ** 2)


def _best_side(sides: csc_array, chosen: list[int], residual: Floats, weights: Floats) -> int | None:
    """Returns the side that explains most of the residual after the chosen ones are fitted again; None if it is too
    little."""
    from scipy.sparse import diags_array  # slow to import, rarely needed

    root = np.sqrt(weights)
    columns = (diags_array(root) @ sides).tocsc()
    basis, _ = np.linalg.qr(columns[:, chosen].toarray())
    residual = residual * root
    gradient = columns.T @ (residual - basis @ (basis.T @ residual))
    whole = columns.power(2).sum(axis=0)
    independent = whole - ((columns.T @ basis) ** 2).sum(axis=1)
    usable = (gradient > 0) & (independent > 1e-6 * whole)
    scores = np.divide(gradient**2, independent, out=np.zeros_like(gradient), where=usable)
    scores[chosen] = 0.0
    best = int(np.argmax(scores))
    return best if scores[best] >= MIN_SCORE else None


def _refit(columns: Floats, counts: Floats, weights: Floats, relative: Floats) -> tuple[Floats, Floats]:
    """Returns the shares of ``columns``, none negative, and the weights of that fit."""
    from scipy.optimize import nnls  # slow to import, rarely needed

    shares = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        shares, _ = nnls(columns * root[:, None], counts * root)
        weights = _weights(columns @ shares, relative)
    return shares, weights
