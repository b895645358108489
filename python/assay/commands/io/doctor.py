"""``assay io doctor``: what this node has for the accelerator, and what stands in its way."""

from __future__ import annotations

import argparse
import socket
from typing import TYPE_CHECKING

import msgspec
from rich import box
from rich.table import Table

from assay.commands.options import add
from assay.commands.parser import Example
from assay.errors import EXIT_PASS, EXIT_UNUSABLE, UserError
from assay.launch.accelerator import library
from assay.launch.backends import Backend, backends
from assay.launch.engines import flavours
from assay.launch.stores import Held, found, held
from assay.records.units import format_quantity
from assay.report.terminal import console

if TYPE_CHECKING:
    from assay.commands.io import Verbs

EXAMPLES = [
    Example("assay io doctor"),
    Example("assay io doctor --json"),
    Example('pdsh -w "n[1-64]" assay io doctor', "every node of a cluster", "a cluster"),
]
WORDS = {
    "devdax": "persistent memory, device",
    "fsdax": "persistent memory, file system",
    "memory": "memory",
    "file": "local file system",
}


class Doctor:
    """The sub-verb."""

    def prepare(self, verbs: Verbs) -> None:
        parser = verbs.add_parser(
            "doctor",
            help="what this node has for the accelerator, and what prevents it",
            description="Lists where a store can be on this node (persistent memory, memory, local file systems), "
            "the MPIs that the accelerator is built for, and stores that jobs have left.",
            examples=EXAMPLES,
        )
        add(parser, "--json")
        parser.set_defaults(io_verb=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Exit status 2 when there is no place for a store, or no library."""
    places = backends()
    mpis = [name for name in sorted(flavours()) if name and _built(name)]
    left = [store for store in (_held(path) for path in found()) if store is not None]
    if args.json:
        print(msgspec.json.encode({"backends": places, "mpis": mpis, "stores": left}).decode())
    else:
        _show(places, mpis, left)
    usable = any(not place.hindrance for place in places)
    return EXIT_PASS if usable and mpis else EXIT_UNUSABLE


def _built(mpi: str) -> bool:
    try:
        library(mpi)
    except UserError:
        return False
    return True


def _held(path: str) -> Held | None:
    try:
        return held(path)
    except UserError:
        return None


def _show(places: list[Backend], mpis: list[str], left: list[Held]) -> None:
    table = Table(box=box.SIMPLE, title=f"places for a store on {socket.gethostname()}", title_justify="left")
    for name, justify in (
        ("path", "left"),
        ("what", "left"),
        ("size", "right"),
        ("free", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for place in places:
        outlives = "outlives the power" if place.persistent else ""
        table.add_row(
            place.path,
            WORDS[place.kind],
            format_quantity(place.size, "B"),
            format_quantity(place.free, "B"),
            place.hindrance or outlives,
        )
    out = console()
    out.print(table)
    if not any(place.kind == "devdax" for place in places):
        out.print("no persistent memory as a device (ndctl create-namespace --mode=devdax makes one)")
    out.print(
        f"MPIs: {', '.join(mpis) or 'none; make setup builds the accelerator for each MPI that it finds'}"
    )
    for store in left:
        state = f"in use by job {store.job}" if store.in_use else (
            f"left by job {store.job}, {format_quantity(store.bytes, 'B')} not in the file system: "
            f"assay io recover {store.store}"
        )  # fmt: skip
        out.print(f"store {store.store}: {state}")
