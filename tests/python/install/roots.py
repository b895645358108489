"""Other systems to install Assay in: roots that debootstrap makes, entered as an ordinary user in mounts of their own.

A root has /dev/shm of 64 MiB, the user's HOME on a file system of its own, and the network's package index alone. No
compiler is in it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "build" / "roots"
MIRROR = "http://deb.debian.org/debian"
KEPT = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
USER = 1000
LIMIT_S = 900
# Arguments: the root, a folder that is mounted read-only or "", the command.
ENTER = """
set -e
root=$1 fixed=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o size=64m,mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o size=256m,mode=1777 home "$root/home"
[ -z "$fixed" ] || { mount --bind "$root/$fixed" "$root/$fixed" && mount -o remount,bind,ro "$root/$fixed"; }
exec chroot --userspec=1000:1000 "$root" env -i HOME=/home PATH=/usr/bin:/bin LANG=C.UTF-8 \
    sh -c 'cd "$HOME" && exec "$@"' sh "$@"
"""


@dataclass(frozen=True)
class System:
    """A root of another system."""

    path: Path

    def run(
        self, *command: str, read_only: str = "", limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in it, as the user; ``read_only``: a folder of it that nothing can write to meanwhile."""
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        enter += ["sh", "-c", ENTER, "sh", str(self.path), read_only]
        return subprocess.run(
            [*enter, *command], capture_output=True, text=True, errors="replace", timeout=limit_s
        )


def system(release: str, packages: Sequence[str]) -> System:
    """The root of a release of Debian, made when it is not there. Skips without debootstrap."""
    if shutil.which("debootstrap") is None:
        pytest.skip("no debootstrap here (Debian: apt-get install debootstrap)")
    path = FOLDER / release
    if not (path / "ready").exists():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        include = ["--variant=minbase", f"--include={','.join(['ca-certificates', *packages])}"]
        made = subprocess.run(
            ["debootstrap", *include, release, str(path), MIRROR],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-2000:]
        for name in KEPT:
            if Path(name).exists():
                shutil.copy(name, path / name[1:])
        (path / "ready").touch()
    return System(path)
