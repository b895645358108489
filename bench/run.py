"""Runs the benchmarks: every bench/AREA_*.py, or those of one area. Figures go to standard output.

Each benchmark is a program that prints one JSON line per figure: name, value, unit, limit, better
("lower" or "higher"), peer, spread. Messages for people go to standard error.
"""

import pathlib
import subprocess
import sys

AREAS = ("net", "node", "heap", "alloc", "io", "model", "events", "fabric", "numa", "report")


def main() -> int:
    area = sys.argv[1] if len(sys.argv) > 1 else ""
    if area and area not in AREAS:
        print(f"bench: unknown area '{area}'; choose one of {', '.join(AREAS)}", file=sys.stderr)
        return 2
    here = pathlib.Path(__file__).parent
    chosen = [p for p in sorted(here.glob("*_*.py")) if not area or p.name.startswith(area + "_")]
    if not chosen:
        print(f"bench: the area '{area}' has no benchmark", file=sys.stderr)
        return 0
    worst = 0
    for program in chosen:
        print(f"bench: {program.name}", file=sys.stderr)
        worst = max(worst, abs(subprocess.run([sys.executable, str(program)], check=False).returncode))
    return worst


if __name__ == "__main__":
    sys.exit(main())
