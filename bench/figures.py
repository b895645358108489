"""One figure of a benchmark as a JSON line: the median of its rounds, their spread, its limit and its peer."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence


def figure(
    name: str,
    values: Sequence[float],
    limit: float | None,
    better: str,
    unit: str = "1",
    peer: object = None,
) -> None:
    """``better``: lower or higher. ``spread``: the median distance from the median."""
    middle = statistics.median(values)
    spread = statistics.median(abs(v - middle) for v in values)
    print(json.dumps({"name": name, "value": round(middle, 4), "unit": unit, "limit": limit, "better": better,
                      "peer": peer, "spread": round(spread, 4)}), flush=True)  # fmt: skip
