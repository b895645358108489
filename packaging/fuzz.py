"""Fuzzes every reader of foreign bytes: the engines' under sanitizers, then Python's with hypothesis.

    fuzz.py [TIME]      TIME: of all together, such as 10min or 1h; by default 10min

Each reader gets an equal share, at the lowest priority. An input that fails is kept in build/tests/fuzz. Exit code 1 if
there is any.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from assay.errors import UserError
from assay.records.units import parse_in

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "tests" / "fuzz"
READERS = ROOT / "tests" / "python" / "hostile"
ROUNDS_PER_SECOND = 100  # of hypothesis, about; it is given rounds, not a time


def main(arguments: list[str]) -> int:
    try:
        seconds = parse_in(arguments[0] if arguments else "10min", "s")
    except UserError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    targets = sorted(path for path in FOLDER.glob("fuzz-*") if os.access(path, os.X_OK) and path.suffix == "")
    targets = [path for path in targets if not path.name.startswith("fuzz-failure")]
    tests = sorted(READERS.glob("test_*.py"))
    if not targets or not tests:
        print(f"fuzz: nothing to run in {FOLDER} and {READERS}; fix: make setup", file=sys.stderr)
        return 2
    share = seconds / (len(targets) + len(tests))
    failed = [target for target in targets if _run([str(target), "--seconds", str(share)], {})]
    rounds = {"ASSAY_FUZZ_ROUNDS": str(max(100, int(share * ROUNDS_PER_SECOND)))}
    failed += [test for test in tests if _run([sys.executable, "-m", "pytest", "-q", str(test)], rounds)]
    for path in failed:
        print(f"fuzz: {path.name} has failed", file=sys.stderr)
    return 1 if failed else 0


def _run(command: list[str], more: dict[str, str]) -> int:
    return subprocess.run(["nice", "-n", "19", *command], cwd=FOLDER, env={**os.environ, **more}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
