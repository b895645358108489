"""Stores of node-local memory on this machine: lists, reads and recovers them (``assay-store``)."""

from __future__ import annotations

import glob
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from assay.errors import UserError
from assay.launch.engines import engines_folder

LIST_LIMIT_S = 60
RECOVER_LIMIT_S = 24 * 3600  # a full device through a slow file system
DRAIN_POLL_S = 0.1
DEFAULT_STORE = "/dev/shm"


class UndrainedFile(Struct):
    """A file, and how much of it is only in the store."""

    path: str
    records: int
    bytes: int
    condition: str  # ready, gone, replaced, changed (since the job's last sign of life) or failed
    error: str  # of a file that cannot be written


class StoreContents(Struct):
    """A store, and what of it is not in the file system yet.

    ``state``: running (a job has it open), draining (its job has ended, and its background drain goes on), kept (for
    later jobs, under its ``name``) or left (nobody has it open). ``held_bytes`` of ``held_files`` are in it. While it
    is in use, ``files`` are only those that cannot be written, and ``records`` is 0.
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


class UnreadableStore(Struct):
    """A store that this user, or this version of Assay, cannot read. ``reason`` is half a sentence."""

    store: str
    state: str  # unreadable
    owner: str
    reason: str


class RecoveredStore(Struct):
    """What a store held, and what of it could not be written into the file system.

    Of ``kept`` and ``kept_torn`` (records that are incomplete) nothing is lost: the store still holds them.
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
        """Bytes."""
        return self.bytes - sum(file.bytes for file in self.kept) - self.discarded


def find_stores(paths: Iterable[str] = ()) -> list[str]:
    """Paths of stores: those given; else all in /dev/shm and $ASSAY_IO_STORE, and devices with a store."""
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
    """Raises UserError if it is not a store, or one that cannot be read."""
    listed = list_store(store)
    if isinstance(listed, UnreadableStore):
        raise UserError(
            f"{store} cannot be read: {listed.reason}",
            "run the command as its owner, with the Assay that made it",
        )
    return listed


def list_store(store: str) -> StoreContents | UnreadableStore:
    """Raises UserError if it is not a store, or is damaged."""
    listed = _run_tool(["list", store], LIST_LIMIT_S)
    unreadable = msgspec.json.decode(listed, type=dict[str, object])["state"] == "unreadable"
    if unreadable:
        return msgspec.json.decode(listed, type=UnreadableStore)
    return msgspec.json.decode(listed, type=StoreContents)


def recover_store(store: str, *, force: bool = False, discard: bool = False) -> RecoveredStore:
    """Writes its data into the file system, and removes it if nothing is left in it.

    ``force``: also into files that were changed since. ``discard``: what cannot be written is dropped. Raises UserError
    if it is no store, or a running job's; then it is unchanged.
    """
    options = [option for option, given in (("--force", force), ("--discard", discard)) if given]
    return msgspec.json.decode(_run_tool(["recover", *options, store], RECOVER_LIMIT_S), type=RecoveredStore)


def drop_store(store: str, *, discard: bool = False) -> None:
    """Removes it. Raises UserError if it is in use or, without ``discard``, if the file system lacks some of it."""
    _run_tool(["drop", *(["--discard"] if discard else []), store], LIST_LIMIT_S)


def wait_for_drain(store: str, limit_s: float) -> StoreContents | None:
    """Waits while its background drain goes on. None: the file system has all, and the store was removed."""
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
    """Links of other users are left out: they may lead to anything."""
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


def _run_tool(arguments: list[str], limit_s: float) -> bytes:
    tool = engines_folder() / "assay-store"
    if not tool.is_file():
        raise UserError(f"no {tool.name} in {tool.parent}", "build it with 'make setup'")
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
