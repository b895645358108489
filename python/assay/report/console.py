"""The console that all output for people is printed with. It knows no record, so that every verb imports it fast."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import IO, Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from assay.records.text import printable

WIDTH = 132  # columns without a terminal: a log or a pipe is not folded at 80


class _Output(Console):
    """A console without markup ("[red]" may be a host's name) that escapes unsafe characters in all printed text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    @property
    def file(self) -> IO[str]:
        """The stream that takes colours (report/streams.py)."""
        stream = super().file
        return getattr(stream, "styled", stream)

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def console(stderr: bool = False) -> Console:
    """A console of the terminal's width; of WIDTH columns without a terminal. With NO_COLOR it sends no escape
    sequences at all: bold and dim are left out, too."""
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    # A terminal may not know its width: 0 stands for that (tty_ioctl(4), and COLUMNS of some shells).
    width = shutil.get_terminal_size().columns if os.environ.get("COLUMNS") == "0" else None
    terminal = _Output(stderr=stderr, color_system=colors, width=width)
    return terminal if terminal.is_terminal else _Output(stderr=stderr, color_system=colors, width=WIDTH)
