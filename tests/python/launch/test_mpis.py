"""The engines of the wheel, which are for an ABI of MPI: the launcher that is chosen, and the library of its ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch import mpis
from assay.launch.engines import probe
from assay.launch.launchers import OpenMpi, default_launcher, find_launcher
from assay.launch.placement import REMOTE, Segment, Site

VERSIONS = {
    "openmpi": "mpirun (Open MPI) 5.0.3",
    "openmpi-4": "mpirun (Open MPI) 4.1.4",
    "mpich": "HYDRA build details:\n    Version: 4.2",
    "intelmpi": "Intel(R) MPI Library for Linux* OS, Version 2021.18",
    "other": "mpirun of a company, 1.0",
}
LIBRARIES = {
    "openmpi": "libmpi.so.40",
    "openmpi-4": "libmpi.so.40",
    "mpich": "libmpi.so.12",
    "intelmpi": "libmpi.so.12",
}
# An engine that says what it would load.
ENGINE = """#!/bin/sh
[ "$1" = --mpi-library ] || exit 1
[ -n "$ASSAY_MPI_LIBRARY" ] && echo "$ASSAY_MPI_LIBRARY: a version" && exit
echo "${0##*/}: no library of it can be loaded: libmpi.so: not there; fix: load a module" >&2
exit 2
"""


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Engines as the wheel has them, a Python without an MPI beside it, and a PATH with the shell's programs alone."""
    folder = tmp_path / "engines"
    for abi in mpis.ABIS:
        script(folder / f"assay-probe-{abi}", ENGINE)
        (folder / f"libassay-probe-{abi}.so").touch()
    monkeypatch.setenv("ASSAY_ENGINES", str(folder))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "bin" / "python3"))
    for name in ("SLURM_JOB_ID", "I_MPI_ROOT"):
        monkeypatch.delenv(name, raising=False)
    mpis.loaded_library.cache_clear()
    return tmp_path


def install(root: Path, mpi: str) -> str:
    """An MPI in a folder of its own; returns its bin."""
    for name in ("mpirun", "mpiexec", "mpiexec.hydra"):
        if not (mpi.startswith("openmpi") and name == "mpiexec.hydra"):
            script(root / mpi / "bin" / name, f"#!/bin/sh\necho '{VERSIONS[mpi]}'\n")
    if mpi in LIBRARIES:
        script(root / mpi / "lib" / LIBRARIES[mpi], "")
    return str(root / mpi / "bin")


@pytest.mark.parametrize(
    ("order", "chosen", "flavour"),
    [
        (["openmpi", "mpich"], "openmpi", "openmpi"),
        (["mpich", "openmpi"], "mpich", "mpich"),
        (["intelmpi", "openmpi"], "intelmpi", "mpich"),
    ],
)
def test_the_mpirun_that_is_first_on_path_decides(
    order: list[str], chosen: str, flavour: str, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ":".join([*(install(wheel, mpi) for mpi in order), "/usr/bin", "/bin"]))
    launcher = default_launcher()
    assert (launcher.name, launcher.flavour) == (chosen, flavour)
    library = wheel / order[0] / "lib" / LIBRARIES[order[0]]
    command = mpis.rank_command(probe(flavour), flavour, launcher.program(), ["run"])
    assert command == ["env", f"ASSAY_MPI_LIBRARY={library}", str(probe(flavour)), "run"]


def test_an_mpi_that_pip_has_put_beside_python_is_found(wheel: Path) -> None:
    install(wheel, "mpich")
    (wheel / "mpich").rename(wheel / "python")
    launcher = default_launcher()
    assert launcher.flavour == "mpich" and str(launcher.program()).startswith(f"{wheel}/python/bin/")


def test_an_mpi_of_neither_abi_is_refused_and_not_passed_over(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ":".join([install(wheel, "other"), install(wheel, "openmpi"), "/usr/bin", "/bin"])
    monkeypatch.setenv("PATH", path)
    with pytest.raises(UserError, match="is neither of Open MPI") as refused:
        default_launcher()
    assert f"{wheel}/other/bin/mpirun (says 'mpirun of a company, 1.0'; no libmpi.so" in refused.value.what
    for name in ("libmpi.so.1.0.3", "libmpi_cxx.so.1"):
        script(wheel / "other" / "lib" / name, "")
    (wheel / "other" / "lib" / "libmpi.so.1").symlink_to("libmpi.so.1.0.3")
    with pytest.raises(UserError, match="is neither of Open MPI") as refused:
        default_launcher()
    assert f"company, 1.0'; {wheel}/other/lib/libmpi.so.1)" in refused.value.what
    assert "mpicxx" in refused.value.fix and "\n" not in str(refused.value)


def test_a_launcher_without_its_library_says_what_was_tried(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(wheel, 'mpich')}:/usr/bin:/bin")
    (wheel / "mpich" / "lib" / "libmpi.so.12").unlink()
    with pytest.raises(UserError, match="mpich cannot be used: no library of it can be loaded: libmpi"):
        find_launcher("mpich")


@pytest.mark.parametrize(("mpi", "agent"), [("openmpi", "plm_ssh_agent"), ("openmpi-4", "plm_rsh_agent")])
def test_open_mpi_5_is_told_of_daemons_under_its_own_names(
    mpi: str, agent: str, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(wheel, mpi)}:/usr/bin:/bin")
    command = OpenMpi().command(Site("ssh", agent="agent", interface="eth0"), [Segment(["a", "b"])], ["x"])
    assert command[command.index(agent) + 1] == "agent"
    assert ("pt2pt" in command) == (mpi == "openmpi-4"), "Open MPI 5 has no such component"


def test_an_engine_that_is_linked_with_its_mpi_gets_no_library(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(wheel, 'openmpi')}:/usr/bin:/bin")
    for path in (wheel / "engines").glob("*.so"):
        path.unlink()
    assert mpis.rank_command(probe("openmpi"), "openmpi", OpenMpi().program(), []) == [str(probe("openmpi"))]
    assert "plm_rsh_no_tree_spawn" in OpenMpi().command(REMOTE, [Segment(["a"])], ["x"])


@pytest.mark.parametrize("folder", ["lib", "lib64", "lib/release", "lib/x86_64-linux-gnu"])
def test_the_library_of_a_linked_launcher_is_found_in_its_installation(folder: str, tmp_path: Path) -> None:
    script(tmp_path / "mpi" / "bin" / "mpiexec", "")
    script(tmp_path / "mpi" / folder / "libmpi.so.12", "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").symlink_to(tmp_path / "mpi" / "bin" / "mpiexec")
    found = mpis.library_beside(str(tmp_path / "bin" / "mpiexec"), "mpich")
    assert found == tmp_path / "mpi" / folder / "libmpi.so.12"
    assert mpis.library_beside(str(tmp_path / "bin" / "mpiexec"), "openmpi") is None
