"""The Linux kernel that a lab's guests (virtual machines) boot: Debian's package, unpacked into a cache and not
installed.

The cache is /var/cache/assay for root, else ~/.cache/assay, with a folder for each version. The bzImage's payload is
decompressed too: QEMU boots an uncompressed vmlinux through its PVH entry point, which saves a third of the boot
time under emulation.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay.errors import UserError
from assay.lab.tools import find, locate

PACKAGE = "linux-image-amd64"  # a metapackage, which depends on the package of the newest kernel
COMMAND_LIMIT_S = 600.0  # the download takes longest
TOOLS = {  # Debian's package for each, beside apt-get and dpkg themselves
    "depmod": "kmod",
    "modprobe": "kmod",
    "busybox": "busybox-static",
}
# Offsets of the x86 boot protocol's header (Documentation/arch/x86/boot.rst of the kernel).
SETUP_SECTORS, PAYLOAD_OFFSET = 0x1F1, 0x248
CACHE_VERSION = 1  # of the cache's layout; a cache of another version is ignored
BOOT_MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")


@dataclass(frozen=True)
class Kernel:
    """``image``: the vmlinux. ``modules``: the folder that holds lib/modules/VERSION."""

    version: str
    image: Path
    modules: Path
    initramfs: Path


def cache_folder() -> Path:
    """Returns the folder of the cache. The file ``ready`` marks a version's folder as complete."""
    base = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    return base / "assay" / f"guest-{CACHE_VERSION}"


def prepare_kernel() -> Kernel:
    """Returns the kernel that was cached last; fetches and unpacks one if there is none. Raises UserError."""
    ready = sorted(cache_folder().glob("*/ready"), key=lambda path: path.stat().st_mtime)
    if ready:
        return _kernel(ready[-1].parent)
    if locate("apt-get") is None or locate("dpkg") is None:
        raise UserError(
            "guests boot Debian's kernel, and this machine has no apt-get and dpkg to fetch it",
            f"copy {cache_folder()} from a Debian machine",
        )
    for tool, package in TOOLS.items():
        find(tool, package)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".part-") as temporary:
        staging = Path(temporary)
        _unpack(_fetch(staging), staging)
        version = next((staging / "root/lib/modules").iterdir()).name
        image = next((staging / "root/boot").glob("vmlinuz-*")).read_bytes()
        (staging / "vmlinux").write_bytes(extract_payload(image))
        _run(["depmod", "-b", str(staging / "root"), version])
        _build_initramfs(staging, version)
        for archive in staging.glob("*.deb"):
            archive.unlink()
        (staging / "ready").touch()
        target = cache_folder() / version
        shutil.rmtree(target, ignore_errors=True)
        staging.rename(target)
        staging.mkdir()  # TemporaryDirectory removes it
    return _kernel(target)


def _kernel(folder: Path) -> Kernel:
    return Kernel(folder.name, folder / "vmlinux", folder / "root", folder / "initramfs.gz")


def _run(command: list[str], cwd: Path | None = None) -> str:
    argv = [find(command[0], command[0]), *command[1:]]
    try:
        result = subprocess.run(
            argv, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=True, cwd=cwd
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout or "").strip().splitlines()[-1:] or ["no message"]
        raise UserError(
            f"{command[0]} failed: {last[0]}",
            "check that this machine runs Debian; guests need its kernel package",
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} took over {COMMAND_LIMIT_S:.0f} s", "check the network") from None
    return result.stdout


def _fetch(target: Path) -> Path:
    output = _run(["apt-cache", "depends", PACKAGE])
    match = re.search(r"Depends: (linux-image-\S+)", output)
    if not match:
        raise UserError(
            f"apt does not know the package {PACKAGE}", "run 'apt-get update'; guests need Debian's kernel"
        )
    # Run by root, apt downloads as the user _apt by default, which cannot write into the target.
    _run(["apt-get", "-o", "APT::Sandbox::User=root", "download", match[1]], cwd=target)
    return next(target.glob("*.deb"))


def _unpack(package: Path, target: Path) -> None:
    _run(["dpkg", "-x", str(package), str(target / "root")])


def extract_payload(image: bytes) -> bytes:
    """Returns the vmlinux inside a bzImage that is compressed with xz. Raises UserError otherwise."""
    sectors = image[SETUP_SECTORS] or 4  # boot.rst: 0 means 4
    offset, length = struct.unpack_from("<II", image, PAYLOAD_OFFSET)
    start = (sectors + 1) * 512 + offset  # the offset counts from the end of the boot and setup sectors
    try:
        return lzma.LZMADecompressor().decompress(image[start : start + length])
    except lzma.LZMAError as error:
        raise UserError(f"the kernel's payload is not xz: {error}", "use Debian's kernel package") from None


# The initramfs's init: mounts the host's root read-only over 9p, with a writable overlay in memory, and starts
# the script that the kernel's parameter assay.init names.
_INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc p /proc; $B mount -t sysfs s /sys; $B mount -t devtmpfs d /dev
for f in /m/*.ko; do $B insmod $f; done
$B mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose,noatime root /ro || $B poweroff -f
$B mount -t tmpfs t /rw; $B mkdir -p /rw/u /rw/w
$B mount -t overlay o -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w /new || $B poweroff -f
for d in proc sys dev; do $B mount --move /$d /new/$d; done
for a in $($B cat /new/proc/cmdline); do case $a in assay.init=*) init=${a#assay.init=};; esac; done
exec $B switch_root /new /bin/bash $init
"""


def _build_initramfs(target: Path, version: str) -> None:
    """Builds the initramfs, about 1 MB: busybox and the modules that mount the host's root."""
    tree = target / "initramfs"
    for folder in ("bin", "m", "proc", "sys", "dev", "ro", "rw", "new"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(find("busybox", "busybox-static"), tree / "bin/busybox")
    module_paths: dict[str, None] = {}  # dependencies first
    for module in BOOT_MODULES:
        output = _run(["modprobe", "-d", str(target / "root"), "-S", version, "--show-depends", module])
        module_paths |= {line.split()[1]: None for line in output.splitlines() if line.startswith("insmod")}
    for number, path in enumerate(module_paths):
        shutil.copy(path, tree / "m" / f"{number:03}-{Path(path).name}")
    (tree / "init").write_text(_INIT)
    (tree / "init").chmod(0o755)
    archive = f"cd {tree} && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >{target}/initramfs.gz"
    _run(["sh", "-c", archive])
    shutil.rmtree(tree)
