"""The Debian package: built of this checkout, installed in a minimal Debian 12, used by an ordinary user, removed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIMIT_S = 1500
MOUNTS = 'for f in proc dev sys; do mount --rbind /$f "$0/$f"; done; exec chroot "$0" "$@"'
NOBODY = "env -i PATH=/usr/bin:/bin HOME=/home/user setpriv --reuid=1000 --regid=1000 --clear-groups"
INSTALL = (
    "apt-get update -q && apt-get install -y -q --no-install-recommends man-db openmpi-bin /tmp/assay.deb"
)


class System:
    """A Debian in a folder. What runs in it has a mount namespace of its own, so nothing stays mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["unshare", "--mount", "sh", "-ec", MOUNTS, self.folder, *command],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
        )

    def as_user(self, line: str) -> subprocess.CompletedProcess[str]:
        return self.run(*shlex.split(NOBODY), "sh", "-c", f"cd && {line}")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    built = subprocess.run(
        [ROOT / "packaging/debian.sh", folder], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert built.returncode == 0, built.stderr
    return Path(built.stdout.strip())


@pytest.fixture(scope="module")
def system(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A Debian 12 with the package; the installer's output must be free of warnings about it."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root, and debootstrap (Debian: apt-get install debootstrap)")
    folder = tmp_path_factory.mktemp("debian")
    folder.chmod(0o755)  # it is the root of ordinary users, too
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", "bookworm", folder],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert made.returncode == 0, made.stdout[-2000:]
    system = System(folder)
    shutil.copy("/etc/resolv.conf", folder / "etc")
    shutil.copy(package, folder / "tmp/assay.deb")
    assert system.run("useradd", "--create-home", "--uid=1000", "user").returncode == 0
    installed = system.run("sh", "-c", INSTALL)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    yield system
    shutil.rmtree(folder)


@pytest.mark.acceptance("install")
@pytest.mark.parametrize(
    ("line", "status", "shown"),
    [
        ("assay --version", {0}, "assay 0."),
        ("assay list", {0}, "node.memory"),
        # On a busy machine both are inconclusive.
        ("assay check --budget 3s -o check", {0, 1, 2}, "report: check/report.html"),
        ("assay net -n 2 --budget 3s --launcher openmpi -o net", {0, 1, 2}, "report: net/report.html"),
        ("assay heap -o heap -- ls /", {0}, "report: heap/report.html"),
        ("assay fabric check --fat-tree radix=8,rate=4xHDR", {0}, "fabric"),
        ("run_netsan.sh --help", {0}, "usage: assay net"),
        ("man -w assay", {0}, "/usr/share/man/man1/assay.1.gz"),
        (
            "bash -c '. /usr/share/bash-completion/completions/assay && complete -p assay'",
            {0},
            "_shtab_assay",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_ordinary_user_uses_the_package(system: System, line: str, status: set[int], shown: str) -> None:
    done = system.as_user(line)
    assert done.returncode in status, done.stdout + done.stderr
    assert shown in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.acceptance("install")
def test_nothing_stays_when_the_package_is_removed(system: System) -> None:
    """Also after root has used it: no file is compiled later."""
    assert system.run("assay", "list").returncode == 0
    removed = system.run("apt-get", "remove", "-y", "-q", "assay")
    assert removed.returncode == 0, removed.stderr
    assert "not empty" not in removed.stderr
    assert not (system.folder / "usr/lib/assay").exists() and not (system.folder / "usr/bin/assay").exists()


def test_without_engines_no_package_is_made(tmp_path: Path) -> None:
    (tmp_path / "packaging").mkdir()
    shutil.copy(ROOT / "packaging/debian.sh", tmp_path / "packaging")
    done = subprocess.run(
        ["bash", tmp_path / "packaging/debian.sh"], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "debian: no engines in build/bin; fix: make setup\n"
