"""Runs the benchmarks: every bench/AREA_*.py, or those of one area. Figures go to standard output.

Each benchmark is a program that prints one JSON line per figure: name, value, unit, limit, better
("lower" or "higher"), peer, spread, held. Messages for people go to standard error, and at the end a table of the
areas. The exit code is 1 if

- a figure misses its limit and missed.toml does not list it
- a program crashes, prints no figure, or has not ended when its area's ten minutes are over
- missed.toml lists a figure that no program of its area prints any more

A program that ends with another code than 0 or 1, or by a signal, passes this code on. What a machine cannot measure is
waived: counted, and no failure. A listed figure that holds is told, and no failure: it may vary.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from figures import MISSED, holds, known_misses, missed_list

AREAS = (
    "net", "culprits", "wires", "node", "heap", "alloc", "io", "model", "events", "fabric", "numa", "report", "scale",
)  # fmt: skip
LIMIT_S = 600.0  # of an area
GRACE_S = 20.0  # in which a program that is told to end takes its lab down


@dataclass
class Area:
    """What the programs of an area printed, and what went wrong. ``figures``: by name, those of the last print."""

    name: str
    figures: dict[str, dict] = field(default_factory=dict)
    waived: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    worst: int = 0  # exit code

    def add(self, text: str) -> str | None:
        """Counts a line of a program. Returns the figure's name; None for a line that is no figure."""
        if not text.startswith("{"):
            return None
        try:
            line = json.loads(text)
            name = str(line["name"])
            if "waived" in line:
                self.waived[name] = str(line["waived"])
                return name
            held = line.get("held", holds(line["value"], line["limit"], line["better"]))
        except (ValueError, KeyError, TypeError) as error:
            self.fail(f"no figure: {text.strip()}: {error!r}")
            return None
        # A figure that is printed twice holds if both do.
        if self.figures.get(name, {}).get("held") is not False:
            self.figures[name] = {**line, "held": held}
        return name

    def names(self, held: bool) -> list[str]:
        return [name for name, line in self.figures.items() if line["held"] is held]

    def fail(self, text: str, code: int = MISSED) -> None:
        self.failures.append(text)
        self.worst = max(self.worst, code)

    def covers(self, name: str) -> bool:
        """Whether a figure was printed or waived. Of an area that failed, figures may be missing."""
        is_waived = any(name.startswith(prefix) for prefix in self.waived)
        return bool(self.failures) or name in self.figures or is_waived


def area_of(name: str) -> str:
    """The area of a figure: the first word of its name."""
    match = re.match(r"[a-z]+", name)
    return match[0] if match else ""


def end(process: subprocess.Popen[str]) -> None:
    """Ends a program and all that it started: it may clean up, then it is killed."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)


def run_program(program: Path, area: Area, limit_s: float) -> None:
    """Runs a program for at most ``limit_s``; passes its figures on as they come."""
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    figures: list[str] = []

    def read() -> None:
        assert process.stdout is not None
        for text in process.stdout:
            print(text, end="", flush=True)
            if name := area.add(text):
                figures.append(name)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    timed_out = False
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        end(process)
        reader.join(GRACE_S)
    judge(program.name, process.returncode, timed_out, figures, area)


def judge(name: str, code: int, timed_out: bool, figures: Sequence[str], area: Area) -> None:
    """Adds what went wrong with a program that has ended and printed these figures."""
    missed = (set(area.names(False)) & set(figures)) - set(known_misses(missed_list()))
    if timed_out:
        area.fail(f"{name} did not end in the area's time; {len(figures)} figures were measured")
    elif code < 0:
        area.fail(f"{name} was ended by signal {-code}", -code)
    elif code and not (code == MISSED and missed):
        area.fail(f"{name} ended with exit code {code}", code)
    elif not figures:
        area.fail(f"{name} printed no figure")


def run_area(name: str, programs: Sequence[Path], limit_s: float) -> Area:
    area, begun = Area(name), time.monotonic()
    for program in programs:
        left = limit_s - (time.monotonic() - begun)
        if left <= 0:
            area.fail(f"{program.name} did not start: the area's time is over")
            continue
        print(f"bench: {program.name}", file=sys.stderr)
        run_program(program, area, left)
    area.seconds = time.monotonic() - begun
    return area


def table(areas: Sequence[Area], listed: Sequence[str]) -> str:
    columns = ("figures", "held", "missed, listed", "missed, new", "listed, held", "waived", "minutes")
    lines = ["area    " + "".join(f"{title:>16}" for title in columns)]
    for area in areas:
        missed, held = area.names(False), area.names(True)
        known = [name in listed for name in missed]
        counts = (len(area.figures), len(held), sum(known), len(missed) - sum(known),
                  sum(name in listed for name in held), len(area.waived))  # fmt: skip
        lines.append(f"{area.name:8}" + "".join(f"{n:16}" for n in counts) + f"{area.seconds / 60:16.1f}")
    return "\n".join(lines)


def report(areas: Sequence[Area], listed: dict[str, str], list_name: str) -> int:
    """Prints the table and what is to be done. Returns the exit code."""
    print(table(areas, list(listed)), file=sys.stderr)
    worst = max((area.worst for area in areas), default=0)
    for area in areas:
        for name in area.names(False):
            line = area.figures[name]
            values = (
                f"{line['value']} {line.get('unit', '1')}, limit {line['limit']}, {line['better']} is better"
            )
            if name in listed:
                print(f"bench: missed, as listed: {name}: {values}: {listed[name]}", file=sys.stderr)
            else:
                print(f"bench: MISSED: {name}: {values}", file=sys.stderr)
                worst = max(worst, MISSED)
        for name in area.names(True):
            if name in listed:
                print(f"bench: holds now: {name}: remove it from {list_name}", file=sys.stderr)
        for name, reason in area.waived.items():
            print(f"bench: waived: {name}: {reason}", file=sys.stderr)
        for text in area.failures:
            print(f"bench: FAILED: {text}", file=sys.stderr)
        for name in listed:
            if area_of(name) == area.name and not area.covers(name):
                print(f"bench: no such figure: {name}: remove it from {list_name}", file=sys.stderr)
                worst = max(worst, MISSED)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("area", nargs="?", default="", help=f"one of {', '.join(AREAS)}")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="of the programs")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, metavar="S", help="of an area (default: %(default)s)"
    )
    args = parser.parse_args()
    if args.area and args.area not in AREAS:
        print(f"bench: unknown area '{args.area}'; choose one of {', '.join(AREAS)}", file=sys.stderr)
        return 2
    listed = known_misses(missed_list())
    unknown = [name for name in listed if area_of(name) not in AREAS]
    for name in unknown:
        print(f"bench: no such figure: {name}: no area has this name", file=sys.stderr)
    areas = []
    for name in AREAS:
        programs = sorted(args.folder.glob(f"{name}_*.py"))
        if programs and args.area in ("", name):
            areas.append(run_area(name, programs, args.limit))
    if not areas:
        print(f"bench: '{args.area or args.folder}' has no benchmark", file=sys.stderr)
        return MISSED
    return max(report(areas, listed, missed_list().name), MISSED if unknown else 0)


if __name__ == "__main__":
    sys.exit(main())
