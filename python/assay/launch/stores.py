"""Lists, reads, recovers and removes the stores of this machine, by calling ``assay-store``.

A store is node-local memory that holds a program's parallel I/O until it is in the file system.
"""

from __future__ import annotations

import glob
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from assay.errors import REPAIR, UserError
from assay.launch.engines import engines_folder

LIST_LIMIT_S = 60
RECOVER_LIMIT_S = 24 * 3600  # a full device through a slow file system
DRAIN_POLL_S = 0.1
DEFAULT_STORE = "/dev/shm"


class UndrainedFile(Struct):
    """A file of which some data are only in the store. ``records`` and ``bytes`` count these data."""

    path: str
    records: int
    bytes: int
    condition: str  # ready, gone, replaced, changed (since the job's last sign of life) or failed
    error: str  # of a file that cannot be written


class StoreContents(Struct):
    """A store, and its data that are not in the file system yet.

    ``state``: running (a job has it open), draining (its job has ended, and its background drain goes on), kept (for
    later jobs, under its ``name``) or left (no process has it open). It holds ``held_bytes`` of ``held_files``.
    ``records``, ``bytes`` and ``files`` are not in the file system yet; ``torn`` records are incomplete. While the
    store is in use, ``files`` are only those that cannot be written, and ``records`` is 0.
    """

    store: str
    state: str
    owner: str
    name: str
    held_bytes: int
    held_files: int
    job: str
    host: str
    size: int
    created: int
    ranks: int
    persistent: bool
    records: int
    bytes: int
    torn: int
    files: list[UndrainedFile]

    @property
    def in_use(self) -> bool:
        return self.state in ("running", "draining")

    @property
    def is_empty(self) -> bool:
        """Whether the file system has all of its data."""
        return not (self.records or self.bytes or self.torn or self.files)


class UnreadableStore(Struct):
    """A store that this user, or this version of Assay, cannot read, and the reason."""

    store: str
    state: str  # unreadable
    owner: str
    reason: str


class RecoveredStore(Struct):
    """The result of recovering a store: its data, and those that could not be written into the file system.

    The store still holds the data of the files ``kept``, and ``kept_torn`` incomplete records.
    """

    store: str
    records: int
    bytes: int
    torn: int
    discarded: int  # bytes
    files: list[UndrainedFile]
    kept: list[UndrainedFile]
    kept_torn: int

    @property
    def is_complete(self) -> bool:
        """Whether the store is empty and was removed."""
        return not self.kept and not self.kept_torn

    @property
    def written(self) -> int:
        """Bytes that were written into the file system."""
        return self.bytes - sum(file.bytes for file in self.kept) - self.discarded


def find_stores(paths: Iterable[str] = ()) -> list[str]:
    """Paths of stores: those of ``paths`` (stores, or folders of stores); without ``paths`` all in /dev/shm and
    $ASSAY_IO_STORE, and devices with a store."""
    chosen = list(paths)
    if chosen:
        return [
            store for path in chosen for store in ([path] if not Path(path).is_dir() else _in_folder(path))
        ]
    folders = dict.fromkeys([os.environ.get("ASSAY_IO_STORE", DEFAULT_STORE), DEFAULT_STORE])
    stores = [store for folder in folders if Path(folder).is_dir() for store in _in_folder(folder)]
    devices = [device for device in glob.glob("/dev/dax*.*") if _is_store(device)]
    # Links in /dev/shm lead to stores elsewhere that a background drain writes.
    return list(dict.fromkeys(os.path.realpath(store) for store in stores + devices if Path(store).exists()))


def read_store(store: str) -> StoreContents:
    """The contents of a store. Raises UserError if it is not a store, or cannot be read."""
    listed = list_store(store)
    if isinstance(listed, UnreadableStore):
        raise UserError(
            f"{store} cannot be read: {listed.reason}",
            "run the command as its owner, with the Assay that made it",
        )
    return listed


def list_store(store: str) -> StoreContents | UnreadableStore:
    """The contents of a store, or why it cannot be read. Raises UserError if it is not a store, or is damaged."""
    listed = run_tool(["list", store], LIST_LIMIT_S)
    unreadable = msgspec.json.decode(listed, type=dict[str, object])["state"] == "unreadable"
    if unreadable:
        return msgspec.json.decode(listed, type=UnreadableStore)
    return msgspec.json.decode(listed, type=StoreContents)


def recover_store(store: str, *, force: bool = False, discard: bool = False) -> RecoveredStore:
    """Writes a store's data into the file system, and removes the store if it is empty then.

    ``force``: also into files that were changed since the job. ``discard``: data that cannot be written are dropped.
    Raises UserError if it is not a store, or the store of a running job; the store is then unchanged.
    """
    options = [option for option, given in (("--force", force), ("--discard", discard)) if given]
    return msgspec.json.decode(run_tool(["recover", *options, store], RECOVER_LIMIT_S), type=RecoveredStore)


def drop_store(store: str, *, discard: bool = False) -> None:
    """Removes a store. Raises UserError if it is in use or, without ``discard``, if it has data that the file system
    lacks."""
    run_tool(["drop", *(["--discard"] if discard else []), store], LIST_LIMIT_S)


def wait_for_drain(store: str, limit_s: float) -> StoreContents | None:
    """Waits while a store's background drain goes on, at most ``limit_s``. None: the file system has all data, and the
    store was removed."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            contents = read_store(store)
        except UserError:
            if not os.path.lexists(store):
                return None
            raise
        if contents.state != "draining" or time.monotonic() > deadline:
            return contents
        time.sleep(DRAIN_POLL_S)


def _in_folder(folder: str) -> list[str]:
    """The stores in a folder. Symbolic links of other users are left out: they may point anywhere."""
    candidates = sorted(glob.glob(f"{glob.escape(folder)}/assay-io-*"))
    return [
        path for path in candidates if not (os.path.islink(path) and os.lstat(path).st_uid != os.geteuid())
    ]


def _is_store(path: str) -> bool:
    try:
        list_store(path)
    except UserError:
        return False
    return True


def run_tool(arguments: list[str], limit_s: float) -> bytes:
    """The output of ``assay-store``. Raises UserError with its message."""
    tool = engines_folder() / "assay-store"
    if not tool.is_file():
        raise UserError(f"no {tool.name} in {tool.parent}", REPAIR)
    try:
        result = subprocess.run([tool, *arguments], capture_output=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{arguments[-1]}: no end after {limit_s:.0f} s", "the store is kept: run assay io recover again"
        ) from None
    if result.returncode != 0:
        message = result.stderr.decode(errors="replace").strip().removeprefix("assay-store: ")
        problem, _, fix = message.partition("; fix: ")
        raise UserError(problem, fix)
    return result.stdout
