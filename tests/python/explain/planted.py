"""Networks with a planted truth: what the pair matrix of a healthy or a faulty cluster looks like.

Two models. ``sampled`` is a large cluster of which some random shifts were measured; ``Lab`` is two cabinets
behind an oversubscribed link, flows in a shift sharing it, and TCP's uneven shares on top.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay.explain.matrix import PairMatrix
from assay.records.schema import AnyRecord, Measurement, Pairs, Subject, Summary

RATE = 12.5e6  # B/s: 100 Mbit/s


def sampled(
    count: int,
    shifts: int,
    rng: np.random.Generator,
    transmit: dict[int, float] | None = None,
    receive: dict[int, float] | None = None,
    noise: float = 0.03,
) -> PairMatrix:
    """``shifts`` random shifts of ``count`` hosts; ``transmit`` and ``receive`` give the share of the rate
    that a host still reaches."""
    distance = rng.choice(np.arange(1, count), size=shifts, replace=False)
    source = np.repeat(np.arange(count, dtype=np.int32), shifts)
    target = ((source + np.tile(distance, count)) % count).astype(np.int32)
    share = np.ones((2, count))
    for host, left in (transmit or {}).items():
        share[0, host] = left
    for host, left in (receive or {}).items():
        share[1, host] = left
    value = np.log(share[0, source] * share[1, target]) + rng.normal(0, noise, source.size)
    return PairMatrix([f"n{i}" for i in range(count)], source, target, value.astype(np.float32))


@dataclass
class Lab:
    """Hosts h0.. in two cabinets; a shift's flows across share ``uplink`` times one host's rate."""

    seed: int
    count: int = 8
    uplink: float = 3.0
    noise: float = 0.15  # of a pair among others, relative
    serial_noise: float = 0.05  # of a pair measured alone
    transmit: dict[int, float] = field(default_factory=dict)
    receive: dict[int, float] = field(default_factory=dict)
    pairs: dict[tuple[int, int], float] = field(default_factory=dict)
    across: dict[tuple[int, int], float] = field(default_factory=dict)  # share left from cabinet to cabinet

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.hosts = [f"h{i}" for i in range(self.count)]

    def alone(self, i: int, j: int) -> float:
        """The rate of a pair that has the network for itself, B/s."""
        rate = min(self.transmit.get(i, 1.0), self.receive.get(j, 1.0), self.pairs.get((i, j), 1.0))
        return RATE * min(rate, self.across.get((self.cabinet(i), self.cabinet(j)), 1.0))

    def cabinet(self, i: int) -> int:
        return i // (self.count // 2)

    def bandwidth(self) -> NDArray[np.float64]:
        """The matrix that rounds of shifts measure, [source, target], NaN on the diagonal."""
        matrix = np.full((self.count, self.count), np.nan)
        for shift in range(1, self.count):
            flows = [(i, (i + shift) % self.count) for i in range(self.count)]
            for i, j in flows:
                rate = self.alone(i, j)
                if self.cabinet(i) != self.cabinet(j):
                    others = sum(self.cabinet(a) == self.cabinet(i) != self.cabinet(b) for a, b in flows)
                    left = self.across.get((self.cabinet(i), self.cabinet(j)), 1.0)
                    rate = min(rate, RATE * self.uplink * left / others)
                matrix[i, j] = rate * np.exp(self.rng.normal(0, self.noise))
        return matrix

    def rows(self, op: str = "send", size: int = 1 << 20) -> list[AnyRecord]:
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
        """The records that measuring ``pairs``, each alone, gives."""
        records: list[AnyRecord] = []
        for number, (source, target) in enumerate(pairs):
            rate = self.alone(self.hosts.index(source), self.hosts.index(target))
            value = float(rate * np.exp(self.rng.normal(0, self.serial_noise)))
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
