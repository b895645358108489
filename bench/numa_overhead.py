#!/usr/bin/env python3
"""The overhead of the engines of ``assay numa``: the CPU time of six kernels (programs/numa_kernels.c) under each
engine over that of the uninstrumented program, measured in turns. Figures: the geometric mean of the kernels, and the
worst kernel. NUMAPROF's published figure is 40."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from figures import exit_code_of, figure  # noqa: E402 - the path comes first

from assay.launch.engines import engines_folder  # noqa: E402 - the path comes first
from assay.measure.numa import emulator  # noqa: E402 - the path comes first

ROUNDS = 3
LIMIT_S = 600
SOURCE = ROOT / "bench" / "programs" / "numa_kernels.c"
# Engines: touch counts first touches, the others every access.
LIMITS = {"touch": 1.02, "gcc": 9.0, "llvm": 1.5, "qemu": 30.0}
NUMAPROF = 40.0  # its author's figure


def build(folder: Path, name: str, command: Sequence[str], compiler: str) -> Path:
    program = folder / name
    environment = {**os.environ, "CC": compiler, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run(
        [*command, "-O2", str(SOURCE), "-lm", "-o", program], check=True, timeout=LIMIT_S, env=environment
    )
    return program


def seconds(command: Sequence[str | Path], folder: Path) -> list[float]:
    """The program's own CPU time for each kernel; recordings go into ``folder``."""
    environment = {**os.environ, "ASSAY_NUMA_DIRECTORY": str(folder), "ASSAY_NUMA_EMULATE": "2"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=True, env=environment
    )
    return [float(line) for line in done.stdout.splitlines()]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        counting_compiler = [sys.executable, "-m", "assay", "numa", "cc"]
        plain_programs = {name: build(folder, f"plain-{name}", [name], name) for name in ("gcc", "clang-14")}
        recorder = engines_folder() / "assay-numa"
        commands: dict[str, tuple[list[str | Path], Path]] = {
            "touch": ([recorder, "record", folder, "--", plain_programs["gcc"]], plain_programs["gcc"]),
            "gcc": ([build(folder, "gcc", counting_compiler, "gcc")], plain_programs["gcc"]),
            "llvm": ([build(folder, "llvm", counting_compiler, "clang-14")], plain_programs["clang-14"]),
            "qemu": ([*emulator(), plain_programs["gcc"]], plain_programs["gcc"]),
        }
        ratios: dict[str, list[list[float]]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, (command, plain_program) in commands.items():
                profiled_s, plain_s = seconds(command, folder), seconds([plain_program], folder)
                ratios[name].append([a / b for a, b in zip(profiled_s, plain_s, strict=True)])
        for name, rounds in ratios.items():
            means = [statistics.geometric_mean(kernels) for kernels in rounds]
            figure(f"numa.overhead.{name}", means, LIMITS[name], "lower", peer=NUMAPROF)
            figure(f"numa.overhead.{name}.worst_kernel", [max(kernels) for kernels in rounds], None, "lower")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
