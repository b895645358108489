"""Other systems to install Assay in: roots that debootstrap makes, entered in mounts of their own.

A root has /dev/shm of 64 MiB, the user's HOME on a file system of its own, empty at each command, and the network's
package index alone. No compiler is in it.
"""

from __future__ import annotations

import os
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
USER, ADMINISTRATOR = 1000, 0
LIMIT_S = 900
# Arguments: the root, a folder that is mounted read-only or "", who runs the command, the command.
ENTER = """
set -e
root=$1 fixed=$2 user=$3
shift 3
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o size=64m,mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o size=256m,mode=1777 home "$root/home"
[ -z "$fixed" ] || { mount --bind "$root/$fixed" "$root/$fixed" && mount -o remount,bind,ro "$root/$fixed"; }
[ "$user" = 0 ] && path=/usr/sbin:/usr/bin:/sbin:/bin || path=/usr/bin:/bin
exec chroot --userspec="$user:$user" "$root" env -i HOME=/home PATH=$path LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive sh -c 'cd "$HOME" && exec "$@"' sh "$@"
"""


@dataclass(frozen=True)
class System:
    """A root of another system."""

    path: Path

    def run(
        self, *command: str, read_only: str = "", user: int = USER, limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in it; ``read_only``: a folder of it that nothing can write to meanwhile."""
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        enter += ["sh", "-c", ENTER, "sh", str(self.path), read_only, str(user)]
        return subprocess.run(
            [*enter, *command], capture_output=True, text=True, errors="replace", timeout=limit_s
        )


def system(release: str, packages: Sequence[str], folder: Path = FOLDER) -> System:
    """The root of a release of Debian, made when it is not in the folder. Skips without debootstrap."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root, and debootstrap (Debian: apt-get install debootstrap)")
    path = folder / release
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
