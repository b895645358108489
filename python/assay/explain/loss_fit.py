"""Which sides of which hosts lose packets: a sparse fit to what the hosts counted.

A count is a sum over the sides of hosts that segments pass: each side loses a share of them, all the same usual share,
and few lose more. Orthogonal least squares (Chen, Billings and Luo 1989) adds one side after the other: each time that
which improves the weighted fit most, until none improves it enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

# Relative errors of the counts. Segments sent again are lost segments, but senders share their time unevenly among
# their receivers. The segments behind a gap are as many as the window is long, which differs between pairs.
AGAIN_ERROR, BEHIND_ERROR = 0.3, 0.6
OVERDISPERSION = 2.0  # variance of a count over its mean: losses come in bursts
MIN_SCORE = 12.0  # squared error that a side must explain, in variances: 3.5 standard deviations
ROUNDS = 3  # the weights depend on the fit; they change little after so many

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LossShares:
    """``flow``: segments from each host to each. ``usual``: the share of segments that every side loses.

    ``transmit``, ``receive``: by index of the host, the share that this side loses, the usual share included.
    ``pairs``: the same by indices of sender and receiver, of single pairs that lose more than their sides explain.
    """

    flow: csr_array
    usual: float
    transmit: dict[int, float]
    receive: dict[int, float]
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)


def fit_hosts(flow: csr_array, again: Floats, behind: Floats, max_sides: int) -> LossShares:
    """Fits the counts of hosts.

    ``flow``: segments from each host to each, shape (hosts, hosts). ``again``, ``behind``: lost segments by host, as
    its repetitions and as the gaps at it show them; their sums are equal. A side that sends raises its host's first
    count and the second of each receiver; one that receives its host's second and the first of each sender.
    """
    from scipy.sparse import block_array, csc_array, diags_array  # slow to import, rarely needed

    sent, received = flow.sum(axis=1), flow.sum(axis=0)
    every = np.concatenate([sent, received])[:, None]
    sides = block_array([[diags_array(sent), flow], [flow.T, diags_array(received)]])
    relative = np.repeat([AGAIN_ERROR, BEHIND_ERROR], len(again))
    # The lowest share is free of the losses that are sought; later fits raise it.
    usual = float(np.min(again / np.maximum(1.0, sent)))
    columns = csc_array(block_array([[every, sides]]))
    found = _fit(columns, np.concatenate([again, behind]), relative, usual, max_sides)
    return _by_side(flow, found)


def fit_pairs(flow: csr_array, again: csr_array, max_sides: int) -> LossShares:
    """Fits the counts of pairs. ``flow``, ``again``: segments from each host to each, and those sent again, shape
    (hosts, hosts). The side that sends raises the counts of its row, the one that receives those of its column. A
    single pair raises its own count."""
    from scipy.sparse import coo_array, csc_array  # slow to import, rarely needed

    cells, hosts = flow.tocoo(), flow.shape[0]
    pair = np.arange(cells.nnz)
    column = np.concatenate([0 * pair, 1 + cells.row, 1 + hosts + cells.col, 1 + 2 * hosts + pair])
    shape = (cells.nnz, 1 + 2 * hosts + cells.nnz)
    columns = csc_array(coo_array((np.tile(cells.data, 4), (np.tile(pair, 4), column)), shape))
    counts = again.tocsr()[cells.row, cells.col].astype(float)
    usual = float(np.median(counts / cells.data))
    found = _fit(columns, counts, np.full(cells.nnz, AGAIN_ERROR), usual, max_sides)
    ends = list(zip(cells.row.tolist(), cells.col.tolist(), strict=True))
    return _by_side(flow, found, ends)


def _by_side(flow: csr_array, found: dict[int, float], ends: Sequence[tuple[int, int]] = ()) -> LossShares:
    """Names the columns of a fit: all, transmit of each host, receive of each, pairs with these ends."""
    hosts, usual = flow.shape[0], found.pop(0)
    return LossShares(
        flow,
        usual,
        {k - 1: usual + share for k, share in found.items() if k <= hosts},
        {k - 1 - hosts: usual + share for k, share in found.items() if hosts < k <= 2 * hosts},
        {ends[k - 1 - 2 * hosts]: usual + share for k, share in found.items() if k > 2 * hosts},
    )


def _fit(columns: csc_array, counts: Floats, relative: Floats, usual: float, most: int) -> dict[int, float]:
    """Returns the share of each chosen column; the first is always chosen.

    ``columns``: what each count would be if one side lost everything; of the first column, if every side did.
    ``usual``: a first guess at its share. ``most``: columns to choose beside it.
    """
    chosen = [0]
    shares = np.array([usual])
    while len(chosen) <= most:
        scores = _scores(columns, chosen, shares, counts, relative)
        best = int(np.argmax(scores))
        if scores[best] < MIN_SCORE:
            break
        chosen.append(best)
        shares = _shares(columns, chosen, counts, relative)
    # Later columns may explain what an early one was chosen for.
    for column in chosen[1:]:
        rest = [other for other in chosen if other != column]
        without = _shares(columns, rest, counts, relative)
        if _scores(columns, rest, without, counts, relative)[column] < MIN_SCORE:
            chosen, shares = rest, without
    return dict(zip(chosen, shares.tolist(), strict=True))


def _scores(
    columns: csc_array, chosen: list[int], shares: Floats, counts: Floats, relative: Floats
) -> Floats:
    """Returns for each column how much of the squared error it explains, with the chosen ones fitted again."""
    from scipy.sparse import diags_array  # slow to import, rarely needed

    fitted = columns[:, chosen] @ shares
    root = np.sqrt(_weights(fitted, relative))
    columns = (diags_array(root) @ columns).tocsc()
    basis, _ = np.linalg.qr(columns[:, chosen].toarray())
    residual = (counts - fitted) * root
    gradient = columns.T @ (residual - basis @ (basis.T @ residual))
    whole = columns.power(2).sum(axis=0)
    independent = whole - ((columns.T @ basis) ** 2).sum(axis=1)
    usable = (gradient > 0) & (independent > 1e-6 * whole)
    scores: Floats = np.divide(gradient**2, independent, out=np.zeros_like(gradient), where=usable)
    scores[chosen] = 0.0
    return scores


def _shares(columns: csc_array, chosen: list[int], counts: Floats, relative: Floats) -> Floats:
    """Returns the shares of the chosen columns, none negative."""
    from scipy.optimize import nnls  # slow to import, rarely needed

    dense = columns[:, chosen].toarray()
    fitted, shares = counts, np.empty(0)
    for _ in range(ROUNDS):
        root = np.sqrt(_weights(fitted, relative))
        shares, _ = nnls(dense * root[:, None], counts * root)
        fitted = dense @ shares
    return shares


def _weights(fitted: Floats, relative: Floats) -> Floats:
    return 1 / (OVERDISPERSION * np.maximum(1.0, fitted) + (relative * fitted) ** 2)
