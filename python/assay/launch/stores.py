"""Stores of node-local memory on this machine: which there are, what they hold, and their rescue (``assay-store``)."""

from __future__ import annotations

import glob
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from assay.errors import UserError
from assay.launch.engines import engines_folder

LIST_LIMIT_S = 60
RESCUE_LIMIT_S = 24 * 3600  # a full device through a slow file system
DEFAULT_STORE = "/dev/shm"


class Missing(Struct):
    """A file and what of it is in the store alone."""

    path: str
    records: int
    bytes: int
    gone: bool  # removed or replaced since


class Held(Struct):
    """What a store holds that is not in the file system. Of a store in use nothing is known."""

    store: str
    job: str
    host: str
    size: int
    created: int
    ranks: int
    persistent: bool
    in_use: bool
    records: int
    bytes: int
    torn: int
    files: list[Missing]


class Rescued(Struct):
    """What was written to the file system. ``torn``: records that were not whole, and left out."""

    store: str
    records: int
    bytes: int
    torn: int
    discarded: int
    error: str
    files: list[Missing]


def found(where: Iterable[str] = ()) -> list[str]:
    """Paths of stores: those given; else all in the usual folder and in $ASSAY_IO_STORE, and the devices."""
    given = list(where)
    if given:
        return [one for path in given for one in ([path] if not Path(path).is_dir() else _in_folder(path))]
    folders = dict.fromkeys([os.environ.get("ASSAY_IO_STORE", DEFAULT_STORE), DEFAULT_STORE])
    stores = [store for folder in folders if Path(folder).is_dir() for store in _in_folder(folder)]
    return stores + [device for device in glob.glob("/dev/dax*.*") if _is_store(device)]


def held(store: str) -> Held:
    """Raises UserError when it is none."""
    return msgspec.json.decode(_told(["list", store], LIST_LIMIT_S), type=Held)


def rescue(store: str) -> Rescued:
    """Writes what it holds to the file system and removes it. Raises UserError; nothing is lost then."""
    return msgspec.json.decode(_told(["recover", store], RESCUE_LIMIT_S), type=Rescued)


def _in_folder(folder: str) -> list[str]:
    return sorted(glob.glob(f"{glob.escape(folder)}/assay-io-*"))


def _is_store(path: str) -> bool:
    try:
        held(path)
    except UserError:
        return False
    return True


def _told(words: list[str], limit_s: float) -> bytes:
    tool = engines_folder() / "assay-store"
    if not tool.is_file():
        raise UserError(f"no {tool.name} in {tool.parent}", "build it with 'make setup'")
    try:
        done = subprocess.run([tool, *words], capture_output=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise UserError(f"{words[-1]}: not done after {limit_s:.0f} s", "what it holds is kept") from None
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().removeprefix("assay-store: ")
        what, _, fix = message.partition("; ")
        raise UserError(what, fix.removeprefix("fix: "))
    return done.stdout
