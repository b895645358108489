"""``assay io``: measures and accelerates storage. One file per sub-verb."""

from __future__ import annotations

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
    modules = {
        "run": "run",
        "bench": "bench",
        "device": "device",
        "playground": "playground",
        "doctor": "doctor",
        "stores": "stores",
        "drain": "drain",
        "recover": "recover",
        "drop": "stores",
    }
