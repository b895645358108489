"""Allocators: their names, libraries and settings, and the engine that measures them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import REPAIR, UserError
from assay.launch.engines import engines_folder
from assay.launch.supervise import EngineProcess
from assay.measure.engine_processes import option_arguments
from assay.records.schema import Scalar

CHECK_LIMIT_S = 60
PREPARE_LIMIT_S = 3600
DEFAULT = ("glibc", "glibc+huge", "jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")

# Name: library, Debian package. glibc's allocator needs none.
LIBRARIES = {
    "glibc": ("", ""),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc2.0"),
    "tbbmalloc": ("libtbbmalloc_proxy.so.2", "libtbbmalloc2"),
}
# NAME+VARIANT: the environment setting.
VARIANTS = {
    "glibc": {
        "huge": "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "mmap": "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072",  # a fixed threshold does not adapt
        "keep": "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17592186044416",
        "arena1": "GLIBC_TUNABLES=glibc.malloc.arena_max=1",
    },
    "jemalloc": {"huge": "MALLOC_CONF=thp:always"},
    "mimalloc": {"huge": "MIMALLOC_LARGE_OS_PAGES=1"},
    "tbbmalloc": {"huge": "TBB_MALLOC_USE_HUGE_PAGES=1"},
}
NO_HUGE = "nohuge"  # variant of any allocator: without transparent huge pages
FOLDERS = (
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    f"/usr/lib/{os.uname().machine}-linux-gnu",
)
_SETTING = re.compile(r"[A-Za-z_]\w*=\S*")


@dataclass(frozen=True)
class Allocator:
    """``missing_reason``: why it cannot be measured here; empty if it can."""

    name: str
    library: str = ""
    settings: tuple[str, ...] = ()
    huge_pages: bool = True
    missing_reason: str = ""

    def params(self) -> dict[str, Scalar]:
        """The engine's parameters."""
        params: dict[str, Scalar] = {"allocator": self.name}
        if self.library:
            params["library"] = self.library
        if self.settings:
            params["settings"] = " ".join(self.settings)
        if not self.huge_pages:
            params["no_huge_pages"] = True
        return params

    def environment(self) -> str:
        """Environment settings to put before a command in a shell; empty if the environment cannot select this
        allocator."""
        preload = [f"LD_PRELOAD={self.library}"] if self.library else []
        return " ".join([*self.settings, *preload]) if self.huge_pages else ""


def engine() -> Path:
    path = engines_folder() / "assay-alloc"
    if not path.is_file():
        raise UserError(f"{path} is missing", REPAIR)
    return path


def parse_allocators(text: str) -> list[Allocator]:
    """Parses "glibc,glibc+huge,jemalloc,/opt/hoard/libhoard.so". Raises UserError for an unknown name or path."""
    allocators = [_parse_allocator(allocator) for allocator in _split_list(text)]
    if not allocators:
        raise UserError(
            "no allocator is named", f"name some of {', '.join(LIBRARIES)}, or the path of a library"
        )
    names = [allocator.name for allocator in allocators]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"the allocator {name} is named twice", "name each once")
    return allocators


def _split_list(text: str) -> list[str]:
    """Splits at commas, except within a setting: "jemalloc+MALLOC_CONF=thp:always,narenas:1,glibc"."""
    parts: list[str] = []
    for piece in text.split(","):
        is_allocator = "/" in piece or piece.partition("+")[0] in LIBRARIES
        if parts and "=" in parts[-1] and piece and not is_allocator:
            parts[-1] += f",{piece}"
        elif piece:
            parts.append(piece)
    return parts


def _parse_allocator(text: str) -> Allocator:
    if "/" in text and Path(text).exists():
        return Allocator(Path(text).name, _resolve_library(text))
    base, _, variant = text.partition("+") if "/" not in text else _split_path(text)
    if "/" in base:
        name, library, missing_reason = Path(base).name, _resolve_library(base), ""
    elif base in LIBRARIES:
        name = base
        library, missing_reason = find_library(base)
    else:
        raise UserError(
            f"unknown allocator '{base}'", f"choose one of {', '.join(LIBRARIES)}, or the path of a library"
        )
    if not variant:
        return Allocator(name, library, missing_reason=missing_reason)
    full_name = f"{name}+{variant}"
    if variant == NO_HUGE:
        return Allocator(full_name, library, huge_pages=False, missing_reason=missing_reason)
    if _SETTING.fullmatch(variant):
        return Allocator(full_name, library, (variant,), missing_reason=missing_reason)
    variants = VARIANTS.get(base, {})
    if variant not in variants:
        raise UserError(
            f"{base} has no variant '{variant}'",
            f"choose one of {', '.join([*variants, NO_HUGE])}, or NAME=value",
        )
    return Allocator(full_name, library, (variants[variant],), missing_reason=missing_reason)


def _split_path(text: str) -> tuple[str, str, str]:
    """Splits "PATH+VARIANT"; folder names may contain a plus."""
    folder, _, file = text.rpartition("/")
    base, plus, variant = file.partition("+")
    return f"{folder}/{base}", plus, variant


def _resolve_library(text: str) -> str:
    """The absolute path of a library. It is checked here, because the loader silently ignores what it cannot load."""
    path = Path(text).resolve()
    if path.exists() and not path.is_file():
        raise UserError(f"{text} is not a file", "give the path of the allocator's .so file")
    try:
        with path.open("rb") as library:
            header = library.read(18)
    except OSError as error:
        raise UserError(
            f"cannot read the allocator {text}: {error.strerror}", "give the path of its library"
        ) from None
    if header[:4] != b"\x7fELF" or header[16:18] != b"\x03\x00":
        raise UserError(f"{text} is not a shared library", "give the path of the allocator's .so file")
    if re.search(r"[\s:]", str(path)):
        raise UserError(
            f"the loader accepts no path with blanks or colons: {path}", "copy or link the library elsewhere"
        )
    return str(path)


def find_library(name: str) -> tuple[str, str]:
    """The path of a known allocator's library, or an empty path and why it is missing."""
    file, package = LIBRARIES[name]
    if not file:
        return "", ""
    candidates = [
        Path(folder) / file for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder
    ]
    candidates += [*_from_loader_cache(file), *(Path(folder) / file for folder in FOLDERS)]
    for path in candidates:
        if path.is_file():
            return str(path.resolve()), ""
    return "", f"{file} is not installed (Debian: apt-get install {package})"


def _from_loader_cache(file: str) -> list[Path]:
    """The paths of a library in the loader's cache."""
    try:
        output = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=CHECK_LIMIT_S, check=False
        ).stdout
    except OSError:
        return []
    lines = [line.split() for line in output.splitlines()]
    return [Path(fields[-1]) for fields in lines if fields and fields[0] == file]


def check(allocator: Allocator) -> str:
    """The library whose malloc a process on this allocator calls. Raises UserError if it is not the allocator's."""
    output = _run_engine(["check", *option_arguments(allocator.params())], CHECK_LIMIT_S)
    return output.strip()


def prepare(trace: Path, script: Path) -> str:
    """Converts a trace into a replay script; returns its counts as JSON. Raises UserError."""
    return _run_engine(["prepare", str(trace), str(script)], PREPARE_LIMIT_S)


def _run_engine(arguments: Sequence[str], limit_s: float) -> str:
    try:
        completed = subprocess.run(
            [engine(), *arguments], capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"assay-alloc {arguments[0]} was not done within {limit_s:.0f} s") from None
    if completed.returncode == 0:
        return completed.stdout
    messages = [line for line in completed.stderr.splitlines() if line.startswith("assay-alloc: ")]
    message = (
        messages[-1] if messages else f"assay-alloc {arguments[0]} ended with status {completed.returncode}"
    )
    raise UserError(message.removeprefix("assay-alloc: "))


def start_command(measurement: str, allocator: Allocator, params: Mapping[str, Scalar]) -> EngineProcess:
    arguments = option_arguments({**allocator.params(), **params})
    return EngineProcess([str(engine()), "run", measurement, *arguments], {})
