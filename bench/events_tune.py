"""The search for the best parameters against planted landscapes: how near it comes to the best of the full grid, at
which cost. The figures are those of all landscapes, none is left out; a random search of the same cost is the peer."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python" / "events"), str(ROOT / "bench")]

from figures import figure  # noqa: E402
from planted_landscape import SPACE, Landscape  # noqa: E402

from assay.events.tuner import Tuner, budget_of  # noqa: E402

LANDSCAPES = range(1, 21)


def main() -> int:
    reached, drawn, costs, seconds = [], [], [], []
    for number in LANDSCAPES:
        landscape = Landscape(number)
        begun = time.process_time()
        result = Tuner(SPACE, landscape.measure, seed=number).run()
        seconds.append((time.process_time() - begun) / result.measured)
        assert result.best is not None
        reached.append(landscape.rate(result.best) / landscape.best)
        costs.append(result.measured / SPACE.size)
        sample = random.Random(number).sample(list(SPACE.points()), budget_of(SPACE))
        drawn.append(landscape.rate(max(sample, key=landscape.measure)) / landscape.best)
        print(
            f"bench: landscape {number}: search {reached[-1]:.4f}, at random {drawn[-1]:.4f} of the best",
            file=sys.stderr,
        )
    figure("events.tune.worst_share_of_best", [min(reached)], 0.98, "higher", peer=round(min(drawn), 4))
    figure(
        "events.tune.share_of_best", reached, 0.98, "higher", peer=round(sorted(drawn)[len(drawn) // 2], 4)
    )
    figure("events.tune.share_of_the_grids_cost", costs, 0.1, "lower")
    figure("events.tune.seconds_of_computing_a_point", seconds, 0.1, "lower", unit="s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
