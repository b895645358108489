"""A schedule of an all-to-all exchange on given routes, without conflicts, in as few steps as the fullest link allows.

Forwarding depends on the destination, so a step is planned between leaf switches and destinations first: how many hosts
of which leaf send to which destination. A step obeys capacities: a leaf sends as much as it has hosts, a destination
receives once, a link between switches carries one flow. Sets of flows that share a sender's leaf and first link are
nested, and so are those that share a destination or a last link that serves whole destinations. For two nested families
the constraints are those of a network flow, so a demand that fits T steps on average splits into T steps that fit (Baum
and Trotter, 1978): each step is a maximum flow that uses what is needed in every remaining step.

Then each leaf's share is divided among its hosts: steps and destinations are a bipartite graph of equal degrees, which
splits into perfect matchings (Koenig, 1916), a matching for each host.

Where destinations share a last link, flows within a leaf would break the nesting: the other flows are planned alone,
and those within leaves fill the gaps. Links that are not part of a nested family (middle links of three levels, last
links that a destination uses in part) are not planned. Their surplus flows are taken out. What is left goes into the
first step that has room, or into new steps. Where that misses the bound, ``search`` looks for a shorter exchange.
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
    """An all-to-all exchange of N ranks on G leaf switches; nobody sends to itself."""

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
    _, first, leaf = np.unique(routes.fabric.leaf_of[members], return_index=True, return_inverse=True)
    source = np.repeat(members[first], len(members))
    target = np.tile(members, len(first))
    routes.require(source, target)
    paths = routes.between_switches(source, target).reshape(len(first), len(members), -1)
    return Demand(leaf.astype(np.int32), paths, routes.fabric.links)


def conflict_free(demand: Demand, seconds: float = 0.0) -> Schedule:
    """A schedule without a conflict that has each ordered pair of ranks exactly once: the shortest that is found.

    Where the flow misses the bound, a search of ``seconds`` follows. Raises UserError for more ranks than MAX_CELLS.
    """
    if not fits(demand):
        raise UserError(
            f"an exchange of {demand.ranks} ranks is too large to be planned", "name fewer hosts with -w"
        )
    tables = [_scheduled(demand, apart=False)]
    if len(tables[0]) > demand.bound() and len(_last_links(demand)[0]):
        tables.append(_scheduled(demand, apart=True))
    if seconds > 0 and min(map(len, tables)) > demand.bound():
        tables.append(_searched(demand, seconds))
    return of_array("conflict-free", min(tables, key=len))


def fits(demand: Demand) -> bool:
    """Whether the memory holds the plan of an exchange."""
    return bool(demand.bound() * demand.paths.shape[0] * demand.ranks <= MAX_CELLS)


def _searched(demand: Demand, seconds: float) -> Ints:
    """[steps, N] destinations."""
    cells = search.cells_of(demand.senders, demand.leaf, demand.paths)
    return _divided(demand, search.plan(cells, seconds).reshape(-1, *demand.paths.shape[:2]))


def _scheduled(demand: Demand, apart: bool) -> Ints:
    """[steps, N] destinations. ``apart``: flows within a leaf come after the others."""
    shares = _plan(demand, apart)
    if not apart:
        return _with_flows_placed(demand, _divided(demand, shares), [])
    table = np.full((len(shares), demand.ranks), IDLE, np.int32)
    inside: list[tuple[int, int]] = []
    for leaf in range(len(demand.senders)):
        ranks = np.flatnonzero(demand.leaf == leaf)
        table[:, ranks] = divide(shares[:, leaf], len(ranks))
        within = np.flatnonzero(demand.paths[leaf, :, 0] == PAD)
        inside += [(int(src), int(dst)) for src in ranks for dst in within if src != dst]
    return _with_flows_placed(demand, table, inside)


def _divided(demand: Demand, shares: NDArray[np.bool_]) -> Ints:
    """[steps, N] destinations, from ``shares`` [steps, G, N] whether a host of a leaf sends to a rank."""
    table = np.full((len(shares), demand.ranks), IDLE, np.int32)
    for leaf in range(len(demand.senders)):
        # In one more step each host would send to itself: that says which host a column belongs to.
        itself = demand.leaf == leaf
        columns = divide(np.concatenate([shares[:, leaf], itself[None]]), int(itself.sum()))
        table[:, columns[-1]] = columns[:-1]
    return table


def _plan(demand: Demand, apart: bool) -> NDArray[np.bool_]:
    """[steps, G, N] whether a host of a leaf sends to a rank in a step."""
    network = _Network(demand, apart)
    open_demand = np.broadcast_to(demand.senders[:, None], demand.paths.shape[:2]).copy()
    open_demand[demand.leaf, np.arange(demand.ranks)] -= 1
    if apart:
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

    def __init__(self, demand: Demand, apart: bool) -> None:
        self.senders = demand.senders
        leaves, ranks = demand.paths.shape[:2]
        self.first = demand.paths[:, :, 0]
        firsts, first_number = np.unique(self.first, return_inverse=True)
        self.lasts, self.last_of = np.zeros(0, np.int32), np.full(ranks, -1, np.int32)
        if apart:
            self.lasts, self.last_of = _last_links(demand)
        leaf_node = NODES + np.arange(leaves)
        first_node = NODES + leaves + first_number.reshape(leaves, ranks)
        rank_node = NODES + leaves + len(firsts) + np.arange(ranks)
        last_node = NODES + leaves + len(firsts) + ranks + np.arange(len(self.lasts))
        self.size = NODES + leaves + len(firsts) + ranks + len(self.lasts)
        self.crosses = self.first != PAD
        # Groups: leaf, (leaf, first link), rank, last link. The members of a group are cells [leaf, rank].
        owner = np.where(self.crosses, np.arange(leaves)[:, None], -1)
        used, where = np.unique(first_node[self.crosses], return_index=True)
        self.group_from = np.concatenate([
            np.full(leaves, SOURCE),
            leaf_node[owner[self.crosses][where]],
            rank_node,
            last_node,
        ])  # fmt: skip
        after_rank = np.where(self.last_of >= 0, last_node[self.last_of] if len(last_node) else SINK, SINK)
        self.group_to = np.concatenate([leaf_node, used, after_rank, np.full(len(last_node), SINK)])
        self.capacity = np.concatenate([self.senders, np.ones(len(used) + ranks + len(self.lasts), np.int64)])
        self.first_group = np.zeros_like(first_node)
        self.first_group[self.crosses] = np.searchsorted(used, first_node[self.crosses])
        self.firsts = len(used)
        self.cell_from = np.where(self.crosses, first_node, leaf_node[:, None]).ravel()
        self.cell_to = np.broadcast_to(rank_node, (leaves, ranks)).ravel()

    def groups(self, open_demand: Counts) -> Counts:
        """The demand of each group."""
        ranks = open_demand.sum(axis=0)
        lasts = np.bincount(self.last_of[self.last_of >= 0], ranks[self.last_of >= 0], len(self.lasts))
        firsts = np.bincount(self.first_group[self.crosses], open_demand[self.crosses], self.firsts)
        return np.concatenate([open_demand.sum(axis=1), firsts, ranks, lasts]).astype(np.int64)

    def bound(self, open_demand: Counts) -> int:
        return int((-(-self.groups(open_demand) // self.capacity)).max())

    def step(self, open_demand: Counts, steps: int) -> NDArray[np.bool_]:
        """[G, N] a step, such that the rest fits ``steps`` - 1 steps: a flow with lower bounds."""
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
        taken = np.zeros(open_demand.size, np.bool_)
        taken[cells] = np.asarray(result.flow[self.cell_from[cells], self.cell_to[cells]]).ravel() > 0
        return taken.reshape(open_demand.shape)


def _last_links(demand: Demand) -> tuple[Ints, Ints]:
    """The last links that serve several destinations wholly, and [N] the number of a rank's, -1 where it has none."""
    hops = (demand.paths >= 0).sum(axis=2)
    last = np.take_along_axis(demand.paths, np.maximum(hops - 1, 0)[:, :, None], axis=2)[:, :, 0]
    low = np.where(hops > 0, last, np.iinfo(np.int32).max).min(axis=0)
    is_whole = (np.where(hops > 0, last, -1).max(axis=0) == low) & (hops > 0).any(axis=0)
    partly = np.unique(last[:, ~is_whole][hops[:, ~is_whole] > 0])
    is_whole &= ~np.isin(low, partly)
    served = np.bincount(low[is_whole], minlength=demand.links)
    is_whole &= np.isin(low, np.flatnonzero(served > 1))
    lasts, number = np.unique(low[is_whole], return_inverse=True)
    last_of = np.full(demand.ranks, -1, np.int32)
    last_of[is_whole] = number
    return lasts.astype(np.int32), last_of


def divide(share: NDArray[np.bool_], hosts: int) -> Ints:
    """[steps, hosts] destinations of a leaf's hosts: each sends to every rank once, and once in a step at most.

    ``share`` [steps, N]: to which ranks the leaf sends; each in ``hosts`` steps or none, at most ``hosts`` a step.
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
    each = np.arange(size)
    tails = np.concatenate([np.zeros(size, np.int64), 2 + row, 2 + size + each])
    heads = np.concatenate([2 + each, 2 + size + column, np.ones(size, np.int64)])
    graph = csr_array((np.ones(len(tails), np.int32), (tails, heads)), shape=(2 * size + 2, 2 * size + 2))
    flow = maximum_flow(graph, 0, 1).flow.tocoo()
    used = (flow.data > 0) & (flow.row >= 2) & (flow.row < 2 + size)
    assert used.sum() == size
    chosen = np.empty(size, np.int32)
    chosen[flow.row[used] - 2] = flow.col[used] - 2 - size
    return chosen


def _with_flows_placed(demand: Demand, table: Ints, missing: list[tuple[int, int]]) -> Ints:
    """Moves the surplus flows of each link, and the ``missing`` ones, to the first step with room, or to new steps."""
    resources = _Resources(demand)
    moved = list(missing)
    for step in table:
        src = np.flatnonzero(step >= 0)
        links = resources.links_of(src, step[src])
        seen = np.zeros(demand.links, np.bool_)
        load = np.bincount(links[links >= 0], minlength=demand.links)
        for row in np.flatnonzero((np.where(links >= 0, load[links], 0) > 1).any(axis=1)):
            crossed = links[row][links[row] >= 0]
            if seen[crossed].any():
                moved.append((int(src[row]), int(step[src[row]])))
                step[src[row]] = IDLE
            else:
                seen[crossed] = True
    return resources.placed(table, moved) if moved else table


class _Resources:
    """What a flow occupies in a step: its sender, its receiver, its links between switches."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand

    def links_of(self, src: NDArray[np.integer], dst: NDArray[np.integer]) -> Ints:
        return np.asarray(self.demand.paths[self.demand.leaf[src], dst])

    def placed(self, table: Ints, moved: list[tuple[int, int]]) -> Ints:
        """The flows of the fullest links come first."""
        ranks = self.demand.ranks
        occupied = np.zeros((len(table), 2 * ranks + self.demand.links), np.bool_)
        for number, step in enumerate(table):
            src = np.flatnonzero(step >= 0)
            links = self.links_of(src, step[src])
            occupied[number, src] = occupied[number, ranks + step[src]] = True
            occupied[number, 2 * ranks + links[links >= 0]] = True
        load = self.demand.loads()
        moved = sorted(moved, key=lambda pair: -self._fullest(load, pair))
        for pair in moved:
            links = self.links_of(*_arrays(pair))[0]
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
        links = self.links_of(*_arrays(pair))
        return int(np.where(links >= 0, load[links], 0).max())


def _arrays(pair: tuple[int, int]) -> tuple[Ints, Ints]:
    return np.array(pair[:1], np.int32), np.array(pair[1:], np.int32)
