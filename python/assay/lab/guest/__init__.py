"""Guests of the lab: QEMU machines with hardware that this machine lacks (NUMA nodes, RDMA devices, persistent
memory)."""

from assay.lab.guest.guest import Guest, Hardware, run_guest
from assay.lab.guest.kernel import Kernel, prepare_kernel

__all__ = ["Guest", "Hardware", "Kernel", "prepare_kernel", "run_guest"]
