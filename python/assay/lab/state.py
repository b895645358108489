"""What a lab keeps on disk: one folder a lab, one JSON file that says what was planted.

``/run/assay/lab/NAME`` holds ``lab.json`` and what must be files: the scripts, the nodes' folders, the
hosts file, Slurm's configuration. Making the folder claims the name; ``lab.json`` appears last, so a lab
that has it is complete. Nothing else depends on this folder: ``namespaces.end`` finds a lab's processes
without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.errors import UserError

ROOT = Path("/run/assay/lab")
DEFAULT_NAME = "lab"
_LOCK_LIMIT_S = 10.0


class Rates(msgspec.Struct, omit_defaults=True, frozen=True):
    """Planted limits in B/s; None is no limit. ``duplex`` holds the sum of both directions of a host,
    ``cabinet`` each direction of a cabinet's uplink."""

    up: float | None = None
    down: float | None = None
    duplex: float | None = None
    cabinet: float | None = None


class Fault(msgspec.Struct, omit_defaults=True, frozen=True):
    """What is wrong with a host: its transmit or receive rate (B/s), the share of packets that its cable loses
    on the way out (``tx_loss``) or in (``rx_loss``), or its cable pulled (``down``)."""

    tx: float | None = None
    rx: float | None = None
    down: bool = False
    tx_loss: float | None = None
    rx_loss: float | None = None


class Host(msgspec.Struct, omit_defaults=True):
    name: str
    cabinet: str
    address: str
    pid: int = 0  # of the process that holds its namespaces open
    fault: Fault = Fault()


class State(msgspec.Struct):
    name: str
    hosts: list[Host]
    rates: Rates
    slurm: bool
    mtu: int = 1500


def lab_name(name: str | None) -> str:
    """``name``, else ASSAY_LAB of the environment, else "lab". Raises UserError when that cannot be."""
    chosen = name or os.environ.get("ASSAY_LAB") or DEFAULT_NAME
    # 64 bytes hold the mark (a domain name) and 108 the path of a socket in the lab's folder.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", chosen):
        raise UserError(
            f"'{chosen}' cannot be the name of a lab", "use up to 40 letters, digits, '-', '_', '.'"
        )
    return chosen


def folder(name: str) -> Path:
    return ROOT / name


def claim(name: str) -> Path:
    """Make the lab's folder; that it did not exist makes the name ours. Raises UserError if it did."""
    path = folder(name)
    try:
        os.makedirs(path)
    except FileExistsError:
        raise UserError(
            f"lab '{name}' is up already", f"take it down first: assay lab down --lab {name}"
        ) from None
    (path / "tmp").mkdir()
    (path / "nodes").mkdir()
    return path


def forget(name: str) -> None:
    """Remove the lab's folder, and those above it that this leaves empty."""
    shutil.rmtree(folder(name), ignore_errors=True)
    for parent in (ROOT, ROOT.parent):
        with contextlib.suppress(OSError):
            parent.rmdir()


def list_labs() -> list[str]:
    """Names of the labs that are up."""
    return sorted(path.parent.name for path in ROOT.glob("*/lab.json"))


def read(name: str) -> State:
    """Raises UserError when no such lab is up."""
    try:
        return msgspec.json.decode((folder(name) / "lab.json").read_bytes(), type=State)
    except FileNotFoundError:
        others = f" (up: {', '.join(list_labs())})" if list_labs() else ""
        option = "" if name == DEFAULT_NAME else f" --lab {name}"
        raise UserError(f"no lab '{name}' is up{others}", f"make one with 'assay lab up{option}'") from None
    except msgspec.MsgspecError as error:
        path = folder(name) / "lab.json"
        raise UserError(f"{path} is damaged ({error})", f"start anew: assay lab down --lab {name}") from None


def write(state: State) -> None:
    """Replace ``lab.json`` at once: a reader sees the old one or the new one, whole."""
    path = folder(state.name) / "lab.json"
    draft = path.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    draft.replace(path)


@contextlib.contextmanager
def updated(name: str) -> Iterator[State]:
    """The state to change, written when the block ends well; one at a time, waiting 10 s at most."""
    read(name)  # the clear error, when there is none
    deadline = time.monotonic() + _LOCK_LIMIT_S
    with (folder(name) / "lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"lab '{name}' is being changed by another command", "try again"
                    ) from None
                time.sleep(0.02)
        state = read(name)
        yield state
        write(state)
