"""A chaos test of event building: random deaths of a process, a link or a whole host during each run.

    python tests/python/events/events_chaos.py --runs 200 --seed 1
    python tests/python/events/events_chaos.py --runs 40 --deaths 5
    python tests/python/events/events_chaos.py --runs 40 --returns
    python tests/python/events/events_chaos.py --runs 40 --returns --planned
    python tests/python/events/events_chaos.py --seed 17 --keep

A run is planned from its seed: which rank dies, how and when, and the event builder's protocol and policy. It builds
events on a lab over a transport that survives deaths. With --deaths one rank after the other dies. With --returns the
cause is taken away as soon as the others build again (the link comes up, the process goes on, a killed one is started
again), and the rank has to come back and take part; such a run has no times of its own: it ends with its last return.
The checks: building
goes on, the ledger (the counts of events and fragments) has no corrupt and no duplicate fragment, every assigned
fragment is accounted for (otherwise the engine ends with an error), and each death is reported with the time until
events were complete again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

from assay.events.figures import WRONG_FRAGMENTS, buildings  # noqa: E402
from assay.lab import Fault, Lab, Rates, take_down  # noqa: E402
from assay.lab.namespaces import find_processes  # noqa: E402
from assay.lab.traffic import parse_rate  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.schema import Failure, Measurement  # noqa: E402

SCRIPT = Path(__file__).relative_to(ROOT)
FAULTS = (
    "kill",
    "link",
    "freeze",
)  # kill -9; the link is taken down; the process is stopped, as a host that hangs
RATE = "400mbit"
AFTER_S = 6.5  # of building after the latest fault: a busy machine notices a silent host in 3 s
FIRST_S, NEXT_S = (0.5, 1.5), (1.0, 2.0)  # until the first death; between two, so that building resumes
LIMIT_S = 120.0  # against hangs
SLICE_S = 0.1
READY_S = 60.0  # until every rank runs
RETURN_S = 60.0  # until a rank is lost, or takes part again
RESTART_S = 0.5


@dataclass(frozen=True)
class Death:
    """``after_s``: seconds after every rank runs, or after the death before."""

    fault: str
    rank: int
    after_s: float

    def summary(self) -> str:
        return f"{self.fault} of rank {self.rank} after {self.after_s:.2f} s"


@dataclass(frozen=True)
class Plan:
    seed: int
    deaths: tuple[Death, ...]
    protocol: str
    policy: str
    transport: str
    heartbeat_ms: int  # a host that is silent for three of these is lost
    returns: bool = False  # each rank comes back before the next one dies
    planned: bool = False  # with a schedule file

    @property
    def budget_s(self) -> float:
        """The same for all plans with as many deaths. With returns the last one ends the run."""
        if self.returns:
            return LIMIT_S + 2 * RETURN_S * len(self.deaths)
        return FIRST_S[1] + NEXT_S[1] * (len(self.deaths) - 1) + AFTER_S

    def summary(self) -> str:
        deaths = ", ".join(death.summary() for death in self.deaths)
        further = " and return" * self.returns + ", planned" * self.planned
        return f"{self.transport}, {self.protocol}, {self.policy}: {deaths}{further}"


def make_plan(
    seed: int,
    hosts: int,
    transport: str = "tcp",
    fault: str | None = None,
    heartbeat_ms: int = 50,
    deaths: int = 1,
    returns: bool = False,
    planned: bool = False,
) -> Plan:
    rng = random.Random(seed)
    # Rank 0 manages the events; no run survives its death.
    first = Death(fault or rng.choice(FAULTS), rng.randrange(1, hosts), rng.uniform(*FIRST_S))
    protocol, policy = rng.choice(["push", "pull"]), rng.choice(["drop", "mark"])
    others = rng.sample([rank for rank in range(1, hosts) if rank != first.rank], deaths - 1)
    later = [Death(fault or rng.choice(FAULTS), rank, rng.uniform(*NEXT_S)) for rank in others]
    return Plan(seed, (first, *later), protocol, policy, transport, heartbeat_ms, returns, planned)


@dataclass
class Result:
    plan: Plan
    violations: list[str] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)  # s, of each death that building resumed after
    returns: list[float] = field(default_factory=list)  # s, from each loss until its rank took part again
    replans: list[float] = field(default_factory=list)  # s, from a loss or return until all follow a new plan
    built: float = 0.0
    incomplete: float = 0.0
    folder: Path | None = None


def run_plan(plan: Plan, lab: Lab, keep: bool = False) -> Result:
    folder = Path(tempfile.mkdtemp(prefix=f"assay-events-{plan.seed}-", dir="/var/tmp"))
    result = Result(plan, folder=folder)
    try:
        _run(plan, lab, folder / "run", result)
    finally:
        lab.fault(lab.hosts, None)
    if not keep and not result.violations:
        shutil.rmtree(folder)
        result.folder = None
    return result


def _run(plan: Plan, lab: Lab, path: Path, result: Result) -> None:
    command = [
        sys.executable,
        "-m",
        "assay",
        "eb",
        "--lab",
        lab.name,
        "--transport",
        plan.transport,
        "--alone",
    ]
    command += [
        "--protocol",
        plan.protocol,
        "--policy",
        plan.policy,
        "--size",
        "64KiB",
        "--slice",
        f"{SLICE_S}s",
    ]
    command += [
        "--heartbeat-ms",
        str(plan.heartbeat_ms),
        "--budget",
        f"{plan.budget_s}s",
        "--json",
        "-o",
        str(path),
    ]
    if plan.returns:
        command += ["--restart", f"{RESTART_S}s"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    if plan.planned:
        command += ["--schedule-file", str(_write_schedule(len(lab.hosts), path.parent, environment))]
        command += ["--synchronised"] * (plan.protocol == "push" and plan.seed % 2)
    hosts = [lab.hosts[death.rank] for death in plan.deaths]
    with (path.parent / "out").open("wb") as out, (path.parent / "err").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        try:
            victims = _await_ranks(lab, process, hosts, path)
            for death, host in zip(plan.deaths, hosts, strict=True):
                time.sleep(death.after_s)
                if set(victims.get(host, [])) & set(engines_of(lab, host)):
                    _plant_fault(death.fault, lab, host, victims[host])
                else:
                    result.violations.append("the run ended before its fault: the machine is too busy")
                if plan.returns:
                    _await_return(death.fault, lab, host, victims.get(host, []), path, process)
            if plan.returns:
                process.send_signal(signal.SIGINT)
            process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            result.violations.append(f"the run did not end within {LIMIT_S:.0f} s")
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=20)
            if process.poll() is None:
                process.kill()
                process.wait()
    check(path, hosts, result)
    if plan.returns and len(result.returns) != len(hosts):
        result.violations.append(f"{len(result.returns)} of {len(hosts)} came back")
    if plan.planned and not result.replans:
        result.violations.append("nothing was planned anew")


def _write_schedule(hosts: int, folder: Path, environment: dict[str, str]) -> Path:
    """On a fat tree of four ports a switch; the lab has one switch, where any plan is as good."""
    command = [sys.executable, "-m", "assay", "fabric", "schedule", "--fat-tree", f"radix=4,nodes={hosts}"]
    subprocess.run(
        [*command, "--into", str(folder / "exchange")], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    return folder / "exchange" / "schedule.txt"


def _await_return(
    fault: str, lab: Lab, host: str, victims: Sequence[int], path: Path, process: subprocess.Popen[bytes]
) -> None:
    """Takes the cause of a death away when it is recorded, and waits until the rank takes part again."""
    _await_record("resume", host, path, process)
    if fault == "link":
        lab.fault([host], None)
    for pid in victims if fault == "freeze" else []:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    _await_record("return", host, path, process)


def _await_record(metric: str, host: str, path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + RETURN_S
    while time.monotonic() < deadline and process.poll() is None:
        if any(f'"{metric}"' in line and f'"{host}"' in line for line in (path / "records.jsonl").open()):
            return
        time.sleep(0.05)


def _await_ranks(
    lab: Lab, process: subprocess.Popen[bytes], hosts: Sequence[str], path: Path
) -> dict[str, list[int]]:
    """Waits until the first slice of time is recorded, so events are being built. Returns the engine's processes on
    each host; nothing if the engine has ended."""
    records, deadline = path / "records.jsonl", time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if records.is_file() and b"events.slices" in records.read_bytes():
            return {host: engines_of(lab, host) for host in hosts}
        time.sleep(0.05)
    return {}


def engines_of(lab: Lab, host: str) -> list[int]:
    """The processes of a lab host that run the event builder."""
    found = []
    for pid, (_, node) in find_processes(lab.name).items():
        with contextlib.suppress(OSError):
            if node == host and b"events.build" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _plant_fault(fault: str, lab: Lab, host: str, victims: list[int]) -> None:
    if fault == "link":
        lab.fault([host], Fault(down=True))
        return
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def check(path: Path, hosts: Sequence[str], result: Result) -> None:
    """Checks the records of a run, of which ``hosts`` have died. Adds the violations to the result."""
    if not (path / "run.json").is_file():
        result.violations.append("no run was begun")
        return
    records = Run.load(path).records
    add_violation = result.violations.append
    for failure in (r for r in records if isinstance(r, Failure)):
        add_violation(f"the run failed: {failure.problem}")
    (building,) = [b for b in buildings(records) if b.params] or [None]
    if building is None:
        add_violation("no ledger was written")
        return
    for metric in WRONG_FRAGMENTS:
        if building.count(metric):
            add_violation(f"{metric}: {building.count(metric):.0f}")
    counts = {
        name: building.count(name) for name in ("events_built", "events_incomplete", "fragments_corrupt")
    }
    if None in counts.values():
        add_violation(f"not counted: {[name for name, count in counts.items() if count is None]}")
        return
    result.built, result.incomplete = counts["events_built"] or 0.0, counts["events_incomplete"] or 0.0
    if not result.built:
        add_violation("no event was built")
    for host in hosts:
        deaths: list[Measurement] = [r for r in building.resumes if str(r.params.get("lost")) == host]
        if not deaths:
            add_violation(f"the death of {host} is not reported")
        elif deaths[0].summary is None:
            add_violation(f"building did not resume: {deaths[0].reason}")
        else:
            result.resumes.append(deaths[0].median)
    result.returns = [r.median for r in building.returns if str(r.params.get("lost")) in hosts]
    result.replans = [r.median for r in building.replans]
    others = {str(r.params.get("lost")) for r in building.resumes} - set(hosts)
    if others:
        add_violation(f"reported dead, and was not: {', '.join(sorted(others))}")


def report(result: Result) -> str:
    lines = [f"seed {result.plan.seed}: {result.plan.summary()}"]
    lines += [f"  {text}" for text in result.violations]
    if result.folder:
        lines.append(f"  kept in {result.folder}")
    return "\n".join([*lines, f"  repeat: python {SCRIPT} --seed {result.plan.seed}"])


def summary(results: list[Result]) -> str:
    lines = [f"{'fault':8} {'runs':>5} {'bad':>5} {'resume median':>14} {'p95':>9} {'longest':>9}"]
    for fault in (*FAULTS, "all"):
        # With several deaths in a run, by the fault of the first.
        chosen = [r for r in results if fault in (r.plan.deaths[0].fault, "all")]
        if not chosen:
            continue
        times = sorted(seconds for r in chosen for seconds in r.resumes)
        cells = (
            [
                f"{1e3 * t:.0f} ms"
                for t in (_percentile(times, 0.5), _percentile(times, 0.95), _percentile(times, 1.0))
            ]
            if times
            else ["-"] * 3
        )
        bad = sum(bool(r.violations) for r in chosen)
        lines.append(f"{fault:8} {len(chosen):5} {bad:5} {cells[0]:>14} {cells[1]:>9} {cells[2]:>9}")
    times = sorted(seconds for r in results for seconds in r.returns)
    if times:
        lines.append(
            f"{len(times)} came back, {statistics.median(times):.2f} s after their loss, {times[-1]:.2f} s at most"
        )
    times = sorted(seconds for r in results for seconds in r.replans)
    if times:
        lines.append(f"{len(times)} new plans, {statistics.median(times):.2f} s, {times[-1]:.2f} s at most")
    kinds = Counter(text.partition(":")[0] for r in results for text in r.violations)
    lines += [f"{count} x {kind}" for kind, count in kinds.most_common()]
    built = sum(r.built for r in results)
    lines.append(
        f"{built:,.0f} events built, {sum(r.incomplete for r in results):,.0f} incomplete, all accounted for"
    )
    if any(r.violations for r in results):
        lines[-1] = lines[-1].replace(", all accounted for", "")
    return "\n".join(lines)


def _percentile(values: list[float], share: float) -> float:
    return (
        statistics.median(values) if share == 0.5 else values[min(len(values) - 1, int(share * len(values)))]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1, help="seeds from --seed on (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--hosts", type=int, default=8, help="of the lab (default: 8)")
    parser.add_argument("--deaths", type=int, default=1, help="of each run, one after the other (default: 1)")
    parser.add_argument("--transport", default="tcp", help="one that survives deaths (default: tcp)")
    parser.add_argument("--fault", choices=FAULTS, help="this fault in every run")
    parser.add_argument(
        "--heartbeat-ms", type=int, default=50, help="a host silent for three of these is lost (default: 50)"
    )
    parser.add_argument("--returns", action="store_true", help="each rank comes back")
    parser.add_argument(
        "--planned", action="store_true", help="with a schedule file, planned anew after each death"
    )
    parser.add_argument("--lossless", action="store_true", help="no queue of the lab drops packets")
    parser.add_argument("--keep", action="store_true", help="keep the folder of every run")
    parser.add_argument("--json", action="store_true", help="one JSON line per run")
    args = parser.parse_args()
    if not 1 <= args.deaths < args.hosts - 1:
        parser.error(f"--deaths {args.deaths}: two of the {args.hosts} hosts have to be left")
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    name = f"chaos-{os.getpid()}"
    rate = parse_rate(RATE)
    lab = Lab.up(args.hosts, 1, Rates(rate, rate, lossless=args.lossless), name=name)
    results, is_interrupted = [], False
    try:
        for seed in range(args.seed, args.seed + args.runs):
            plan = make_plan(
                seed,
                args.hosts,
                args.transport,
                args.fault,
                args.heartbeat_ms,
                args.deaths,
                args.returns,
                args.planned,
            )
            result = run_plan(plan, lab, args.keep)
            results.append(result)
            if args.json:
                print(
                    json.dumps({"seed": seed, "resumes": result.resumes, "wrong": result.violations}),
                    flush=True,
                )
            elif result.violations:
                print(report(result), flush=True)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        take_down(name)
    if not args.json:
        print(summary(results))
    return 130 if is_interrupted else int(any(result.violations for result in results))


if __name__ == "__main__":
    sys.exit(main())
