"""A schedule of an all-to-all exchange on given routes, without conflicts, in as few steps as the fullest link allows.

Forwarding depends on the destination, so a step is planned between leaf switches and destinations first: how many hosts
of which leaf send to which destination. A step obeys capacities: a leaf sends at most one flow for each of its hosts, a
destination receives one flow, a link between switches carries one flow. The sets of flows that share a leaf or a first
link are nested, and so are the sets that share a destination or a last link that serves whole destinations. For two
nested families the constraints are those of a network flow, so a demand that fits T steps on average splits into T
steps that fit (Baum and Trotter, 1978): each step is a maximum flow with lower bounds, so that the remaining demand
fits the remaining steps.

Then each leaf's share is divided among its hosts: steps and destinations are a bipartite graph of equal degrees, which
splits into perfect matchings (Koenig, 1916), a matching for each host.

Where destinations share a last link, flows within a leaf would break the nesting: the other flows are planned first,
and those within leaves fill the gaps. Links that are not part of a nested family (middle links of three levels, last
links that a destination uses in part) are not planned: their surplus flows are removed from their steps, and placed in
the first step that has room, or in new steps. Where the result misses the lower bound, ``search`` looks for a shorter
exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.errors import UserError
from assay.fabric.remedies import search
from assay.fabric.routes import PAD, Routes
from assay.fabric.schedules import IDLE, Ints, Schedule, of_array

Counts = NDArray[np.int64]
MAX_CELLS = 1 << 30  # steps x leaves x ranks, a byte each: about 2,500 ranks of radix 36
SOURCE, SINK, FROM_LOWER, TO_LOWER, NODES = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class Demand:
    """An all-to-all exchange of N ranks on G leaf switches, in which no rank sends to itself."""

    leaf: Ints  # [N] the leaf of a rank, 0 .. G-1
    paths: Ints  # [G, N, hops] links between switches from a leaf to a rank, padded with -1
    links: int

    @property
    def ranks(self) -> int:
        return len(self.leaf)

    @property
    def senders(self) -> Counts:
        """[G] ranks on each leaf."""
        return np.bincount(self.leaf)

    def loads(self) -> Counts:
        """[links] flows of the whole exchange."""
        weights = np.broadcast_to(self.senders[:, None, None], self.paths.shape)
        crossed = self.paths >= 0
        return np.bincount(self.paths[crossed], weights[crossed], self.links).astype(np.int64)

    def bound(self) -> int:
        """The least number of steps: a rank's messages, or the flows of the fullest link."""
        return max(self.ranks - 1, int(self.loads().max(initial=0)))


def demand_of(routes: Routes, members: NDArray[np.integer]) -> Demand:
    """The exchange of the hosts ``members``, in rank order. Raises UserError where a route does not arrive."""
    members = np.asarray(members, np.int32)
    _, first, leaf = np.unique(routes.fabric.edge_of[members], return_index=True, return_inverse=True)
    source = np.repeat(members[first], len(members))
    target = np.tile(members, len(first))
    routes.require(source, target)
    paths = routes.between_switches(source, target).reshape(len(first), len(members), -1)
    return Demand(leaf.astype(np.int32), paths, routes.fabric.links)


def conflict_free(demand: Demand, seconds: float = 0.0) -> Schedule:
    """The shortest schedule found that has no conflict and each ordered pair of ranks exactly once.

    If the plan by network flows misses the lower bound, a search of ``seconds`` follows. Raises UserError for an
    exchange with more than MAX_CELLS cells.
    """
    if not fits(demand):
        raise UserError(
            f"an exchange of {demand.ranks} ranks is too large to be planned", "name fewer hosts with -w"
        )
    tables = [_planned_schedule(demand, separate_leaf_flows=False)]
    if len(tables[0]) > demand.bound() and len(_last_links(demand)[0]):
        tables.append(_planned_schedule(demand, separate_leaf_flows=True))
    if seconds > 0 and min(map(len, tables)) > demand.bound():
        tables.append(_found_schedule(demand, seconds))
    return of_array("conflict-free", min(tables, key=len))


def fits(demand: Demand) -> bool:
    """Whether the memory holds the plan of an exchange."""
    return bool(demand.bound() * demand.paths.shape[0] * demand.ranks <= MAX_CELLS)


def _found_schedule(demand: Demand, seconds: float) -> Ints:
    """[steps, N] destinations."""
    cells = search.cells_of(demand.senders, demand.leaf, demand.paths)
    return _assign_flows(demand, search.plan(cells, seconds).reshape(-1, *demand.paths.shape[:2]))


def _planned_schedule(demand: Demand, separate_leaf_flows: bool) -> Ints:
    """[steps, N] destinations. ``separate_leaf_flows``: flows within a leaf come after the others."""
    shares = _plan(demand, separate_leaf_flows)
    if not separate_leaf_flows:
        return _resolve_conflicts(demand, _assign_flows(demand, shares), [])
    table = np.full((len(shares), demand.ranks), IDLE, np.int32)
    local_flows: list[tuple[int, int]] = []
    for leaf in range(len(demand.senders)):
        ranks = np.flatnonzero(demand.leaf == leaf)
        table[:, ranks] = assign_destinations(shares[:, leaf], len(ranks))
        local_ranks = np.flatnonzero(demand.paths[leaf, :, 0] == PAD)
        local_flows += [(int(src), int(dst)) for src in ranks for dst in local_ranks if src != dst]
    return _resolve_conflicts(demand, table, local_flows)


def _assign_flows(demand: Demand, shares: NDArray[np.bool_]) -> Ints:
    """[steps, N] destinations of the ranks, from ``shares`` [steps, G, N]: whether a host of a leaf sends to a rank."""
    table = np.full((len(shares), demand.ranks), IDLE, np.int32)
    for leaf in range(len(demand.senders)):
        # One more step, in which each host sends to itself, tells which host a column belongs to.
        is_own_rank = demand.leaf == leaf
        columns = assign_destinations(
            np.concatenate([shares[:, leaf], is_own_rank[None]]), int(is_own_rank.sum())
        )
        table[:, columns[-1]] = columns[:-1]
    return table


def _plan(demand: Demand, separate_leaf_flows: bool) -> NDArray[np.bool_]:
    """[steps, G, N] whether a host of a leaf sends to a rank in a step."""
    network = _Network(demand, separate_leaf_flows)
    open_demand = np.broadcast_to(demand.senders[:, None], demand.paths.shape[:2]).copy()
    open_demand[demand.leaf, np.arange(demand.ranks)] -= 1
    if separate_leaf_flows:
        open_demand[demand.paths[:, :, 0] == PAD] = 0
    steps = network.bound(open_demand)
    plan = np.zeros((steps, *open_demand.shape), np.bool_)
    for step in range(steps):
        plan[step] = network.step(open_demand, steps - step)
        open_demand -= plan[step]
    assert not open_demand.any()
    return plan


class _Network:
    """The arcs of the flow: source, leaves, first links, destinations, last links, sink."""

    def __init__(self, demand: Demand, separate_leaf_flows: bool) -> None:
        self.senders = demand.senders
        leaves, ranks = demand.paths.shape[:2]
        self.first = demand.paths[:, :, 0]
        first_links, first_number = np.unique(self.first, return_inverse=True)
        self.last_links, self.last_of = np.zeros(0, np.int32), np.full(ranks, -1, np.int32)
        if separate_leaf_flows:
            self.last_links, self.last_of = _last_links(demand)
        leaf_node = NODES + np.arange(leaves)
        first_node = NODES + leaves + first_number.reshape(leaves, ranks)
        rank_node = NODES + leaves + len(first_links) + np.arange(ranks)
        last_node = NODES + leaves + len(first_links) + ranks + np.arange(len(self.last_links))
        self.size = NODES + leaves + len(first_links) + ranks + len(self.last_links)
        self.crosses = self.first != PAD
        # Groups: leaf, (leaf, first link), rank, last link. The members of a group are cells [leaf, rank].
        owner = np.where(self.crosses, np.arange(leaves)[:, None], -1)
        used_first_nodes, where = np.unique(first_node[self.crosses], return_index=True)
        self.group_from = np.concatenate([
            np.full(leaves, SOURCE),
            leaf_node[owner[self.crosses][where]],
            rank_node,
            last_node,
        ])  # fmt: skip
        after_rank = np.where(self.last_of >= 0, last_node[self.last_of] if len(last_node) else SINK, SINK)
        self.group_to = np.concatenate(
            [leaf_node, used_first_nodes, after_rank, np.full(len(last_node), SINK)]
        )
        self.capacity = np.concatenate(
            [self.senders, np.ones(len(used_first_nodes) + ranks + len(self.last_links), np.int64)]
        )
        self.first_group = np.zeros_like(first_node)
        self.first_group[self.crosses] = np.searchsorted(used_first_nodes, first_node[self.crosses])
        self.first_link_count = len(used_first_nodes)
        self.cell_from = np.where(self.crosses, first_node, leaf_node[:, None]).ravel()
        self.cell_to = np.broadcast_to(rank_node, (leaves, ranks)).ravel()

    def groups(self, open_demand: Counts) -> Counts:
        ranks = open_demand.sum(axis=0)
        last_links = np.bincount(
            self.last_of[self.last_of >= 0], ranks[self.last_of >= 0], len(self.last_links)
        )
        first_links = np.bincount(
            self.first_group[self.crosses], open_demand[self.crosses], self.first_link_count
        )
        return np.concatenate([open_demand.sum(axis=1), first_links, ranks, last_links]).astype(np.int64)

    def bound(self, open_demand: Counts) -> int:
        return int((-(-self.groups(open_demand) // self.capacity)).max())

    def step(self, open_demand: Counts, steps: int) -> NDArray[np.bool_]:
        """[G, N] the next step, such that the remaining demand fits ``steps`` - 1 steps: a flow with lower bounds."""
        from scipy.sparse import csr_array  # slow to import, rarely needed
        from scipy.sparse.csgraph import maximum_flow

        lower = np.maximum(self.groups(open_demand) - (steps - 1) * self.capacity, 0)
        bounded = np.flatnonzero(lower)
        cells = np.flatnonzero(open_demand.ravel() > 0)
        tails = [self.group_from, self.cell_from[cells], np.full(len(bounded), FROM_LOWER)]
        heads = [self.group_to, self.cell_to[cells], self.group_to[bounded]]
        sizes = [self.capacity - lower, np.ones(len(cells), np.int64), lower[bounded]]
        tails += [self.group_from[bounded], np.array([SINK])]
        heads += [np.full(len(bounded), TO_LOWER), np.array([SOURCE])]
        sizes += [lower[bounded], np.array([lower.sum() + self.senders.sum()])]
        shape = (self.size, self.size)
        arcs = (np.concatenate(tails), np.concatenate(heads))
        graph = csr_array((np.concatenate(sizes).astype(np.int32), arcs), shape=shape)
        graph.sum_duplicates()
        result = maximum_flow(graph, FROM_LOWER, TO_LOWER)
        assert result.flow_value == lower.sum()
        chosen = np.zeros(open_demand.size, np.bool_)
        chosen[cells] = np.asarray(result.flow[self.cell_from[cells], self.cell_to[cells]]).ravel() > 0
        return chosen.reshape(open_demand.shape)


def _last_links(demand: Demand) -> tuple[Ints, Ints]:
    """The last links that carry all flows of several destinations, and [N] the number of each rank's last link among
    them, -1 where it has none."""
    hops = (demand.paths >= 0).sum(axis=2)
    last = np.take_along_axis(demand.paths, np.maximum(hops - 1, 0)[:, :, None], axis=2)[:, :, 0]
    low = np.where(hops > 0, last, np.iinfo(np.int32).max).min(axis=0)
    is_whole = (np.where(hops > 0, last, -1).max(axis=0) == low) & (hops > 0).any(axis=0)
    partly = np.unique(last[:, ~is_whole][hops[:, ~is_whole] > 0])
    is_whole &= ~np.isin(low, partly)
    served = np.bincount(low[is_whole], minlength=demand.links)
    is_whole &= np.isin(low, np.flatnonzero(served > 1))
    last_links, number = np.unique(low[is_whole], return_inverse=True)
    last_of = np.full(demand.ranks, -1, np.int32)
    last_of[is_whole] = number
    return last_links.astype(np.int32), last_of


def assign_destinations(share: NDArray[np.bool_], hosts: int) -> Ints:
    """[steps, hosts] destinations of a leaf's hosts: each sends to every rank once, and to one rank a step at most.

    ``share`` [steps, N]: whether a host of the leaf sends to a rank; true in ``hosts`` steps or none for each rank, and
    for at most ``hosts`` ranks a step.
    """
    receivers = np.flatnonzero(share.any(axis=0))
    steps, ranks = len(share), len(receivers)
    open_demand = np.zeros((steps, steps), np.int32)
    open_demand[:, :ranks] = share[:, receivers]
    free = np.repeat(
        np.arange(steps), hosts - open_demand.sum(axis=1)
    )  # the columns after the receivers' are idle
    if len(free):
        np.add.at(open_demand, (free, ranks + np.arange(len(free)) % (steps - ranks)), 1)
    receivers = np.concatenate([receivers, np.full(steps - ranks, IDLE)])
    table = np.full((steps, hosts), IDLE, np.int32)
    for host in range(hosts):
        chosen = _perfect_matching(open_demand > 0)
        open_demand[np.arange(steps), chosen] -= 1
        table[:, host] = receivers[chosen]
    return table


def _perfect_matching(allowed: NDArray[np.bool_]) -> Ints:
    """[n] the column of each row, by a maximum flow: SciPy's own matching takes minutes on some of these graphs."""
    from scipy.sparse import csr_array  # slow to import, rarely needed
    from scipy.sparse.csgraph import maximum_flow

    size = len(allowed)
    row, column = np.nonzero(allowed)
    node = np.arange(size)
    tails = np.concatenate([np.zeros(size, np.int64), 2 + row, 2 + size + node])
    heads = np.concatenate([2 + node, 2 + size + column, np.ones(size, np.int64)])
    graph = csr_array((np.ones(len(tails), np.int32), (tails, heads)), shape=(2 * size + 2, 2 * size + 2))
    flow = maximum_flow(graph, 0, 1).flow.tocoo()
    is_matched = (flow.data > 0) & (flow.row >= 2) & (flow.row < 2 + size)
    assert is_matched.sum() == size
    chosen = np.empty(size, np.int32)
    chosen[flow.row[is_matched] - 2] = flow.col[is_matched] - 2 - size
    return chosen


def _resolve_conflicts(demand: Demand, table: Ints, missing: list[tuple[int, int]]) -> Ints:
    """Removes the surplus flows of each link from their steps, and places these and the ``missing`` flows in the first
    step with room, or in new steps."""
    resources = _Resources(demand)
    flows = list(missing)
    for step in table:
        src = np.flatnonzero(step >= 0)
        links = resources.links_of(src, step[src])
        is_used = np.zeros(demand.links, np.bool_)
        load = np.bincount(links[links >= 0], minlength=demand.links)
        for row in np.flatnonzero((np.where(links >= 0, load[links], 0) > 1).any(axis=1)):
            crossed = links[row][links[row] >= 0]
            if is_used[crossed].any():
                flows.append((int(src[row]), int(step[src[row]])))
                step[src[row]] = IDLE
            else:
                is_used[crossed] = True
    return resources.place_flows(table, flows) if flows else table


class _Resources:
    """The resources that a flow occupies in a step: its sender, its receiver, its links between switches."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand

    def links_of(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> Ints:
        return np.asarray(self.demand.paths[self.demand.leaf[src], dst])

    def place_flows(self, table: Ints, flows: list[tuple[int, int]]) -> Ints:
        """The table with ``flows`` added, those of the fullest links first."""
        ranks = self.demand.ranks
        occupied = np.zeros((len(table), 2 * ranks + self.demand.links), np.bool_)
        for number, step in enumerate(table):
            src = np.flatnonzero(step >= 0)
            links = self.links_of(src, step[src])
            occupied[number, src] = occupied[number, ranks + step[src]] = True
            occupied[number, 2 * ranks + links[links >= 0]] = True
        load = self.demand.loads()
        flows = sorted(flows, key=lambda pair: -self._fullest(load, pair))
        for pair in flows:
            links = self.links_of(*_as_arrays(pair))[0]
            columns = np.array([pair[0], ranks + pair[1], *(2 * ranks + links[links >= 0])])
            free_steps = np.flatnonzero(~occupied[:, columns].any(axis=1))
            if len(free_steps) == 0:
                table = np.concatenate([table, np.full((1, ranks), IDLE, np.int32)])
                occupied = np.concatenate([occupied, np.zeros((1, occupied.shape[1]), np.bool_)])
                free_steps = np.array([len(table) - 1])
            table[free_steps[0], pair[0]] = pair[1]
            occupied[free_steps[0], columns] = True
        return table

    def _fullest(self, load: Counts, pair: tuple[int, int]) -> int:
        links = self.links_of(*_as_arrays(pair))
        return int(np.where(links >= 0, load[links], 0).max())


def _as_arrays(pair: tuple[int, int]) -> tuple[Ints, Ints]:
    return np.array(pair[:1], np.int32), np.array(pair[1:], np.int32)
