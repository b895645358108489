"""Run in a guest with two nodes for ``test_two_nodes.py``: ``assay numa`` of each program, all in one process, since an
emulated processor takes long to start Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from assay.cli import main


def numa(run: Path, *arguments: str) -> int:
    return main(["numa", "-o", str(run), *arguments])


def record(folder: Path, placed: str, *counted: str) -> dict[str, int]:
    """The exit code of each run in ``folder``. ``counted``: programs that count their accesses."""
    codes = {how: numa(folder / how, "--", placed, how) for how in ("serial", "parallel")}
    for number, program in enumerate(counted):
        before, after = folder / f"before{number}", folder / f"after{number}"
        codes[before.name] = numa(before, "--", program, "serial")
        codes[after.name] = numa(after, "--apply", str(before), "--", program, "serial")
    return codes


def keep_pages_in_place() -> None:
    """Ends the kernel's automatic balancing, which moves and unmaps pages of a program that takes seconds, as on a
    busy emulated machine: the tests are of pages as they were touched first."""
    balancing = Path("/proc/sys/kernel/numa_balancing")
    if balancing.exists():
        balancing.write_text("0")


if __name__ == "__main__":
    keep_pages_in_place()
    where = Path(sys.argv[1])
    (where / "codes").write_text(json.dumps(record(where, *sys.argv[2:])))
