"""The chaos test of the accelerator with a fixed set of seeds. chaos.py runs it with others.

A fault comes at a moment that depends on the machine, so runs with faults belong to acceptance. The gate has runs
without faults, which must end well at any speed.
"""

from __future__ import annotations

import pytest
from chaos import Options, report, run_seed
from chaos_plan import FAULTS, MIB, STORE_TABLES_BYTES, Plan, written_blocks

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
