"""Synthetic clusters with planted faults, and the records that a run of ``assay net`` would have there.

The seed determines the whole case: kind, size, noise, faults. A planted fault reduces a rate by 10 to 70 %, uniformly
distributed. All pairs of a case have the same noise, 0.3 to 3 %; noisy healthy clusters have up to 12 %. One rate in
300 is an outlier, lower by up to a half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from netfabric import Fabric, Floats, Flows

from assay.explain import PairMatrix, all_suspects, plan_groups, plan_retest
from assay.explain.group_retest import MEASUREMENT as GROUPS
from assay.explain.group_retest import SHAPE
from assay.records.schema import AnyRecord, Measurement, Pairs, Subject, Summary
from assay.records.schema import Flows as Round

SIZES = (8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
RATE = 1.25e10  # B/s
MESSAGE = 1 << 20
MAX_ROUNDS = 64  # of a sweep; a sample of a larger schedule
OUTLIER_SHARE, MAX_OUTLIER_LOSS = 1 / 300, 0.5  # of all rates; of an outlier's rate
PARAMS = {"op": "send", "size": MESSAGE}

# The number of cases of each kind; 200 in all.
KINDS = {
    "transmit": 24, "receive": 24, "adapter": 20, "pair": 20, "link": 16, "cabinet": 16, "loss": 14, "jitter": 10,
    "two faults": 16, "quiet": 8, "noisy": 12, "oversubscribed": 8, "busy hosts": 8, "busy cabinet": 4,
}  # fmt: skip
HEALTHY = ("quiet", "noisy", "oversubscribed", "busy hosts", "busy cabinet")

Label = tuple[str, tuple[str, ...], tuple[str, ...]]  # side, hosts, peers


@dataclass(frozen=True)
class Fault:
    """A planted fault. A finding is right if it names the host and side; the pair; one pair from ``hosts`` to
    ``peers`` (for a link); or most hosts and the side of a cabinet."""

    kind: str  # host, pair, link, cabinet
    side: str  # transmit, receive; of a cabinet: which of its directions
    hosts: tuple[str, ...]
    peers: tuple[str, ...] = ()
    loss: float = 0.0


@dataclass
class Case:
    """A cluster with its faults, and how to measure it."""

    seed: int
    kind: str
    fabric: Fabric
    noise: float
    faults: list[Fault] = field(default_factory=list)
    busy: Fabric | None = None  # the fabric under another job's load, which ends before the retest
    lossy: dict[tuple[int, int], float] = field(
        default_factory=dict
    )  # (direction, host): share of packets lost
    jitter: dict[tuple[int, int], float] = field(default_factory=dict)  # (direction, host): mean x of exp(-x)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng((self.seed, 2))
        self.hosts = [f"n{i}" for i in range(self.fabric.count)]
        self.transfers = 0

    def title(self) -> str:
        fabric = self.fabric
        return (
            f"{self.seed} {self.kind}: {fabric.count} hosts, {fabric.cabinets} cabinets, noise {self.noise:.1%}, "
            f"both {fabric.duplex_limit:.3g}, oversubscribed {fabric.oversubscription:.2f}"
        )

    def measured(self, fabric: Fabric, flows: Flows, repeats: int, alone: bool = False) -> Floats:
        """The rates of concurrent flows, B/s: medians of ``repeats`` bursts. ``alone``: one flow after the other."""
        self.transfers += len(flows) * repeats
        rate = fabric.rates(flows, alone) * RATE * np.exp(self.rng.normal(0, self.noise, len(flows)))
        rate *= np.where(
            self.rng.random(len(flows)) < OUTLIER_SHARE,
            1 - MAX_OUTLIER_LOSS * self.rng.random(len(flows)),
            1.0,
        )
        for (direction, host), mean in self.jitter.items():
            affected = np.flatnonzero(flows[:, direction] == host)
            rate[affected] *= np.exp(-np.median(self.rng.exponential(mean, (repeats, len(affected))), axis=0))
        return rate

    def sweep(self, max_rounds: int = MAX_ROUNDS, repeats: int = 6) -> list[AnyRecord]:
        """The records of the all-to-all: all shifts, or ``max_rounds`` evenly spaced ones."""
        n = self.fabric.count
        shifts = np.arange(1, n)
        if len(shifts) > max_rounds:
            shifts = np.unique(np.linspace(1, n - 1, max_rounds).round().astype(int))
        source = np.arange(n)
        rounds = [np.stack([source, (source + k) % n], axis=1) for k in shifts]
        return self._pair_records("network.all_to_all", self.busy or self.fabric, rounds, repeats)

    def one_way(self) -> list[AnyRecord]:
        return self._pair_records("network.one_way", self.fabric, neighbour_rounds(self.fabric.count), 6)

    def _pair_records(
        self, name: str, fabric: Fabric, rounds: Sequence[Flows], repeats: int
    ) -> list[AnyRecord]:
        cells: dict[int, dict[str, float]] = {i: {} for i in range(self.fabric.count)}
        for flows in rounds:
            for (source, target), rate in zip(
                flows.tolist(), self.measured(fabric, flows, repeats), strict=True
            ):
                cells[source][self.hosts[target]] = float(rate)
        return [
            Pairs(name=name, metric="bandwidth", unit="B/s", subject=Subject(host=self.hosts[i]), params=dict(PARAMS),
                  peers=list(row), values=list(row.values()))
            for i, row in cells.items() if row
        ]  # fmt: skip

    def counters(self) -> list[AnyRecord]:
        """TCP's counters on each host during the one-way measurement.

        A host sends equally many segments to each of its four neighbours.
        """
        n, sent, usual_loss, out_of_order_per_loss = self.fabric.count, 15_000.0, 0.0003, 13.0
        retransmitted, out_of_order = np.zeros(n), np.zeros(n)
        for flows in neighbour_rounds(n):
            for i, j in flows.tolist():
                share = self.lossy.get((0, i), 0.0) + self.lossy.get((1, j), 0.0) + usual_loss
                lost = float(self.rng.poisson(sent / 4 * share))
                retransmitted[i] += lost
                out_of_order[j] += lost * out_of_order_per_loss
        metrics = {
            "tcp_sent": np.full(n, sent),
            "tcp_retransmitted": retransmitted,
            "tcp_out_of_order": out_of_order,
        }
        return [
            Measurement(name="network.counters", metric=metric, unit="1", params={"during": "network.one_way"},
                        subject=Subject(host=self.hosts[i], device="tcp"), summary=Summary(n=1, median=float(value)))
            for metric, values in metrics.items() for i, value in enumerate(values)
        ]  # fmt: skip

    def alone(self, pairs: Sequence[tuple[str, str]]) -> list[AnyRecord]:
        """The records of pairs that are measured one after the other."""
        if not pairs:
            return []
        number = {host: i for i, host in enumerate(self.hosts)}
        flows = np.array([[number[a], number[b]] for a, b in pairs])
        rates = self.measured(self.fabric, flows, 3, alone=True).tolist()
        return [
            Measurement(name="network.pairs", metric="bandwidth", unit="B/s", subject=Subject(host=a, peer=b),
                        params=dict(PARAMS), summary=Summary(n=3, median=rate))
            for (a, b), rate in zip(pairs, rates, strict=True)
        ]  # fmt: skip

    def concurrent_groups(self, rounds: Sequence[list[tuple[str, str]]]) -> list[AnyRecord]:
        number = {host: i for i, host in enumerate(self.hosts)}
        records: list[AnyRecord] = []
        for flows in rounds:
            ends = np.array([[number[a], number[b]] for a, b in flows])
            records.append(Round(name=GROUPS, metric="rate", unit="B/s", params={"shape": SHAPE},
                               sources=[a for a, _ in flows], targets=[b for _, b in flows],
                               values=self.measured(self.fabric, ends, 3).tolist()))  # fmt: skip
        return records

    def run(self, one_way: bool = True, rounds: int = MAX_ROUNDS, repeats: int = 6) -> list[AnyRecord]:
        """All records of a run of ``assay net``: all-to-all sweep, one-way measurement, retest of suspects."""
        records = self.sweep(rounds, repeats) + (self.one_way() + self.counters() if one_way else [])
        for number, record in enumerate(records, 1):
            record.id = number
        matrix = PairMatrix.of_bandwidth(records, self.hosts)
        alone = PairMatrix.of_one_way(records, self.hosts)
        suspects = all_suspects(matrix, alone)
        records += self.alone(plan_retest(suspects, matrix))
        return records + self.concurrent_groups(plan_groups(suspects, matrix))


def neighbour_rounds(count: int) -> list[Flows]:
    """The engine's one-way rounds: neighbours at distances 1 and 2, no host twice in a round, then reversed."""
    rounds: list[list[tuple[int, int]]] = []
    busy_hosts_of: list[set[int]] = []
    edges = {(min(i, j), max(i, j)) for d in (1, 2) for i in range(count) if (j := (i + d) % count) != i}
    for a, b in sorted(edges):
        round_number = next(
            (r for r, hosts in enumerate(busy_hosts_of) if a not in hosts and b not in hosts), len(rounds)
        )
        if round_number == len(rounds):
            rounds.append([])
            busy_hosts_of.append(set())
        rounds[round_number].append((a, b))
        busy_hosts_of[round_number] |= {a, b}
    flows = [np.array(pairs) for pairs in rounds]
    return [ordered_pairs for pairs in flows for ordered_pairs in (pairs, pairs[:, ::-1])]


def generate_case(seed: int, kind: str, sizes: Sequence[int] = SIZES) -> Case:
    """``sizes``: the counts of hosts to choose from; cabinets that are faulty need three of them, with four hosts."""
    rng = np.random.default_rng((seed, 1))
    count = int(rng.choice(sizes))
    cabinets = int(rng.choice([g for g in (3, 4, 6, 8) if count % g == 0 and count // g >= 4] or [2]))
    if kind in ("cabinet", "busy cabinet") and cabinets < 3:
        count, cabinets = 12 * int(rng.choice([k for k in (1, 2, 4) if 12 * k <= max(sizes)])), 3
    host_variation = np.exp(rng.normal(0, rng.uniform(0, 0.01), (2, count)))
    fabric = Fabric(count, cabinets, host_variation[0], host_variation[1])
    if rng.random() < 0.25:
        fabric.duplex_limit = 1.6
    if kind == "oversubscribed" or rng.random() < 0.3:
        fabric.oversubscription = float(rng.uniform(1.2, 3.0))
    noise = float(np.exp(rng.uniform(np.log(0.003), np.log(0.03))))
    if kind == "noisy":
        noise = float(rng.uniform(0.03, 0.12))
    case = Case(seed, kind, fabric, noise)
    PLANT[kind](case, rng)
    return case


def _random_loss(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.1, 0.7))


def _plant_slow_side(case: Case, rng: np.random.Generator, direction: int, host: int | None = None) -> None:
    host = int(rng.integers(case.fabric.count)) if host is None else host
    loss = _random_loss(rng)
    (case.fabric.up, case.fabric.down)[direction][host] *= 1 - loss
    case.faults.append(Fault("host", ("transmit", "receive")[direction], (f"n{host}",), (), loss))


def _plant_adapter(case: Case, rng: np.random.Generator) -> None:
    host, loss = int(rng.integers(case.fabric.count)), _random_loss(rng)
    for direction, rates in enumerate((case.fabric.up, case.fabric.down)):
        rates[host] *= 1 - loss
        case.faults.append(Fault("host", ("transmit", "receive")[direction], (f"n{host}",), (), loss))


def _plant_pair(case: Case, rng: np.random.Generator, avoid: Sequence[int] = ()) -> None:
    source, target = rng.choice(
        [i for i in range(case.fabric.count) if i not in avoid], 2, replace=False
    ).tolist()
    if case.fabric.count - 1 > MAX_ROUNDS:  # the pair must be among those that the sweep measures
        shifts = np.unique(np.linspace(1, case.fabric.count - 1, MAX_ROUNDS).round().astype(int))
        target = (source + int(rng.choice(shifts))) % case.fabric.count
    loss = _random_loss(rng)
    case.fabric.pair[source, target] = 1 - loss
    case.faults.append(Fault("pair", "pair", (f"n{source}",), (f"n{target}",), loss))


def _plant_link(case: Case, rng: np.random.Generator) -> None:
    fabric = case.fabric
    cabinet, cable = int(rng.integers(fabric.cabinets)), int(rng.integers(fabric.size))
    direction, loss = int(rng.integers(2)), _random_loss(rng)
    fabric.cable[cabinet, cable, direction] = 1 - loss
    n = fabric.count
    flows = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), -1).reshape(-1, 2)
    affected = flows[fabric.uses_cable(flows, cabinet, cable, direction)]
    ends = [tuple(f"n{i}" for i in np.unique(affected[:, end])) for end in (0, 1)]
    case.faults.append(Fault("link", "link", ends[0], ends[1], loss))


def _plant_cabinet(case: Case, rng: np.random.Generator) -> None:
    cabinet, direction, loss = (
        int(rng.integers(case.fabric.cabinets)),
        int(rng.integers(2)),
        _random_loss(rng),
    )
    case.fabric.trunk[cabinet, direction] = 1 - loss
    hosts = tuple(f"n{i}" for i in case.fabric.members(cabinet))
    case.faults.append(Fault("cabinet", ("transmit", "receive")[direction], hosts, (), loss))


def _plant_lossy(case: Case, rng: np.random.Generator) -> None:
    """A side loses packets, and is as fast as the others."""
    direction, host = int(rng.integers(2)), int(rng.integers(case.fabric.count))
    case.lossy[direction, host] = float(np.exp(rng.uniform(np.log(0.003), np.log(0.05))))
    case.faults.append(Fault("host", ("transmit", "receive")[direction], (f"n{host}",)))


def _plant_jitter(case: Case, rng: np.random.Generator) -> None:
    """Each burst loses a random share of its rate. The mean loss has the same distribution as in the other kinds."""
    direction, host, loss = int(rng.integers(2)), int(rng.integers(case.fabric.count)), _random_loss(rng)
    case.jitter[direction, host] = loss / (1 - loss)  # the mean of exp(-x) is 1 - loss
    case.faults.append(Fault("host", ("transmit", "receive")[direction], (f"n{host}",), (), loss))


def _plant_two_faults(case: Case, rng: np.random.Generator) -> None:
    a, b = rng.choice(case.fabric.count, 2, replace=False).tolist()
    _plant_slow_side(case, rng, int(rng.integers(2)), a)
    if rng.random() < 0.25:
        _plant_pair(case, rng, avoid=[a])
    else:
        _plant_slow_side(case, rng, int(rng.integers(2)), b)


def _copy_fabric(fabric: Fabric) -> Fabric:
    return Fabric(fabric.count, fabric.cabinets, fabric.up.copy(), fabric.down.copy(), fabric.duplex_limit,
                  fabric.oversubscription)  # fmt: skip


def _plant_busy_hosts(case: Case, rng: np.random.Generator) -> None:
    case.busy = _copy_fabric(case.fabric)
    for host in rng.choice(case.fabric.count, int(rng.integers(1, 4)), replace=False):
        (case.busy.up, case.busy.down)[int(rng.integers(2))][host] *= 1 - _random_loss(rng)


def _plant_busy_cabinet(case: Case, rng: np.random.Generator) -> None:
    case.busy = _copy_fabric(case.fabric)
    case.busy.trunk[int(rng.integers(case.fabric.cabinets)), int(rng.integers(2))] = 1 - _random_loss(rng)


def _plant_nothing(case: Case, rng: np.random.Generator) -> None:
    pass


PLANT: dict[str, Callable[[Case, np.random.Generator], None]] = {
    "transmit": lambda case, rng: _plant_slow_side(case, rng, 0),
    "receive": lambda case, rng: _plant_slow_side(case, rng, 1),
    "adapter": _plant_adapter, "pair": _plant_pair, "link": _plant_link, "cabinet": _plant_cabinet,
    "loss": _plant_lossy, "jitter": _plant_jitter,
    "two faults": _plant_two_faults, "quiet": _plant_nothing, "noisy": _plant_nothing, "oversubscribed": _plant_nothing,
    "busy hosts": _plant_busy_hosts, "busy cabinet": _plant_busy_cabinet,
}  # fmt: skip


def cases(first_seed: int) -> list[Case]:
    """200 cases, seeds ``first_seed`` and following."""
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    return [generate_case(first_seed + number, kind) for number, kind in enumerate(kinds)]


def full_bandwidth_case(seed: int, count: int) -> Case:
    """A cluster without oversubscription in which one host sends or receives slowly."""
    rng = np.random.default_rng((seed, 4))
    host_variation = np.exp(rng.normal(0, 0.003, (2, count)))
    case = Case(seed, "transmit", Fabric(count, count // 32, host_variation[0], host_variation[1]), 0.02)
    _plant_slow_side(case, rng, int(rng.integers(2)))
    return case
