#!/usr/bin/env python3
"""How often the comparison with peers (python/assay/explain/peers.py) accuses a healthy node: the rule itself on
simulated hosts that are equal but for their scatter, which has one of three distributions.

Each figure is the number of accusations among 1,000,000 comparisons, by the distribution, the number of peers, and the
standard deviation of the hosts. Up to 5 % they have a limit; at 10 % hosts are too unlike for the rule. ``--table``
prints the table in the head of peers.py, as shares.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, figure  # noqa: E402 - the path comes first

from assay.explain.peers import is_slow  # noqa: E402 - the path comes first

COMPARISONS, AT_ONCE = 1_000_000, 250_000
PEERS, DEVIATIONS = (3, 7, 8, 15), (0.03, 0.05, 0.1)
MOST = 3000  # accusations among 1,000,000 at a standard deviation of 5 %
Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
# Each with a standard deviation of 1.
LAWS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "Laplace": lambda rng, shape: rng.laplace(0, np.sqrt(0.5), shape),
    "Student's t": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
}


def accusations(law: str, peers: int, deviation: float) -> int:
    """How often the first of ``peers`` + 1 equal hosts is accused."""
    rng = np.random.default_rng([list(LAWS).index(law), peers, round(1000 * deviation)])
    count = 0
    for _ in range(COMPARISONS // AT_ONCE):
        rates = 1 + deviation * LAWS[law](rng, (AT_ONCE, peers + 1))
        count += int(np.count_nonzero(is_slow(rates[:, 0], 0.0, rates[:, 1:])))
    return count


def share(count: int) -> str:
    """ "6.9e-5", as the table has it."""
    mantissa, _, exponent = f"{count / COMPARISONS:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if count else "0"


def main() -> None:
    for peers in PEERS:
        row = f"    {peers:<6}"
        for law in LAWS:
            counts = [accusations(law, peers, deviation) for deviation in DEVIATIONS]
            row += "".join(f" {share(count):<6}" for count in counts)
            for deviation, count in zip(DEVIATIONS, counts, strict=True):
                name = f"node.peers.{law}.{peers} peers.{deviation:.0%}"
                if "--table" not in sys.argv:
                    figure(name, [float(count)], MOST if deviation <= 0.05 else None, "lower")
        if "--table" in sys.argv:
            print(row.rstrip())


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
