"""The wheel where Debian 12 is not: a newer and an older Debian, without compiler, as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from roots import LIMIT_S, ROOT, USER, System, system

pytestmark = [
    pytest.mark.acceptance("install"),
    pytest.mark.timeout(3600),  # builds the wheel
    pytest.mark.skipif(os.geteuid() != 0, reason="root makes the systems to install in"),
]
PREFIX = "/opt/assay"  # where the package is installed, read-only when it is used
SPACED = "/opt/two words"  # the same, moved
DIST = ROOT / "build" / "wheel" / "dist"


@pytest.fixture(scope="module")
def wheel() -> Path:
    built = subprocess.run(
        [str(ROOT / "packaging" / "wheel.sh")], capture_output=True, text=True, timeout=3600
    )
    assert built.returncode == 0, built.stderr[-2000:]
    (path,) = DIST.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def newer(wheel: Path) -> Iterator[System]:
    """Debian 13, with the wheel and an MPI of PyPI in an environment whose path has a space."""
    debian = system("trixie", ["python3", "python3-venv"])
    place = debian.path / PREFIX[1:]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(wheel, place)
    for path in (place, place / wheel.name):
        os.chown(path, USER, USER)
    installs = (
        f'python3 -m venv "{PREFIX}/env" && "{PREFIX}/env/bin/pip" install -q "{PREFIX}/{wheel.name}" mpich'
    )
    result = debian.run("sh", "-c", installs, limit_s=2 * LIMIT_S)
    assert result.returncode == 0, result.stderr[-2000:]
    yield debian
    shutil.rmtree(place)


def assay(debian: System, arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a verb with the package read-only, the run in HOME and the environment's MPI on PATH."""
    text = f'PATH="{PREFIX}/env/bin:$PATH" assay {arguments}'
    return debian.run("sh", "-c", text, read_only=PREFIX[1:])


def test_the_doctor_names_the_mpi_that_is_chosen_and_what_the_wheel_lacks(newer: System) -> None:
    result = assay(newer, "doctor --json")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "env/lib/libmpi.so.12: MPICH Version: 5" in result.stdout
    assert "for the mpirun on PATH" in result.stdout and "not in the wheel" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        # Another program's load or this machine's settings may fail a criterion: the run itself is whole.
        ("check --budget 8s -o r", (0, 1, 2)),
        ("net --budget 4s -o r", (0, 1, 2)),
        ("net --transport tcp --size 64KiB --budget 2s -o r", (0, 1, 2)),
        ("heap -o r -- python3 -c 'print([0] * 10**6 and 7)'", (0,)),
        ("fabric conflicts --fat-tree radix=8,nodes=16 -o r", (0,)),
    ],
)
def test_a_verb_runs_and_writes_its_report(arguments: str, codes: tuple[int, ...], newer: System) -> None:
    result = assay(newer, f"{arguments}; status=$?; test -s r/report.html && exit $status; exit 99")
    assert result.returncode in codes, result.stdout[-3000:] + result.stderr[-3000:]
    for sign in ("Traceback", "cannot start", "ended by signal"):
        assert sign not in result.stdout + result.stderr


def test_two_commands_give_a_verdict_without_an_mpi(newer: System, wheel: Path) -> None:
    first = f"{PREFIX}/first"
    install = f"python3 -m venv {first} && {first}/bin/pip install -q {PREFIX}/{wheel.name}"
    assert newer.run("sh", "-c", install, limit_s=LIMIT_S).returncode == 0
    result = newer.run(f"{first}/bin/assay", "check", "-o", "r", read_only=first[1:])
    assert "no MPI is on PATH: the network is measured over TCP" in result.stderr
    assert result.returncode in (0, 1) and "INCONCLUSIVE" not in result.stdout, result.stdout + result.stderr


def test_a_folder_with_a_space_measures_and_records_programs(newer: System) -> None:
    spaced = newer.path / SPACED[1:]
    shutil.rmtree(spaced, ignore_errors=True)
    shutil.copytree(newer.path / PREFIX[1:], spaced, symlinks=True)
    python = f'"{SPACED}/env/bin/python" -m assay'
    net = newer.run(
        "sh", "-c", f"{python} net --transport tcp --size 64KiB --budget 2s -o r", read_only=SPACED[1:]
    )
    recorded = [
        newer.run(
            "sh",
            "-c",
            f"{python} {verb} -o r -- python3 -c pass && test -s r/report.html",
            read_only=SPACED[1:],
        )
        for verb in ("heap", "numa --emulate 2")
    ]
    shutil.rmtree(spaced)
    assert "Traceback" not in net.stderr and "report: " in net.stdout + net.stderr
    for result in recorded:
        assert result.returncode == 0 and "ld.so" not in result.stderr, result.stdout + result.stderr


def test_a_program_is_accelerated(newer: System) -> None:
    program = f"env ASSAY_MPI_LIBRARY={PREFIX}/env/lib/libmpi.so.12 {PREFIX}/env/lib/python3.13/site-packages"
    program += "/assay/bin/assay-io-bench-mpich"
    options = "run storage.ior --transfer 65536 --block 1048576 --file f"
    command = f"io run --require --store-size 40MiB -- mpiexec -n 2 {program} {options}"
    result = assay(newer, command)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]


def test_the_engines_run_with_the_glibc_of_debian_11(wheel: Path) -> None:
    """Its Python is too old for the package, so its engines are unpacked alone."""
    debian = system("bullseye", [])
    place = debian.path / "opt" / "assay"
    shutil.rmtree(place, ignore_errors=True)
    shutil.unpack_archive(str(wheel), str(place), "zip")
    for path in (place / "assay" / "bin").iterdir():
        path.chmod(0o755)
    for name in ("assay-probe", "assay-probe-mpich", "assay-heap", "assay-alloc"):
        result = debian.run(f"/opt/assay/assay/bin/{name}", "--describe")
        assert result.returncode == 0 and '"measurements"' in result.stdout, (name, result.stderr)
    result = debian.run("/opt/assay/assay/bin/assay-probe", "run", "node.noise", "--budget", "1")
    assert result.returncode == 0, result.stderr
    record = "mkdir t && $0 record t -- /bin/ls / >/dev/null && $0 analyse t/*.heap"
    result = debian.run("sh", "-c", record, "/opt/assay/assay/bin/assay-heap")
    assert result.returncode == 0 and '"complete":true' in result.stdout, result.stderr
