"""The info of an accelerated file is the one that the MPI itself would give for the file's communicator."""

from __future__ import annotations

from pathlib import Path

import pytest
from durability import later, needs_root
from mpi_programs import PROGRAMS, accelerated, mpi_command, run

pytestmark = pytest.mark.programs

RANKS = 5
# MPICH 4.0 tells them of ranks that open the file late only.
VARYING = {"romio_lustre_start_iodevice=0", "start_iodevice=0", "striping_factor=0", "striping_unit=0"}
OWN_KEYS = {"assay_io=enable", "assay_io_until=file"}
# Each rank calls itself a host of its own naming: ROMIO takes ranks of one processor name for one host.
ON_HOST = 'exec unshare --uts sh -c \'hostname "$0"; exec "$@"\' host$((PMI_RANK / 2)) "$@"'


def lines_by_rank(stdout: str) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {rank: set() for rank in range(RANKS)}
    for line in stdout.splitlines():
        rank, _, entry = line.partition(" ")
        if rank.isdecimal():
            found[int(rank)].update({entry.strip()} - VARYING)
    return found


def infos(mpi: str, program: list[str], env: dict[str, str] | None = None) -> dict[int, set[str]]:
    result = run(mpi_command(mpi, RANKS, program, env))
    assert result.returncode == 0, result.stdout + result.stderr
    found = lines_by_rank(result.stdout)
    assert all(found.values()), result.stdout
    return found


@needs_root
@pytest.mark.parametrize(
    "hints",
    [
        [],
        ["cb_nodes=2", "romio_no_indep_rw=true", "striping_unit=65536", "unknown_hint=1"],
        *later(["cb_nodes=7"], ["cb_config_list=*:2"], ["cb_config_list=*:*", "cb_nodes=3"]),
    ],
    ids=lambda hints: ",".join(hints) or "none",
)
@pytest.mark.parametrize("mpi", ["mpich-wheel", *later("mpich")])
def test_several_hosts(mpi: str, hints: list[str], data: Path, shm: Path) -> None:
    program = [str(PROGRAMS / f"mpiio-{mpi}"), str(data), "info", *hints]
    stock = infos(mpi, ["sh", "-c", ON_HOST, "sh", *program])
    found = infos(mpi, program, accelerated(mpi, shm, ASSAY_IO_RANKS_PER_NODE="2"))
    assert found == {rank: entries | OWN_KEYS for rank, entries in stock.items()}


@pytest.mark.parametrize("mpi", ["openmpi", *later("mpich", "mpich-wheel")])
def test_one_host(mpi: str, data: Path, shm: Path) -> None:
    hints = ["cb_nodes=2", "romio_no_indep_rw=true", "cb_config_list=*:*", "unknown_hint=1"]
    program = [str(PROGRAMS / f"mpiio-{mpi}"), str(data), "info", *hints]
    found = infos(mpi, program, accelerated(mpi, shm))
    assert found == {rank: entries | OWN_KEYS for rank, entries in infos(mpi, program).items()}


def test_a_list_of_hosts_is_left_to_the_mpi(data: Path, shm: Path) -> None:
    """Which ranks it chooses is not known, so nothing is said of them."""
    program = [str(PROGRAMS / "mpiio-mpich-wheel"), str(data), "info", "cb_config_list=host1:*"]
    found = infos("mpich-wheel", program, accelerated("mpich-wheel", shm, ASSAY_IO_RANKS_PER_NODE="2"))
    keys = {entry.partition("=")[0] for entry in found[0]}
    assert "cb_config_list" in keys
    assert not keys & {"cb_nodes", "romio_aggregator_list"}
