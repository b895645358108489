"""``assay io doctor``: the storage and MPIs that the accelerator can use on this node, and obstacles."""

from __future__ import annotations

import argparse
import socket

from rich import box
from rich.table import Table

from assay.commands.io.stores import summary
from assay.commands.options import add_option
from assay.commands.parser import Example
from assay.commands.sub_verbs import Verbs
from assay.errors import EXIT_PASS, EXIT_UNUSABLE, UserError, rebuild
from assay.launch.accelerator import library
from assay.launch.backends import Backend, backends
from assay.launch.engines import flavours
from assay.launch.stores import StoreContents, UnreadableStore, find_stores, list_store
from assay.records.text import json_line
from assay.records.units import format_quantity
from assay.report.console import console

EXAMPLES = [
    Example("assay io doctor"),
    Example("assay io doctor --json"),
    Example('pdsh -w "n[1-64]" assay io doctor', "every node of a cluster", "a cluster"),
]
KIND_NAMES = {
    "devdax": "persistent memory, device",
    "fsdax": "persistent memory, file system",
    "memory": "memory",
    "file": "local file system",
}


def prepare_doctor(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "doctor",
        help="what the accelerator can use on this node, and what prevents it",
        description="Lists where a store can be on this node (persistent memory, memory, local file systems), "
        "the MPIs that the accelerator is built for, and stores that jobs have left.",
        examples=EXAMPLES,
    )
    add_option(parser, "--json")
    parser.set_defaults(sub_verb=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Returns exit status 2 if no store is possible on this node, or no library of the accelerator is built."""
    backends_here = backends()
    mpis = [name for name in sorted(flavours()) if name and _has_library(name)]
    stores = [store for store in (_list_store(path) for path in find_stores()) if store is not None]
    if args.json:
        print(json_line({"backends": backends_here, "mpis": mpis, "stores": stores}))
    else:
        _show(backends_here, mpis, stores)
    usable = any(not backend.hindrance for backend in backends_here)
    return EXIT_PASS if usable and mpis else EXIT_UNUSABLE


def _has_library(mpi: str) -> bool:
    try:
        library(mpi)
    except UserError:
        return False
    return True


def _list_store(path: str) -> StoreContents | UnreadableStore | None:
    try:
        return list_store(path)
    except UserError:
        return None


def _show(
    backends_here: list[Backend], mpis: list[str], stores: list[StoreContents | UnreadableStore]
) -> None:
    table = Table(box=box.SIMPLE, title=f"possible stores on {socket.gethostname()}", title_justify="left")
    for name, justify in (
        ("path", "left"),
        ("kind", "left"),
        ("size", "right"),
        ("free", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for backend in backends_here:
        note = "persistent" if backend.persistent else ""
        table.add_row(
            backend.path,
            KIND_NAMES[backend.kind],
            format_quantity(backend.size, "B"),
            format_quantity(backend.free, "B"),
            backend.hindrance or note,
        )
    out = console()
    out.print(table)
    if not any(backend.kind == "devdax" for backend in backends_here):
        out.print("no devdax device; with persistent memory: ndctl create-namespace --mode=devdax")
    none = f"none ({rebuild('libopenmpi-dev')})"
    out.print(f"MPIs: {', '.join(mpis) or none}")
    for store in stores:
        out.print(summary(store))
