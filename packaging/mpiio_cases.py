"""The test programs of the public MPI-IO suites (MPICH, ROMIO, HDF5, PnetCDF): how each is started, and when it has
passed. mpiio_suites.py runs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mpiio_sources import HDF5_PROGRAMS, PNETCDF_FOLDERS

SUITES = ("mpich", "romio", "hdf5", "pnetcdf")

# Not run, and why. Sizes are of memory or files.
LEFT_OUT = {
    "mpich/bigtype": "6.5 GB",
    "mpich/i_bigtype": "6.5 GB",
    "romio/large_array": "4 GB or more",
    "romio/large_file": "4 GB or more",
    "romio/big_extents": "6 GB or more",
    "romio/perf": "a benchmark",
    "romio/coll_perf": "a benchmark",
    "romio/syshints": "ROMIO's own hints",
    "pnetcdf/mcoll_perf": "a benchmark",
    "pnetcdf/large_var_cdf5": "files of 2 GB or more",
    "pnetcdf/last_large_var": "files of 2 GB or more",
    "pnetcdf/tst_max_var_dims": "files of 2 GB or more",
    "pnetcdf/tst_version": "no file",
}
# Ranks, where the suite says so; else 4.
RANKS = {
    "mpich/getextent": 2, "mpich/i_noncontig": 2, "mpich/userioerr": 1, "mpich/resized": 1, "mpich/resized2": 1,
    "mpich/hindexed_io": 1, "mpich/tst_fileview": 1, "mpich/simple_collective": 1,
    "mpich/external32_derived_dtype": 1, "mpich/i_hindexed_io": 1, "mpich/i_noncontig_coll": 2,
    "mpich/i_types_with_zeros": 2, "romio/i_noncontig": 2, "romio/noncontig": 2, "romio/noncontig_coll": 2,
    "romio/error": 1, "romio/status": 1, "romio/types_with_zeros": 2, "romio/external32": 1,
}  # fmt: skip
# ROMIO's programs that take the file as their only argument, or with -f.
BARE_NAME = {"aggregation2", "hindexed", "types_with_zeros", "darray_read"}
PRINTS_NO_RESULT = {"external32"}
NC_FILES = {"put_all_kinds": ("1", "2", "5"), "iput_all_kinds": ("1", "2", "5")}
PREREQUISITE = {"t_prestart": "t_pshutdown"}  # a program: the program that writes its file
READS_ONLY = {"pres_temp_4D_rd"}  # a step of pres_temp_4D_wr


@dataclass(frozen=True)
class Case:
    """``steps``: the programs, one after the other, with their arguments; ``{file}`` is a path. ``success_pattern``: a
    regular expression that their output matches when they pass. ``files``: NetCDF files that PnetCDF's validator must
    accept, as suffixes of the path."""

    suite: str
    name: str
    steps: tuple[tuple[str, ...], ...]
    ranks: int
    success_pattern: str = ""
    files: tuple[str, ...] = ()

    def has_passed(self, output: str) -> bool:
        return not self.success_pattern or re.search(self.success_pattern, output) is not None


def cases(build: Path, suite: str) -> list[Case]:
    """The cases of a suite whose programs are in ``build``, the build folder of one MPI."""
    make = {"mpich": _mpich, "romio": _romio, "hdf5": _hdf5, "pnetcdf": _pnetcdf}[suite]
    found = make(build / suite)
    return [case for case in found if f"{suite}/{case.name}" not in LEFT_OUT]


def _programs(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.suffix and path.read_bytes()[:4] == b"\x7fELF"
    )


def _mpich(folder: Path) -> list[Case]:
    result = []
    for program in _programs(folder):
        arguments = ("simple_collective.testfile",) if program.name == "simple_collective" else ()
        ranks = RANKS.get(f"mpich/{program.name}", 4)
        result.append(Case("mpich", program.name, ((str(program), *arguments),), ranks, r"No Errors"))
    return result


def _romio(folder: Path) -> list[Case]:
    result = []
    for program in _programs(folder):
        name = program.name
        option = () if name in BARE_NAME else ("-f",) if name == "aggregation1" else ("-fname",)
        ranks = RANKS.get(f"romio/{name}", 4)
        success_pattern = "" if name in PRINTS_NO_RESULT else r"No Errors"
        result.append(Case("romio", name, ((str(program), *option, "{file}"),), ranks, success_pattern))
    return result


def _hdf5(folder: Path) -> list[Case]:
    result = []
    for name in HDF5_PROGRAMS:
        steps = [name] if name not in PREREQUISITE else [PREREQUISITE[name], name]
        if all((folder / step).exists() for step in steps):
            result.append(Case("hdf5", name, tuple((str(folder / step),) for step in steps), 4))
    return result


def _pnetcdf(folder: Path) -> list[Case]:
    result = []
    for subfolder in PNETCDF_FOLDERS:
        for program in _programs(folder / "test" / subfolder):
            name = program.name
            if name in READS_ONLY:
                continue
            steps = [(str(program), "{file}")]
            if name == "pres_temp_4D_wr":
                steps.append((str(program.with_name("pres_temp_4D_rd")), "{file}"))
            if name == "redef1":
                source = folder.parents[2] / "sources"
                (dump,) = source.glob("pnetcdf-*/test/testcases/redef-good.ncdump")
                generate = folder / "src/utils/ncmpigen/ncmpigen"
                steps.insert(0, (str(generate), "-v", "5", "-o", "redef1.nc", str(dump)))
            result.append(Case("pnetcdf", name, tuple(steps), 4, files=NC_FILES.get(name, ("",))))
    return result
