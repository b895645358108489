"""Prints a figure of a benchmark as a JSON line: the median of its rounds, their spread, its limit and its peer.

The peer is the program or the operation that the figure is compared with.
"""

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
    """``better``: lower or higher. ``spread`` in the line is the median absolute deviation (MAD)."""
    median = statistics.median(values)
    spread = statistics.median(abs(v - median) for v in values)
    print(json.dumps({"name": name, "value": round(median, 4), "unit": unit, "limit": limit, "better": better,
                      "peer": peer, "spread": round(spread, 4)}), flush=True)  # fmt: skip
