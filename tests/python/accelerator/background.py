"""Plants what happens to background drains: faults of their file system, a stop, a kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from durability import FAULTY_FS, planted
from mpi_programs import ROOT, memory_folder

STORE_TOOL = ROOT / "build/bin/assay-store"
MEMORY = {"ASSAY_IO_UNTIL": "memory"}
LIMIT_S = 60.0


def faulty_drain(folder: Path, faults: dict[str, str]) -> dict[str, str]:
    """The setting that gives background drains, which have an empty environment, a file system with faults."""
    script = folder / "drain.sh"
    settings = {"LD_PRELOAD": str(FAULTY_FS), **faults}
    lines = [f"export {name}='{value}'" for name, value in settings.items()]
    script.write_text("\n".join(["#!/bin/sh", *lines, f'exec {STORE_TOOL} "$@"', ""]))
    script.chmod(0o755)
    return {"ASSAY_IO_DRAIN_PROGRAM": str(script)}


def held_drain(folder: Path, name: str = "data") -> dict[str, str]:
    """Background drains cannot write the file until ``folder/fault`` is removed."""
    (folder / "fault").touch()
    return faulty_drain(folder, planted(folder, "write:ENOSPC", name=name, WHILE=str(folder / "fault")))


def drains_of(store: Path) -> list[int]:
    """The process numbers of the background drains of a store, or of all stores of a folder."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            arguments = Path(entry.path, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"background" in arguments and any(part.startswith(os.fsencode(store)) for part in arguments):
            found.append(int(entry.name))
    return found


def kill_drains(store: Path) -> None:
    """There was one, and they have ended afterwards."""
    assert drains_of(store)
    end_drains(store)


def end_drains(folder: Path) -> None:
    for pid in drains_of(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not drains_of(folder))


def store_folder() -> Iterator[Path]:
    """For fixtures: a folder in memory, whose background drains are ended before it is removed."""
    for folder in memory_folder():
        yield folder
        end_drains(folder)


def wait_until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def wait_for_end(folder: Path) -> None:
    """No store is left in the folder, and no background drain."""
    wait_until(lambda: not list(folder.iterdir()) and not drains_of(folder))
