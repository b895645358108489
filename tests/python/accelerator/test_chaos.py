"""The chaos test of the accelerator with a fixed set of seeds. chaos.py runs it with others.

A fault comes at a moment that depends on the machine, so runs with faults belong to acceptance. The gate has runs
without faults, which must end well at any speed.
"""

from __future__ import annotations

from argparse import Namespace
from concurrent.futures import Future
from itertools import count
from typing import Any

import chaos
import pytest
from chaos import Options, report, run_seed
from chaos_check import Violation
from chaos_plan import FAULTS, MIB, STORE_TABLES_BYTES, Plan, written_blocks
from chaos_run import Result

pytestmark = pytest.mark.programs

in_acceptance = pytest.mark.acceptance("storage")
SEEDS = range(50)


@pytest.mark.parametrize("route", ["store", "direct"])
def test_every_write_is_kept_without_a_fault(route: str) -> None:
    options = Options(operations=60, fault="none", route=route)
    result = run_seed(1, options)
    assert not result.violations, report(result, options.repeat(1))


@in_acceptance
@pytest.mark.parametrize("seed", SEEDS)
def test_no_acknowledged_write_is_lost(seed: int) -> None:
    result = run_seed(seed, Options())
    assert not result.violations, report(result, Options().repeat(seed))


def test_the_seeds_have_every_fault_and_full_stores() -> None:
    plans = [Options().plan(seed) for seed in SEEDS]
    assert {plan.fault for plan in plans} == set(FAULTS)
    assert sum(fills_its_store(plan) for plan in plans) >= 5


def fills_its_store(plan: Plan) -> bool:
    """Whether a rank writes more than its part of the store holds, so that older data are drained."""
    written = [0] * plan.ranks
    for operation in plan.operations:
        for rank, blocks in written_blocks(operation, plan.ranks).items():
            written[rank] += blocks.bytes
    local = plan.ranks_per_node or plan.ranks
    return max(written) > (plan.store_size - STORE_TABLES_BYTES) / local - 4 * MIB  # 4 MiB are records


@pytest.mark.parametrize(
    "fault",  # where the file system refuses writes, the MPIs' own collective transfers hang
    ["none", *(pytest.param(fault, marks=in_acceptance) for fault in ("kill", "kill_all", "fsync"))],
)
def test_the_checker_accepts_the_mpis_own_io(fault: str) -> None:
    options = Options(fault=fault, stock=True)
    result = run_seed(1, options)
    assert not result.violations, report(result, options.repeat(1))


class InterruptedPool:
    """Runs three seeds at once, the second one with a violation. Then Ctrl-C comes; a fourth one is under way."""

    def __init__(self, *_: object, **__: object) -> None:
        self.runs: list[Future[Result]] = []

    def __enter__(self) -> InterruptedPool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, _run: object, seed: int, options: Options, _keep: bool) -> Future[Result]:
        run: Future[Result] = Future()
        self.runs.append(run)
        if len(self.runs) <= 3:
            self._end(run, options.plan(seed))
        elif len(self.runs) == 4:
            run.set_running_or_notify_cancel()
            self.under_way = run, options.plan(seed)
        return run

    def _end(self, run: Future[Result], plan: Plan) -> None:
        bad = [Violation("wrong read", "planted")] if plan.seed == 8 else []
        run.set_result(Result(plan, bad, 1.0, None))

    def shutdown(self, *, cancel_futures: bool) -> None:
        assert cancel_futures
        for run in self.runs:
            run.cancel()
        self._end(*self.under_way)


def test_a_chaos_test_that_is_ended_tells_what_has_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wait(runs: set[Future[Result]], **_: Any) -> tuple[set[Future[Result]], set[Future[Result]]]:
        done = {run for run in runs if run.done()}
        if not done:
            raise KeyboardInterrupt
        return done, runs - done

    monkeypatch.setattr(chaos, "ProcessPoolExecutor", InterruptedPool)
    monkeypatch.setattr(chaos, "wait", wait)
    args = Namespace(runs=10, seed=7, jobs=1, ignore=[], quiet=True, keep=False)
    assert chaos.run_all(args, Options(fault="none")) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[0].endswith("--seed 8 --fault none") and output[-1] == "4 of 10 runs, 1 bad"


def test_a_chaos_test_tells_each_minute_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: set[Future[Result]] = {Future() for _ in range(4)}
    monkeypatch.setattr(chaos, "wait", lambda left, **_: (set(list(left)[:1]), set(list(left)[1:])))
    seconds = count(0, 25)  # the clock is read once at the begin and twice for each run
    told: list[int] = []
    ended: list[Future[Result]] = []
    for run in chaos.completed(runs, lambda: told.append(len(ended)), lambda: float(next(seconds))):
        ended.append(run)
    assert told == [2, 3, 4]
