"""QEMU guests of the lab. The only boot of the gate has two NUMA nodes and runs a shell. In acceptance one boot with
all kinds of hardware serves most tests."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.lab.guest import Guest, Hardware
from assay.lab.guest.guest import MAX_BOOTS, qemu_command
from assay.lab.guest.kernel import Kernel, extract_payload

ROOT = Path(__file__).resolve().parents[3]

INSIDE = Path(__file__).with_name("inside_guest.py")


in_acceptance = pytest.mark.acceptance("lab")


@pytest.mark.timeout(2700)  # an emulated machine
def test_a_guest_runs_a_command(in_guest: Any, tmp_path: Path) -> None:
    """Output, exit code and files arrive outside. A shell starts fast on an emulated processor."""
    nodes = "/sys/devices/system/node/node"
    script = (
        f"cat {nodes}[01]/cpulist {nodes}[01]/distance; pwd; echo $PATH; echo $ASSAY_GUEST; echo problem >&2; "
        f"echo from inside >{tmp_path}/came-back; exit 7"
    )
    done = in_guest("--numa", "2", "--memory", "512MiB", "--share", str(tmp_path), "--", "sh", "-c", script)
    expected = ["0", "1", "10 21", "21 10", os.getcwd(), os.environ["PATH"], "emulated"]
    assert (done.returncode, done.stdout.splitlines()) == (7, expected), done.stderr
    assert done.stderr == "problem\n"  # and no messages of the kernel
    assert (tmp_path / "came-back").read_text() == "from inside\n"


@pytest.fixture(scope="module")
def booted(in_guest: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("guest")
    hardware = ["--numa", "2", "--rdma", "2", "--pmem", "64MiB", "--share", str(folder)]
    done = in_guest(*hardware, "--", sys.executable, str(INSIDE), str(folder))
    assert done.returncode == 7, done.stderr
    return {"stderr": done.stderr, "folder": folder, **json.loads(done.stdout)}


@in_acceptance
def test_numa_nodes_have_processors_and_distances(booted: dict[str, Any]) -> None:
    assert booted["cpus"] == ["0", "1"]
    assert booted["distances"] == ["10 21", "21 10"]


@in_acceptance
def test_rdma_devices_carry_perftest_over_their_wires(booted: dict[str, Any]) -> None:
    assert "65536      50" in booted["perftest"]
    assert booted["wire"] >= 50 * 65536


@in_acceptance
def test_persistent_memory_is_mapped_synchronously(booted: dict[str, Any]) -> None:
    assert (booted["dax"], booted["fsdax"]) == ("hello", "hello")


@in_acceptance
def test_folder_path_output_and_files_pass_into_and_out_of_the_guest(booted: dict[str, Any]) -> None:
    assert booted["cwd"] == os.getcwd() and booted["path"] == os.environ["PATH"]
    assert booted["stderr"] == "to the error\n"  # and no messages of the kernel
    assert (booted["folder"] / "came-back").read_text() == "from inside"


@in_acceptance
def test_a_guest_says_that_it_is_emulated(booted: dict[str, Any]) -> None:
    assert booted["guest"] == "emulated"
    assert '"machine.virtual":"emulated"' in booted["probe"] and '"numa.nodes":2' in booted["probe"]
    assert '"rxe0:1"' in booted["probe"] and '"rdma.state":"ACTIVE"' in booted["probe"]


def processes_with(mark: str) -> list[int]:
    """Processes of this machine that carry ``mark`` in their command line."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


@in_acceptance
@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_guest_ends_with_its_starter(in_guest: Any, tmp_path: Path, signal_number: signal.Signals) -> None:
    mark = f"path={tmp_path},"
    started = subprocess.Popen(
        [sys.executable, "-m", "assay", "lab", "vm", "--share", str(tmp_path), "--", "sleep", "300"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 240  # against hangs
    while not processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(mark)
    started.send_signal(signal_number)
    started.wait(timeout=240)
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(mark) == []
    left = list(Path(tempfile.gettempdir()).glob(f"assay-guest-{started.pid}-*"))
    assert len(left) == (1 if signal_number == signal.SIGKILL else 0)


@in_acceptance
def test_the_time_limit_and_the_removal_of_a_killed_guests_folder(in_guest: Any) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = Path(tempfile.mkdtemp(prefix=f"assay-guest-{ended.pid}-"))
    (left / "memory").touch()
    done = in_guest("--timeout", "2s", "--", "sleep", "300")
    assert done.returncode == 2
    assert done.stderr == "assay: the guest was not done within 2 s; fix: give a longer --timeout\n"
    assert not left.exists()


@pytest.fixture
def fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a shell script in QEMU's place; it writes the guest's state with ``state WORD`` and gets the number of the
    boot as ``$boot``."""

    def make(script: str) -> None:
        lines = [
            "#!/bin/bash",
            f"echo >>{tmp_path}/boots; boot=$(wc -l <{tmp_path}/boots)",
            "for word; do case $word in fd=*,set=3) word=${word#fd=}; fd=${word%,*} ;; esac; done",
            'state() { echo "$1" >&"$fd"; }',
            script,
        ]
        (tmp_path / "qemu-system-x86_64").write_text("\n".join(lines) + "\n")
        (tmp_path / "qemu-system-x86_64").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        kernel = Kernel("6", Path("/k"), Path("/m"), Path("/i"))
        monkeypatch.setattr("assay.lab.guest.guest.prepare_kernel", lambda: kernel)

    return make


def test_a_guest_that_did_not_boot_is_booted_once_more(
    fake_qemu: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_qemu("[ $boot = 1 ] && { echo 'Kernel panic'; exit 1; }; state up; state 7")
    assert main(["lab", "vm", "--", "true"]) == 7
    said = capfd.readouterr().err
    assert re.fullmatch(r"the guest did not boot in \d+ s: Kernel panic; trying once more\n", said)


def test_a_guest_that_never_boots_is_one_line(
    fake_qemu: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_qemu("echo a line; echo 'Kernel panic'")
    assert main(["lab", "vm", "--", "true"]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"assay: the guest did not boot in \d+ s: Kernel panic; fix: try again", last)
    assert (tmp_path / "boots").read_text() == "\n" * MAX_BOOTS


def test_a_job_is_not_started_twice(
    fake_qemu: Callable[[str], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A guest that was up may have done its job, or half of it."""
    fake_qemu("state up; echo 'out of memory'")
    assert main(["lab", "vm", "--", "true"]) == 2
    assert "ended without an exit code: out of memory" in capfd.readouterr().err
    assert (tmp_path / "boots").read_text() == "\n"


def test_a_guest_that_does_not_power_off_is_ended(
    fake_qemu: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.lab.guest.guest.POWER_OFF_LIMIT_S", 0.1)
    fake_qemu("state up; state 7; exec sleep 1000")
    assert main(["lab", "vm", "--", "true"]) == 7


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--numa", "4", "--cpus", "2"], "4 NUMA nodes with 2 processors"),
        (["--memory-nodes", "20"], "21 NUMA nodes with 1 GiB"),
        (["--rdma-rate", "80mbit"], "--rdma-rate without --rdma"),
        (["--memory", "10MiB"], "256 MiB at least"),
        (["--share", "/nowhere"], "no folder /nowhere"),
        (["--pmem-file", "x", "--", "true"], "--pmem-file without --pmem"),
        (["--numa", "none"], "--numa"),
    ],
)
def test_wrong_input_is_one_line_and_starts_nothing(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "vm", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_the_compressed_payload_of_a_kernel_image_is_found() -> None:
    import lzma

    inside = b"\x7fELF" + bytes(range(256)) * 40
    packed = lzma.compress(inside)
    image = bytearray(0x200 * 3)
    image[0x1F1] = 2
    struct.pack_into("<II", image, 0x248, 64, len(packed) + 4)
    image += bytes(64) + packed + struct.pack("<I", len(inside))
    assert extract_payload(bytes(image)) == inside


def test_memory_and_processors_are_divided_between_numa_nodes() -> None:
    kernel = Kernel("6", Path("/k"), Path("/m"), Path("/i"))
    guest = Guest(Hardware(cpus=6, memory=1000 << 20, numa=3), ["true"])
    command = " ".join(qemu_command(guest, kernel, Path("/job")))
    assert "size=334M" in command and command.count("size=333M") == 2
    assert [f"cpus={a}-{a + 1}" in command for a in (0, 2, 4)] == [True] * 3
    assert command.count("val=21") == 3


def test_a_node_of_memory_alone_has_no_processors() -> None:
    kernel = Kernel("6", Path("/k"), Path("/m"), Path("/i"))
    guest = Guest(Hardware(cpus=2, memory=512 << 20, numa=1, memory_nodes=1), ["true"])
    command = " ".join(qemu_command(guest, kernel, Path("/job")))
    assert "nodeid=0,cpus=0-1,memdev=m0" in command and "nodeid=1,memdev=m1" in command
    assert command.count("size=256M") == 2 and command.count("val=21") == 1
