"""Runs the machine's tools (ip, tc, nsenter, ...) with a time limit and errors of one line.

The lab uses the tools that an administrator uses, so every step can be repeated by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError

TIME_LIMIT_S = 30.0
KERNEL_FIX = (
    "the lab needs a kernel with network namespaces, veth, bridge and tbf (for --duplex-rate also ifb, "
    "u32 and mirred), and in a container all privileges"
)


def locate(tool: str) -> str | None:
    """Returns the path of ``tool``; also searches the sbin folders, which "su" leaves out of PATH."""
    return shutil.which(
        tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    )


def find(tool: str, package: str) -> str:
    """Returns the path of ``tool``. Raises UserError that names its Debian ``package``."""
    path = locate(tool)
    if path is None:
        raise UserError(f"'{tool}' is missing, and a lab needs it", f"apt-get install {package}")
    return path


def require() -> None:
    """Raises UserError unless a lab can be created here: as root, with iproute2 and util-linux."""
    if not Path("/etc/hosts").exists():  # each host has its own, mounted over it
        raise UserError("this machine has no /etc/hosts", "make one: echo '127.0.0.1 localhost' > /etc/hosts")
    if os.geteuid() != 0:
        raise UserError("a lab needs root (it makes network namespaces)", "run it as root, e.g. by sudo")
    for tool, package in {
        "ip": "iproute2",
        "tc": "iproute2",
        "nsenter": "util-linux",
        "unshare": "util-linux",
    }.items():
        find(tool, package)


def run(argv: Sequence[str], stdin: str = "", activity: str = "") -> None:
    """Runs a tool for at most 30 s. Raises UserError with ``activity`` and the end of the tool's output."""
    activity = activity or " ".join(argv)
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{activity}: no end within {TIME_LIMIT_S:.0f} s", "is the machine overloaded?"
        ) from None
    if done.returncode != 0:
        message = " / ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise UserError(f"{activity} failed: {message or f'exit code {done.returncode}'}", KERNEL_FIX)
