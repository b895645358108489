"""Allocators: which there are, where their libraries are, and the engine that is started on them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.errors import UserError
from assay.launch.engines import engines_folder
from assay.launch.supervise import Started
from assay.measure.session import option_arguments
from assay.records.schema import Scalar

CHECK_LIMIT_S = 60
PREPARE_LIMIT_S = 3600
DEFAULT = ("glibc", "glibc+huge", "jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")

# The library of each, and Debian's package; glibc's own needs none.
LIBRARIES = {
    "glibc": ("", ""),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc2"),
    "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    "mimalloc": ("libmimalloc.so.2", "libmimalloc2.0"),
    "tbbmalloc": ("libtbbmalloc_proxy.so.2", "libtbbmalloc2"),
}
# NAME+VARIANT: what is put into the environment.
VARIANTS = {
    "glibc": {
        "huge": "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
        "mmap": "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072",  # fixed: it no longer adapts
        "keep": "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17592186044416",
        "arena1": "GLIBC_TUNABLES=glibc.malloc.arena_max=1",
    },
    "jemalloc": {"huge": "MALLOC_CONF=thp:always"},
    "mimalloc": {"huge": "MIMALLOC_LARGE_OS_PAGES=1"},
    "tbbmalloc": {"huge": "TBB_MALLOC_USE_HUGE_PAGES=1"},
}
NO_HUGE = "nohuge"  # any allocator, without the kernel's transparent huge pages
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
    """``missing``: why it cannot be measured here; empty when it can."""

    name: str
    library: str = ""
    settings: tuple[str, ...] = ()
    huge_pages: bool = True
    missing: str = ""

    def params(self) -> dict[str, Scalar]:
        """As the engine takes it."""
        params: dict[str, Scalar] = {"allocator": self.name}
        if self.library:
            params["library"] = self.library
        if self.settings:
            params["settings"] = " ".join(self.settings)
        if not self.huge_pages:
            params["no_huge_pages"] = True
        return params

    def words(self) -> str:
        """What a shell puts before a program to start it on this allocator; nothing where that is no matter of
        its environment."""
        preload = [f"LD_PRELOAD={self.library}"] if self.library else []
        return " ".join([*self.settings, *preload]) if self.huge_pages else ""


def engine() -> Path:
    path = engines_folder() / "assay-alloc"
    if not path.is_file():
        raise UserError(f"{path} is missing", "build it: make setup")
    return path


def parse_allocators(text: str) -> list[Allocator]:
    """Of "glibc,glibc+huge,jemalloc,/opt/hoard/libhoard.so". Raises UserError for what is none of these."""
    found = [_parse_one(one) for one in _split(text)]
    if not found:
        raise UserError(
            "no allocator is named", f"there are: {', '.join(LIBRARIES)}, and any library by path"
        )
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"the allocator {name} is named twice", "name each once")
    return found


def _split(text: str) -> list[str]:
    """At commas, but not at those of a setting's value: "jemalloc+MALLOC_CONF=thp:always,narenas:1,glibc"."""
    found: list[str] = []
    for piece in text.split(","):
        begins = "/" in piece or piece.partition("+")[0] in LIBRARIES
        if found and "=" in found[-1] and piece and not begins:
            found[-1] += f",{piece}"
        elif piece:
            found.append(piece)
    return found


def _parse_one(text: str) -> Allocator:
    if "/" in text and Path(text).exists():
        return Allocator(Path(text).name, _library_at(text))
    base, _, variant = text.partition("+") if "/" not in text else _split_path(text)
    if "/" in base:
        name, library, missing = Path(base).name, _library_at(base), ""
    elif base in LIBRARIES:
        name = base
        library, missing = find_library(base)
    else:
        raise UserError(
            f"no allocator is called '{base}'", f"there are: {', '.join(LIBRARIES)}, and any library by path"
        )
    if not variant:
        return Allocator(name, library, missing=missing)
    named = f"{name}+{variant}"
    if variant == NO_HUGE:
        return Allocator(named, library, huge_pages=False, missing=missing)
    if _SETTING.fullmatch(variant):
        return Allocator(named, library, (variant,), missing=missing)
    known = VARIANTS.get(base, {})
    if variant not in known:
        raise UserError(
            f"{base} has no variant '{variant}'", f"there are: {', '.join([*known, NO_HUGE])}, and NAME=value"
        )
    return Allocator(named, library, (known[variant],), missing=missing)


def _split_path(text: str) -> tuple[str, str, str]:
    """A variant follows the file's name; folders may have a plus in theirs."""
    folder, _, file = text.rpartition("/")
    base, plus, variant = file.partition("+")
    return f"{folder}/{base}", plus, variant


def _library_at(text: str) -> str:
    """The library's whole path. The loader ignores in silence what it cannot load: it is looked at here."""
    path = Path(text).resolve()
    if path.exists() and not path.is_file():
        raise UserError(f"{text} is not a file", "give the path of the allocator's .so file")
    try:
        with path.open("rb") as library:
            head = library.read(18)
    except OSError as error:
        raise UserError(
            f"cannot read the allocator {text}: {error.strerror}", "give the path of its library"
        ) from None
    if head[:4] != b"\x7fELF" or head[16:18] != b"\x03\x00":
        raise UserError(f"{text} is not a shared library", "give the path of the allocator's .so file")
    if re.search(r"[\s:]", str(path)):
        raise UserError(
            f"the loader takes no path with blanks or colons: {path}", "copy or link the library elsewhere"
        )
    return str(path)


def find_library(name: str) -> tuple[str, str]:
    """Path of a known allocator's library, and why there is none."""
    file, package = LIBRARIES[name]
    if not file:
        return "", ""
    wanted = [Path(folder) / file for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    wanted += [*_of_loader(file), *(Path(folder) / file for folder in FOLDERS)]
    for path in wanted:
        if path.is_file():
            return str(path.resolve()), ""
    return "", f"{file} is not installed (Debian: apt-get install {package})"


def _of_loader(file: str) -> list[Path]:
    """Where the loader's cache has it."""
    try:
        said = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=CHECK_LIMIT_S, check=False
        ).stdout
    except OSError:
        return []
    lines = [line.split() for line in said.splitlines()]
    return [Path(words[-1]) for words in lines if words and words[0] == file]


def check(allocator: Allocator) -> str:
    """The file whose malloc a process on this allocator calls. Raises UserError where it is not the allocator's."""
    done = _engine_says(["check", *option_arguments(allocator.params())], CHECK_LIMIT_S)
    return done.strip()


def prepare(trace: Path, script: Path) -> str:
    """Makes a trace ready for replay; what is in it, as JSON. Raises UserError for what is no whole trace."""
    return _engine_says(["prepare", str(trace), str(script)], PREPARE_LIMIT_S)


def _engine_says(words: Sequence[str], limit_s: float) -> str:
    try:
        done = subprocess.run(
            [engine(), *words], capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"assay-alloc {words[0]} was not done after {limit_s:.0f} s") from None
    if done.returncode == 0:
        return done.stdout
    own = [line for line in done.stderr.splitlines() if line.startswith("assay-alloc: ")]
    said = own[-1] if own else f"assay-alloc {words[0]} ended with status {done.returncode}"
    raise UserError(said.removeprefix("assay-alloc: "))


def started(measurement: str, allocator: Allocator, params: Mapping[str, Scalar]) -> Started:
    words = option_arguments({**allocator.params(), **params})
    return Started([str(engine()), "run", measurement, *words], {})
