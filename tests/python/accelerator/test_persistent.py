"""Persistent memory in a guest: a store on a device and on a file system with DAX, and a power failure.

The guest is reset while a program runs, which loses its memory and page cache. Processor caches are not emulated, so
the write-back of cache lines is not tested.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from background import STORE_TOOL, held_drain
from durability import FAULTY_FS, expected_block, fault_settings
from mpi_programs import PROGRAMS, ROOT
from test_io_run import WRITER, check_blocks

from assay.launch.accelerator import library

BLOCKS = 200


@pytest.fixture(scope="module")
def boots(in_guest: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two boots with the same memory: stores of both kinds and a power failure; then the recovery."""
    folder = tmp_path_factory.mktemp("persistent")
    (folder / "writer.c").write_text(WRITER.replace("abort();", 'system("echo b >/proc/sysrq-trigger");'))
    subprocess.run(["mpicc.mpich", "-o", folder / "writer", folder / "writer.c"], check=True, timeout=120)
    cases = shutil.copy(PROGRAMS / "mpiio-mpich", folder / "cases")
    common = f"ASSAY_IO_REQUIRE=1 LD_PRELOAD={library('mpich')}"
    redirect = {kind: f">{folder}/{kind} 2>{folder}/{kind}.stderr" for kind in ("devdax", "fsdax")}
    first = f"""
        mkdir -p {folder}/a {folder}/b
        ASSAY_IO_STORE=/dev/dax0.0 {common} {cases} {folder}/a standard {redirect["devdax"]}
        mkdir /mnt/pmem/stores
        ASSAY_IO_STORE=/mnt/pmem/stores ASSAY_IO_SIZE=40M {common} {cases} {folder}/b standard {redirect["fsdax"]}
        {later_jobs(folder, "devdax", "/dev/dax0.0", common)}
        {later_jobs(folder, "fsdax", "/mnt/pmem/stores", common + " ASSAY_IO_SIZE=40M")}
        {ROOT}/assay io doctor --json >{folder}/doctor
        ASSAY_IO_STORE=/dev/dax0.0 ASSAY_IO_DRAIN_LAG=100000 {common} {folder}/writer {folder}/out {BLOCKS} fail
    """
    retry = f"ASSAY_IO_STORE=/dev/dax0.0 {common} {cases} {folder}/a explicit-offsets >{folder}/refused 2>&1"
    second = f"{retry}; {ROOT}/assay io recover --json >{folder}/recovered"
    hardware = ["--pmem", "64MiB", "--pmem-file", str(folder / "memory"), "--share", str(folder)]
    first_boot = in_guest(*hardware, "--", "sh", "-c", first)
    size = (folder / "out").stat().st_size
    second_boot = in_guest(*hardware, "--", "sh", "-c", second)
    assert second_boot.returncode == 0, first_boot.stderr + second_boot.stderr
    return {"folder": folder, "lost": first_boot, "size": size}


def later_jobs(folder: Path, kind: str, store: str, settings: str) -> str:
    """Shell commands for the guest: a job whose store is kept; a job that reads it while reads of the file fail; a job
    that returns before its data are in the file. The list of stores is kept after each."""
    files = folder / f"later-{kind}"
    files.mkdir()
    durability = shutil.copy(PROGRAMS / "durability-mpich", folder / "durability")
    settings = f"ASSAY_IO_STORE={store} {settings}"
    keep = f"{settings} ASSAY_IO_KEEP=checkpoint"
    unreadable = " ".join(f"{name}={value}" for name, value in fault_settings(files, "read:EIO").items())
    held = " ".join(f"{name}={value}" for name, value in held_drain(files).items())
    behind = f"{settings} {held} ASSAY_IO_UNTIL=memory ASSAY_IO_DRAIN_LAG=100000"
    path = store if kind == "devdax" else f"{store}/*"
    listed = f"{STORE_TOOL} list {path} >>{files}/listed 2>&1"
    drop = f"{STORE_TOOL} drop {path} 2>>{files}/listed"
    return f"""
        {keep} {durability} {files} closed >>{files}/output 2>&1; {listed}
        {unreadable} {keep.replace("LD_PRELOAD=", f"LD_PRELOAD={FAULTY_FS}:")} {durability} {files} reread \\
            >>{files}/output 2>&1; {listed}; {drop}
        rm {files}/data
        {behind} {durability} {files} closed >>{files}/output 2>&1; {listed}
        rm {files}/fault
        for wait in $(seq 600); do {STORE_TOOL} list {path} 2>&1 | grep -q draining || break; sleep 0.1; done
    """


@pytest.mark.parametrize("kind", ["devdax", "fsdax"])
def test_stores_on_persistent_memory_are_kept_and_drained(boots: dict[str, Any], kind: str) -> None:
    import json

    files = boots["folder"] / f"later-{kind}"
    output = (files / "output").read_text()
    assert [line for line in output.splitlines() if line.startswith(("ok", "bad"))] == [
        "ok closed", "ok reread", "ok closed",
    ], output  # fmt: skip
    listed = [json.loads(line) for line in (files / "listed").read_text().splitlines()]
    assert [(store["state"], store["persistent"]) for store in listed] == [
        ("kept", True), ("kept", True), ("draining", True),
    ], listed  # fmt: skip
    assert (files / "data").read_bytes() == expected_block(1, 0)


@pytest.mark.parametrize("kind", ["devdax", "fsdax"])
def test_mpiio_cases_pass_on_persistent_memory(boots: dict[str, Any], kind: str) -> None:
    lines = (boots["folder"] / kind).read_text().splitlines()
    stderr = (boots["folder"] / f"{kind}.stderr").read_text()
    assert len(lines) == 16 and all(line.startswith("ok ") for line in lines), (lines, stderr)


def test_the_doctor_lists_both_kinds(boots: dict[str, Any]) -> None:
    import json

    backends = {
        backend["kind"]: backend
        for backend in json.loads((boots["folder"] / "doctor").read_text())["backends"]
    }
    assert backends["devdax"]["path"] == "/dev/dax0.0" and backends["devdax"]["persistent"]
    assert backends["fsdax"]["path"] == "/mnt/pmem" and backends["fsdax"]["persistent"]


def test_writes_survive_a_power_failure(boots: dict[str, Any]) -> None:
    import json

    assert boots["lost"].returncode == 2  # the guest was reset
    assert boots["size"] == 0  # nothing had been drained
    recovered = json.loads((boots["folder"] / "recovered").read_text())
    assert (recovered["records"], recovered["torn"], recovered["bytes"]) == (BLOCKS, 0, BLOCKS * 4096)
    check_blocks(boots["folder"] / "out", 0, BLOCKS)


def test_a_device_with_unrecovered_data_is_refused(boots: dict[str, Any]) -> None:
    output = (boots["folder"] / "refused").read_text()
    assert "that may not be in the file system yet; fix: assay io recover /dev/dax0.0" in output


def test_a_pmem_file_needs_a_size() -> None:
    command = [sys.executable, "-m", "assay", "lab", "vm", "--pmem-file", "x", "--", "true"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT / "python")}
    )
    assert result.returncode == 2 and "--pmem-file without --pmem" in result.stderr
