"""Finds the sides of hosts that lose packets: a sparse fit to the hosts' counts of lost segments.

A segment passes the transmit side of one host and the receive side of another. Every side loses the same usual share of
its segments, and a few sides lose more. A count is the sum over the sides that its segments pass. Orthogonal least
squares (Chen, Billings and Luo 1989) adds one side after the other, each time the side that improves the weighted fit
most, until none improves it enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.records.statistics import median

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

# Relative errors of the counts. A retransmitted segment is a lost one, but senders share their time unevenly among
# their receivers. The number of segments out of order depends on the length of the window, which differs between pairs.
RETRANSMITTED_ERROR, OUT_OF_ORDER_ERROR = 0.3, 0.6
OVERDISPERSION = 2.0  # variance of a count over its mean: losses come in bursts
MIN_SCORE = 12.0  # squared error that a side must explain, in variances: 3.5 standard deviations
ROUNDS = 3  # the weights depend on the fit; they change little after this many rounds

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


def fit_hosts(flow: csr_array, retransmitted: Floats, out_of_order: Floats, max_sides: int) -> LossShares:
    """Fits the counts of hosts.

    ``flow``: segments from each host to each, shape (hosts, hosts). ``retransmitted``, ``out_of_order``: lost segments
    by host, counted as sender and as receiver; their sums are equal. A lossy transmit side raises ``retransmitted`` of
    its host and ``out_of_order`` of each receiver; a lossy receive side raises ``out_of_order`` of its host and
    ``retransmitted`` of each sender.
    """
    from scipy.sparse import block_array, csc_array, diags_array  # slow to import, rarely needed

    sent, received = flow.sum(axis=1), flow.sum(axis=0)
    all_sides = np.concatenate([sent, received])[:, None]
    sides = block_array([[diags_array(sent), flow], [flow.T, diags_array(received)]])
    relative_errors = np.repeat([RETRANSMITTED_ERROR, OUT_OF_ORDER_ERROR], len(retransmitted))
    # The lowest share is free of the losses that are sought; later fits raise it.
    usual = float(np.min(retransmitted / np.maximum(1.0, sent)))
    columns = csc_array(block_array([[all_sides, sides]]))
    shares_by_column = _fit(
        columns, np.concatenate([retransmitted, out_of_order]), relative_errors, usual, max_sides
    )
    return _by_side(flow, shares_by_column)


def fit_pairs(flow: csr_array, retransmitted: csr_array, max_sides: int) -> LossShares:
    """Fits the counts of pairs. ``flow``, ``retransmitted``: segments from each host to each, shape (hosts, hosts). A
    lossy transmit side raises the counts of its row, a lossy receive side those of its column. A lossy pair raises its
    own count."""
    from scipy.sparse import coo_array, csc_array  # slow to import, rarely needed

    cells, hosts = flow.tocoo(), flow.shape[0]
    pair = np.arange(cells.nnz)
    column = np.concatenate([0 * pair, 1 + cells.row, 1 + hosts + cells.col, 1 + 2 * hosts + pair])
    shape = (cells.nnz, 1 + 2 * hosts + cells.nnz)
    columns = csc_array(coo_array((np.tile(cells.data, 4), (np.tile(pair, 4), column)), shape))
    counts = retransmitted.tocsr()[cells.row, cells.col].astype(float)
    usual = median(counts / cells.data)
    shares_by_column = _fit(columns, counts, np.full(cells.nnz, RETRANSMITTED_ERROR), usual, max_sides)
    ends = list(zip(cells.row.tolist(), cells.col.tolist(), strict=True))
    return _by_side(flow, shares_by_column, ends)


def _by_side(
    flow: csr_array, shares_by_column: dict[int, float], ends: Sequence[tuple[int, int]] = ()
) -> LossShares:
    """Assigns the columns of a fit: all sides, transmit of each host, receive of each host, pairs with these ends."""
    hosts, usual = flow.shape[0], shares_by_column.pop(0)
    return LossShares(
        flow,
        usual,
        {k - 1: usual + share for k, share in shares_by_column.items() if k <= hosts},
        {k - 1 - hosts: usual + share for k, share in shares_by_column.items() if hosts < k <= 2 * hosts},
        {ends[k - 1 - 2 * hosts]: usual + share for k, share in shares_by_column.items() if k > 2 * hosts},
    )


def _fit(
    columns: csc_array, counts: Floats, relative_errors: Floats, usual: float, max_columns: int
) -> dict[int, float]:
    """Returns the lost share of each chosen column; the first is always chosen.

    ``columns`` [count, column]: each count if the column's side lost every segment; of the first column, if all sides
    did. ``counts``, ``relative_errors`` [count]. ``usual``: a first guess at the share of the first column.
    ``max_columns``: the most columns to choose besides the first.
    """
    chosen = [0]
    shares = np.array([usual])
    while len(chosen) <= max_columns:
        scores = _scores(columns, chosen, shares, counts, relative_errors)
        best = int(np.argmax(scores))
        if scores[best] < MIN_SCORE:
            break
        chosen.append(best)
        shares = _shares(columns, chosen, counts, relative_errors)
    # A column may be superfluous once later ones are chosen.
    for column in chosen[1:]:
        others = [other for other in chosen if other != column]
        without = _shares(columns, others, counts, relative_errors)
        if _scores(columns, others, without, counts, relative_errors)[column] < MIN_SCORE:
            chosen, shares = others, without
    return dict(zip(chosen, shares.tolist(), strict=True))


def _scores(
    columns: csc_array, chosen: list[int], shares: Floats, counts: Floats, relative_errors: Floats
) -> Floats:
    """Returns for each column how much of the squared error it explains, with the chosen ones fitted again."""
    from scipy.sparse import diags_array  # slow to import, rarely needed

    fitted = columns[:, chosen] @ shares
    root = np.sqrt(_weights(fitted, relative_errors))
    columns = (diags_array(root) @ columns).tocsc()
    basis, _ = np.linalg.qr(columns[:, chosen].toarray())
    residual = (counts - fitted) * root
    gradient = columns.T @ (residual - basis @ (basis.T @ residual))
    squared_norms = columns.power(2).sum(axis=0)
    independent = squared_norms - ((columns.T @ basis) ** 2).sum(axis=1)
    usable = (gradient > 0) & (independent > 1e-6 * squared_norms)
    scores: Floats = np.divide(gradient**2, independent, out=np.zeros_like(gradient), where=usable)
    scores[chosen] = 0.0
    return scores


def _shares(columns: csc_array, chosen: list[int], counts: Floats, relative_errors: Floats) -> Floats:
    """Returns the shares of the chosen columns, none negative."""
    from scipy.optimize import nnls  # slow to import, rarely needed

    dense = columns[:, chosen].toarray()
    fitted, shares = counts, np.empty(0)
    for _ in range(ROUNDS):
        root = np.sqrt(_weights(fitted, relative_errors))
        shares, _ = nnls(dense * root[:, None], counts * root)
        fitted = dense @ shares
    return shares


def _weights(fitted: Floats, relative_errors: Floats) -> Floats:
    """The inverse variance of each count."""
    return 1 / (OVERDISPERSION * np.maximum(1.0, fitted) + (relative_errors * fitted) ** 2)
