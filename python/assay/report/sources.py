"""The source files that a run's report does not show, or that may not be the recorded program's."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from assay.profile.sources import load_sources


def show_source_notices(console: Console, run: Path) -> None:
    """One line about the files that are not shown, and one about those that are newer; nothing without any."""
    for notice in load_sources(run).notices():
        console.print(Text(notice, style="yellow"), soft_wrap=True)
