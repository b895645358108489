"""The source files that a recorded program's debug information names, kept in the run for its report.

Debug information is untrusted: it may name /etc/shadow, a FIFO or /dev/zero, and users pass reports on. So files are
read once, by the user who records the program, on the machine where it ran. A report that is written later uses the
copies in the run, and opens no file that the run names. A file is read only if it is regular, not on a kernel's file
system, bounded in size, and either

- a file of the system: owned by root and readable by everybody; or
- the user's own, and readable by everybody or named like a source file ("solver.cpp", not "id_rsa").

In folders of the system's settings and state (/etc, /var) it has to be named like a source file. Names are not searched
for: one that is not absolute is refused.

A file that is named and not read is listed with the reason (``Sources.problems``). A file is opened with O_PATH first,
which has no effect on devices and FIFOs, and checked before it is opened for reading.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from assay.errors import UserError
from assay.profile.tree import CallTree
from assay.records.decode import decoder
from assay.records.files import open_regular, replace_file
from assay.records.profile import Source, SourceProblem

SOURCES_NAME = "sources.json"
MAX_SOURCES_BYTES = 8 << 20  # of all source files of a run together
MAX_SOURCE_BYTES = 1 << 20  # of one source file
MAX_FILES = 10_000  # files that are tried
MAX_STORED_BYTES = 64 << 20  # of the file in the run: each byte of a text takes up to six in JSON
CLOCK_STEP_S = 1.0  # coarsest time stamp of a file system in use (ext3, NFSv2)
# Of the languages whose compilers write debug information, and of the interpreters that profiles show.
MISSING = "no such file on this machine"
RELATIVE = "a relative name, and the debug information has no directory for it"
OF_SYSTEM = "the source of a library of the system, which is not installed here"
TOO_MANY = f"more than {MAX_FILES} files"
NEWER = "newer than the recorded program: figures may stand at other lines"
_FIXES = {
    MISSING: "put it back, then: show RUN --sources",
    RELATIVE: "compile without -ffile-prefix-map and -fdebug-prefix-map",
    OF_SYSTEM: "install the library's source, then: show RUN --sources",
    NEWER: "compile and record again",
}
_FIX = "see the file itself"  # of a file that is refused
_STATE_FOLDERS = ("/etc/", "/var/", "/boot/", "/run/", "/dev/")
_NO_FILE = re.compile(r"<|[a-z]+:")  # names of code without a file: <string>, node:internal/main
_SUFFIXES = """
    .ada .adb .ads .asm .c .c++ .cc .cp .cpp .cppm .cu .cuh .cxx .d .f .f03 .f08 .f77 .f90 .f95 .for .fpp .ftn .go
    .h .h++ .hh .hip .hpp .hxx .i .inc .inl .ipp .ixx .java .jl .js .kt .l .m .ml .mm .nim .pas .pyx .py .rs .s
    .scala .swift .tcc .tpp .ts .txx .vala .y .zig
"""
SUFFIXES = frozenset(_SUFFIXES.split())


class Refused(Exception):
    """A file that exists and is not put into a report; the text is the reason."""


class Sources(Struct):
    """``files`` by name; ``left_out``: the reasons, by the name of a file that exists and was not read."""

    files: dict[str, Source] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def problems(self) -> list[SourceProblem]:
        """The files that are not shown, then those that may not be the recorded program's."""
        newer = {name: NEWER for name, source in self.files.items() if source.changed}
        return [
            SourceProblem(name, reason, _FIXES.get(reason, _FIX))
            for name, reason in (self.left_out | newer).items()
        ]

    def notices(self) -> list[str]:
        """At most one line about the files that were left out, and one about those that are newer. Libraries of the
        system are not mentioned."""
        left_out = [row for row in self.problems() if row.problem not in (NEWER, OF_SYSTEM)]
        newer = [row for row in self.problems() if row.problem == NEWER]
        return [
            f"{heading}: {rows[0].file} ({rows[0].problem}){_more(rows)}; fix: {rows[0].fix}"
            for heading, rows in (("not in the report", left_out), ("changed source", newer))
            if rows
        ]


def _more(rows: Sequence[SourceProblem]) -> str:
    others = len(rows) - 1
    return f", and {others} more file{'s' if others > 1 else ''}" if others else ""


def collect_sources(trees: Sequence[CallTree], started: float) -> Sources:
    """The files with the largest figures first, within the limits. ``started``: seconds since the epoch; files that
    have changed since, or since the object that names them was made, are marked."""
    sources, room = Sources(), MAX_SOURCES_BYTES
    for number, (name, objects) in enumerate(_names(trees).items()):
        missing = OF_SYSTEM if objects and all(map(_is_of_system, objects)) else MISSING
        if not name.startswith("/"):
            sources.left_out[name] = OF_SYSTEM if missing == OF_SYSTEM else RELATIVE
            continue
        if number >= MAX_FILES:
            sources.left_out[name] = TOO_MANY
            continue
        try:
            text, modified = read_source(Path(name), min(room, MAX_SOURCE_BYTES))
        except Refused as refused:
            sources.left_out[name] = str(refused)
        except OSError as error:
            is_missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            sources.left_out[name] = missing if is_missing else str(error.strerror).lower()
        except ValueError:
            sources.left_out[name] = "its name holds a zero byte"
        else:
            compiled = min([started, *map(_modified, objects)])
            sources.files[name] = Source(text=text, changed=modified > compiled + CLOCK_STEP_S)
            room -= len(text.encode())
    return sources


def _names(trees: Sequence[CallTree]) -> dict[str, set[str]]:
    """The names of files, and the objects whose debug information holds them."""
    names: dict[str, set[str]] = {}
    for tree in trees:
        for metric in tree.metrics.values():
            if not metric.listed:
                continue
            for figures in tree.by(metric.key, "line"):
                location = figures.location
                if location.file and not _NO_FILE.match(location.file):
                    objects = names.setdefault(location.file, set())
                    if location.module.startswith("/") and not location.is_python:
                        objects.add(location.module)
    return names


def _is_of_system(path: str) -> bool:
    return path.startswith(("/usr/lib", "/lib"))


def _modified(path: str) -> float:
    """When an object was modified; infinity if it is not there."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return math.inf


def read_source(path: Path, limit: int) -> tuple[str, float]:
    """The text of a source file of at most ``limit`` bytes, and when it was modified (seconds since the epoch).

    Raises Refused for a file that must not be in a report, OSError where there is none.
    """
    with _opened(path, os.O_PATH) as path_descriptor:
        status = os.fstat(path_descriptor)
        _check(path_descriptor, status)
        if status.st_size > limit:
            raise Refused(f"its {status.st_size} bytes are more than the {limit} that are left for it")
        with _opened(
            Path(f"/proc/self/fd/{path_descriptor}"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        ) as opened:
            content = _read(opened, status.st_size)
    if b"\0" in content:
        raise Refused("not a text file")
    return content.decode(errors="replace"), status.st_mtime


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    """At most ``size`` bytes, also of a file that has grown."""
    parts: list[bytes] = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _check(path_descriptor: int, status: os.stat_result) -> None:
    """Raises Refused. ``path_descriptor`` is the file behind all symbolic links."""
    name = os.readlink(f"/proc/self/fd/{path_descriptor}")
    if not stat.S_ISREG(status.st_mode):
        raise Refused("not a regular file")
    if _is_kernel_file(name, status):
        raise Refused("a file of the kernel")
    is_named_source = os.path.splitext(name)[1].lower() in SUFFIXES
    if name.startswith(_STATE_FOLDERS) and not is_named_source:
        raise Refused("in a folder of the system, and not named like a source file")
    everybody = bool(status.st_mode & stat.S_IROTH)
    if status.st_uid == os.geteuid():
        if not everybody and not is_named_source:
            raise Refused("private, and not named like a source file")
    elif status.st_uid != 0:
        raise Refused("owned by another user")
    elif not everybody:
        raise Refused("not readable by everybody")


def _is_kernel_file(name: str, status: os.stat_result) -> bool:
    """Whether a file is in /proc or /sys, where sizes are wrong and reading some files has side effects."""
    if name.startswith(("/proc/", "/sys/")):
        return True
    return any(status.st_dev == os.stat(root).st_dev for root in ("/proc", "/sys"))


def save_sources(run: Path, sources: Sources) -> None:
    """Writes the sources into the run, readable by the user alone, because some of the files may be private."""
    replace_file(run / SOURCES_NAME, msgspec.json.encode(sources), 0o600)


_decode = decoder(Sources)


def load_sources(run: Path) -> Sources:
    """The sources in the run; empty if there are none. Raises UserError."""
    path = run / SOURCES_NAME
    fix = f"delete it, then: assay report {run}"
    try:
        with open_regular(path) as file:
            content = file.read(MAX_STORED_BYTES + 1)
        if len(content) > MAX_STORED_BYTES:
            raise UserError(f"{path} is larger than {MAX_STORED_BYTES} bytes", fix)
        sources: Sources = _decode(content)
        return sources
    except FileNotFoundError:
        return Sources()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UserError(f"{path} holds no source files: {error}", fix) from None
