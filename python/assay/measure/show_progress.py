"""Shows the progress of an engine: a bar on a terminal, elsewhere a line every few seconds.

An engine that prints nothing for a while may be waiting for a processor. The silence is shown with the load of this
machine, so that users do not take a slow phase for a hang.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from assay.launch.hosts import fold
from assay.records import schema

LINE_S = 5.0  # between two lines where there is no terminal
REDRAW_S = 0.25  # between two pictures of the bar; one costs a few milliseconds


class ShownProgress(Protocol):
    def __call__(self, progress: schema.Progress) -> None: ...

    def silent(self, seconds: float, awaited: Sequence[str]) -> None:
        """Shows that the engine has printed nothing for this long, and the hosts that the start waits for."""


@contextmanager
def shown_progress(console: Console, name: str) -> Iterator[ShownProgress]:
    if not console.is_terminal:
        yield _Lines(console, name)
        return
    columns = (
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[left]}", markup=False),
    )
    # Drawn when there is news: a thread that draws ten times a second takes a processor's time from ranks.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        yield _Bar(bar, bar.add_task("starting", total=1.0, name=name, left=""))


def _silence_text(seconds: float, awaited: Sequence[str]) -> str:
    if awaited:
        return f"waiting for {fold(list(awaited))} for {seconds:.0f} s"
    return f"nothing heard for {seconds:.0f} s (load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors)"


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task
        self._drawn = float("-inf")

    def __call__(self, progress: schema.Progress) -> None:
        left = f"{progress.left_s:.0f} s left" if progress.left_s >= 0 else ""
        self._bar.update(self._task, completed=progress.done, description=progress.label, left=left)
        self._draw()

    def silent(self, seconds: float, awaited: Sequence[str]) -> None:
        self._bar.update(self._task, left=_silence_text(seconds, awaited))
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now - self._drawn >= REDRAW_S:
            self._drawn = now
            self._bar.refresh()


class _Lines:
    """The first line at once, then one every few seconds."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name, self._last = console, name, float("-inf")

    def __call__(self, progress: schema.Progress) -> None:
        left = f", {progress.left_s:.0f} s left" if progress.left_s >= 0 else ""
        self._line(f"{progress.done:.0%} {progress.label}{left}")

    def silent(self, seconds: float, awaited: Sequence[str]) -> None:
        self._line(_silence_text(seconds, awaited))

    def _line(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_S:
            self._last = now
            self._console.print(f"{self._name}: {text}")
