"""Reads and writes files in folders that may belong to another user: reads regular files only, and replaces links.

Reading a pipe or a device might never end, and writing through another user's link would change a file elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Opens a file to read; follows links. Raises OSError, also for anything but a regular file."""
    # With O_NONBLOCK a pipe without a writer opens at once.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, "is a folder, and no file", str(path))
    raise OSError(errno.EINVAL, "is a device or a pipe, and no file", str(path))


def read_regular(path: Path) -> bytes:
    """The content of a file. Raises OSError, also for anything but a regular file."""
    with open_regular(path) as file:
        return file.read()


def open_new(path: Path, mode: int = 0o666) -> BinaryIO:
    """Opens a new file to write, in place of a file or link with this name. Raises OSError."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def open_appended(path: Path) -> BinaryIO:
    """Opens a file to append to. Raises OSError, also for a symbolic link and for a file with several hard links."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return os.fdopen(descriptor, "ab")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is a link or no regular file", str(path))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError within says that it is of ``path``: one of a write has no name."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def replace_file(path: Path, content: bytes | Iterable[bytes], mode: int = 0o666) -> None:
    """Writes the whole file or nothing: ``mode`` is that of the new file, less the umask. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with naming(path), open_new(part, mode) as file:
            file.writelines([content] if isinstance(content, bytes) else content)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
