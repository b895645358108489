"""The Debian package: built of this checkout, installed in a minimal Debian 12, used by an ordinary user, removed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from roots import ADMINISTRATOR, ROOT, System
from roots import system as root_of

pytestmark = pytest.mark.timeout(3600)  # builds and installs the package
LIMIT_S = 1500
INSTALL = (
    "apt-get update -q && apt-get install -y -q --no-install-recommends man-db openmpi-bin /tmp/assay.deb"
)


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
    debian = root_of("bookworm", [], tmp_path_factory.mktemp("debian"))
    debian.path.chmod(0o755)  # it is the root of ordinary users, too
    shutil.copy(package, debian.path / "tmp/assay.deb")
    installed = debian.run("sh", "-c", INSTALL, user=ADMINISTRATOR, limit_s=LIMIT_S)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    yield debian
    shutil.rmtree(debian.path)


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
    done = system.run("sh", "-c", line)
    assert done.returncode in status, done.stdout + done.stderr
    assert shown in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.acceptance("install")
def test_nothing_stays_when_the_package_is_removed(system: System) -> None:
    """Also after root has used it: no file is compiled later."""
    assert system.run("assay", "list", user=ADMINISTRATOR).returncode == 0
    removed = system.run("apt-get", "remove", "-y", "-q", "assay", user=ADMINISTRATOR)
    assert removed.returncode == 0, removed.stderr
    assert "not empty" not in removed.stderr
    assert not (system.path / "usr/lib/assay").exists() and not (system.path / "usr/bin/assay").exists()


def test_without_engines_no_package_is_made(tmp_path: Path) -> None:
    (tmp_path / "packaging").mkdir()
    shutil.copy(ROOT / "packaging/debian.sh", tmp_path / "packaging")
    done = subprocess.run(
        ["bash", tmp_path / "packaging/debian.sh"], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "debian: no engines in build/bin; fix: make setup\n"
