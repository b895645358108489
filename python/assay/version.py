"""The version of Assay and the commit that it comes from: git's in a checkout, else the one that the package brings.

The number is written in ``assay.__version__``, pyproject.toml, CMakeLists.txt and CITATION.cff; a test compares them.
Numbers follow Semantic Versioning: a change of the records' schema, of an option or of an exit code is a minor version
while the first number is 0.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from assay import __version__

PACKAGE = Path(__file__).resolve().parent
COMMIT_FILE = "commit.txt"  # beside this file in a package; whoever builds one writes commit() into it
GIT_LIMIT_S = 10.0  # a slow file system may hold the checkout


def commit(package: Path = PACKAGE) -> str:
    """The commit of the checkout or the package, such as "7c834ae87c83", with "-dirty" where files have changed since;
    "" where nobody knows it."""
    checkout = package.parent.parent
    if (checkout / ".git").exists() and (checkout / "pyproject.toml").exists():
        return _described(checkout)
    try:
        text = (package / COMMIT_FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
    match = re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?\n?", text)
    return match[0].strip() if match else ""


def _described(checkout: Path) -> str:
    # Another user's checkout is read too: whoever runs it runs its code anyway.
    command = ["git", "-c", f"safe.directory={checkout}", "-C", str(checkout)]
    command += ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # nothing is written
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GIT_LIMIT_S, env=environment, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def version() -> str:
    """The line of ``assay --version``: "assay 0.1.0 (commit 7c834ae87c83)"."""
    known = commit()
    return f"assay {__version__}" + (f" (commit {known})" if known else "")
