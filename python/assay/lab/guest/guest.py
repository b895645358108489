"""Runs a job in a QEMU guest: command line, boot, output and exit code.

The guest is emulated (TCG) unless KVM works. Its root is this machine's root over 9p, read-only under an overlay in
memory: every program has the same path there, and only files written below ``output`` reach this machine. Standard
output and error have separate ports, so kernel messages do not mix with them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.errors import UserError
from assay.lab.guest.kernel import Kernel, prepare_kernel
from assay.lab.tools import find
from assay.records.text import one_line
from assay.records.units import format_quantity

SCRIPTS = Path(__file__).parent
BOOT_LIMIT_S = 180.0  # a boot takes 5 s on an idle machine, 100 s beside twenty busy programs
MAX_BOOTS = 2
POWER_OFF_LIMIT_S = 20.0  # after the exit code; the output has come before it
FOLDER_PREFIX = "assay-guest-"  # prefix of the folders' names, before the id of the process that owns them
LABEL_BYTES = 2 << 20  # size of an NVDIMM's label area, in addition to its memory
MIB = 1 << 20
MIN_NODE_BYTES = 64 * MIB  # of each node, where some have memory alone
# The variables that a job inherits, by name and by prefix.
INHERITED = ("PATH", "HOME", "PYTHONPATH", "LANG", "TERM", "LD_LIBRARY_PATH")
INHERITED_PREFIXES = ("ASSAY_",)
SETUP_FAILED = 125  # the guest's exit code when its hardware could not be made ready


@dataclass(frozen=True)
class Hardware:
    """The guest's hardware; sizes in bytes. The processors are on the first ``numa`` nodes; ``memory_nodes`` more have
    memory alone. ``rdma_rate`` is a rate as tc writes it ("80mbit") or empty."""

    cpus: int = 2
    memory: int = 1024 * MIB
    numa: int = 1
    memory_nodes: int = 0
    rdma: int = 0
    rdma_rate: str = ""
    pmem: int = 0
    # Keeps the contents of persistent memory for the next guest; None: it is empty at each start.
    pmem_file: Path | None = None

    def setup(self) -> str:
        """Returns the shell line that sets it up inside the guest."""
        lines = []
        if self.rdma:
            lines.append(shlex.join(["bash", str(SCRIPTS / "rdma.sh"), str(self.rdma), self.rdma_rate]))
        if self.pmem:
            lines.append(shlex.join(["bash", str(SCRIPTS / "pmem.sh"), str(self.pmem)]))
        return " && ".join(lines) or "true"


@dataclass(frozen=True)
class Guest:
    """A guest and the command that it runs. ``output``: a folder that host and guest share."""

    hardware: Hardware
    command: Sequence[str]
    output: Path | None = None
    limit_s: float = 300.0
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class GuestResult:
    """How a guest ended. ``code`` is the job's exit code; None if the guest did not report it."""

    code: int | None
    is_up: bool
    timed_out: bool = False
    console: str = ""  # the last line of the kernel console
    seconds: float = 0.0

    def boot_failure(self) -> str:
        """Returns how a boot failed: after which time, with which last words."""
        return f"the guest did not boot in {self.seconds:.0f} s: {self.console or 'no output'}"


def _remove_stale_folders() -> None:
    """Removes the folders of processes that were killed: they may hold the file of a persistent memory."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def run_guest(guest: Guest) -> int:
    """Boots a guest, runs its command and returns the exit code. Raises UserError if the guest does not boot or does
    not end in time."""
    _require(guest)
    kernel = prepare_kernel()
    _remove_stale_folders()
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER_PREFIX}{os.getpid()}-") as temporary:
        folder = Path(temporary)
        (folder / "hardware").write_text(guest.hardware.setup() + "\n")
        (folder / "job").write_text(_job(guest))
        deadline = time.monotonic() + guest.limit_s
        for attempt in range(MAX_BOOTS):
            if guest.hardware.pmem:
                _create_pmem_file(folder, guest.hardware)
            result = _boot(guest, kernel, folder, deadline)
            if result.is_up or result.timed_out:
                break
            if attempt + 1 < MAX_BOOTS:
                print(f"{result.boot_failure()}; trying once more", file=sys.stderr)
    if result.timed_out:
        raise UserError(f"the guest was not done within {guest.limit_s:.0f} s", "give a longer --timeout")
    if not result.is_up:
        raise UserError(result.boot_failure(), "try again")
    if result.code is None:
        raise UserError(
            f"the guest ended without an exit code: {result.console}", "try more memory: --memory"
        )
    if result.code == SETUP_FAILED:
        raise UserError("the guest's hardware could not be set up", "see the messages above")
    return result.code


def _require(guest: Guest) -> None:
    find("qemu-system-x86_64", "qemu-system-x86")
    if guest.hardware.rdma:
        find("ip", "iproute2")
        find("rdma", "iproute2")
    if guest.hardware.pmem:
        find("ndctl", "ndctl")
    if guest.hardware.numa > guest.hardware.cpus:
        raise UserError(
            f"{guest.hardware.numa} NUMA nodes with {guest.hardware.cpus} processors",
            "give at least one processor for each node: --cpus",
        )
    nodes, memory = guest.hardware.numa + guest.hardware.memory_nodes, guest.hardware.memory
    if guest.hardware.memory_nodes and memory < nodes * MIN_NODE_BYTES:
        raise UserError(
            f"{nodes} NUMA nodes with {format_quantity(memory, 'B')}", "give 64 MiB for each: --memory"
        )
    if guest.output is not None and not guest.output.is_dir():
        raise UserError(f"no folder {guest.output} for the output", "create it first")


def _job(guest: Guest) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # Times in an emulated machine are not meaningful; ASSAY_GUEST, set below, marks the records.
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in (environment | guest.environment).items()
    ]
    lines.append("export ASSAY_GUEST=emulated")
    if guest.output is not None:
        output = shlex.quote(str(guest.output.resolve()))
        lines.append(
            f"mkdir -p {output} && mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 output {output}"
        )
    lines.append(f"cd {shlex.quote(os.getcwd())}")
    lines.append(f"exec {shlex.join(guest.command)}")
    return "\n".join(lines) + "\n"


def _create_pmem_file(folder: Path, hardware: Hardware) -> None:
    path = folder / "pmem"
    if hardware.pmem_file is not None and not path.is_symlink():
        path.symlink_to(hardware.pmem_file.resolve())
    with open(path, "ab") as file:
        file.truncate(2 * hardware.pmem + LABEL_BYTES)


def is_virtualised() -> bool:
    """Whether KVM works: its kernel module must be loaded; /dev/kvm may exist without it."""
    modules = ("kvm_intel", "kvm_amd")
    return os.access("/dev/kvm", os.W_OK) and any(Path("/sys/module", module).is_dir() for module in modules)


def qemu_command(guest: Guest, kernel: Kernel, folder: Path) -> list[str]:
    """Returns QEMU's command without the descriptors of the ports (see ``_ports``)."""
    hardware = guest.hardware
    accelerator = ["-accel", "kvm"] if is_virtualised() else ["-accel", "tcg,thread=multi"]
    machine = "q35,nvdimm=on" if hardware.pmem else "q35"
    memory = f"{hardware.memory // MIB}M"
    if hardware.pmem:
        memory += f",slots=4,maxmem={(hardware.memory + 4 * hardware.pmem) // MIB + 1024}M"
    command = [
        "qemu-system-x86_64", "-machine", machine, *accelerator, "-cpu", "max",
        "-smp", str(hardware.cpus), "-m", memory,
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-kernel", str(kernel.image), "-initrd", str(kernel.initramfs),
        "-append", _kernel_command_line(kernel, folder),
        "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
    ]  # fmt: skip
    if hardware.numa + hardware.memory_nodes > 1:
        command += _numa(hardware)
    if hardware.pmem:
        size = f"{(2 * hardware.pmem + LABEL_BYTES) // MIB}M"
        command += ["-object", f"memory-backend-file,id=nv0,share=on,mem-path={folder / 'pmem'},size={size}"]
        command += ["-device", f"nvdimm,memdev=nv0,id=nvd0,label-size={LABEL_BYTES // MIB}M"]
    if guest.output is not None:
        path = str(guest.output.resolve()).replace(",", ",,")
        command += ["-fsdev", f"local,id=output,path={path},security_model=none,multidevs=remap"]
        command += ["-device", "virtio-9p-pci,fsdev=output,mount_tag=output"]
    return command


def _kernel_command_line(kernel: Kernel, folder: Path) -> str:
    quick = "quiet loglevel=3 panic=-1 mitigations=off nokaslr no_timer_check cryptomgr.notests"
    assay_options = f"assay.init={SCRIPTS / 'init.sh'} assay.job={folder} assay.modules={kernel.modules}"
    return f"console=ttyS0 {quick} random.trust_cpu=on {assay_options}"


def _numa(hardware: Hardware) -> list[str]:
    """Splits memory and processors over the nodes; distance 10 within a node, 21 between nodes."""
    options: list[str] = []
    nodes = hardware.numa + hardware.memory_nodes
    share = hardware.memory // nodes // MIB
    for node in range(nodes):
        first = node * hardware.cpus // hardware.numa
        last = (node + 1) * hardware.cpus // hardware.numa - 1
        processors = f",cpus={first}-{last}" if node < hardware.numa else ""
        # Node 0 takes the remainder of the division.
        size = share if node else hardware.memory // MIB - share * (nodes - 1)
        options += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
        options += ["-numa", f"node,nodeid={node}{processors},memdev=m{node}"]
    for a in range(nodes):
        for b in range(a + 1, nodes):
            options += ["-numa", f"dist,src={a},dst={b},val=21"]
    return options


def _ports(descriptors: Sequence[int]) -> list[str]:
    """Maps standard output, standard error and state to ports 1 to 3, over descriptors that QEMU inherits."""
    options = ["-device", "virtio-serial-pci"]
    for number, descriptor in enumerate(descriptors, 1):
        options += ["-add-fd", f"fd={descriptor},set={number}"]
        options += ["-chardev", f"file,id=port{number},path=/dev/fdset/{number},append=on"]
        options += ["-device", f"virtserialport,chardev=port{number},nr={number},name=assay.{number}"]
    return options


def _boot(guest: Guest, kernel: Kernel, folder: Path, deadline: float) -> GuestResult:
    """Boots once. The guest ends when QEMU ends; QEMU is killed if its parent dies."""
    state, console = folder / "state", folder / "console"
    state.touch()
    start = time.monotonic()
    # QEMU writes to pipes: it refuses descriptors that are readable too, as a terminal's.
    with _Relays((1, 2)) as relays, open(state, "ab") as state_file, open(console, "wb") as console_file:
        ports = [*relays.ends, state_file.fileno()]
        command = [*qemu_command(guest, kernel, folder), *_ports(ports), "-serial", f"file:{console}"]
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=console_file,
            stderr=console_file,
            pass_fds=ports,
            start_new_session=True,
        )
        relays.release()
        try:
            timed_out = _await(process, state, min(deadline, time.monotonic() + BOOT_LIMIT_S), deadline)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = state.read_text().split()
    state.unlink()
    last = console.read_text(errors="replace").strip().splitlines()[-1:]
    codes = [int(line) for line in lines if line.isdigit()]
    code, seconds = codes[-1] if codes else None, time.monotonic() - start
    return GuestResult(code, "up" in lines, timed_out, one_line(last[0]) if last else "", seconds)


class _Relays:
    """Pipes that a guest writes to, each copied to a descriptor of this process until it closes."""

    def __init__(self, targets: Sequence[int]) -> None:
        pipes = [os.pipe() for _ in targets]
        self.ends = [write for _, write in pipes]
        self._copies = [
            threading.Thread(target=self._copy, args=(read, target), daemon=True)
            for (read, _), target in zip(pipes, targets, strict=True)
        ]
        for copy in self._copies:
            copy.start()

    def __enter__(self) -> _Relays:
        return self

    def release(self) -> None:
        """Closes this process's writing ends, once QEMU has inherited them."""
        while self.ends:
            os.close(self.ends.pop())

    def __exit__(self, *_: object) -> None:
        self.release()
        for copy in self._copies:
            copy.join(timeout=5)

    @staticmethod
    def _copy(source: int, target: int) -> None:
        with open(source, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 16):
                with contextlib.suppress(OSError):  # the reader has closed: the guest may still finish
                    while chunk:
                        chunk = chunk[os.write(target, chunk) :]


def _await(process: subprocess.Popen[bytes], state: Path, boot_deadline: float, deadline: float) -> bool:
    """Waits until the guest ends, has not booted by ``boot_deadline``, or has reported an exit code and does not power
    off. Returns whether ``deadline`` has passed before."""
    reported: float | None = None
    while process.poll() is None:
        time.sleep(0.05)
        now, said = time.monotonic(), state.read_text()
        if any(line.isdigit() for line in said.split()):
            reported = reported or now
            if now > reported + POWER_OFF_LIMIT_S:
                return False
        elif now > deadline:
            return True
        elif now > boot_deadline and not said:
            return False
    return False
