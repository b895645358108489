"""The commands that run a module of Assay in another process, with this Python.

Modules come from this installation alone. The current folder is not searched, where a stranger's ``queue.py`` may lie,
and the variables of another Python (PYTHONHOME, PYTHONPATH) are not heeded; programs that are measured still have them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import assay

_RUN = """import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


def run_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of Assay as a program."""
    package = str(Path(assay.__file__).resolve().parent.parent)
    return [sys.executable, "-E", "-P", "-c", _RUN, package, name, *arguments]
