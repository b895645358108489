"""The accelerator of parallel I/O in front of a program: which library, and what it is told.

It is one shared library for each MPI, loaded before the MPI's own by LD_PRELOAD. Only the ranks get that
environment, never the launcher: they are started through ``env`` (``Segment.env``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError
from assay.launch.engines import engines_folder


def library(mpi: str) -> Path:
    """The accelerator for an MPI ("openmpi", "mpich", "mpich-wheel"). Raises UserError when it is not built."""
    path = engines_folder() / f"libassay-io-{mpi}.so"
    if not path.is_file():
        raise UserError(
            f"the accelerator for {mpi} is not built: no {path.name} in {path.parent}",
            "build it with 'make setup', or measure without it: --stock",
        )
    return path


def environment(
    mpi: str,
    files: Sequence[str] = (),
    store: str | None = None,
    size: int | None = None,
    consistency: str | None = None,
    required: bool = False,
) -> dict[str, str]:
    """What a rank's environment needs. ``files``: globs of what is accelerated (none: all that MPI opens);
    ``store``: the node-local memory (a folder, a file, /dev/dax*); ``size``: bytes of it on each node; ``required``:
    where it cannot accelerate it ends the program instead of handing on to the MPI's own I/O."""
    asked = {
        "LD_PRELOAD": str(library(mpi)),
        "ASSAY_IO_FILES": ":".join(files) or None,
        "ASSAY_IO_STORE": store,
        "ASSAY_IO_SIZE": None if size is None else str(size),
        "ASSAY_IO_CONSISTENCY": consistency,
        "ASSAY_IO_REQUIRE": "1" if required else None,
    }
    return {name: value for name, value in asked.items() if value is not None}
