"""A search for an exchange in as few steps as the fullest link allows, on any routes.

A cell says that a host of a leaf sends to a rank. A step is a set of cells that obeys capacities: a leaf sends as much
as it has hosts, a rank receives once, a link between switches carries one flow. Steps are taken one after another, each
an integer programme (HiGHS) with a constraint for each leaf, rank and link: not more than its capacity, and at least
what would otherwise no longer fit the steps that remain. The objective prefers cells whose leaf, rank and links have
the least slack. Where no such step exists, one step more is allowed for the rest.
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
GAPS = (
    0.5,
    0.1,
    0.02,
)  # of a step's objective to its optimum, one search each: the first is fast, and often enough
NOISE = 1e-3  # of a weight, so that equal cells do not all move together
SAMPLE, MIN_CELLS = 0.3, 1000  # of the cells without need that a step is chosen from, and their least number
INFEASIBLE = 2  # SciPy's status


@dataclass(frozen=True)
class Cells:
    """``uses`` [resources, cells]: 1 where a cell occupies a leaf, a rank or a link; ``capacity`` of each in a step;
    ``demand`` [cells] flows."""

    uses: csr_array
    capacity: Floats
    demand: Counts

    def bound(self) -> int:
        """The least number of steps that the capacities allow."""
        return int(np.ceil((self.uses @ self.demand) / self.capacity).max(initial=0))


def cells_of(senders: Counts, leaf_of_rank: NDArray[np.integer], paths: NDArray[np.integer]) -> Cells:
    """``senders`` [G] hosts of each leaf, ``own`` [N] the leaf of a rank, ``paths`` [G, N, hops] links, padded with
    -1. Nobody sends to itself."""
    from scipy.sparse import csr_array  # slow to import, rarely needed

    leaves, ranks = paths.shape[:2]
    demand = np.broadcast_to(senders[:, None], (leaves, ranks)).copy()
    demand[leaf_of_rank, np.arange(ranks)] -= 1
    cell, hop = np.nonzero(paths.reshape(leaves * ranks, -1) >= 0)
    used, link = np.unique(paths.reshape(leaves * ranks, -1)[cell, hop], return_inverse=True)
    each = np.arange(leaves * ranks)
    rows = np.concatenate([each // ranks, leaves + each % ranks, leaves + ranks + link])
    columns = np.concatenate([each, each, cell])
    shape = (leaves + ranks + len(used), leaves * ranks)
    uses = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    capacity = np.concatenate([senders, np.ones(ranks + len(used))]).astype(np.float64)
    return Cells(uses, capacity, demand.ravel())


def plan(cells: Cells, seconds: float) -> Plan:
    """[steps, cells]: each cell in as many steps as its demand, the shortest that is found in ``seconds``."""
    end = time.monotonic() + seconds
    best = _one_after_another(cells, GAPS[0], end)
    for gap in GAPS[1:]:
        if len(best) <= cells.bound() or time.monotonic() >= end:
            break
        best = min(best, _one_after_another(cells, gap, end), key=len)
    return best


def _one_after_another(cells: Cells, gap: float, end: float) -> Plan:
    """What is not planned at ``end`` goes into the first step with room."""
    open_demand = cells.demand.copy()
    random = np.random.default_rng(1)
    steps: list[Plan] = []
    remaining = cells.bound()
    while open_demand.any() and time.monotonic() < end:
        order = random.random(len(open_demand))
        step = _step(cells, open_demand, remaining, order, SAMPLE, gap, end)
        if step is not None and not step.any():
            step = _step(cells, open_demand, remaining, order, 1.0, gap, end)
        if step is None:
            break
        if step.any():
            steps.append(step)
            open_demand -= step
            remaining -= 1
        else:
            remaining += 1
    partial = np.array(steps, np.bool_).reshape(-1, len(open_demand))
    return _filled(cells, partial, open_demand) if open_demand.any() else partial


def _step(
    cells: Cells, open_demand: Counts, remaining: int, order: Floats, sample: float, gap: float, end: float
) -> Plan | None:
    """A step after which the rest fits ``remaining`` - 1 steps by its capacities; empty where there is none among
    the cells that must be in it and the first share ``sample`` of the others, None where the time is over."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, rarely needed

    load = cells.uses @ open_demand
    least = np.maximum(load - (remaining - 1) * cells.capacity, 0)
    if (least > cells.capacity).any():
        return np.zeros(len(open_demand), np.bool_)
    is_tight = (least > 0) @ cells.uses > 0
    tried = np.flatnonzero(
        (open_demand > 0) & (is_tight | (order < max(sample, MIN_CELLS / len(open_demand))))
    )
    weight = ((load / cells.capacity / max(remaining, 1)) ** SLACK_POWER) @ cells.uses + NOISE * order
    result = milp(
        -weight[tried],
        constraints=LinearConstraint(cells.uses[:, tried], least, cells.capacity),
        integrality=np.ones(len(tried)),
        bounds=Bounds(0, 1),
        options={"time_limit": max(end - time.monotonic(), 0.01), "mip_rel_gap": gap},
    )
    step = np.zeros(len(open_demand), np.bool_)
    if result.x is not None:
        step[tried] = result.x > 0.5
    elif result.status != INFEASIBLE:
        return None
    return step


def _filled(cells: Cells, partial: Plan, open_demand: Counts) -> Plan:
    """The rest: each flow in the first step with room, those of the fullest resources first."""
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
