"""Readers of the files that fabric tools write, one module for each format. A file's format is recognised by its
content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assay.errors import UserError
from assay.fabric.read import db_csv, fdbs, ibnetdiscover, lfts, opa, order, subnet_list
from assay.fabric.read.text import EMPTY_DUMP, open_file, printable
from assay.fabric.tables import ForwardingTables
from assay.fabric.topology import Fabric, Ints
from assay.records.foreign import text_kind

TOPOLOGIES: dict[str, tuple[Callable[[str], bool], Callable[[Path], Fabric]]] = {
    "ibdiagnet2.db_csv": (db_csv.looks_like, db_csv.read),  # says what ports support, so it comes first
    "ibnetdiscover": (ibnetdiscover.looks_like, ibnetdiscover.read),
    "opensm-subnet.lst": (subnet_list.looks_like, subnet_list.read),
    "opareport -o snapshot -r": (opa.looks_like, opa.read),
}
TABLES: dict[str, tuple[Callable[[str], bool], Callable[[Path, Fabric], ForwardingTables]]] = {
    "dump_fts or opensm-lfts.dump": (lfts.looks_like, lfts.read),
    "opensm.fdbs or ibdiagnet's .fdbs": (fdbs.looks_like, fdbs.read),
    "opareport -o snapshot -r": (opa.looks_like_tables, opa.read_tables),
}
HEAD = 1 << 16  # bytes at the start of a file by which its format is recognised
MAX_FILES = 1000  # of a folder


def read_fabric(path: Path | str) -> Fabric:
    """A topology in any of the formats. Raises UserError with file and line."""
    head = _head(Path(path))
    for looks_like, read in TOPOLOGIES.values():
        if looks_like(head):
            return read(Path(path))
    if message := ibnetdiscover.message_of(head):
        raise UserError(
            f"{path}: no node in it, only a message of the tool: {printable(message[:120])}",
            "run it as root, on a host with an active port, and take the file anew",
        )
    raise UserError(
        f"{path}: {_name(head)}no topology of a fabric", f"give the output of {', '.join(TOPOLOGIES)}"
    )


def read_tables(path: Path | str, fabric: Fabric) -> ForwardingTables:
    """Forwarding tables of a fabric in any of the formats. Raises UserError with file and line."""
    head = _head(Path(path))
    for looks_like, read in TABLES.values():
        if looks_like(head):
            return read(Path(path), fabric)
    raise UserError(f"{path}: {_name(head)}no forwarding tables", f"give {', '.join(TABLES)}")


def files_of(folder: Path) -> tuple[Path, Path | None]:
    """The files with the topology and the forwarding tables (None without them) in a folder of dumps. If there are
    files of several formats, the first format of TOPOLOGIES and of TABLES is used. Raises UserError without a topology,
    or with two files of one format."""
    heads = {
        path: _head(path)
        for path in sorted(folder.iterdir())[:MAX_FILES]
        if path.is_file() and path.stat().st_size
    }
    topology = _matching_file(heads, {name: looks_like for name, (looks_like, _) in TOPOLOGIES.items()})
    if topology is None:
        raise UserError(
            f"{folder}: no topology of a fabric in it", f"put the output of {', '.join(TOPOLOGIES)} there"
        )
    return topology, _matching_file(heads, {name: looks_like for name, (looks_like, _) in TABLES.items()})


def _matching_file(heads: dict[Path, str], formats: dict[str, Callable[[str], bool]]) -> Path | None:
    for name, looks_like in formats.items():
        matching = [path for path, head in heads.items() if looks_like(head)]
        if len(matching) > 1:
            raise UserError(
                f"{matching[0].parent}: {matching[0].name} and {matching[1].name} are both of {name}",
                "name the files with --fabric and --tables; tables of one switch each belong into one file",
            )
        if matching:
            return matching[0]
    return None


def read_order(path: Path | str, fabric: Fabric) -> Ints:
    """The hosts in the order of their ranks, -1 for an empty slot. Raises UserError with file and line."""
    return order.read(Path(path), fabric)


def _name(head: str) -> str:
    """What a file is, with a comma; empty where that is not known."""
    kind = text_kind(head)
    return f"{kind.name}, " if kind else ""


def _head(path: Path) -> str:
    try:
        with open_file(path) as file:
            head = file.read(HEAD)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if not head.strip():
        raise UserError(f"{path}: the file is empty", EMPTY_DUMP)
    return head.decode("utf-8", errors="replace")


__all__ = ["files_of", "read_fabric", "read_order", "read_tables"]
