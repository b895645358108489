"""The commands that run a module of Assay in another process, with this Python.

Its modules come from where those of this process come from, and never from the current folder, where a stranger's
``queue.py`` may lie. Variables of another Python (PYTHONHOME, PYTHONPATH) are not heeded in it; programs that are
measured still have them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import assay

_RUN = """import sys
sys.path[:] = sys.argv.pop(1).split(":")
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


def run_module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of Assay as a program."""
    return [sys.executable, "-E", "-P", "-c", _RUN, ":".join(_search_path()), name, *arguments]


def _search_path() -> list[str]:
    """``sys.path`` without the current folder, unless Assay itself lies there."""
    own = str(Path(assay.__file__).resolve().parent.parent)
    places = [os.path.abspath(place) for place in sys.path if place]
    return [place for place in places if place != os.getcwd() or os.path.realpath(place) == own]
