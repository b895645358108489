"""Finds and runs the command-line tools of a lab (ip, tc, nsenter, ...), with a time limit and one-line errors.

A lab is a virtual cluster of network namespaces on this machine. It uses an administrator's tools, so every step
can be repeated by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError

TIME_LIMIT_S = 120.0
KERNEL_FIX = (  # the likely cause when a tool fails
    "the lab needs a kernel with network namespaces, veth, bridge and tbf (for --duplex-rate also ifb, "
    "u32 and mirred), and in a container all privileges"
)


def locate(tool: str) -> str | None:
    """Returns the path of ``tool``; also searches the sbin folders, which are not in PATH after "su"."""
    return shutil.which(
        tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    )


def find(tool: str, package: str) -> str:
    """Returns the path of ``tool``. Raises UserError if it is missing; the fix installs its Debian ``package``."""
    path = locate(tool)
    if path is None:
        raise UserError(f"'{tool}' is missing, and a lab needs it", f"apt-get install {package}")
    return path


def require_tools() -> None:
    """Raises UserError unless a lab can be created here: as root, with iproute2 and util-linux."""
    if not Path("/etc/hosts").exists():  # each host of a lab mounts another file over it
        raise UserError(
            "this machine has no /etc/hosts", "create it: echo '127.0.0.1 localhost' > /etc/hosts"
        )
    if os.geteuid() != 0:
        raise UserError("a lab needs root (it creates network namespaces)", "run it as root, e.g. with sudo")
    for tool, package in {
        "ip": "iproute2",
        "tc": "iproute2",
        "nsenter": "util-linux",
        "unshare": "util-linux",
    }.items():
        find(tool, package)


def run(argv: Sequence[str], stdin: str = "", activity: str = "") -> None:
    """Runs a tool for at most TIME_LIMIT_S. Raises UserError if it fails.

    ``activity``: a text for the error message, such as "starting slurmd". The message ends with the last two lines of
    the tool's output.
    """
    activity = activity or " ".join(argv)
    try:
        result = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{activity} did not end within {TIME_LIMIT_S:.0f} s", "check whether the machine is overloaded"
        ) from None
    if result.returncode != 0:
        message = " / ".join((result.stderr or result.stdout).strip().splitlines()[-2:])
        raise UserError(f"{activity} failed: {message or f'exit code {result.returncode}'}", KERNEL_FIX)
