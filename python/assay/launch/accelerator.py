"""The accelerator of parallel I/O: its library for an MPI, and its environment variables.

There is one shared library for each MPI, which LD_PRELOAD loads before the MPI's own. Only the ranks get that
environment, not the launcher: they are started through ``env`` (``Segment.env``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.errors import REPAIR, UserError
from assay.launch.engines import engines_folder
from assay.launch.mpis import flavour_for
from assay.launch.preload_folder import preload_folder


def library(mpi: str) -> Path:
    """The accelerator for an MPI ("openmpi", "mpich", "mpich-wheel"), as $LD_PRELOAD has it. Raises UserError if it
    is not built."""
    path = engines_folder() / f"libassay-io-{flavour_for(mpi)}.so"
    if not path.is_file():
        raise UserError(
            f"the accelerator for {mpi} is not built: no {path.name} in {path.parent}",
            f"{REPAIR}, or measure without it: --stock",
        )
    return preload_folder(is_launched=True) / path.name


def environment(
    mpi: str,
    files: Sequence[str] = (),
    store: str | None = None,
    size: int | None = None,
    consistency: str | None = None,
    required: bool = False,
    until: str | None = None,
) -> dict[str, str]:
    """The environment variables of a rank. ``files``: globs of the files to accelerate (none: all files);
    ``store``: the node-local memory (a folder, a file, /dev/dax*); ``size``: its bytes on each node; ``consistency``:
    when other ranks see a write, "immediate", "collective" or "commit" (docs/parallel-io.md); ``required``:
    the program is aborted if it cannot be accelerated, instead of using the MPI's own I/O; ``until``: when close and
    sync return, "file" (the data are in the file system) or "memory" (they are in the nodes' stores, and background
    drains go on)."""
    variables = {
        "LD_PRELOAD": str(library(mpi)),
        "ASSAY_IO_FILES": ":".join(files) or None,
        "ASSAY_IO_STORE": store,
        "ASSAY_IO_SIZE": None if size is None else str(size),
        "ASSAY_IO_CONSISTENCY": consistency,
        "ASSAY_IO_REQUIRE": "1" if required else None,
        "ASSAY_IO_UNTIL": until,
    }
    return {name: value for name, value in variables.items() if value is not None}
