"""MPI-IO conformance of the accelerator: each case of tests/engines/mpiio, under each MPI.

The same program under the MPI's own I/O validates the cases. ROMIO and OMPIO fail some of them; the accelerator must
pass them all.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from background import MEMORY, held_drain, kill_drains
from durability import TESTED, in_acceptance, later
from mpi_programs import MPIRUN, MPIS, PROGRAMS, STANDARD, VISIBILITY, accelerated, mpi_command, run

pytestmark = pytest.mark.programs

# Cases that the stock libraries fail: ROMIO treats MPI_SHORT_INT as six bytes without a gap, and two handles of a file
# have one shared pointer. Open MPI's own I/O is not
# tested: under load it hangs sometimes.
ROMIO_FAULTS = {"memory-types", "two-shared-pointers"}
STOCK_FAULTS = {"mpich": ROMIO_FAULTS, "mpich-wheel": ROMIO_FAULTS}
GATE = [("openmpi", "0"), ("mpich", "1"), ("mpich-wheel", "0")]  # each MPI, each arrangement of nodes

FORTRAN = """
program rotate
  {use}
  {file} :: f
  integer :: r, n, e, c, b(100)
  integer(kind=MPI_OFFSET_KIND) :: o
  {status}
  call MPI_Init(e)
  call MPI_Comm_rank(MPI_COMM_WORLD, r, e)
  call MPI_Comm_size(MPI_COMM_WORLD, n, e)
  call MPI_File_open(MPI_COMM_WORLD, '{path}  ', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, f, e)
  b = r + 1
  o = r * 400
  call MPI_File_write_at(f, o, b, 100, MPI_INTEGER, s, e)
  call MPI_Get_count(s, MPI_INTEGER, c, e)
  if (c /= 100) print *, 'count', c
  call MPI_File_sync(f, e)
  call MPI_Barrier(MPI_COMM_WORLD, e)
  o = mod(r + 1, n) * 400
  call MPI_File_read_at(f, o, b, 100, MPI_INTEGER, MPI_STATUS_IGNORE, e)
  if (any(b /= mod(r + 1, n) + 1)) print *, 'read', b(1)
  call MPI_File_close(f, e)
  call MPI_Finalize(e)
end program
"""


def outcomes_by_case(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The reason of failure by case; empty if the case passed."""
    outcomes = {}
    for line in result.stdout.splitlines():
        state, _, rest = line.partition(" ")
        if state in ("ok", "bad"):
            name, _, reason = rest.partition(": ")
            outcomes[name] = reason
    return outcomes


@pytest.mark.parametrize("mpi", later("mpich", "mpich-wheel"))
def test_stock_mpi_passes_the_cases(mpi: str, data: Path) -> None:
    result = run(mpi_command(mpi, 3, [str(PROGRAMS / f"mpiio-{mpi}"), str(data)]))
    outcomes = outcomes_by_case(result)
    assert len(outcomes) == STANDARD + VISIBILITY, result.stdout + result.stderr
    assert {name for name, reason in outcomes.items() if reason} <= STOCK_FAULTS[mpi], outcomes


@pytest.mark.parametrize(
    ("mpi", "ranks_per_node"),
    [
        pytest.param(mpi, ranks, id=f"{mpi}-{name}", marks=[] if (mpi, ranks) in GATE else [in_acceptance])
        for mpi in MPIS
        for ranks, name in (("0", "one-node"), ("1", "a-node-each"))
    ],
)
def test_the_accelerator_passes_all_cases(mpi: str, ranks_per_node: str, data: Path, shm: Path) -> None:
    env = accelerated(mpi, shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    result = run(mpi_command(mpi, 3, [str(PROGRAMS / f"mpiio-{mpi}"), str(data)], env))
    outcomes = outcomes_by_case(result)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(outcomes) == STANDARD + VISIBILITY and not any(outcomes.values()), result.stdout
    assert list(shm.iterdir()) == []  # the store was removed
    assert not list(data.glob(".*"))  # nor does a shared pointer leave a hidden file


@pytest.mark.acceptance("storage")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=["one-node", "a-node-each"])
@pytest.mark.parametrize("mpi", MPIS)
def test_long_histories(mpi: str, ranks_per_node: str, data: Path, shm: Path) -> None:
    """With a seed they have three times as many steps as among all cases."""
    env = accelerated(mpi, shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    command = [str(PROGRAMS / f"mpiio-{mpi}"), str(data), "random-histories"]
    result = run(mpi_command(mpi, 3, command, env), ASSAY_TEST_SEED="17")
    assert outcomes_by_case(result) == {"random-histories": ""}, result.stdout + result.stderr


@pytest.mark.parametrize("mpi", MPIS)
def test_a_new_file_has_the_permissions_of_the_umask(mpi: str, data: Path, shm: Path) -> None:
    program = [
        "sh",
        "-c",
        'umask 027; exec "$0" "$@"',
        str(PROGRAMS / f"mpiio-{mpi}"),
        str(data),
        "subarrays",
    ]
    result = run(mpi_command(mpi, 2, program, accelerated(mpi, shm)))
    assert outcomes_by_case(result) == {"subarrays": ""}, result.stdout + result.stderr
    assert (data / "subarray").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("mpi", TESTED)
def test_a_transfer_larger_than_the_store_is_atomic(mpi: str, data: Path, shm: Path) -> None:
    env = accelerated(mpi, shm, ASSAY_IO_SIZE=str(43_000_000))
    result = run(mpi_command(mpi, 3, [str(PROGRAMS / f"mpiio-{mpi}"), str(data), "atomic-mode"], env))
    assert outcomes_by_case(result) == {"atomic-mode": ""}, result.stdout + result.stderr


@pytest.mark.parametrize("ranks_per_node", ["0", "1"], ids=["one-node", "a-node-each"])
@pytest.mark.parametrize("case", ["forbidden-calls", "largest-offsets", "little-memory"])
@pytest.mark.parametrize("mpi", TESTED)
def test_the_accelerator_passes_what_the_mpis_do_not(
    mpi: str, case: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    """Calls that the file's mode forbids; transfers that reach beyond 2^63 - 1, which ROMIO refuses with another error
    and OMPIO reports as success; transfers and types larger than the memory that may be allocated."""
    env = accelerated(mpi, shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node)
    result = run(mpi_command(mpi, 2, [str(PROGRAMS / f"mpiio-{mpi}"), str(data), case], env))
    assert outcomes_by_case(result) == {case: ""}, result.stdout + result.stderr


@pytest.mark.parametrize("mpi", ["mpich", "mpich-wheel", *later("openmpi")])
def test_errors_of_the_mpi_call_the_error_handler_once(mpi: str, data: Path, shm: Path) -> None:
    """Newer releases of MPICH return success after they have called the handler."""
    env = accelerated(mpi, shm, ASSAY_IO_RANKS_PER_NODE="1")
    result = run(mpi_command(mpi, 2, [str(PROGRAMS / f"mpiio-{mpi}"), str(data), "errors-of-the-mpi"], env))
    assert outcomes_by_case(result) == {"errors-of-the-mpi": ""}, result.stdout + result.stderr
    assert "the MPI's own I/O is used" in result.stderr


@pytest.mark.acceptance("storage")
@pytest.mark.parametrize("direct", ["0", "1"], ids=["store", "direct"])
@pytest.mark.parametrize("mpi", MPIS)
def test_one_call_moves_more_than_two_gigabytes(mpi: str, direct: str, data: Path, shm: Path) -> None:
    env = accelerated(mpi, shm, ASSAY_IO_DIRECT=direct)
    result = run(mpi_command(mpi, 2, [str(PROGRAMS / f"mpiio-{mpi}"), str(data), "two-gigabytes"], env))
    assert outcomes_by_case(result) == {"two-gigabytes": ""}, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("consistency", "ranks_per_node"),
    [
        pytest.param("collective", "1", id="collective-a-node-each"),
        pytest.param("commit", "0", id="commit-one-node"),
        pytest.param("collective", "0", id="collective-one-node", marks=in_acceptance),
        pytest.param("commit", "1", id="commit-a-node-each", marks=in_acceptance),
    ],
)
def test_weaker_visibility_passes_the_standard_cases(
    consistency: str, ranks_per_node: str, data: Path, shm: Path
) -> None:
    """The cases synchronise as MPI requires, so they need no stronger visibility."""
    env = accelerated("mpich", shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node, ASSAY_IO_CONSISTENCY=consistency)
    result = run(mpi_command("mpich", 3, [str(PROGRAMS / "mpiio-mpich"), str(data), "standard"], env))
    assert not any(outcomes_by_case(result).values()) and len(outcomes_by_case(result)) == STANDARD, (
        result.stdout + result.stderr
    )


@pytest.mark.parametrize("seed", ["1", *later("2", "3")])
@pytest.mark.parametrize(
    ("ranks_per_node", "size"), [("0", 43_000_000), ("1", 27_000_000), ("2", 37_000_000)]
)
def test_histories_larger_than_the_store(
    ranks_per_node: str, size: int, seed: str, data: Path, shm: Path
) -> None:
    """6 MB per rank for 8 MB of writes: reads and the final file have the last writes."""
    env = accelerated("mpich", shm, ASSAY_IO_RANKS_PER_NODE=ranks_per_node, ASSAY_IO_SIZE=str(size))
    command = [str(PROGRAMS / "mpiio-mpich"), str(data), "random-histories"]
    result = run(mpi_command("mpich", 4, command, env), ASSAY_TEST_SEED=seed)
    assert result.stdout == "ok random-histories\n", result.stdout + result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="setting clocks needs root")
@pytest.mark.parametrize("case", ["visible-after-message", "overwritten-unread"])
def test_visibility_with_clocks_that_are_hours_apart(case: str, data: Path, shm: Path) -> None:
    env = accelerated("mpich", shm, ASSAY_IO_RANKS_PER_NODE="1")
    program = [
        "env",
        *(f"{key}={value}" for key, value in env.items()),
        str(PROGRAMS / "mpiio-mpich"),
        str(data),
        case,
    ]
    command = list(MPIRUN["mpich"])
    for seconds in (9000, 18000, 0):  # a clock cannot be set to before the boot
        clock_shift = ["unshare", "--time", "--fork", "--monotonic", str(seconds), "--boottime", str(seconds)]
        command += ["-n", "1", *clock_shift, *program, ":"]
    result = run(command[:-1])
    assert result.stdout == f"ok {case}\n", result.stdout + result.stderr


def test_conflicts_at_level_memory_are_resolved_at_close(data: Path, shm: Path) -> None:
    """Later drains have no order between nodes, so conflicts are resolved while the nodes can still communicate."""
    env = accelerated(
        "mpich", shm, ASSAY_IO_RANKS_PER_NODE="1", ASSAY_IO_DRAIN_LAG="100000", ASSAY_IO_UNTIL="memory"
    )
    result = run(
        mpi_command("mpich", 3, [str(PROGRAMS / "mpiio-mpich"), str(data), "overwritten-unread"], env)
    )
    assert result.stdout == "ok overwritten-unread\n", result.stdout + result.stderr


@pytest.mark.parametrize("binding", ["mpi_f08", *later("mpif.h")])
@pytest.mark.parametrize("mpi", TESTED)
def test_fortran_programs_are_accelerated(mpi: str, binding: str, tmp_path: Path, shm: Path) -> None:
    is_f08 = binding == "mpi_f08"
    source = tmp_path / f"rotate.{'f90' if is_f08 else 'F90'}"
    target = tmp_path / "fortran.dat"
    source.write_text(
        FORTRAN.format(
            use="use mpi_f08" if is_f08 else "use mpi",
            file="type(MPI_File)" if is_f08 else "integer",
            status="type(MPI_Status) :: s" if is_f08 else "integer :: s(MPI_STATUS_SIZE)",
            path=target,
        )
    )
    program = tmp_path / "rotate"
    subprocess.run(
        [f"mpifort.{mpi}", "-ffree-line-length-none", "-o", program, source], check=True, timeout=120
    )
    # With drains that write nothing: data that are only in the store were not written by the MPI.
    settings = MEMORY | {"ASSAY_IO_DRAIN_LAG": "100000"} | held_drain(tmp_path, target.name)
    env = accelerated(mpi, shm, **settings)
    result = run(mpi_command(mpi, 2, [str(program)], env))
    assert result.returncode in (0, 2) and not result.stdout, result.stdout + result.stderr
    assert len(list(shm.iterdir())) == 1 and target.stat().st_size == 0
    kill_drains(shm)
