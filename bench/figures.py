"""Prints the figures of a benchmark as JSON lines, and tells whether each holds its limit.

A figure has the median of its rounds, their spread, its limit and its peer: the program or the operation that it is
compared with. ``held`` says whether the value is within the limit; it is null without a limit. A figure that misses its
limit makes the program exit with 1, unless missed.toml lists it with a reason. What cannot be measured here is a line
with ``waived``, the reason.

A benchmark is a function that ``exit_code_of`` calls:

    if __name__ == "__main__":
        sys.exit(exit_code_of(main))
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

MISSED, CRASHED, STOPPED = 1, 3, 124  # exit codes; 124 is that of timeout(1)

_new_misses: list[str] = []


def missed_list() -> Path:
    """The file of the limits that are known to be missed. ASSAY_BENCH_MISSED names another one, for tests."""
    return Path(os.environ.get("ASSAY_BENCH_MISSED") or Path(__file__).with_name("missed.toml"))


def known_misses(path: Path) -> dict[str, str]:
    """The reason of each figure that is listed as missed."""
    entries = tomllib.loads(path.read_text()) if path.exists() else {}
    for name, entry in entries.items():
        if not isinstance(entry, dict) or not str(entry.get("reason", "")).strip() or "seen" not in entry:
            raise ValueError(f"{path.name}: '{name}' needs a reason and seen, the last value")
    return {name: str(entry["reason"]) for name, entry in entries.items()}


def holds(value: float, limit: float | None, better: str) -> bool | None:
    """Whether a value is within its limit; None without a limit. What is not a number holds none."""
    if better not in ("lower", "higher"):
        raise ValueError(f"better is lower or higher, not '{better}'")
    if limit is None:
        return None
    return bool(value <= limit if better == "lower" else value >= limit)  # numpy has its own bool


def figure(
    name: str,
    values: Sequence[float],
    limit: float | None,
    better: str,
    unit: str = "1",
    peer: object = None,
    spread: float | None = None,
) -> None:
    """``better``: lower or higher. ``spread`` is the median absolute deviation (MAD) of the values, unless given."""
    median = statistics.median(values)
    if spread is None:
        spread = statistics.median(abs(v - median) for v in values)
    _tell({"name": name, "value": round(median, 4), "unit": unit, "limit": limit, "better": better,
           "peer": peer, "spread": round(spread, 4), "held": holds(median, limit, better)})  # fmt: skip


def pass_on(output: str) -> None:
    """Prints the figures of a program in C++, one JSON line each."""
    for text in output.splitlines():
        line = json.loads(text)
        _tell({**line, "held": holds(line["value"], line["limit"], line["better"])})


def waived(name: str, reason: str) -> None:
    """Says why a figure, or all whose names begin with ``name``, cannot be measured on this machine."""
    print(f"bench: {name}: not measured: {reason}", file=sys.stderr)
    _tell({"name": name, "waived": reason})


def _tell(line: Mapping[str, object]) -> None:
    print(json.dumps(line), flush=True)
    name = str(line["name"])
    if line.get("held") is False and name not in known_misses(missed_list()):
        _new_misses.append(name)


def exit_code_of(main: Callable[[], int | None]) -> int:
    """Calls a benchmark. Returns its exit code: 1 if a figure misses its limit and is not listed, 3 after a crash.

    A benchmark that is told to end cleans up first, so that no lab is left behind.
    """
    signal.signal(signal.SIGTERM, _stop)
    try:
        status = main() or 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        status = ended.code if isinstance(ended.code, int) else CRASHED if ended.code else 0
    except Exception:
        traceback.print_exc()
        return CRASHED
    for name in _new_misses:
        print(f"bench: {name}: misses its limit and is not in {missed_list().name}", file=sys.stderr)
    return status or (MISSED if _new_misses else 0)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(STOPPED)
