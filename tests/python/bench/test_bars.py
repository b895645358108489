"""The limits of the benchmarks bind: what bench/run.py says of planted programs, and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import ends

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300  # against hangs
HEAD = f"""
import os, subprocess, sys, time
sys.path.insert(0, {str(ROOT / "bench")!r})
from figures import exit_code_of, figure, pass_on, waived
"""
HELD = 'figure("numa.held", [1.0, 2.0, 9.0], 3.0, "lower")'
MISSED = 'figure("numa.missed", [5.0], 3.0, "lower")'
MOST_LISTED = 30  # in bench/missed.toml; only ever less: lower it with each entry that goes
LISTED = '["numa.missed"]\nreason = "planted"\nseen = 5.0\n'


@dataclass
class Outcome:
    code: int
    figures: str
    messages: str

    def row(self, area: str = "numa") -> list[int]:
        """The counts of an area: figures, held, missed and listed, new misses, listed and held, waived."""
        (line,) = [line for line in self.messages.splitlines() if line.startswith(f"{area} ")]
        return [int(cell) for cell in line.split()[1:-1]]


RunBench = Callable[..., Outcome]


@pytest.fixture
def run_bench(tmp_path: Path) -> RunBench:
    """Runs bench/run.py on planted programs, each of them given by its file name and the body of its ``main``."""

    def run(*arguments: str, listed: str = "", **bodies: str) -> Outcome:
        for name, body in bodies.items():
            lines = "".join(f"    {line}\n" for line in body.splitlines())
            text = f'{HEAD}\ndef main():\n{lines}\n\nif __name__ == "__main__":\n    sys.exit(exit_code_of(main))\n'
            (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / "missed.toml").write_text(listed)
        done = subprocess.run(
            [sys.executable, ROOT / "bench" / "run.py", "--folder", tmp_path, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={**os.environ, "ASSAY_BENCH_MISSED": str(tmp_path / "missed.toml")},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def test_figures_that_hold_pass(run_bench: RunBench) -> None:
    higher = 'figure("numa.rate", [4.0], 3.0, "higher")'
    outcome = run_bench(numa_one=f'{HELD}\n{higher}\nfigure("numa.free", [1.0], None, "lower")')
    assert outcome.code == 0 and outcome.row() == [3, 2, 0, 0, 0, 0]
    assert '"held": true' in outcome.figures and '"held": null' in outcome.figures


def test_a_figure_that_misses_its_limit_fails_and_is_named(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=f"{HELD}\n{MISSED}")
    assert outcome.code == 1 and outcome.row() == [2, 1, 0, 1, 0, 0]
    assert "MISSED: numa.missed: 5.0 1, limit 3.0, lower is better" in outcome.messages
    assert "FAILED" not in outcome.messages


@pytest.mark.parametrize("value", ["2.99996", "float('nan')"])
def test_a_value_just_below_its_limit_and_one_that_is_no_number_miss(run_bench: RunBench, value: str) -> None:
    outcome = run_bench(numa_one=f'figure("numa.missed", [{value}], 3.0, "higher")')
    assert outcome.code == 1 and outcome.row() == [1, 0, 0, 1, 0, 0]


def test_a_listed_miss_passes_with_its_reason(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=MISSED, listed=LISTED)
    assert outcome.code == 0 and outcome.row() == [1, 0, 1, 0, 0, 0]
    assert "missed, as listed: numa.missed" in outcome.messages and "planted" in outcome.messages


def test_a_new_miss_is_found_beside_a_listed_one(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=f'{MISSED}\nfigure("numa.worse", [9.0], 3.0, "lower")', listed=LISTED)
    assert outcome.code == 1 and outcome.row() == [2, 0, 1, 1, 0, 0]
    assert "MISSED: numa.worse" in outcome.messages and "MISSED: numa.missed" not in outcome.messages


def test_a_listed_figure_that_holds_is_told_and_passes(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=MISSED.replace("5.0", "2.0"), listed=LISTED)
    assert outcome.code == 0 and outcome.row() == [1, 1, 0, 0, 1, 0]
    assert "numa.missed: remove it from missed.toml" in outcome.messages


def test_a_listed_figure_that_nothing_prints_fails_where_its_area_ran(run_bench: RunBench) -> None:
    bodies = {"numa_one": HELD, "heap_one": 'figure("heap.held", [1.0], 3.0, "lower")'}
    outcome = run_bench(**bodies, listed=LISTED)
    assert outcome.code == 1 and "no such figure: numa.missed" in outcome.messages
    assert run_bench("heap", listed=LISTED).code == 0


def test_a_listed_figure_of_no_area_fails(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=HELD, listed=LISTED.replace("numa", "nowhere"))
    assert outcome.code == 1 and "nowhere.missed" in outcome.messages


@pytest.mark.parametrize("entry", ['["numa.missed"]\nseen = 5.0\n', '["numa.missed"]\nreason = "planted"\n'])
def test_a_listed_figure_needs_a_reason_and_a_value(run_bench: RunBench, entry: str) -> None:
    outcome = run_bench(numa_one=MISSED, listed=entry)
    assert outcome.code != 0 and "needs a reason and seen" in outcome.messages


@pytest.mark.parametrize(
    ("body", "code", "expected"),
    [
        ("raise KeyError('planted')", 3, "ended with exit code 3"),
        ("raise SystemExit('planted')", 3, "ended with exit code 3"),
        ("return 7", 7, "ended with exit code 7"),
        ("os._exit(1)", 1, "ended with exit code 1"),
        ("os.kill(os.getpid(), 9)", 9, "was ended by signal 9"),
    ],
)
def test_a_crash_fails_and_its_exit_code_is_kept(
    run_bench: RunBench, body: str, code: int, expected: str
) -> None:
    outcome = run_bench(numa_one=f"{HELD}\n{body}", numa_two=HELD.replace("held", "next"))
    assert outcome.code == code and f"FAILED: numa_one.py {expected}" in outcome.messages
    assert outcome.row() == [2, 2, 0, 0, 0, 0]


def test_a_crash_does_not_hide_behind_a_miss(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=f"{MISSED}\nraise KeyError('planted')")
    assert outcome.code == 3 and outcome.row() == [1, 0, 0, 1, 0, 0]


def test_of_an_area_that_crashed_no_listed_figure_is_called_gone(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one="raise KeyError('planted')", listed=LISTED)
    assert outcome.code == 3 and "no such figure" not in outcome.messages


def test_a_program_without_figures_fails(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one="print('nothing to see')")
    assert outcome.code == 1 and "FAILED: numa_one.py printed no figure" in outcome.messages


def test_a_line_that_is_no_figure_fails(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one=HELD + '\nprint(\'{"name": "numa.broken"}\')')
    assert outcome.code == 1 and "FAILED: no figure" in outcome.messages


def test_a_program_that_does_not_end_is_ended_with_what_it_started(
    run_bench: RunBench, tmp_path: Path
) -> None:
    """Its figures are kept, it may clean up, and the area's next program does not start."""
    cleaned, child = tmp_path / "cleaned", tmp_path / "child"
    body = f"""{HELD}
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(child)!r}, "w").write(str(sleeper.pid))
try:
    sleeper.wait()
    time.sleep(600)
finally:
    open({str(cleaned)!r}, "w").close()"""
    outcome = run_bench("numa", "--limit", "12", numa_one=body, numa_two=HELD)
    assert outcome.code == 1 and outcome.row() == [1, 1, 0, 0, 0, 0]
    assert "numa_one.py did not end in the area's time; 1 figures were measured" in outcome.messages
    assert "numa_two.py did not start" in outcome.messages
    assert cleaned.exists()
    assert ends(int(child.read_text()))


def test_what_cannot_be_measured_is_counted_apart_and_passes(run_bench: RunBench) -> None:
    outcome = run_bench(numa_one='waived("numa.miss", "no such device")', listed=LISTED)
    assert outcome.code == 0 and outcome.row() == [0, 0, 0, 0, 0, 1]
    assert "waived: numa.miss: no such device" in outcome.messages


def test_figures_of_a_program_in_another_language_are_judged(run_bench: RunBench) -> None:
    line = '{"name": "numa.missed", "value": 5, "unit": "ns", "limit": 3, "better": "lower"}'
    outcome = run_bench(numa_one=f"pass_on('{line}\\n')")
    assert outcome.code == 1 and "MISSED: numa.missed: 5 ns" in outcome.messages
    assert run_bench(numa_one=f"print('{line}')").code == 1


def test_an_unknown_area_and_one_without_programs_fail(run_bench: RunBench) -> None:
    assert run_bench("nowhere").code == 2
    assert run_bench("heap", numa_one=HELD).code == 1


def test_a_program_run_alone_ends_with_1_after_a_new_miss(tmp_path: Path) -> None:
    program, listed = tmp_path / "numa_one.py", tmp_path / "missed.toml"
    program.write_text(f"{HEAD}\ndef main():\n    {MISSED}\n\n\nsys.exit(exit_code_of(main))\n")
    for text, code in (("", 1), (LISTED, 0)):
        listed.write_text(text)
        environment = {**os.environ, "ASSAY_BENCH_MISSED": str(listed)}
        done = subprocess.run(
            [sys.executable, program], capture_output=True, timeout=LIMIT_S, env=environment
        )
        assert done.returncode == code


def test_the_list_of_missed_limits_can_be_read_and_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import figures
    import run

    listed = figures.known_misses(ROOT / "bench" / "missed.toml")
    assert {run.area_of(name) for name in listed} <= set(run.AREAS)
    assert len(listed) <= MOST_LISTED
    for module in ("figures", "run"):
        sys.modules.pop(module)
