"""Fuzzes every reader of untrusted input: the engines' under sanitizers, then Python's with hypothesis.

    fuzz.py [TIME]      TIME: of all together, such as 10min or 1h; by default 10min

Each reader gets an equal share, at the lowest priority, and its rounds are printed. An input that fails is kept in
build/sanitized/tests/fuzz/fuzz-failure. Exit code 1 if there is any.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from assay.errors import UserError
from assay.records.units import parse_in

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "sanitized" / "tests" / "fuzz"
READERS = ROOT / "tests" / "python" / "hostile"
ROUNDS_PER_SECOND = 100  # of hypothesis, roughly: it takes a number of rounds, not a time


def main(arguments: list[str]) -> int:
    try:
        seconds = parse_in(arguments[0] if arguments else "10min", "s")
    except UserError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    targets = sorted(path for path in FOLDER.glob("fuzz-*") if path.is_file() and os.access(path, os.X_OK))
    readers = [(target, name) for target in targets for name in _output([str(target), "--list"]).split()]
    tests = sorted(READERS.glob("test_*.py"))
    if not readers or not tests:
        print(
            f"fuzz: nothing to run in {FOLDER} and {READERS}; fix: packaging/setup.sh acceptance",
            file=sys.stderr,
        )
        return 2
    collected = _output([sys.executable, "-m", "pytest", "--collect-only", "-q", *map(str, tests)])
    share = seconds / (len(readers) + collected.count("::"))
    failed = []
    for target, name in readers:
        if _run([str(target), "--reader", name, "--seconds", str(share)], {}):
            failed.append(name)
    rounds = {"ASSAY_FUZZ_ROUNDS": str(max(100, int(share * ROUNDS_PER_SECOND)))}
    show = ["-q", "--hypothesis-show-statistics"]
    failed += [
        test.name for test in tests if _run([sys.executable, "-m", "pytest", *show, str(test)], rounds)
    ]
    for reader in failed:
        print(f"fuzz: {reader} has failed", file=sys.stderr)
    return 1 if failed else 0


def _output(command: list[str]) -> str:
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True).stdout


def _run(command: list[str], more: dict[str, str]) -> int:
    return subprocess.run(["nice", "-n", "19", *command], cwd=FOLDER, env={**os.environ, **more}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
