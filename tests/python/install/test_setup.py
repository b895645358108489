"""packaging/setup.sh on planted systems: an os-release, and a PATH without dpkg, compilers or root.

The planted checkout has no sources: its Python, node and npm do nothing, so a set-up takes a second.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIMIT_S = 300  # against hangs
TOOLS = (
    "bash cat cmp cp cut dirname echo env find grep id mkdir readlink rm sed sha256sum sort stat tail xargs"
)
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n'
SLES = 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n'
UBUNTU = "ID=ubuntu\nID_LIKE=debian\n"
ARCH = "ID=arch\n"
DOES_NOTHING = "#!/bin/sh\nexit 0\n"
NO_ENGINE = "no engine can run here"


@dataclass
class System:
    """A machine with a checkout. ``programs``: scripts on PATH, beside coreutils."""

    folder: Path
    release: str
    programs: dict[str, str] = field(default_factory=dict)

    def plant(self) -> System:
        checkout, tools = self.folder / "checkout", self.folder / "bin"
        for path in (
            "packaging/setup.sh",
            "packaging/constraints.txt",
            "pyproject.toml",
            "python/assay/system_packages.txt",
        ):
            (checkout / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, checkout / path)
        (checkout / "web/node_modules").mkdir(parents=True)
        (checkout / "web/dist").mkdir()
        (checkout / "web/package-lock.json").touch()
        tools.mkdir()
        for tool in set(TOOLS.split()) - set(self.programs):
            (tools / tool).symlink_to(shutil.which(tool) or "/bin/false")
        for name, text in {"node": DOES_NOTHING, "npm": DOES_NOTHING, **self.programs}.items():
            self.write(tools / name, text)
        self.write(checkout / ".venv/bin/python", DOES_NOTHING)
        self.write(self.folder / "root/etc/os-release", self.release)
        return self

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def set_up(self, purpose: str = "run", **environment: str) -> tuple[int, str]:
        """The exit code of setup.sh, and what it says."""
        done = subprocess.run(
            ["bash", self.folder / "checkout/packaging/setup.sh", purpose],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env={"PATH": str(self.folder / "bin"), "ASSAY_ROOT": str(self.folder / "root"), **environment},
        )
        return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("release", "command"),
    [
        (ROCKY, "dnf install gcc-c++ cmake ninja-build pkgconf-pkg-config"),
        (SLES, "zypper install gcc-c++ cmake ninja pkg-config"),
        (UBUNTU, "apt-get install g++ cmake ninja-build pkg-config"),
        (ARCH, "install what Debian calls: g++ cmake ninja-build pkg-config"),
    ],
    ids=["rocky", "sles", "ubuntu", "arch"],
)
def test_a_system_without_dpkg_is_told_what_is_missing_in_its_words(
    tmp_path: Path, release: str, command: str
) -> None:
    status, said = System(tmp_path, release).plant().set_up()
    assert status == 2
    assert f"    {command} " in said and NO_ENGINE in said
    assert ("apt-get" in said) == (release == UBUNTU)


def test_the_release_is_found_where_etc_has_none(tmp_path: Path) -> None:
    system = System(tmp_path, ROCKY).plant()
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "root/etc/os-release").rename(tmp_path / "root/usr/lib/os-release")
    assert "dnf install gcc-c++" in system.set_up()[1]


def test_what_other_ways_have_installed_is_not_called_missing(tmp_path: Path) -> None:
    """A module's compiler is on PATH, and its header in CPATH or below CMAKE_PREFIX_PATH."""
    system = System(tmp_path, ROCKY, {"g++": DOES_NOTHING, "python3": DOES_NOTHING}).plant()
    for header in ("module/include/fmt/format.h", "prefix/include/tsl/robin_map.h"):
        system.write(tmp_path / header, "")
    places = {
        "CPATH": f"/nowhere:{tmp_path / 'module/include'}",
        "CMAKE_PREFIX_PATH": f"/none:{tmp_path / 'prefix'}",
    }
    assert "fmt-devel" in system.set_up()[1] and "robin-map-devel" in system.set_up()[1]
    status, said = system.set_up(**places)
    assert status == 2 and "cmake" in said
    assert [name for name in ("gcc-c++", "fmt-devel", "robin-map-devel") if name in said] == []


def test_an_engine_that_runs_is_enough(tmp_path: Path) -> None:
    system = System(tmp_path, ROCKY).plant()
    system.write(tmp_path / "checkout/build/bin/assay-probe", DOES_NOTHING)
    status, said = system.set_up()
    assert (status, NO_ENGINE in said) == (0, False)
    assert "dnf install gcc-c++" in said


def test_an_engine_that_cannot_run_is_none(tmp_path: Path) -> None:
    system = System(tmp_path, ROCKY).plant()
    system.write(tmp_path / "checkout/build/bin/assay-probe", "#!/bin/sh\nexit 127\n")
    assert system.set_up()[0] == 2


def test_a_build_that_fails_is_a_failure_though_an_older_engine_runs(tmp_path: Path) -> None:
    tools = {name: DOES_NOTHING for name in ("g++", "ninja", "pkg-config")}
    system = System(tmp_path, ROCKY, {**tools, "cmake": "#!/bin/sh\necho no fmt\nexit 1\n"}).plant()
    system.write(tmp_path / "checkout/build/bin/assay-probe", DOES_NOTHING)
    status, said = system.set_up()
    assert status == 2 and "no fmt" in said


def test_a_compiler_that_is_too_old_is_named_and_one_of_a_variable_is_taken(tmp_path: Path) -> None:
    old, new = "#!/bin/sh\necho 10\n", "#!/bin/sh\necho 13.2.0\n"
    tools = {name: DOES_NOTHING for name in ("cmake", "ninja", "pkg-config")}
    system = System(tmp_path, SLES, {**tools, "g++": old, "g++-13": new}).plant()
    status, said = system.set_up()
    assert status == 2 and "g++ is GCC 10, and GCC 11 or newer is needed" in said
    assert "GCC" not in system.set_up(CXX="g++-13")[1]


def test_debian_without_root_names_the_packages_and_fails_without_an_engine(tmp_path: Path) -> None:
    nobody = {
        "dpkg-query": "#!/bin/sh\nexit 1\n",
        "apt-get": "#!/bin/sh\necho apt-get was called >&2\nexit 1\n",
        "id": "#!/bin/sh\necho 1000\n",
        "sudo": "#!/bin/sh\nexit 1\n",
    }
    status, said = System(tmp_path, "ID=debian\n", nobody).plant().set_up()
    assert status == 2 and NO_ENGINE in said
    assert "no root to install them" in said and "    apt-get install g++ cmake ninja-build" in said
    assert "apt-get was called" not in said


@pytest.mark.parametrize(
    ("release", "advice"),
    [(ROCKY, "dnf install python3.11"), ("ID=debian\n", "this release has no newer one")],
    ids=["rocky", "debian"],
)
def test_a_python_that_is_too_old_is_named_with_the_way_to_a_newer_one(
    tmp_path: Path, release: str, advice: str
) -> None:
    old = "#!/bin/sh\n[ $1 != --version ] || echo Python 3.9.2\nexit 1\n"
    system = System(tmp_path, release, {"python3": old}).plant()
    shutil.rmtree(tmp_path / "checkout/.venv")
    status, said = system.set_up()
    assert status == 2 and "found is: Python 3.9.2" in said and advice in said


def test_every_package_of_the_set_up_has_a_row_in_the_table() -> None:
    script = (ROOT / "packaging/setup.sh").read_text()
    packages = script.partition("run_packages=(")[2].partition(")")[0].split()
    rows = {
        line.split()[0]: line.split()
        for line in (ROOT / "python/assay/system_packages.txt").read_text().splitlines()
    }
    assert len(packages) > 10
    assert [name for name in packages if name not in rows] == []
    assert [name for name in packages if len(rows[name]) != 4 or rows[name][3] == "-"] == []
