"""What only a guest has: persistent memory as a device and as a file system with dax, a power failure, and the
kernel's NFS server with two clients.

The guest is reset while a program runs, which loses its memory and page cache. Processor caches are not emulated, so
the write-back of cache lines is not tested. A second boot has the same persistent memory.

What a store holds after a power failure is also tested on a model of memory (``power_loss_test.cpp``), and files on NFS
with a planted type of the file system (``test_network_file_systems.py``).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from background import STORE_TOOL, held_drain
from durability import FAULTY_FS, expected_block, fault_settings
from mpi_programs import PATIENT, PROGRAMS, STANDARD
from test_io_run import WRITER, check_blocks

from assay.launch.accelerator import library

pytestmark = [pytest.mark.acceptance("storage"), pytest.mark.timeout(2700)]  # two emulated boots

BLOCKS = 200
NFS = Path(__file__).with_name("nfs_in_guest.sh")
TOOLS = """
import contextlib, sys
from assay.cli import main
for name, *command in (("recovered", "io", "recover", "--json"), ("doctor", "io", "doctor", "--json")):
    with open(f"{sys.argv[1]}/{name}", "w") as output, contextlib.redirect_stdout(output):
        main(command)
"""  # in one process: an emulated processor takes long to start Python
KEPT_STORE = "/mnt/pmem/stores/assay-io-keep-{}-0"
FIRST_BYTES = "".join(f"\\x{byte:02x}" for byte in expected_block(1, 0)[:16])


@pytest.fixture(scope="module")
def boots(in_guest: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two boots with the same memory: stores of both kinds and a power failure; then the recovery, kept stores that the
    first boot has left, and NFS."""
    folder = tmp_path_factory.mktemp("persistent")
    (folder / "writer.c").write_text(WRITER.replace("abort();", 'system("echo b >/proc/sysrq-trigger");'))
    subprocess.run(["mpicc.mpich", "-o", folder / "writer", folder / "writer.c"], check=True, timeout=120)
    cases = PROGRAMS / "mpiio-mpich"
    common = f"ASSAY_IO_REQUIRE=1 LD_PRELOAD={library('mpich')}"
    redirect = {kind: f">{folder}/{kind} 2>{folder}/{kind}.stderr" for kind in ("devdax", "fsdax")}
    first = f"""
        mkdir -p {folder}/a {folder}/b
        ASSAY_IO_STORE=/dev/dax0.0 {common} {cases} {folder}/a standard {redirect["devdax"]}
        mkdir /mnt/pmem/stores
        ASSAY_IO_STORE=/mnt/pmem/stores ASSAY_IO_SIZE=24M {common} {cases} {folder}/b standard {redirect["fsdax"]}
        {later_jobs(folder, "devdax", "/dev/dax0.0", common)}
        {later_jobs(folder, "fsdax", "/mnt/pmem/stores", common + " ASSAY_IO_SIZE=24M")}
        {kept_jobs(folder, "closed", common)}
        ASSAY_IO_STORE=/dev/dax0.0 ASSAY_IO_DRAIN_LAG=100000 {common} {folder}/writer {folder}/out {BLOCKS} fail
    """
    retry = f"ASSAY_IO_STORE=/dev/dax0.0 {common} {cases} {folder}/a explicit-offsets >{folder}/refused 2>&1"
    damage = (
        f"at=$(LC_ALL=C grep -obUaP '{FIRST_BYTES}' {KEPT_STORE.format('damaged')} | head -1 | cut -d: -f1); "
        f"printf X | dd of={KEPT_STORE.format('damaged')} bs=1 seek=$((at + 4096)) conv=notrunc 2>/dev/null"
    )
    rights = f"{folder}/rights 2>&1; echo $? >>{folder}/rights"
    second = f"""
        {retry}
        chmod 666 /dev/dax0.0; {STORE_TOOL} recover /dev/dax0.0 >{rights}; chmod 600 /dev/dax0.0
        {sys.executable} -c '{TOOLS}' {folder}
        {damage}
        {kept_jobs(folder, "reread", common)}
        bash {NFS} {folder}/nfs {PROGRAMS} {library("mpich")}:{PATIENT} >{folder}/nfs/log 2>&1
    """
    (folder / "nfs").mkdir()
    (folder / "nfs/before").write_bytes(expected_block(1, 0) + expected_block(1, 1))
    hardware = ["--pmem", "64MiB", "--pmem-file", str(folder / "memory"), "--share", str(folder)]
    first_boot = in_guest(*hardware, "--", "sh", "-c", first)
    size = (folder / "out").stat().st_size
    second_boot = in_guest(*hardware, "--", "sh", "-c", second)
    assert second_boot.returncode == 0, first_boot.stderr + second_boot.stderr + second_boot.stdout
    return {"folder": folder, "lost": first_boot, "size": size}


def later_jobs(folder: Path, kind: str, store: str, settings: str) -> str:
    """Shell commands for the guest: a job whose store is kept; a job that reads it while reads of the file fail; a job
    that returns before its data are in the file. The list of stores is kept after each."""
    files = folder / f"later-{kind}"
    files.mkdir()
    durability = PROGRAMS / "durability-mpich"
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


def kept_jobs(folder: Path, case: str, common: str) -> str:
    """Commands for the guest: a case with each of two kept stores on the file system with dax. In the second boot the
    file of the intact one cannot be read."""
    settings = f"ASSAY_IO_STORE=/mnt/pmem/stores ASSAY_IO_SIZE=24M {common}"
    lines = []
    for name in ("intact", "damaged"):
        files = folder / name
        files.mkdir(exist_ok=True)
        keep = f"{settings} ASSAY_IO_KEEP={name}"
        if case == "reread" and name == "intact":
            faults = " ".join(f"{key}={value}" for key, value in fault_settings(files, "read:EIO").items())
            keep = f"{faults} {keep.replace('LD_PRELOAD=', f'LD_PRELOAD={FAULTY_FS}:')}"
        lines.append(f"{keep} {PROGRAMS}/durability-mpich {files} {case} >{files}/{case} 2>&1")
    return "\n        ".join(lines)


def test_a_kept_store_on_a_file_system_with_dax_is_served_after_a_power_failure(
    boots: dict[str, Any],
) -> None:
    files = boots["folder"] / "intact"
    assert (files / "closed").read_text() == "code close 0 success\nok closed\n"
    assert (files / "reread").read_text() == "ok reread\n"


def test_a_kept_store_that_is_damaged_is_not_served(boots: dict[str, Any]) -> None:
    """One byte of its data has changed. The file is read from the file system."""
    words = (boots["folder"] / "damaged/reread").read_text().splitlines()
    assert words == [
        f"assay io: {KEPT_STORE.format('damaged')} is damaged since the machine was restarted; the files of the "
        "earlier job are read from the file system",
        "ok reread",
    ]


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
    assert len(lines) == STANDARD and all(line.startswith("ok ") for line in lines), (lines, stderr)


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


# ---- NFS: nfs_in_guest.sh says what was run

NOT_ACCELERATED = "assay io: files on NFS use the MPI's own I/O"


def nfs(boots: dict[str, Any], name: str) -> str:
    """What a job has printed; it has ended by itself."""
    folder: Path = boots["folder"] / "nfs"
    log = (folder / "log").read_text()
    assert (folder / f"{name}.code").is_file(), log
    code, seconds = map(int, (folder / f"{name}.code").read_text().split())
    assert code != 124 and seconds < 120, log
    return (folder / name).read_text()


def test_a_second_client_of_nfs_sees_what_was_closed(boots: dict[str, Any]) -> None:
    """The job's ranks are on two clients, and read each other's data after a sync. Each client had the file in its
    cache before."""
    folder = boots["folder"] / "nfs"
    assert (folder / "cached").read_text() == ""
    output = nfs(boots, "rewritten")
    assert output.count(NOT_ACCELERATED) == 1 and "ok rewritten" in output.splitlines(), output
    after = expected_block(2, 0) + expected_block(2, 1)
    assert (folder / "rewritten.first").read_bytes() == after
    assert (folder / "rewritten.second").read_bytes() == after


def test_atomic_mode_on_nfs_locks_at_the_server(boots: dict[str, Any]) -> None:
    output = nfs(boots, "atomic")
    assert "ok atomic-mode" in output.splitlines() and NOT_ACCELERATED in output, output
    assert int((boots["folder"] / "nfs/locks").read_text()) > 0


def test_a_store_on_nfs_is_refused(boots: dict[str, Any]) -> None:
    """The program does its own I/O."""
    output = nfs(boots, "store")
    assert "/mnt/nfs cannot be a store: it is on NFS" in output and "ok closed" in output.splitlines(), output
    assert "assay-io" not in (boots["folder"] / "nfs/left").read_text()


def test_an_nfs_server_that_has_stopped_is_an_error(boots: dict[str, Any]) -> None:
    """On a soft mount, which gives up after 3 s."""
    output = nfs(boots, "stopped")
    assert "ok closed" not in output and "MPI_File_open" in output, output


def test_an_nfs_server_that_restarts_is_waited_for(boots: dict[str, Any]) -> None:
    """On a hard mount, which waits for ever."""
    assert "ok closed" in nfs(boots, "restarted").splitlines()
    assert (boots["folder"] / "nfs/restarted.server").read_bytes()[
        : len(expected_block(1, 0))
    ] == expected_block(1, 0)


def test_a_device_that_others_may_write_is_not_recovered(boots: dict[str, Any]) -> None:
    """Who may write the device names the files that recovery writes."""
    *lines, status = (boots["folder"] / "rights").read_text().splitlines()
    assert status == "2" and len(lines) == 1 and "may be written by other users" in lines[0], lines
