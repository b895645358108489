"""A chaos test of the parallel I/O accelerator: random operations, and a random fault in the middle.

    python tests/python/accelerator/chaos.py --runs 1000 --seed 1 --jobs 1
    python tests/python/accelerator/chaos.py --seed 17 --keep

A run is planned from its seed (chaos_plan.py) and executed by tests/engines/chaos_io. The writes that MPI has
acknowledged are compared with the files, before and after ``assay io recover`` (chaos_check.py). Runs of the same seed
have the same operations; the moment of a fault varies a little. Each minute one line tells how far it is. Ctrl-C or
SIGTERM ends it after the runs that are under way; what has run is counted.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

from chaos_plan import FAULTS, Plan, make_plan  # noqa: E402
from chaos_run import PROGRAMS, Result, run_plan  # noqa: E402
from mpi_programs import MPIS  # noqa: E402

SCRIPT = Path(__file__).relative_to(ROOT)
TELL_S = 60.0


def mpis(stock: bool = False) -> list[str]:
    """The MPIs whose chaos_io is built. ``stock`` leaves out Open MPI, whose own I/O hangs sometimes."""
    built = [mpi for mpi in MPIS if (PROGRAMS / f"chaos_io-{mpi}").exists()]
    return [mpi for mpi in built if not (stock and mpi == "openmpi")]


@dataclass(frozen=True)
class Options:
    """The options of all runs. A run is determined by them and its seed."""

    operations: int = 120
    fault: str | None = None
    without: tuple[str, ...] = ()
    stock: bool = False
    route: str | None = None  # store, direct; None: by the seed

    def plan(self, seed: int) -> Plan:
        direct = self.route == "direct" if self.route else None
        plan = make_plan(seed, mpis(self.stock), self.operations, self.fault, self.without, direct)
        if self.stock:
            plan.level, plan.consistency, plan.through_io_run = "file", "posix", False
        return plan

    def repeat(self, seed: int) -> str:
        """The command line that repeats a run."""
        command = [f"python {SCRIPT} --seed {seed}"]
        command += [f"--operations {self.operations}"] if self.operations != Options.operations else []
        command += [f"--fault {self.fault}"] if self.fault else []
        command += [f"--without {kind}" for kind in self.without]
        command += [f"--route {self.route}"] if self.route else []
        return " ".join([*command, *(["--stock"] if self.stock else [])])


def run_seed(seed: int, options: Options, keep: bool = False) -> Result:
    return run_plan(options.plan(seed), keep, options.stock)


def report(result: Result, repeat: str, lines: int = 4) -> str:
    """The first ``lines`` violations of a run, and the command that repeats it."""
    lines_of_report = [f"seed {result.plan.seed}: {result.plan.summary()}"]
    lines_of_report += [f"  {violation.kind}: {violation.text}" for violation in result.violations[:lines]]
    if len(result.violations) > lines:
        lines_of_report.append(f"  and {len(result.violations) - lines} more")
    if result.folder:
        lines_of_report.append(f"  kept in {result.folder}")
    return "\n".join([*lines_of_report, f"  repeat: {repeat}"])


class Summary:
    """Runs and violations by fault."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.kinds: dict[str, Counter[str]] = {}

    def add(self, result: Result, ignored: set[str]) -> None:
        fault = result.plan.fault
        kinds = {violation.kind for violation in result.violations} - ignored
        self.runs[fault] += 1
        self.bad[fault] += bool(kinds)
        self.seconds[fault] += result.seconds
        self.kinds.setdefault(fault, Counter()).update(kinds)

    def text(self) -> str:
        lines = [f"{'fault':10} {'runs':>5} {'bad':>5} {'s each':>7}  runs with"]
        for fault in (*FAULTS, "all"):
            is_total = fault == "all"
            runs = self.runs.total() if is_total else self.runs[fault]
            if not runs:
                continue
            bad = self.bad.total() if is_total else self.bad[fault]
            seconds = (self.seconds.total() if is_total else self.seconds[fault]) / runs
            counted = sum(self.kinds.values(), Counter()) if is_total else self.kinds[fault]
            kinds = ", ".join(f"{kind} {count}" for kind, count in counted.most_common())
            lines.append(f"{fault:10} {runs:5} {bad:5} {seconds:7.2f}  {kinds}")
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1, help="seeds from --seed on (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument(
        "--operations", type=int, default=Options.operations, help="of a run (default: %(default)s)"
    )
    parser.add_argument("--fault", choices=list(FAULTS), help="this fault in every run")
    parser.add_argument(
        "--route",
        choices=["store", "direct"],
        help="whether files may be written directly (default: odd seeds)",
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="KIND", help="leave an operation out"
    )
    parser.add_argument("--ignore", action="append", default=[], metavar="KIND", help="a kind of violation")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that fails")
    parser.add_argument("--stock", action="store_true", help="with the MPI's own I/O: tests this checker")
    parser.add_argument("--plan", action="store_true", help="only print the plan of --seed")
    parser.add_argument(
        "--quiet", action="store_true", help="only print the summary and the command of each bad run"
    )
    args = parser.parse_args()
    if not mpis():
        parser.error(f"no chaos_io in {PROGRAMS}; fix: make test, or ninja -C build")
    options = Options(args.operations, args.fault, tuple(args.without), args.stock, args.route)
    if args.plan:
        plan = options.plan(args.seed)
        print(f"# {plan.summary()}\n{plan.text()}", end="")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run_all(args, options)


def completed(
    runs: set[Future[Result]], tell: Callable[[], None], clock: Callable[[], float] = time.monotonic
) -> Iterator[Future[Result]]:
    """The runs in the order of their ends. Calls ``tell`` once a minute."""
    next_s = clock() + TELL_S
    while runs:
        done, runs = wait(runs, timeout=max(0.0, next_s - clock()), return_when=FIRST_COMPLETED)
        yield from done
        if clock() >= next_s:
            next_s += TELL_S
            tell()


def leave_signals_to_the_parent() -> None:
    """Ctrl-C and timeout(1) reach all processes of the group. The runs that are under way end by themselves."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def run_all(args: argparse.Namespace, options: Options) -> int:
    summary, ignored = Summary(), set(args.ignore)
    counted = set()

    def count(run: Future[Result]) -> None:
        counted.add(run)
        result = run.result()
        summary.add(result, ignored)
        result.violations = [violation for violation in result.violations if violation.kind not in ignored]
        if result.folder and not result.violations:
            shutil.rmtree(result.folder)
        if result.violations:
            command = options.repeat(seeds[run])
            print(command if args.quiet else report(result, command), flush=True)

    def how_far() -> str:
        return f"{len(counted)} of {args.runs} runs, {summary.bad.total()} bad"

    with ProcessPoolExecutor(args.jobs, initializer=leave_signals_to_the_parent) as pool:
        seeds = {
            pool.submit(run_seed, seed, options, args.keep): seed
            for seed in range(args.seed, args.seed + args.runs)
        }
        try:
            for run in completed(set(seeds), lambda: print(how_far(), file=sys.stderr, flush=True)):
                count(run)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            for run in seeds:
                if run not in counted and not run.cancelled():
                    count(run)
    print(f"{summary.text()}\n{how_far()}", flush=True)
    return int(summary.bad.total() > 0 or len(counted) < args.runs)


if __name__ == "__main__":
    sys.exit(main())
