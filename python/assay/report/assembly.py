"""A function's instructions with their memory accesses in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.numa.assembly import Assembly, Instruction
from assay.numa.recording import MODES
from assay.records.units import format_share
from assay.report.tables import plain_table

AROUND = 2  # instructions without accesses that are shown before and after one with accesses
MAX_SHOWN = 400  # instructions
FIGURES = {"touch": "pages", "sample": "samples"}
HOOKS = "gcc: accesses stand at the call of their counting hook, beside the instruction that makes them"


def show_assembly(console: Console, assembly: Assembly) -> None:
    """Long parts without accesses are left out."""
    heading = f"{assembly.function} in {assembly.binary}: {MODES.get(assembly.mode, assembly.mode)}"
    console.print(Text(heading, "bold"), soft_wrap=True)
    if assembly.mode == "gcc":
        console.print(Text(HOOKS, style="dim"), soft_wrap=True)
    if assembly.unplaced:
        console.print(
            Text(f"{assembly.unplaced} accesses are of no shown instruction", style="yellow"), soft_wrap=True
        )
    table = plain_table(numbers=["address", "reads", FIGURES.get(assembly.mode, "writes"), "remote"])
    table.add_column("line", overflow="fold")
    table.add_column("instruction", overflow="fold")
    shown = _shown(assembly.instructions)
    for k in shown[:MAX_SHOWN]:
        if k < 0:
            table.add_row("...", "", "", "", "", f"{-k} without accesses")
        else:
            _add_row(table, assembly.instructions[k])
    console.print(table)
    if len(shown) > MAX_SHOWN:
        console.print(f"{len(shown) - MAX_SHOWN} more rows: --json", soft_wrap=True)
    console.print()


def _shown(instructions: list[Instruction]) -> list[int]:
    """Positions of instructions, and in place of each part that is left out its negative length."""
    near = set[int]()
    for k, instruction in enumerate(instructions):
        if instruction.accesses.total:
            near.update(range(k - AROUND, k + AROUND + 1))
    rows: list[int] = []
    for k in range(len(instructions)):
        if k in near:
            rows.append(k)
        elif rows and rows[-1] < 0:
            rows[-1] -= 1
        else:
            rows.append(-1)
    return rows


def _add_row(table: Table, instruction: Instruction) -> None:
    count = instruction.accesses
    known = count.total - count.unknown
    table.add_row(
        f"{instruction.address:x}",
        _number(count.reads),
        _number(count.writes),
        format_share(count.remote / known) if known else "",
        Text(f"{instruction.file.rpartition('/')[2]}:{instruction.line}" if instruction.file else ""),
        Text(instruction.text),
    )


def _number(count: int) -> str:
    return f"{count:,}".replace(",", " ") if count else ""
