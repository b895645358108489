"""Simulated bandwidths between the hosts of a cluster, with planted faults that the analysis must find.

In a shift by k, host i sends to host i + k (modulo the number of hosts), all hosts at the same time.
``sampled_matrix`` is a large cluster of which some random shifts are measured. ``TwoCabinets`` has two cabinets
behind an oversubscribed link, which the flows of a shift share. Noise stands for the uneven shares of TCP flows.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix
from assay.records.schema import AnyRecord, Measurement, Pairs, Subject, Summary

RATE = 12.5e6  # B/s: 100 Mbit/s


def sampled_matrix(
    count: int,
    shifts: int,
    rng: np.random.Generator,
    transmit: dict[int, float] | None = None,
    receive: dict[int, float] | None = None,
    noise: float = 0.03,
) -> PairMatrix:
    """The matrix of ``shifts`` random shifts of ``count`` hosts: logarithms of the rate relative to a healthy pair.

    ``transmit``, ``receive``: by host, the share of the healthy rate that it reaches; others reach all of it.
    ``noise``: standard deviation of the log.
    """
    distance = rng.choice(np.arange(1, count), size=shifts, replace=False)
    source = np.repeat(np.arange(count, dtype=np.int32), shifts)
    target = ((source + np.tile(distance, count)) % count).astype(np.int32)
    share = np.ones((2, count))
    for host, remaining in (transmit or {}).items():
        share[0, host] = remaining
    for host, remaining in (receive or {}).items():
        share[1, host] = remaining
    value = np.log(share[0, source] * share[1, target]) + rng.normal(0, noise, source.size)
    return PairMatrix([f"n{i}" for i in range(count)], source, target, value.astype(np.float32))


@dataclass
class TwoCabinets:
    """Hosts h0, h1, ...: the first half in cabinet 0, the others in cabinet 1.

    The flows of a shift from a cabinet to the other share ``uplink`` times one host's rate. ``transmit``,
    ``receive`` (by host), ``pairs`` (by source and target) and ``cabinet_pairs`` (by source's and target's cabinet)
    plant faults: the share of the healthy rate that remains.
    """

    seed: int
    count: int = 8
    uplink: float = 3.0
    noise: float = 0.15  # relative, of a pair in a shift
    noise_alone: float = 0.05  # relative, of a pair measured alone
    transmit: dict[int, float] = field(default_factory=dict)
    receive: dict[int, float] = field(default_factory=dict)
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)
    cabinet_pairs: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.hosts = [f"h{i}" for i in range(self.count)]

    def uncontended_rate(self, i: int, j: int) -> float:
        """The rate of a pair without other traffic, in B/s."""
        rate = min(self.transmit.get(i, 1.0), self.receive.get(j, 1.0), self.pairs.get((i, j), 1.0))
        return RATE * min(rate, self.cabinet_pairs.get((self.cabinet(i), self.cabinet(j)), 1.0))

    def cabinet(self, i: int) -> int:
        return i // (self.count // 2)

    def bandwidth(self) -> NDArray[np.float64]:
        """The measured rates of all shifts in B/s, [source, target], NaN on the diagonal."""
        matrix = np.full((self.count, self.count), np.nan)
        for shift in range(1, self.count):
            flows = [(i, (i + shift) % self.count) for i in range(self.count)]
            for i, j in flows:
                rate = self.uncontended_rate(i, j)
                if self.cabinet(i) != self.cabinet(j):
                    sharing = sum(self.cabinet(a) == self.cabinet(i) != self.cabinet(b) for a, b in flows)
                    remaining = self.cabinet_pairs.get((self.cabinet(i), self.cabinet(j)), 1.0)
                    rate = min(rate, RATE * self.uplink * remaining / sharing)
                matrix[i, j] = rate * np.exp(self.rng.normal(0, self.noise))
        return matrix

    def rows(self, op: str = "send", size: int = 1 << 20) -> list[AnyRecord]:
        """The records of an all-to-all measurement, one for each source."""
        matrix = self.bandwidth()
        rows: list[AnyRecord] = []
        for i, host in enumerate(self.hosts):
            peers = [(i + shift) % self.count for shift in range(1, self.count)]
            row = Pairs(
                id=100 + i,
                name="network.all_to_all",
                metric="bandwidth",
                unit="B/s",
                better="higher",
                subject=Subject(host=host),
                params={"op": op, "size": size},
                peers=[self.hosts[j] for j in peers],
                values=[float(matrix[i, j]) for j in peers],
            )
            rows.append(row)
        return rows

    def retest(self, pairs: list[tuple[str, str]]) -> list[AnyRecord]:
        """The records of measuring ``pairs`` one after another."""
        records: list[AnyRecord] = []
        for number, (source, target) in enumerate(pairs):
            rate = self.uncontended_rate(self.hosts.index(source), self.hosts.index(target))
            value = float(rate * np.exp(self.rng.normal(0, self.noise_alone)))
            record = Measurement(
                id=500 + number,
                name="network.pairs",
                metric="bandwidth",
                unit="B/s",
                subject=Subject(host=source, peer=target),
                params={"op": "send", "size": 1 << 20},
                summary=Summary(n=5, median=value),
            )
            records.append(record)
        return records
