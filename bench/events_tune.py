"""The search for the best parameters (``assay eb tune``) on synthetic landscapes whose best point is known.

The figures are the rate at the point that the search finds over the best rate of the full grid, and the share of the
grid that it measures. The peer is a random search with as many measurements.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python" / "events"), str(ROOT / "bench")]

from figures import exit_code_of, figure  # noqa: E402
from planted_landscape import SPACE, Landscape  # noqa: E402

from assay.events.tuner import Tuner, budget_of  # noqa: E402

LANDSCAPES = range(1, 21)  # seeds


def main() -> int:
    shares, random_shares, costs, seconds = [], [], [], []
    for number in LANDSCAPES:
        landscape = Landscape(number)
        start = time.process_time()
        result = Tuner(SPACE, landscape.measure, seed=number).run()
        seconds.append((time.process_time() - start) / result.measured)
        assert result.best is not None
        shares.append(landscape.rate(result.best) / landscape.best)
        costs.append(result.measured / SPACE.size)
        sample = random.Random(number).sample(list(SPACE.points()), budget_of(SPACE))
        random_shares.append(landscape.rate(max(sample, key=landscape.measure)) / landscape.best)
        print(
            f"bench: landscape {number}: search {shares[-1]:.4f}, at random {random_shares[-1]:.4f} of the best",
            file=sys.stderr,
        )
    figure(
        "events.tune.worst_share_of_best", [min(shares)], 0.98, "higher", peer=round(min(random_shares), 4)
    )
    figure(
        "events.tune.share_of_best",
        shares,
        0.98,
        "higher",
        peer=round(sorted(random_shares)[len(random_shares) // 2], 4),
    )
    figure("events.tune.measured_share_of_grid", costs, 0.1, "lower")
    figure("events.tune.cpu_seconds_per_point", seconds, 0.1, "lower", unit="s")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
