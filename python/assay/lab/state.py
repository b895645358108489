"""The state of a lab on disk: a folder for each lab, with its hosts, planted rates and faults in one JSON file.

``/run/assay/lab/NAME`` holds ``lab.json``, the scripts, the nodes' folders, the hosts file and Slurm's configuration.
Creating the folder claims the name; ``lab.json`` is written last, so a lab that has it is complete.
``namespaces.end_processes`` finds a lab's processes without this folder.
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
LOCK_LIMIT_S = 10.0


class Rates(msgspec.Struct, omit_defaults=True, frozen=True):
    """Planted limits in B/s; None: no limit. ``up`` limits what a host sends, ``down`` what it receives, ``duplex``
    the sum of both, ``cabinet`` each direction of a cabinet's uplink. ``lossless``: no queue before a limit drops a
    packet."""

    up: float | None = None
    down: float | None = None
    duplex: float | None = None
    cabinet: float | None = None
    lossless: bool = False


class Fault(msgspec.Struct, omit_defaults=True, frozen=True):
    """The planted faults of a host: a lower transmit or receive rate (B/s), of all that it sends or to single hosts
    (``tx_to``), the share of packets lost that it sends (``tx_loss``) or that are sent to it (``rx_loss``), and whether
    its link is down. Of a cabinet: ``tx`` and ``rx`` of its uplink."""

    tx: float | None = None
    rx: float | None = None
    down: bool = False
    tx_loss: float | None = None
    rx_loss: float | None = None
    tx_to: dict[str, float] = {}


class Host(msgspec.Struct, omit_defaults=True):
    """A host of a lab. It has an adapter for each of ``faults``; ``address`` is that of the first."""

    name: str
    cabinet: str
    address: str
    pid: int = 0  # of the process that holds its namespaces open
    faults: list[Fault] = msgspec.field(default_factory=lambda: [Fault()])

    @property
    def fault(self) -> Fault:
        """That of the first adapter."""
        return self.faults[0]

    def address_of(self, adapter: int) -> str:
        """The IPv4 address of an adapter: each adapter has a network of its own, 10.77.0.0/16 and following."""
        first, second, rest = self.address.split(".", 2)
        return f"{first}.{int(second) + adapter}.{rest}"


class State(msgspec.Struct):
    """The content of ``lab.json``."""

    name: str
    hosts: list[Host]
    rates: Rates
    slurm: bool
    mtu: int = 1500
    cabinet_faults: dict[str, Fault] = {}


def lab_name(name: str | None) -> str:
    """Returns ``name``, else $ASSAY_LAB, else "lab". Raises UserError if it is not a valid name."""
    chosen = name or os.environ.get("ASSAY_LAB") or DEFAULT_NAME
    # The mark of a lab's processes is a domain name of at most 64 bytes (``namespaces``); the path of a socket in the
    # lab's folder has at most 108.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", chosen):
        raise UserError(
            f"'{chosen}' cannot be the name of a lab", "use up to 40 letters, digits, '-', '_', '.'"
        )
    return chosen


def folder(name: str) -> Path:
    return ROOT / name


def claim(name: str) -> Path:
    """Creates the lab's folder, which claims the name. Raises UserError if it exists."""
    path = folder(name)
    while True:
        try:
            ROOT.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            break
        except FileNotFoundError:
            continue  # the end of another lab has removed the empty ROOT meanwhile
        except FileExistsError:
            raise UserError(
                f"lab '{name}' is up already", f"take it down first: assay lab down --lab {name}"
            ) from None
    (path / "tmp").mkdir()
    (path / "nodes").mkdir()
    return path


def remove_folder(name: str) -> None:
    """Removes the lab's folder, and its parents if they are empty then."""
    shutil.rmtree(folder(name), ignore_errors=True)
    for parent in (ROOT, ROOT.parent):
        with contextlib.suppress(OSError):
            parent.rmdir()


def list_labs() -> list[str]:
    """Returns the names of the labs that are up."""
    return sorted(path.parent.name for path in ROOT.glob("*/lab.json"))


def read(name: str) -> State:
    """Reads the state of a lab. Raises UserError if no such lab is up."""
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
    """Replaces ``lab.json`` atomically."""
    path = folder(state.name) / "lab.json"
    draft = path.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    draft.replace(path)


@contextlib.contextmanager
def locked_update(name: str) -> Iterator[State]:
    """Locks the state, waiting at most 10 s, yields it to be changed, and writes it if the block succeeds."""
    read(name)  # raises UserError if no such lab is up
    deadline = time.monotonic() + LOCK_LIMIT_S
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
