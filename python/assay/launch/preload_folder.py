"""The folder of Assay's libraries by a path that LD_PRELOAD can hold.

Spaces and colons separate the libraries in $LD_PRELOAD, and the loader replaces what begins with "$", so a path has
none of them. Where Assay lies in such a folder, its libraries are loaded through a symbolic link in a folder of the
user. The link stays after the run: a process that outlives the run starts others with the same $LD_PRELOAD, and the
loader complains about a library that is gone. Its name is the hash of what it points to, so each installation has one.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from assay.errors import UserError
from assay.launch.engines import engines_folder
from assay.records.notes import tell

SEPARATORS = re.compile(r"[\s:$]")
TEMPORARY = Path("/tmp")


def preload_folder(is_launched: bool) -> Path:
    """The folder of the libraries, or a link to it. ``is_launched``: a launcher starts the programs, maybe on other
    hosts; then a note says what these need. Raises UserError where no link can be made."""
    folder = engines_folder().resolve()
    if not SEPARATORS.search(str(folder)):
        return folder
    places = _places()
    for place in places:
        link = _link(place, folder)
        if link is None:
            continue
        if is_launched:
            tell(f"LD_PRELOAD cannot hold the path '{folder}'; ranks on other hosts need the link {link} too")
        return link
    raise UserError(
        f"a library in '{folder}' cannot be loaded into programs: LD_PRELOAD takes no path with a space, a colon or "
        f"a $, and no link to it can be made in {' or '.join(map(str, places))}",
        "install Assay in a folder without, or set XDG_CACHE_HOME to a folder that you can write to",
    )


def _places() -> list[Path]:
    """Folders for links: in the home, which other hosts often share, or else among temporary files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        cache = Path(os.path.expanduser("~/.cache"))
    return [cache / "assay" / "preload", TEMPORARY / f"assay-preload-{os.geteuid()}"]


def _link(place: Path, folder: Path) -> Path | None:
    """The link to a folder in a place that nobody else can write to; None where that cannot be had."""
    link = place / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    if SEPARATORS.search(str(place)) or not place.is_absolute():
        return None
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.lstat()
        is_private = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(status.st_mode) or not is_private:
            return None
        if not link.is_symlink():
            link.symlink_to(folder)
    except FileExistsError:
        pass  # another run has just made it, or the place is no folder
    except OSError:
        return None
    return link if link.is_symlink() and Path(os.readlink(link)) == folder else None
