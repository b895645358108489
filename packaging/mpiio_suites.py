"""Runs the public MPI-IO test suites with an MPI's own I/O and with Assay's accelerator, and compares the outcomes.

    .venv/bin/python packaging/mpiio_suites.py --work /tmp/suites --mpi mpich
    .venv/bin/python packaging/mpiio_suites.py --work /tmp/suites --mpi openmpi --nodes lab --suite hdf5
    .venv/bin/python packaging/mpiio_suites.py --work /tmp/suites --mpi mpich --only 'romio/.*' --modes stock,store

MPICH's test/mpi/io, ROMIO's, HDF5's parallel and PnetCDF's tests are fetched from Debian's sources and built (ten
minutes); they need apt's source packages, autoconf, automake, libtool and m4. ``--nodes``: ``one``; ``split``, where
the ranks of this machine are treated as two nodes; ``lab``, two hosts of a virtual cluster, as root (Open MPI and the
wheel of MPICH). The exit code is 1 if a program ends differently.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from mpiio_cases import LEFT_OUT, SUITES, Case, cases  # noqa: E402 - the path comes first
from mpiio_sources import SuiteError, build, fetch  # noqa: E402

from assay.errors import UserError  # noqa: E402
from assay.lab import Lab, Rates, take_down  # noqa: E402
from assay.launch.accelerator import environment  # noqa: E402
from assay.launch.launchers import LAUNCHERS, Launcher  # noqa: E402
from assay.launch.placement import HERE, Segment, Site, lab_site  # noqa: E402

STORE_BYTES = 192 << 20
PATIENT_MPI = ROOT / "build/tests/patient_mpi/libpatient-mpi.so"  # see tests/engines/patient_mpi
NO_RATES = Rates(None, None, None, None)
# How the programs do their I/O. stock: the MPI's own. direct: the accelerator without its store, the default on a local
# file system. store: through the store. memory: as store, and close returns when the data are in memory.
MODES = {
    "stock": None,
    "direct": {"ASSAY_IO_DIRECT": "1"},
    "store": {"ASSAY_IO_DIRECT": "0"},
    "memory": {"ASSAY_IO_DIRECT": "0", "ASSAY_IO_UNTIL": "memory"},
}


@dataclass(frozen=True)
class Place:
    """Where the ranks run. ``hosts``: in the order in which ranks are given to them."""

    name: str
    site: Site
    hosts: list[str]

    def hosts_of_ranks(self, ranks: int) -> list[str]:
        """The host of each rank: each host has a block of ranks."""
        share = -(-ranks // len(self.hosts))
        return [self.hosts[rank // share] for rank in range(ranks)]


@contextmanager
def place(nodes: str) -> Iterator[Place]:
    """The place for --nodes; a lab is taken down at the end."""
    if nodes != "lab":
        yield Place(nodes, HERE, [socket.gethostname()])
        return
    lab = Lab.up(2, 1, NO_RATES, with_slurm=False, name=f"suites-{os.getpid()}", mtu=1500)
    try:
        yield Place(nodes, lab_site(lab), list(lab.hosts))
    finally:
        take_down(lab.name)


class Runner:
    """Starts programs of one MPI in one place."""

    def __init__(self, launcher: Launcher, place: Place, limit_s: float, work: Path) -> None:
        self.launcher, self.place, self.limit_s, self.work = launcher, place, limit_s, work
        self.validator = work / "build" / launcher.name / "pnetcdf/src/utils/ncvalidator/ncvalidator"

    def outcome(self, case: Case, mode: str) -> str:
        """passed, failed or "no end". The output is kept in the folder ``logs``."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.work))
        log = (
            self.work
            / "logs"
            / f"{self.launcher.name}-{self.place.name}"
            / f"{case.suite}-{case.name}.{mode}"
        )
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            result, output = self._run(case, mode, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        log.write_text(f"{result}\n{output}")
        return result

    def _run(self, case: Case, mode: str, folder: Path) -> tuple[str, str]:
        file, output = str(folder / "file.nc"), ""
        for step in case.steps:
            code, text = self._start(
                [word.replace("{file}", file) for word in step], case.ranks, mode, folder
            )
            output += text
            if code is None:
                return "no end", output
            if code:
                return "failed", output + f"\nexit code {code}"
        if not case.has_passed(output):
            return "failed", output + f"\nno line matches: {case.success_pattern}"
        for suffix in case.files:
            checked = subprocess.run(
                [self.validator, "-q", file + suffix], capture_output=True, text=True, timeout=60
            )
            if checked.returncode and Path(file + suffix).exists():
                return "failed", output + checked.stdout + checked.stderr
        return "passed", output

    def _start(self, program: list[str], ranks: int, mode: str, folder: Path) -> tuple[int | None, str]:
        """The exit code (None: it did not end) and the output."""
        command = self.launcher.command(
            self.place.site, [Segment(self.place.hosts_of_ranks(ranks), self._settings(mode, ranks))], program
        )
        with (folder / "output").open("w+", errors="replace") as out:
            process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, **self.launcher.environment(self.place.site)},
            )  # fmt: skip
            try:
                code: int | None = process.wait(self.limit_s)
            except subprocess.TimeoutExpired:
                code = None
                self._end(process)
            out.seek(0)
            return code, out.read()

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """The launcher gets a chance to end the ranks of other hosts."""
        for number, wait_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 10)):
            os.killpg(process.pid, number)
            try:
                process.wait(wait_s)
                return
            except subprocess.TimeoutExpired:
                continue

    def _settings(self, mode: str, ranks: int) -> dict[str, str]:
        """Ranks yield the processor while they wait: there may be more of them than processors."""
        settings = {"OMPI_MCA_mpi_yield_when_idle": "1"} if self.launcher.name == "openmpi" else {}
        libraries = [str(PATIENT_MPI)] if not settings and PATIENT_MPI.exists() else []
        chosen = MODES[mode]
        if chosen is not None:
            split = {"ASSAY_IO_RANKS_PER_NODE": str(-(-ranks // 2))} if self.place.name == "split" else {}
            accelerator = environment(self.launcher.name, size=STORE_BYTES, required=True)
            libraries.insert(0, accelerator["LD_PRELOAD"])
            settings |= accelerator | chosen | split
        return settings | ({"LD_PRELOAD": ":".join(libraries)} if libraries else {})


def compare(runner: Runner, chosen: list[Case], modes: list[str]) -> list[tuple[Case, list[str]]]:
    """The outcome of each case by mode."""
    results = []
    for case in chosen:
        outcomes = [runner.outcome(case, mode) for mode in modes]
        same = len(set(outcomes)) == 1
        text = outcomes[0] if same else ", ".join(map(" ".join, zip(modes, outcomes, strict=True)))
        print(f"{case.suite}/{case.name}: {text}", flush=True)
        results.append((case, outcomes))
    return results


def table(results: list[tuple[Case, list[str]]], modes: list[str], title: str) -> str:
    """Markdown: of each suite how many programs have passed, by mode, and how many end differently."""
    lines = [f"| {title} | programs | " + " | ".join(modes) + " | differ |", "|---" * (len(modes) + 3) + "|"]
    for suite in SUITES:
        of_suite = [outcomes for case, outcomes in results if case.suite == suite]
        if of_suite:
            passed = [str(sum(outcomes[k] == "passed" for outcomes in of_suite)) for k in range(len(modes))]
            differ = sum(len(set(outcomes)) > 1 for outcomes in of_suite)
            lines.append(f"| {suite} | {len(of_suite)} | {' | '.join(passed)} | {differ} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for sources, programs and outputs")
    parser.add_argument("--mpi", choices=["mpich", "openmpi", "mpich-wheel"], required=True)
    parser.add_argument("--nodes", choices=["one", "split", "lab"], default="one", help="(default: one)")
    parser.add_argument("--suite", choices=SUITES, action="append", help="(default: all)")
    parser.add_argument("--modes", default="stock,direct,store", help="of " + ", ".join(MODES))
    parser.add_argument("--only", default="", metavar="REGEX", help="of SUITE/NAME")
    parser.add_argument(
        "--timeout", type=float, default=180.0, help="seconds for each program (default: 180)"
    )
    args = parser.parse_args()
    args.modes = args.modes.split(",")
    if unknown := [mode for mode in args.modes if mode not in MODES]:
        parser.error(f"--modes {unknown[0]}: not one of {', '.join(MODES)}")
    if args.nodes == "lab" and args.mpi == "mpich":
        parser.error("MPICH 4.0 hangs at its end across lab hosts; fix: --mpi mpich-wheel, or --nodes split")
    args.suite = args.suite or [suite for suite in SUITES if (suite, args.mpi) != ("hdf5", "mpich-wheel")]
    return args


def main() -> int:
    args, began = parse(), time.monotonic()
    work = args.work.resolve()
    try:
        missing = build(work, fetch(work), args.mpi, args.suite)
        (launcher,) = (candidate for candidate in LAUNCHERS if candidate.name == args.mpi)
        chosen = [case for suite in args.suite for case in cases(work / "build" / args.mpi, suite)]
        chosen = [case for case in chosen if re.fullmatch(args.only or ".*", f"{case.suite}/{case.name}")]
        with place(args.nodes) as chosen_place:
            results = compare(Runner(launcher, chosen_place, args.timeout, work), chosen, args.modes)
    except (SuiteError, UserError) as error:
        print(f"mpiio_suites: {error}", file=sys.stderr)
        return 2
    print(table(results, args.modes, f"{args.mpi}, {args.nodes}"))
    print("not run: " + ", ".join(f"{name} ({why})" for name, why in LEFT_OUT.items()))
    if missing:
        print("not built: " + ", ".join(missing))
    counted = Counter(outcome for _, outcomes in results for outcome in outcomes)
    print(", ".join(f"{count} {name}" for name, count in counted.items()), end="")
    print(f"; {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}; outputs in {work / 'logs'}")
    return int(any(len(set(outcomes)) > 1 for _, outcomes in results))


if __name__ == "__main__":
    sys.exit(main())
