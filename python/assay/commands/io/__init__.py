"""``assay io``: measures and accelerates storage. One file per sub-verb."""

from __future__ import annotations

from assay.commands.io.bench import prepare_bench
from assay.commands.io.device import prepare_device
from assay.commands.io.doctor import prepare_doctor
from assay.commands.io.drain import prepare_drain
from assay.commands.io.playground import prepare_playground
from assay.commands.io.recover import prepare_recover
from assay.commands.io.run import prepare_run
from assay.commands.io.stores import prepare_drop, prepare_stores
from assay.commands.parser import Example
from assay.commands.sub_verbs import VerbGroup


class Io(VerbGroup):
    """Measure and accelerate parallel I/O, and a node's own storage. Benchmarks are IOR, reaction-diffusion (RDBench)
    and HDF5 (h5bench), stock and accelerated."""

    name = "io"
    notes = "See also the --help of each command."
    examples = [
        Example("assay io run -- mpirun -n 64 ./app", "parallel I/O at the speed of memory", "a program"),
        Example("assay io bench ior", "transfer sizes, with and without the accelerator", "minutes"),
        Example("assay io doctor", "what the accelerator can use on this node"),
    ]
    sub_verbs = (
        prepare_run,
        prepare_bench,
        prepare_device,
        prepare_playground,
        prepare_doctor,
        prepare_stores,
        prepare_drain,
        prepare_recover,
        prepare_drop,
    )
