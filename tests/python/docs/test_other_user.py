"""An ordinary user runs a checkout that root has built, from the user's own directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SYSTEM_PYTHON = Path("/usr/bin/python3")
NOBODY = 65534
# setpriv looks up the program with root's rights, so it starts env, which looks up the program as the user nobody.
AS_NOBODY = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs env".split()
PATH = "/usr/local/bin:/usr/bin:/bin"
LIMIT_S = 300
ENGINES = {name: os.environ[name] for name in ["ASSAY_ENGINES"] if name in os.environ}

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None,
        reason="becoming another user needs root and setpriv",
    ),
]


def as_nobody(*argv: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as the user nobody, without HOME unless ``env`` has it."""
    return subprocess.run(
        [*AS_NOBODY, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=cwd,
        env={"PATH": PATH, **ENGINES, **env},
    )


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter, which tmp_path is not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def folder(shared: Path) -> Path:
    """The user's current directory."""
    path = shared / "nobody"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


def make_environment(checkout: Path, python: Path) -> None:
    """Creates a virtual environment of ``python`` that uses the packages of this checkout's environment."""
    subprocess.run([python, "-m", "venv", "--without-pip", checkout / ".venv"], check=True, timeout=LIMIT_S)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = checkout / ".venv/lib" / version / "site-packages"
    (packages / "shared.pth").write_text(f"{next(p for p in sys.path if p.endswith('site-packages'))}\n")


@pytest.fixture
def checkout(shared: Path, folder: Path) -> Path:
    """This checkout, if the user nobody can run its Python. Otherwise a copy with an environment of the system's
    Python."""
    if (
        as_nobody(
            ROOT / ".venv/bin/python", "-c", "import assay", cwd=folder, PYTHONPATH=f"{ROOT}/python"
        ).returncode
        == 0
    ):
        return ROOT
    version = f"import sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    if subprocess.run([SYSTEM_PYTHON, "-c", version], check=False).returncode != 0:
        pytest.skip("optional: no system Python of the environment's version")
    copy = shared / "checkout"
    copy.mkdir()
    shutil.copy(ROOT / "assay", copy)
    for name in ("python", "build", "web", "specs", "workloads", "schema"):
        (copy / name).symlink_to(ROOT / name)
    make_environment(copy, SYSTEM_PYTHON)
    return copy


def test_an_ordinary_user_lists_and_measures(checkout: Path, folder: Path) -> None:
    listed = as_nobody(checkout / "assay", "list", cwd=folder)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "node.memory" in listed.stdout
    measured = as_nobody(checkout / "assay", "mem", "--peak", "-o", "first", cwd=folder)
    assert measured.returncode == 0, measured.stderr
    report = folder / "first" / "report.html"
    assert report.stat().st_uid == NOBODY and report.stat().st_size > 100_000


def test_a_python_below_a_closed_folder_is_not_called_missing(folder: Path, shared: Path) -> None:
    """The planted home of root is a folder of mode 700 with the interpreter to which the environment links."""
    checkout, home = shared / "checkout", shared / "home"
    checkout.mkdir()
    home.mkdir(mode=0o700)
    shutil.copy(ROOT / "assay", checkout)
    private = home / "python3"
    shutil.copy(SYSTEM_PYTHON.resolve(), private)
    (checkout / ".venv/bin").mkdir(parents=True)
    (checkout / ".venv/bin/python").symlink_to(private)
    (checkout / ".venv/pyvenv.cfg").write_text(f"home = {home}\nexecutable = {private}\n")

    done = as_nobody(checkout / "assay", "list", cwd=folder)
    assert done.returncode == 2 and "missing" not in done.stderr
    assert f"not accessible: {private}, since nobody may not enter {home}" in done.stderr
    assert "fix: " in done.stderr

    private.unlink()
    home.chmod(0o755)
    assert "is broken" in as_nobody(checkout / "assay", "list", cwd=folder).stderr
    shutil.rmtree(checkout / ".venv")
    assert "is missing" in as_nobody(checkout / "assay", "list", cwd=folder).stderr


def test_setup_prefers_a_python_that_others_can_execute(shared: Path, folder: Path) -> None:
    checkout, home = shared / "checkout", shared / "home"
    home.mkdir(mode=0o700)
    shutil.copy(SYSTEM_PYTHON.resolve(), home / "python3")
    (checkout / "packaging").mkdir(parents=True)
    shutil.copy(ROOT / "packaging/setup.sh", checkout / "packaging")
    chosen = subprocess.run(
        [checkout / "packaging/setup.sh", "python"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={"PATH": f"{home}:{PATH}"},
    )
    assert chosen.stdout.strip() != str(home / "python3")
    assert as_nobody(chosen.stdout.strip(), "-c", "", cwd=folder).returncode == 0
