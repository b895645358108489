"""Reads paced memory workloads from TOML files and passes them to the engine as JSON.

A workload has stations that all take the same steps; a step is an operation on blocks of a size, at a rate.
"""

from __future__ import annotations

import json
from typing import Any

from assay.errors import UserError
from assay.records.toml import TomlFile, find_built_in
from assay.records.units import describe_unit, parse_quantity

OPERATIONS = ("write", "read", "copy", "transpose")


def load_workload(name: str) -> str:
    """The workload in a file, or a built-in one by name, as the JSON text that the engine takes."""
    file = TomlFile(find_built_in("workloads", name, "workload"), "step", "workload")
    document = file.document
    file.refuse_unknown_keys(document, ("title", "stations", "transpose", "step"), "a workload")
    stations = _positive_integer(file, document, "stations")
    transpose = document.get("transpose", {})
    if not isinstance(transpose, dict):
        file.refuse("transpose", "'transpose' is not a table", "head it [transpose]")
    file.refuse_unknown_keys(transpose, ("chunk", "multiplier"), "[transpose]")
    tables = document.get("step", [])
    if not isinstance(tables, list) or not tables:
        file.refuse("step", "there is no step in it", "add one headed [[step]]")
    steps = []
    for file.table, table in enumerate(tables):
        steps.append(_step(file, table, needs_chunk="chunk" not in transpose))
    file.table = -1
    workload: dict[str, Any] = {"name": file.path.stem, "stations": stations, "steps": steps}
    if "chunk" in transpose:
        workload["chunk"] = int(_quantity(file, transpose, "chunk", "B"))
        workload["multiplier"] = (
            _positive_integer(file, transpose, "multiplier") if "multiplier" in transpose else 1
        )
    return json.dumps(workload)


def _step(file: TomlFile, table: dict[str, Any], needs_chunk: bool) -> dict[str, Any]:
    file.refuse_unknown_keys(table, ("operation", "block", "rate"), "a step")
    operation = table.get("operation")
    if operation not in OPERATIONS:
        file.refuse(
            "operation", f"no memory operation {operation!r}", f"choose one of {', '.join(OPERATIONS)}"
        )
    if operation == "transpose" and needs_chunk:
        file.refuse("operation", "a transposition without chunks", "give [transpose] a chunk")
    block = _quantity(file, table, "block", "B")
    return {"operation": operation, "block": int(block), "rate": _quantity(file, table, "rate", "B/s")}


def _positive_integer(file: TomlFile, table: dict[str, Any], key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        file.refuse(key, f"'{key}' is not a whole number of at least 1", f"such as {key} = 18")
    return value


def _quantity(file: TomlFile, table: dict[str, Any], key: str, unit: str) -> float:
    value = table.get(key)
    if not isinstance(value, str):
        file.refuse(key, f"'{key}' is not a quantity", "write a number and a unit, such as '3 Gbit/s'")
    try:
        quantity = parse_quantity(value)
    except UserError as error:
        file.refuse(key, error.what, error.fix)
    if quantity.unit != unit:
        file.refuse(key, f"{key} = '{value}' is in {describe_unit(quantity.unit)}", f"it has to be in {unit}")
    if quantity.value <= 0:
        file.refuse(key, f"{key} = '{value}' is not above zero", "give a positive quantity")
    return quantity.value
