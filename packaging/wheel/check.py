"""Checks a wheel: its files, the libraries that its engines link, the oldest glibc that they run with, its size.

    check.py GLIBC WHEEL     GLIBC: the newest version of symbols that may be used, such as 2.28

Prints one line; exit code 1 if something is wrong.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# Every Linux has these; all else is in the engines or loaded where it is.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
MAX_BYTES = 40e6
NEEDED = {
    *("assay-probe", "assay-heap", "assay-alloc", "assay-numa", "assay-store", "libassay-heap.so"),
    "libassay-numa.so",
    *(f"{stem}-{abi}" for stem in ("assay-probe", "assay-io-bench") for abi in ("mpich", "openmpi")),
    *(f"lib{stem}-{abi}.so" for stem in ("assay-probe", "assay-io-bench") for abi in ("mpich", "openmpi")),
    *(f"libassay-io-{abi}.so" for abi in ("mpich", "openmpi")),
}


def links(elf: ELFFile) -> tuple[set[str], set[tuple[int, ...]]]:
    """The libraries that a file names, and the versions of glibc's symbols that it uses."""
    libraries: set[str] = set()
    versions: set[tuple[int, ...]] = set()
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            libraries |= {tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
        elif isinstance(section, GNUVerNeedSection):
            names = [aux.name for _, auxiliaries in section.iter_versions() for aux in auxiliaries]
            versions |= {
                tuple(map(int, name.removeprefix("GLIBC_").split(".")))
                for name in names
                if name.startswith("GLIBC_2")
            }
    return libraries, versions


def main(glibc: str, path: str) -> int:
    problems: list[str] = []
    newest: tuple[int, ...] = (2, 0)
    with zipfile.ZipFile(path) as wheel:
        names = {Path(name).name for name in wheel.namelist() if name.startswith("assay/bin/")}
        problems += [f"{name} is missing" for name in sorted(NEEDED - names)]
        if "assay/report/report.html" not in wheel.namelist():
            problems.append("report.html is missing")
        for info in wheel.infolist():
            data = wheel.read(info)
            if not data.startswith(b"\x7fELF"):
                continue
            libraries, versions = links(ELFFile(io.BytesIO(data)))
            problems += [f"{info.filename} links {name}" for name in sorted(libraries - SYSTEM)]
            newest = max(newest, *versions, key=lambda version: version)
    if newest > tuple(map(int, glibc.split("."))):
        problems.append(f"glibc {'.'.join(map(str, newest))} is needed, not {glibc}")
    size = Path(path).stat().st_size
    if size > MAX_BYTES:
        problems.append(f"{size / 1e6:.1f} MB are more than {MAX_BYTES / 1e6:.0f}")
    print(f"{path}: {size / 1e6:.1f} MB, glibc {'.'.join(map(str, newest))} or newer")
    for problem in problems:
        print(f"wheel: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
