"""A search for an exchange in as few steps as the fullest link allows, on any routes.

A cell is a flow from any host of a leaf to a rank. A step is a set of cells that obeys capacities: a leaf sends at most
one flow for each of its hosts, a rank receives one flow, a link between switches carries one flow. Steps are computed
one after another, each by an integer programme (HiGHS) with two constraints for each leaf, rank and link: at most its
capacity, and at least the flows that would not fit the remaining steps. The objective prefers cells whose leaf, rank
and links have the least slack. Where no such step exists, one more step is allowed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Counts = NDArray[np.int64]
Plan = NDArray[np.bool_]
Floats = NDArray[np.float64]

SLACK_POWER = 4  # the smaller the slack, the larger the weight; the search ends soonest with about this
# Relative gap between a step's objective and its optimum. A search is made for each value; the first is fast, and often
# enough.
GAPS = (0.5, 0.1, 0.02)
NOISE = 1e-3  # of a weight, so that equal cells do not all move together
SAMPLE, MIN_CELLS = 0.3, 1000  # share, and least number, of the optional cells that a step is chosen from
INFEASIBLE = 2  # SciPy's status


@dataclass(frozen=True)
class Cells:
    """The cells of an exchange. Resources are leaves, ranks and links."""

    uses: csr_array  # [resources, cells] 1 where a cell occupies the resource
    capacity: Floats  # [resources] flows in a step
    demand: Counts  # [cells] flows in the whole exchange

    def bound(self) -> int:
        """The least number of steps that the capacities allow."""
        return int(np.ceil((self.uses @ self.demand) / self.capacity).max(initial=0))


def cells_of(senders: Counts, leaf_of_rank: NDArray[np.integer], paths: NDArray[np.integer]) -> Cells:
    """``senders`` [G]: hosts of each leaf; ``leaf_of_rank`` [N]; ``paths`` [G, N, hops]: links, padded with -1. No rank
    sends to itself."""
    from scipy.sparse import csr_array  # slow to import, rarely needed

    leaves, ranks = paths.shape[:2]
    demand = np.broadcast_to(senders[:, None], (leaves, ranks)).copy()
    demand[leaf_of_rank, np.arange(ranks)] -= 1
    cell, hop = np.nonzero(paths.reshape(leaves * ranks, -1) >= 0)
    used, link = np.unique(paths.reshape(leaves * ranks, -1)[cell, hop], return_inverse=True)
    cells = np.arange(leaves * ranks)
    rows = np.concatenate([cells // ranks, leaves + cells % ranks, leaves + ranks + link])
    columns = np.concatenate([cells, cells, cell])
    shape = (leaves + ranks + len(used), leaves * ranks)
    uses = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    capacity = np.concatenate([senders, np.ones(ranks + len(used))]).astype(np.float64)
    return Cells(uses, capacity, demand.ravel())


def plan(cells: Cells, seconds: float) -> Plan:
    """[steps, cells]: the shortest plan found in ``seconds``; each cell is in as many steps as its demand."""
    end = time.monotonic() + seconds
    best = _plan_steps(cells, GAPS[0], end)
    for gap in GAPS[1:]:
        if len(best) <= cells.bound() or time.monotonic() >= end:
            break
        best = min(best, _plan_steps(cells, gap, end), key=len)
    return best


def _plan_steps(cells: Cells, gap: float, end: float) -> Plan:
    """A plan, step by step. Flows that are not planned at time ``end`` are placed in the first step with room."""
    open_demand = cells.demand.copy()
    random = np.random.default_rng(1)
    steps: list[Plan] = []
    remaining = cells.bound()
    while open_demand.any() and time.monotonic() < end:
        order = random.random(len(open_demand))
        step = _next_step(cells, open_demand, remaining, order, SAMPLE, gap, end)
        if step is not None and not step.any():
            step = _next_step(cells, open_demand, remaining, order, 1.0, gap, end)
        if step is None:
            break
        if step.any():
            steps.append(step)
            open_demand -= step
            remaining -= 1
        else:
            remaining += 1
    partial = np.array(steps, np.bool_).reshape(-1, len(open_demand))
    return _place_remaining(cells, partial, open_demand) if open_demand.any() else partial


def _next_step(
    cells: Cells, open_demand: Counts, remaining: int, order: Floats, sample: float, gap: float, end: float
) -> Plan | None:
    """A step after which the open demand fits ``remaining`` - 1 steps by the capacities. It is chosen from the cells of
    resources without slack and a share ``sample`` of the others; empty if there is none, None if the time is over."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, rarely needed

    load = cells.uses @ open_demand
    lower = np.maximum(load - (remaining - 1) * cells.capacity, 0)
    if (lower > cells.capacity).any():
        return np.zeros(len(open_demand), np.bool_)
    is_tight = (lower > 0) @ cells.uses > 0
    chosen = np.flatnonzero(
        (open_demand > 0) & (is_tight | (order < max(sample, MIN_CELLS / len(open_demand))))
    )
    weight = ((load / cells.capacity / max(remaining, 1)) ** SLACK_POWER) @ cells.uses + NOISE * order
    result = milp(
        -weight[chosen],
        constraints=LinearConstraint(cells.uses[:, chosen], lower, cells.capacity),
        integrality=np.ones(len(chosen)),
        bounds=Bounds(0, 1),
        options={"time_limit": max(end - time.monotonic(), 0.01), "mip_rel_gap": gap},
    )
    step = np.zeros(len(open_demand), np.bool_)
    if result.x is not None:
        step[chosen] = result.x > 0.5
    elif result.status != INFEASIBLE:
        return None
    return step


def _place_remaining(cells: Cells, partial: Plan, open_demand: Counts) -> Plan:
    """The plan with the open demand: each flow in the first step with room, those of the fullest resources first."""
    columns = cells.uses.tocsc()
    order = np.argsort(
        -((cells.uses @ open_demand / cells.capacity) ** SLACK_POWER @ cells.uses), kind="stable"
    )
    used = (cells.uses @ partial.T).T  # [steps, resources]
    for cell in order:
        resources = columns.indices[columns.indptr[cell] : columns.indptr[cell + 1]]
        for _ in range(int(open_demand[cell])):
            fits = (used[:, resources] < cells.capacity[resources]).all(axis=1) & ~partial[:, cell]
            if not fits.any():
                partial = np.concatenate([partial, np.zeros((1, partial.shape[1]), np.bool_)])
                used = np.concatenate([used, np.zeros((1, used.shape[1]))])
                fits = np.append(fits, True)
            step = int(fits.argmax())
            partial[step, cell] = True
            used[step, resources] += 1
    return partial
