"""The system's own words for packages: what Debian calls libopenmpi-dev is openmpi-devel for dnf.

Messages name packages as Debian does, wherever they come from: engines run on other hosts than the one that shows
their text. Where a message is shown, ``in_local_words`` says it in the words of the system that shows it.
``system_packages.txt`` is the one table of names, for packaging/setup.sh too.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("system_packages.txt")
# The families by their installer: its command, and the names of os-release (ID, ID_LIKE) that tell it.
COMMANDS = {"apt": "apt-get install", "dnf": "dnf install", "zypper": "zypper install"}
MEMBERS = {
    "debian": "apt",
    "ubuntu": "apt",
    "rhel": "dnf",
    "centos": "dnf",
    "fedora": "dnf",
    "suse": "zypper",
    "sles": "zypper",
}
NONE = "-"
_INSTALL = re.compile(
    r"(?:Debian: )?apt-get install ((?:[a-z0-9][a-z0-9+.-]*[a-z0-9+])(?: [a-z0-9][a-z0-9+.-]*[a-z0-9+])*)"
)


def family() -> str:
    """The installer of this system: "apt", "dnf" or "zypper", by its os-release(5); "" for any other system."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((MEMBERS[name] for name in names if name in MEMBERS), "")


@functools.cache
def packages() -> Mapping[str, Mapping[str, list[str]]]:
    """For each of Debian's packages the names of the other families; an empty list where a family has none."""
    rows = [line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#")]
    return {
        row[0]: {
            installer: [] if name == NONE else name.split(",")
            for installer, name in zip(COMMANDS, row, strict=False)
        }
        for row in rows
    }


def install(*debian: str) -> str:
    """The command that installs packages, given by Debian's names, on this system; a sentence where there is none."""
    installer = family()
    if installer == "apt":
        return f"{COMMANDS[installer]} {' '.join(debian)}"
    known = [packages().get(name, {}).get(installer, []) for name in debian]
    missing = [name for name, here in zip(debian, known, strict=True) if not here]
    parts = []
    if any(known):
        parts.append(
            f"{COMMANDS[installer]} {' '.join(dict.fromkeys(name for names in known for name in names))}"
        )
    if missing:
        parts.append(f"install what Debian calls {' '.join(missing)}")
    return ", and ".join(parts)


def in_local_words(text: str) -> str:
    """The text with each "apt-get install ..." as this system says it; unchanged on Debian and its relatives."""
    if "apt-get install" not in text or family() == "apt":
        return text
    return _INSTALL.sub(lambda match: install(*match[1].split()), text)
