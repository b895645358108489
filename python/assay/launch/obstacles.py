"""Why an engine does not start on this host, in one sentence: another processor, an older glibc, a damaged file."""

from __future__ import annotations

import errno
import os
import platform
import re
from pathlib import Path

from assay.errors import REPAIR, SOURCE, UserError

PROCESSOR = "x86_64"  # of the wheel's engines


def cannot_start(executable: Path, error: Exception, stderr: str) -> UserError:
    """The error of an executable that has not done what it was started for. ``stderr``: what it wrote."""
    machine, damaged = platform.machine(), f"{executable} is damaged"
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        is_other = machine != PROCESSOR and _is_for_x86(executable)
        what = f"{executable} is for the processor {PROCESSOR}; this one is {machine}"
        return UserError(what, SOURCE) if is_other else UserError(damaged, REPAIR)
    if isinstance(error, FileNotFoundError) and executable.exists():
        return UserError(f"{executable} needs glibc, which this system does not have", SOURCE)
    if isinstance(error, PermissionError):
        fix = f"chmod +x {executable}" if not os.access(executable, os.X_OK) else REPAIR
        return UserError(f"{executable} may not be executed by this user", fix)
    versions = re.findall(r"version `GLIBC_(\d+)\.(\d+)' not found", stderr)
    if versions:
        major, minor = max((int(a), int(b)) for a, b in versions)
        here = platform.libc_ver()[1] or "an older one"
        return UserError(f"{executable} needs glibc {major}.{minor}; this system has {here}", SOURCE)
    return UserError(f"{executable} does not describe itself: {error}", REPAIR)


def _is_for_x86(executable: Path) -> bool:
    """Whether the ELF header names x86-64 (e_machine 62)."""
    try:
        header = executable.read_bytes()[:20]
    except OSError:
        return False
    return header[:4] == b"\x7fELF" and header[18:20] == b"\x3e\x00"
