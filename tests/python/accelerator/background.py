"""Plants faults into background drains: failing file systems, writes that are refused for a time, kills."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from durability import FAULTY_FS, fault_settings
from mpi_programs import ROOT, memory_folder

STORE_TOOL = ROOT / "build/bin/assay-store"
MEMORY = {"ASSAY_IO_UNTIL": "memory"}
LIMIT_S = 240.0  # against hangs


def faulty_drain(folder: Path, faults: dict[str, str]) -> dict[str, str]:
    """The environment of a job whose background drains have a file system with faults. Drains inherit no environment,
    so a script sets their variables. A store's name ends with the first rank of its node."""
    script = folder / "drain.sh"
    settings = {"LD_PRELOAD": str(FAULTY_FS), **faults}
    lines = ['export FAULTY_FS_LOG_RANK="${2##*-}"']
    lines += [f"export {name}='{value}'" for name, value in settings.items()]
    script.write_text("\n".join(["#!/bin/sh", *lines, f'exec {STORE_TOOL} "$@"', ""]))
    script.chmod(0o755)
    return {"ASSAY_IO_DRAIN_PROGRAM": str(script)}


def held_drain(folder: Path, name: str = "data") -> dict[str, str]:
    """The environment of a job whose background drains cannot write the file until ``folder/fault`` is removed."""
    (folder / "fault").touch()
    return faulty_drain(
        folder, fault_settings(folder, "write:ENOSPC", name=name, WHILE=str(folder / "fault"))
    )


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
    """Kills the background drains, at least one, of a store or of a folder's stores, and waits for their end."""
    assert drains_of(store)
    end_drains(store)
    await_release(store)


def await_release(store: Path) -> None:
    """Waits until no process holds the lock of a store, or of a folder's stores: the kernel releases it last."""
    stores = [store] if store.is_file() else [path for path in store.iterdir() if path.is_file()]
    wait_until(lambda: all(is_released(path) for path in stores))


def is_released(store: Path) -> bool:
    with store.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def end_drains(folder: Path) -> None:
    """Kills all background drains of a folder's stores, also those that start meanwhile, and waits for their end."""

    def none_is_left() -> bool:
        found = drains_of(folder)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(none_is_left)


def store_folder() -> Iterator[Path]:
    """For fixtures: a folder in memory for stores. Their background drains are killed before the folder is removed."""
    for folder in memory_folder():
        yield folder
        end_drains(folder)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"the condition does not hold after {LIMIT_S} s"
        time.sleep(0.02)


def wait_for_end(folder: Path) -> None:
    """Waits until no store is left in the folder, and no background drain."""
    wait_until(lambda: not list(folder.iterdir()) and not drains_of(folder))
