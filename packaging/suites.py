"""Runs a suite of tests part by part and ends with what failed: each test, its reason in a line, where the output lies.

    suites.py gate [PYTEST ARGUMENT ...]     C++, TypeScript and Python tests whose outcome follows from the code alone;
                                             with arguments those Python tests alone
    suites.py acceptance [AREA]              the rest, area by area: what depends on time, rate or chance, or takes long
    suites.py acceptance --continue [AREA]   the same, without the parts that an earlier run ended on this commit; the
                                             table has their results too

Each part has a limit, prints as it runs, and leaves its output and its results (JUnit XML) in build/SUITE. A part that
was cut short, or that reports no test, has failed. Exit code 1 if anything failed, 2 for bad arguments, 130 for Ctrl-C.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTEST = [sys.executable, "-m", "pytest", "-q"]
# Four processes run tests at once, each file in one of them: tests wait for a good part of their time, and on a busy
# machine more processes get more of it.
PARALLEL = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
SHOWN_FAILURES = 34  # with the lines around them, a failing suite's summary is the last 40 lines
REASON_WIDTH = 150
GRACE_S = 20  # from the signal that ends a part to SIGKILL
POLL_S = 0.1  # between two looks whether a part has ended or a signal has come

received: list[str] = []  # the signals that shall end the suite


@dataclass(frozen=True)
class Part:
    """A command that runs tests. ``{junit}`` in it is the file of its results; without it, it counts as one test."""

    area: str
    name: str
    command: Sequence[str]
    limit_s: float
    folder: Path = ROOT
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Result:
    area: str
    passed: int = 0
    repeated: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)  # "test: reason", a line each
    log: str = ""
    commit: str = (
        ""  # of the sources; empty if they were changed since, or the part was cut short by a signal
    )


def ctest(area: str, build: Path, labels: Sequence[str], limit_s: float) -> Part:
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--timeout", "300", "-j4", *labels]
    return Part(area, f"engines-{build.name}", [*command, "--output-junit", "{junit}"], limit_s)


def gate(arguments: Sequence[str]) -> list[Part]:
    # More threads of OpenBLAS would spin while they wait.
    command = [*PYTEST, *PARALLEL, "-m", "not acceptance", "--junitxml", "{junit}", *arguments]
    chosen = Part("Python", "python", command, 3600, environment={"OPENBLAS_NUM_THREADS": "1"})
    if arguments:
        return [chosen]
    npm = [
        "npm",
        "run",
        "--silent",
        "test",
        "--",
        "--reporter=dot",
        "--reporter=junit",
        "--outputFile.junit={junit}",
    ]
    return [
        ctest("C++", BUILD, ["--label-exclude", "acceptance"], 1200),
        Part("TypeScript", "typescript", npm, 600, ROOT / "web", {"PATH": f"{node()}:{os.environ['PATH']}"}),
        chosen,
    ]


def node() -> str:
    setup = [ROOT / "packaging" / "setup.sh", "node"]
    return subprocess.run(setup, capture_output=True, text=True, check=True).stdout.strip()


def pytest_areas() -> tuple[str, ...]:
    sys.path.insert(0, str(ROOT / "tests" / "fixtures"))
    from acceptance import AREAS  # beside the marks that name them

    return AREAS


# The benchmarks of an area; bench/run.py knows them by these names.
BENCHES = {
    "node": ("node",), "network": ("net", "culprits"), "storage": ("io",),
    "profile": ("heap", "alloc"), "numa": ("numa",),
    "events": ("events", "scale"), "fabric": ("fabric",), "model": ("model",), "report": ("report",),
}  # fmt: skip


def acceptance(area: str) -> list[Part]:
    """The parts of an area, or of all areas if it is empty. Nothing runs beside a part: many measure time."""
    parts = [
        Part("lint", "clang-tidy", [sys.executable, "packaging/tidy.py"], 3600),
        ctest("engines", BUILD, ["--label-regex", "acceptance"], 1800),
        ctest("engines", BUILD / "sanitized", [], 3600),
        Part("fuzz", "fuzz", [sys.executable, "packaging/fuzz.py", "10min"], 1800),
    ]
    for name in pytest_areas():
        tests = [*PYTEST, "-o", "timeout=1800", "-m", "acceptance", "--area", name, "--junitxml", "{junit}"]
        parts.append(Part(name, f"python-{name}", tests, 7200))
        if name == "storage":
            chaos = [
                sys.executable,
                "tests/python/accelerator/chaos.py",
                "--runs",
                "200",
                "--seed",
                "1",
                "--quiet",
            ]
            parts.append(Part(name, "chaos", chaos, 3600))
        if name == "profile":
            parts.append(Part(name, "programs", [sys.executable, "tests/fixtures/heap_programs.py"], 3600))
        if name == "network":
            wires = [sys.executable, "bench/wires_culprits.py", "--all", "--misses"]
            parts.append(Part(name, "wires", wires, 3600))
        for bench in BENCHES.get(name, ()):
            parts.append(Part(name, f"bench-{bench}", [sys.executable, "bench/run.py", bench], 720))
    areas = list(dict.fromkeys(part.area for part in parts))
    if area and area not in areas:
        print(f"suites: unknown area '{area}'; choose one of {', '.join(areas)}", file=sys.stderr)
        sys.exit(2)
    return [part for part in parts if area in ("", part.area)]


def checked_out() -> str:
    """The commit that the sources are; empty if a file differs from it."""
    git = ["git", "-C", str(ROOT)]
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    known = changed.returncode == head.returncode == 0 and not changed.stdout.strip()
    return head.stdout.strip() if known else ""


def ended_before(part: Part, folder: Path, commit: str) -> Result | None:
    """The result of a part in an earlier run on this commit."""
    try:
        result = Result(**json.loads((folder / f"{part.name}.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return result if commit and result.commit == commit else None


def run(part: Part, folder: Path, commit: str = "") -> Result:
    """Runs a part to its end, its limit, or a signal; what it reported by then counts."""
    junit, log = folder / f"{part.name}.xml", folder / f"{part.name}.log"
    junit.unlink(missing_ok=True)
    command = [word.replace("{junit}", str(junit)) for word in part.command]
    has_results = command != list(part.command)
    print(f"== {part.area}: {part.name}", flush=True)
    start = time.monotonic()
    status, ended_by = run_shown(command, log, part)
    result = Result(part.area, seconds=time.monotonic() - start, log=str(log))
    if has_results:
        read_junit(junit, result)
    elif status == 0:
        result.passed = 1
    if ended_by:
        result.failures.append(f"{part.name}: {ended_by}")
    elif status != 0 and not result.failures:
        result.failures.append(f"{part.name}: exit code {status}: {last_line(log)}")
    elif not result.passed and not result.failures:
        result.failures.append(f"{part.name}: ran no test")
    result.commit = "" if received else commit
    (folder / f"{part.name}.json").write_text(json.dumps(asdict(result)))
    return result


def run_shown(command: Sequence[str], log: Path, part: Part) -> tuple[int, str]:
    """Runs a command, its output on the terminal and in ``log``. Returns its exit code, and why it was ended or ""."""
    process = subprocess.Popen(
        command, cwd=part.folder, env={**os.environ, **part.environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    copying = threading.Thread(target=copy, args=(process, log))
    copying.start()
    deadline = time.monotonic() + part.limit_s
    ended_by = ""
    while not ended_by:
        try:
            process.wait(POLL_S)
            break
        except subprocess.TimeoutExpired:
            if received:
                ended_by = f"ended by {received[0]}"
            elif time.monotonic() > deadline:
                ended_by = f"ended after its limit of {part.limit_s / 60:g} min: {last_line(log)}"
    end(process)  # also what it left behind, which would keep the pipe open
    copying.join()
    return process.returncode, ended_by


def copy(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.stdout is not None
    with log.open("wb", buffering=0) as file:
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            file.write(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a part and all of its session's processes: SIGINT first, so that pytest writes what it has."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "no output")[:REASON_WIDTH]


def read_junit(path: Path, result: Result) -> None:
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        result.failures.append(f"{path.stem}: no results: {error}")
        return
    for case in cases:
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        result.repeated += any(p.get("name") == "repeated" for p in case.iter("property"))
        if problem is not None:
            result.failures.append(f"{test_name(case)}: {reason(case, problem)}")
        elif case.find("skipped") is None and case.get("status") not in ("notrun", "disabled"):
            result.passed += 1


def test_name(case: ElementTree.Element) -> str:
    """As pytest names it on its command line; other tools' names as they are."""
    folder, name = case.get("classname", ""), case.get("name", "")
    path = Path(folder.replace(".", "/") + ".py")
    if (ROOT / path).is_file():
        return f"{path}::{name}"
    return name if folder in ("", name) else f"{folder} {name}"


def reason(case: ElementTree.Element, problem: ElementTree.Element) -> str:
    """The first line that tells why. ctest's message says only that it failed; doctest marks its lines with ERROR."""
    message = (problem.get("message") or problem.text or "").strip()
    if message in ("", "Failed"):
        output = "".join(child.text or "" for child in case if child.tag in ("system-out", "system-err"))
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        message = next((line for line in lines if "ERROR" in line), lines[-1] if lines else message)
    return message.splitlines()[0][:REASON_WIDTH] if message else "no reason"


def summary(results: Sequence[Result], suite: str) -> str:
    """The table, then the failing tests; at most 40 lines."""
    areas = list(dict.fromkeys(result.area for result in results))
    lines = [f"{suite:<12} passed failed repeated minutes"]
    for area in areas:
        of_area = [result for result in results if result.area == area]
        passed, repeated = sum(r.passed for r in of_area), sum(r.repeated for r in of_area)
        minutes = sum(r.seconds for r in of_area) / 60
        lines.append(
            f"{area:<12} {passed:6} {sum(len(r.failures) for r in of_area):6} {repeated:8} {minutes:7.1f}"
        )
    failures = [failure for result in results for failure in result.failures]
    room = max(5, SHOWN_FAILURES - len(lines))
    lines += failures[:room]
    if len(failures) > room:
        lines.append(f"and {len(failures) - room} more, in {BUILD / suite / 'summary.txt'}")
    logs = [result.log for result in results if result.failures and result.log]
    if logs:
        lines.append(f"the whole output: {' '.join(logs)}")
    return "\n".join(lines)


def note_signal(number: int, frame: object) -> None:
    """Only notes the signal: an exception here could leave a part that has just started without its end."""
    received.append(signal.Signals(number).name)


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in ("gate", "acceptance"):
        print("suites: name one of gate, acceptance", file=sys.stderr)
        return 2
    suite, rest = arguments[0], list(arguments[1:])
    continued = suite == "acceptance" and "--continue" in rest
    if continued:
        rest.remove("--continue")
    parts = gate(rest) if suite == "gate" else acceptance(" ".join(rest))
    folder = BUILD / suite
    folder.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note_signal)
    results: list[Result] = []
    sources = checked_out()
    for part in parts:
        if before := ended_before(part, folder, sources) if continued else None:
            results.append(before)
        elif not received:
            results.append(run(part, folder, sources))
    if received:
        print(f"suites: ended by {received[0]} after {len(results)} of {len(parts)} parts")
    text = summary(results, suite)
    failures = [failure for result in results for failure in result.failures]
    (folder / "summary.txt").write_text("\n".join([text, *failures, ""]))
    print(text)
    return 130 if received else int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
