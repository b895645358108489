#!/usr/bin/env python3
"""How well findings of `assay net` name planted faults on 60 clusters of the lab, or on each fourth of them: network
namespaces with shaped links, over both MPIs and TCP. Needs root.

    f1, precision, recall   as in net_culprits.py
    healthy                 findings on the healthy clusters among them (15 of 60), which are under load
    time                    a run, s

A cluster has 8 hosts of 50 Mbit/s in two cabinets; 9 in three if a cabinet is slow, since of two cabinets no rate tells
the one that sends slowly from the one that receives slowly. Where an adapter is slow, in both directions, three of the
hosts are servers with two adapters each, and Open MPI binds a rank to each. The seed draws the fault and its size, 10
to 70 % of the rate. A lossy side loses 0.5 to 5 % of its packets and keeps its rate. Healthy clusters have other
traffic that ends before the retest, or their processors are busy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, waived  # noqa: E402
from netcases import Fault  # noqa: E402
from netscore import Score, judge_case, print_figures  # noqa: E402

from assay import lab  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.schema import Finding, Verdict  # noqa: E402

SEED = 40_000
KINDS = {
    "transmit": 7, "receive": 7, "adapter": 6, "pair": 6, "cabinet": 5, "loss": 6, "duplex": 4, "two faults": 4,
    "busy hosts": 8, "busy processors": 7,
}  # fmt: skip
MBIT = 1e6 / 8
RATE = 50 * MBIT
WAYS = (("--launcher", "openmpi"), ("--launcher", "mpich-wheel"), ("--transport", "tcp"))
SERVERS = 3  # of the clusters with two adapters
ADAPTERS = ("--servers", f"h[0-{SERVERS - 1}]", "--clients", f"h[{SERVERS}-7]", "--servers-hcas", "eth0:eth1")
FEW = 4  # of the cases, each FEWth is measured in `make bench`
BUDGET_S, LIMIT_S = 24, 120
TRAFFIC_S = 2  # of another job, from the start of the sweep


@dataclass(frozen=True)
class Cluster:
    """``duplex_rate``: of both directions of a host together, B/s."""

    hosts: int = 8
    cabinets: int = 2
    duplex_rate: float | None = None
    adapters: int = 1

    @property
    def size(self) -> int:
        """Hosts of a cabinet."""
        return self.hosts // self.cabinets

    @property
    def cabinet_rate(self) -> float:
        return self.size * self.adapters * RATE

    def up(self, name: str) -> lab.Lab:
        rates = lab.Rates(RATE, RATE, self.duplex_rate, self.cabinet_rate)
        return lab.Lab.up(self.hosts, self.cabinets, rates, name=name, adapters=self.adapters)


USUAL = Cluster()
# Of kinds that have another.
CLUSTERS = {
    "cabinet": Cluster(9, 3),
    "duplex": Cluster(duplex_rate=1.6 * RATE),
    "adapter": Cluster(adapters=2),
}


@dataclass
class Case:
    """A lab with its faults. ``planted``: by host or cabinet; ``interface``: of the hosts' adapters, that one alone.
    ``hosts`` of ``traffic`` send to the next host."""

    number: int
    kind: str
    faults: list[Fault] = field(default_factory=list)
    planted: dict[str, lab.Fault] = field(default_factory=dict)
    interface: str = ""
    traffic: list[tuple[str, str]] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return CLUSTERS.get(self.kind, USUAL)

    @property
    def way(self) -> tuple[str, ...]:
        if self.kind == "adapter":  # UCX under MPICH reaches no address of another adapter's network
            return *WAYS[0], *ADAPTERS
        return WAYS[self.number % len(WAYS)]

    def title(self) -> str:
        return f"{self.number} {self.kind}: {' '.join(self.way)}"

    def plant_side(self, host: str, side: str, loss: float) -> None:
        rate = (1 - loss) * RATE
        old = self.planted.get(host, lab.Fault())
        self.planted[host] = (
            lab.Fault(tx=rate, rx=old.rx) if side == "transmit" else lab.Fault(tx=old.tx, rx=rate)
        )
        self.faults.append(Fault("host", side, (host,), (), loss))


def generate_case(number: int, kind: str, seed: int) -> Case:
    rng = np.random.default_rng((seed, number))
    case = Case(number, kind)
    a, b = (f"h{i}" for i in rng.choice(case.cluster.hosts, 2, replace=False))
    side, loss = str(rng.choice(["transmit", "receive"])), float(rng.uniform(0.1, 0.7))
    PLANT[kind](case, rng, a, b, side, loss)
    return case


Plant = Callable[[Case, np.random.Generator, str, str, str, float], None]


def _plant_adapter(case: Case, rng: np.random.Generator, a: str, b: str, side: str, loss: float) -> None:
    host, adapter, rate = f"h{rng.integers(SERVERS)}", int(rng.integers(2)), (1 - loss) * RATE
    case.planted[host], case.interface = lab.Fault(tx=rate, rx=rate), f"eth{adapter}"
    case.faults += [
        Fault("host", side, (f"{host}:eth{adapter}",), (), loss) for side in ("transmit", "receive")
    ]


def _plant_pair(case: Case, rng: np.random.Generator, a: str, b: str, side: str, loss: float) -> None:
    case.planted[a] = lab.Fault(tx_to={b: (1 - loss) * RATE})
    case.faults.append(Fault("pair", "pair", (a,), (b,), loss))


def _plant_cabinet(case: Case, rng: np.random.Generator, a: str, b: str, side: str, loss: float) -> None:
    number, rate = int(rng.integers(case.cluster.cabinets)), (1 - loss) * case.cluster.cabinet_rate
    case.planted[f"c{number}"] = lab.Fault(tx=rate) if side == "transmit" else lab.Fault(rx=rate)
    size = case.cluster.size
    hosts = tuple(f"h{i}" for i in range(number * size, (number + 1) * size))
    case.faults.append(Fault("cabinet", side, hosts, (), loss))


def _plant_loss(case: Case, rng: np.random.Generator, a: str, b: str, side: str, loss: float) -> None:
    share = float(np.exp(rng.uniform(np.log(0.005), np.log(0.05))))
    case.planted[a] = lab.Fault(tx_loss=share) if side == "transmit" else lab.Fault(rx_loss=share)
    case.faults.append(Fault("host", side, (a,), (), share))


def _plant_two(case: Case, rng: np.random.Generator, a: str, b: str, side: str, loss: float) -> None:
    case.plant_side(a, side, loss)
    case.plant_side(b, str(rng.choice(["transmit", "receive"])), float(rng.uniform(0.1, 0.7)))


def _plant_traffic(case: Case, rng: np.random.Generator, a: str, b: str, side: str, loss: float) -> None:
    case.traffic.append((a, b))


PLANT: dict[str, Plant] = {
    "transmit": lambda case, rng, a, b, side, loss: case.plant_side(a, "transmit", loss),
    "receive": lambda case, rng, a, b, side, loss: case.plant_side(a, "receive", loss),
    "duplex": lambda case, rng, a, b, side, loss: case.plant_side(a, side, loss),
    "adapter": _plant_adapter, "pair": _plant_pair, "cabinet": _plant_cabinet, "loss": _plant_loss,
    "two faults": _plant_two, "busy hosts": _plant_traffic, "busy processors": lambda *_: None,
}  # fmt: skip


@contextmanager
def planted(cluster: lab.Lab, case: Case) -> Iterator[None]:
    for name, fault in case.planted.items():
        cluster.fault([name], fault, case.interface)
    try:
        yield
    finally:
        for name in case.planted:
            cluster.fault([name], None)


@contextmanager
def load(cluster: lab.Lab, case: Case) -> Iterator[None]:
    """Other traffic for the first seconds, or a loop on each processor."""
    commands = []
    for sender, receiver in case.traffic:
        listen = cluster.enter(receiver, ["iperf3", "--server", "--one-off"])
        send = cluster.enter(sender, ["iperf3", "--client", receiver, "--time", str(TRAFFIC_S)])
        commands += [listen, ["sh", "-c", 'sleep 1; exec "$@"', "sh", *send]]
    if case.kind == "busy processors":
        commands += [["sh", "-c", "while :; do :; done"]] * (os.cpu_count() or 1)
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def findings(cluster: lab.Lab, case: Case, run: Path) -> tuple[list[Finding], float]:
    """The faults that ``assay net`` finds, and the time that it took, in s. A verdict that the budget left inconclusive
    counts with what it names."""
    begun = time.monotonic()
    with planted(cluster, case), load(cluster, case):
        done = subprocess.run(
            [ROOT / "assay", "net", "--lab", cluster.name, "-o", run, "--sizes", "64KiB,256KiB",
             "--budget", f"{BUDGET_S}s", "--timeout", "10s", *case.way],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
    seconds = time.monotonic() - begun
    records = Run.load(run).records if done.returncode in (0, 1, 2) and run.is_dir() else []
    if not any(isinstance(record, Verdict) for record in records):
        raise RuntimeError(f"{case.title()}: exit code {done.returncode}: {done.stderr[-400:]}")
    return [r for r in records if isinstance(r, Finding) and r.severity == "fault"], seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="all cases instead of each fourth")
    parser.add_argument("--kind", choices=KINDS, help="all cases of this kind")
    parser.add_argument("--seed", type=int, default=SEED, help="of the faults (default: %(default)s)")
    parser.add_argument("--misses", action="store_true", help="show missed faults and wrong findings")
    parser.add_argument("--markdown", action="store_true", help="print the table of all cases")
    args = parser.parse_args()
    if os.geteuid() != 0:
        waived("wires", "a lab needs root")
        return
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    cases = [generate_case(number, kind, args.seed) for number, kind in enumerate(kinds)]
    if args.kind:
        cases = [case for case in cases if case.kind == args.kind]
    elif not (args.all or args.markdown):
        cases = cases[::FEW]
    score, seconds, failures = Score(), [], []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        labs = {}
        for cluster in (USUAL, *CLUSTERS.values()):
            labs[cluster] = cluster.up(f"wires-{os.getpid()}-{len(labs)}")
            stack.callback(labs[cluster].down)
        for case in cases:
            try:
                found, taken = findings(labs[case.cluster], case, folder / str(case.number))
                seconds.append(taken)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failures.append(str(error))
                found = []
            judge_case(score, case, found, args.misses)
    if args.markdown:
        print(score.markdown(KINDS))
    else:
        print_figures("wires", score, 0.9, seconds)
    if failures:
        raise RuntimeError("\n".join(failures))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
