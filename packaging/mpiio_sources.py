"""Debian's sources of the public MPI-IO test suites: fetched by apt, and built for one MPI.

MPICH's and ROMIO's tests are single files; HDF5's parallel tests are linked with Debian's libhdf5 of that MPI; PnetCDF
is not in Debian for each MPI, so its library is built, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGES = ("mpich", "hdf5", "pnetcdf")
COMPILERS = {"mpich": "mpicc.mpich", "openmpi": "mpicc.openmpi", "mpich-wheel": "mpicc"}
LIMIT_S = 1800.0
PNETCDF_FOLDERS = ("C", "header", "testcases", "nonblocking")
HDF5_PROGRAMS = {
    "t_mpi": [], "t_pread": [], "t_pshutdown": [], "t_prestart": [], "t_init_term": [], "t_shapesame": [],
    "t_filters_parallel": [],
    "t_cache": [],
    "t_cache_image": ["test/cache_common.c", "test/genall5.c"],
    "testphdf5": [
        f"testpar/t_{part}.c" for part in
        (
            "dset", "file", "file_image", "mdset", "ph5basic", "coll_chunk", "span_tree", "chunk_alloc",
            "filter_read", "prop", "coll_md_read",
        )
    ],
}  # fmt: skip
HAVE_MACROS = (
    "UNISTD_H STDLIB_H STRING_H STDARG_H SYS_TIME_H SYS_RESOURCE_H PTHREAD_H "
    "STRDUP LONG_LONG LONG_DOUBLE MPI_IO"
)


class SuiteError(Exception):
    """The message is one line: the command that failed, and the file with its output."""


def run(command: list[str], folder: Path, log: Path, **extra: str) -> bool:
    """Whether the command ended well. Its output is added to ``log``."""
    with log.open("a") as out:
        done = subprocess.run(
            command, cwd=folder, stdout=out, stderr=out, timeout=LIMIT_S, env={**os.environ, **extra}
        )
    return done.returncode == 0


def run_or_raise(command: list[str], folder: Path, log: Path, **extra: str) -> None:
    """Raises SuiteError if it cannot be started or fails."""
    try:
        if run(command, folder, log, **extra):
            return
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SuiteError(f"{command[0]}: {error}") from None
    raise SuiteError(f"{' '.join(command[:3])} failed in {folder}; see {log}")


def fetch(work: Path) -> dict[str, Path]:
    """The folder of each package's source. apt uses lists of its own, so the system's are not changed."""
    sources = work / "sources"
    if not all(source_folder(sources, package) for package in PACKAGES):
        _download(work, sources)
    folders = {package: source_folder(sources, package) for package in PACKAGES}
    return {package: folder for package, folder in folders.items() if folder}


def source_folder(sources: Path, package: str) -> Path | None:
    return next((path for path in sorted(sources.glob(f"{package}-*")) if path.is_dir()), None)


def _download(work: Path, sources: Path) -> None:
    apt = work / "apt"
    for folder in (sources, apt / "parts", apt / "lists/partial", apt / "cache/archives/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    release = re.search(r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text())
    if not release:
        raise SuiteError("/etc/os-release names no release: only Debian's sources are known")
    (apt / "parts/sources.list").write_text(f"deb-src http://deb.debian.org/debian {release[1]} main\n")
    settings = {
        "Etc::SourceList": "/dev/null", "Etc::SourceParts": apt / "parts",
        "State::Lists": apt / "lists", "Cache": apt / "cache",
    }  # fmt: skip
    lines = [f'Dir::{name} "{value}";' for name, value in settings.items()]
    (apt / "apt.conf").write_text("\n".join([*lines, 'APT::Sandbox::User "root";', ""]))
    log, config = work / "fetch.log", {"APT_CONFIG": str(apt / "apt.conf")}
    run_or_raise(["apt-get", "update"], sources, log, **config)
    for package in PACKAGES:
        run_or_raise(["apt-get", "source", package], sources, log, **config)


def build(work: Path, sources: dict[str, Path], mpi: str, suites: Iterable[str]) -> list[str]:
    """Builds the programs of the suites in ``work/build/MPI/SUITE``. Returns those that do not build."""
    compiler = COMPILERS[mpi]
    if mpi == "mpich-wheel":
        compiler = str(Path(sys.executable).parent / compiler)
    steps = {"mpich": _build_mpich, "romio": _build_romio, "hdf5": _build_hdf5, "pnetcdf": _build_pnetcdf}
    missing = []
    for suite in suites:
        folder = work / "build" / mpi / suite
        folder.mkdir(parents=True, exist_ok=True)
        missing += [f"{suite}/{name}" for name in steps[suite](folder, sources, mpi, compiler)]
    return missing


def _compile(folder: Path, compiler: str, name: str, arguments: list[str]) -> bool:
    """Compiles a program unless it exists. Returns whether it exists afterwards."""
    return (folder / name).exists() or run(
        [compiler, "-w", "-O1", *arguments, "-o", name], folder, folder / "build.log"
    )


def _build_mpich(folder: Path, sources: dict[str, Path], mpi: str, compiler: str) -> list[str]:
    tests = sources["mpich"] / "test/mpi"
    defines = [f"#define HAVE_{name} 1" for name in HAVE_MACROS.split()]
    (folder / "mpitestconf.h").write_text(
        "\n".join([*defines, "#define THREAD_PACKAGE_NAME THREAD_PACKAGE_POSIX", ""])
    )
    common = ["-I.", f"-I{tests}/include"]
    common += [str(tests / f"util/{name}.c") for name in ("mtest", "mtest_common", "mtest_thread")]
    return [
        source.stem
        for source in sorted((tests / "io").glob("*.c"))
        if not _compile(folder, compiler, source.stem, [str(source), *common, "-lpthread"])
    ]


def _build_romio(folder: Path, sources: dict[str, Path], mpi: str, compiler: str) -> list[str]:
    tests = sources["mpich"] / "src/mpi/romio/test"
    for template in tests.glob("*.c.in"):
        (folder / template.stem).write_text(template.read_text().replace("@LL@", "lld"))
    programs = [*sorted(tests.glob("*.c")), *sorted(folder.glob("*.c"))]
    return [
        source.stem
        for source in programs
        if not _compile(folder, compiler, source.stem, [str(source), f"-I{tests}"])
    ]


def _build_hdf5(folder: Path, sources: dict[str, Path], mpi: str, compiler: str) -> list[str]:
    tests, library = sources["hdf5"], Path("/usr/include/hdf5") / mpi
    if not library.is_dir():
        raise SuiteError(f"no HDF5 for {mpi}; fix: apt-get install libhdf5-{mpi}-dev")
    (folder / "H5srcdir_str.h").write_text('const char *config_srcdir = ".";\n')
    common = ["-I.", *(f"-I{tests}/{name}" for name in ("src", "test", "testpar")), f"-I{library}"]
    common += [str(tests / "test/h5test.c"), str(tests / "test/testframe.c")]
    libraries = [f"-L/usr/lib/x86_64-linux-gnu/hdf5/{mpi}", "-lhdf5"]
    missing = []
    for name, parts in HDF5_PROGRAMS.items():
        files = [str(tests / f"testpar/{name}.c"), *(str(tests / part) for part in parts)]
        if not _compile(folder, compiler, name, [*files, *common, *libraries]):
            missing.append(name)
    return missing


def _build_pnetcdf(folder: Path, sources: dict[str, Path], mpi: str, compiler: str) -> list[str]:
    root, log = sources["pnetcdf"], folder / "build.log"
    if not (root / "configure").exists():
        run_or_raise(["autoreconf", "-i"], root, log)
    if not (folder / "Makefile").exists():
        options = [f"MPICC={compiler}", "--disable-fortran", "--disable-cxx"]
        run_or_raise([str(root / "configure"), *options], folder, log)
    run_or_raise(["make", "-C", "src"], folder, log)
    missing = []
    for name in ("common", *PNETCDF_FOLDERS):
        subfolder = folder / "test" / name
        if not run(["make", "-k", "all", "tests-local"], subfolder, log):
            missing.append(name)
    return missing
