"""Running the machine's own tools (ip, tc, nsenter, ...): found once, bounded in time, errors in one line.

The lab is made with the tools that an administrator would use, so that every step can be repeated by
hand. Here is what all such calls share.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError

TIME_LIMIT_S = 30.0
KERNEL_HINT = (
    "the lab needs a kernel with network namespaces, veth, bridge and tbf (for --duplex-rate also ifb, "
    "u32 and mirred), and in a container all privileges"
)


def locate(tool: str) -> str | None:
    """The path of ``tool``, looked for also in the sbin folders, which "su" leaves out of PATH."""
    return shutil.which(
        tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    )


def find(tool: str, package: str) -> str:
    """The path of ``tool``. Raises UserError naming the Debian ``package`` that brings it."""
    path = locate(tool)
    if path is None:
        raise UserError(f"'{tool}' is missing, and a lab needs it", f"apt-get install {package}")
    return path


def require() -> None:
    """Raises UserError unless a lab can be made here at all: as root, with iproute2 and util-linux."""
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
    """Run to the end, within 30 s. Raises UserError with what was being done and the tool's last words."""
    activity = activity or " ".join(argv)
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{activity}: no end within {TIME_LIMIT_S:.0f} s", "is the machine overloaded?"
        ) from None
    if done.returncode != 0:
        message = " / ".join((done.stderr or done.stdout).strip().splitlines()[-2:])
        raise UserError(f"{activity} failed: {message or f'exit code {done.returncode}'}", KERNEL_HINT)
