"""The accelerator intercepts every function of MPI by which a process may learn of another process's writes.

The functions are those that this machine's mpi.h declares. A function must be intercepted or listed as exempt here.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from mpi_programs import LIMIT_S, ROOT

COMPILERS = {"mpich": "mpicc.mpich", "openmpi": "mpicc.openmpi"}

# These functions return without having received anything from another process. A trailing _c (large counts) is ignored.
EXEMPT = re.compile(
    r"""MPI_(
      # Files: see calls.cpp. Objects and information of this process.
      (File|T|Type|Info|Group|Op|Errhandler|Error|Keyval|Attr|Session|Status|Pack|Unpack|Conversion|DUP|NULL|WIN|
       COMM|TYPE|Grequest|Graphdims|Cartdim)_\w+
    | (Comm|Win)_(get|set|create|free|delete)_?(attr|errhandler|keyval|name|parent)
    | (Comm|Win|File)_call_errhandler | (Comm|Win)_get_(info|group) | Comm_(rank|size|group|compare|test_inter)
    | Comm_remote_(size|group) | Win_(attach|detach|shared_query)
    | Get_(address|count|elements|elements_x|library_version|processor_name|version|hw_resource_info)
    | Add_error_(class|code|string) | Remove_error_(class|code|string)
    | Address | Aint_(add|diff) | (Alloc|Free)_mem | Buffer_(attach|detach) | Dims_create | Pack | Unpack
    | Cart_(coords|get|map|rank|shift) | Graph_(get|map|neighbors|neighbors_count)
    | Dist_graph_neighbors(_count)? | Topo_test | Query_thread | Is_thread_main | Initialized | Finalized | Pcontrol
    | (Comm|Message|Request|Win)_(c2f|f2c) | Reduce_local | Register_datarep | Test_cancelled | Wtime | Wtick | Abort
      # The job starts and ends in them: see calls.cpp.
    | Init | Init_thread | Finalize
      # These only start an operation. Another call completes it.
    | I(send|bsend|rsend|ssend|recv|mrecv|sendrecv|sendrecv_replace)
    | I(barrier|bcast|gatherv?|scatterv?|allgatherv?|alltoall[vw]?|reduce|allreduce|reduce_scatter(_block)?|scan|exscan)
    | Ineighbor_(allgatherv?|alltoall[vw]?) | Comm_idup(_with_info)?
    | (\w+)_init | Start | Startall | Pready(_list|_range)?
    | R?(put|get|accumulate|get_accumulate) | (Put|Get|Accumulate|Get_accumulate|Fetch_and_op|Compare_and_swap)
    | Win_post
      # These send. The receiver need not have begun to receive.
    | Send | Bsend | Rsend | Publish_name | Unpublish_name | Open_port | Close_port
    | Cancel | Request_free
    )(_c)?""",
    re.VERBOSE,
)


def declared_functions(compiler: str) -> set[str]:
    """The names of the functions that mpi.h declares."""
    text = subprocess.run(
        [compiler, "-E", "-P", "-x", "c", "-"],
        input="#include <mpi.h>\n", capture_output=True, text=True, check=True, timeout=LIMIT_S,
    ).stdout  # fmt: skip
    return set(re.findall(r"\bint\s+(MPI_[A-Z][a-z]\w*)\s*\(", text))


def intercepted_functions(mpi: str) -> set[str]:
    library = ROOT / f"build/bin/libassay-io-{mpi}.so"
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True, timeout=LIMIT_S
    ).stdout
    return set(re.findall(r" [TW] (MPI_\w+)$", symbols, re.MULTILINE))


@pytest.mark.parametrize("mpi", COMPILERS)
def test_every_call_that_may_receive_is_intercepted(mpi: str) -> None:
    functions = declared_functions(COMPILERS[mpi])
    assert len(functions) > 300 and "MPI_Recv" in functions
    missed = {name for name in functions - intercepted_functions(mpi) if not EXEMPT.fullmatch(name)}
    assert not missed, f"comm_epoch.cpp intercepts neither of {sorted(missed)}"


@pytest.mark.parametrize("mpi", COMPILERS)
@pytest.mark.parametrize(
    "name",
    [
        "Recv", "Mrecv", "Improbe", "Wait", "Testsome", "Request_get_status", "Barrier", "Neighbor_alltoallw",
        "Comm_split_type", "Comm_create_group", "Win_lock_all", "Win_unlock_all", "Win_flush_local", "Win_test",
    ],
)  # fmt: skip
def test_calls_that_receive_are_not_exempt(mpi: str, name: str) -> None:
    assert f"MPI_{name}" in intercepted_functions(mpi) and not EXEMPT.fullmatch(f"MPI_{name}")
