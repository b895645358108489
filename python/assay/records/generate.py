"""Generates the JSON Schema and the TypeScript types of records from ``assay.records.schema``, and the C++ structs and
TypeScript types of profiles from ``assay.records.profile``, ``heap`` and ``numa``.

Run it with ``python -m assay.records.generate``. The JSON Schema is for engines and other tools, the types for the
report, the structs for the analyser. All are committed, so that building the engines and the page needs no Python; a
test compares them with a fresh generation. The TypeScript is derived from the JSON Schema that msgspec makes.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.records import heap, numa, profile
from assay.records.generate_cpp import cpp_figures, cpp_structs
from assay.records.heap import HeapPage
from assay.records.numa import NumaPage
from assay.records.schema import SCHEMA_VERSION, AnyLine, ReportData

SCHEMA_FILE = "schema/records.schema.json"
TYPES_FILE = "web/src/data/records.ts"
PROFILE_TYPES_FILE = "web/src/data/profileTypes.ts"
HEAP_TYPES_FILE = "web/src/data/heapProfile.ts"
NUMA_TYPES_FILE = "web/src/data/numaProfile.ts"
PROFILE_STRUCTS_FILE = "engines/profile/analyse/profile_schema.hpp"
HEAP_STRUCTS_FILE = "engines/profile/analyse/heap_schema.hpp"
# Hello, Progress, Ready and Waiting are never stored; ReportData is what "--json" prints.
NOT_IN_REPORT = {"Hello", "Progress", "Ready", "Waiting", "ReportData"}

JsonSchema = dict[str, Any]

_TYPES_HEAD = """\
// The records of a run as the report's page reads them. Generated from python/assay/records/schema.py by
// "python -m assay.records.generate": change the structs there, never this file. A field with a default
// may be absent, because records leave their defaults out.
"""

_PROFILE_HEAD = """\
// {subject}. Generated from {origin} by
// "python -m assay.records.generate": change them there, never this file.
"""

_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def json_schema() -> JsonSchema:
    """The JSON Schema (draft 2020-12): the root is one line of an engine's output or of ``records.jsonl``;
    ``run.json`` is ``#/$defs/RunInfo``."""
    (line, _), definitions = msgspec.json.schema_components(
        [AnyLine, ReportData], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Assay records, version {SCHEMA_VERSION}",
        **line,
        "$defs": dict(sorted(definitions.items())),
    }


def typescript() -> str:
    """The TypeScript module: one interface a struct, and ``AnyRecord``, the union of all that is stored."""
    definitions = json_schema()["$defs"]
    in_report = {name: schema for name, schema in definitions.items() if name not in NOT_IN_REPORT}
    records = [name for name, schema in in_report.items() if "kind" in schema["properties"]]
    scalar = "export type Scalar = string | number | boolean;\n"
    union = "\n  | ".join(["export type AnyRecord =", *records]) + ";\n"  # as prettier breaks a long union
    interfaces = [_interface(name, schema) for name, schema in in_report.items()]
    return "\n".join([_TYPES_HEAD, scalar, *interfaces, union])


def profile_typescript() -> str:
    """The TypeScript module of the parts of all profiles."""
    head = _PROFILE_HEAD.format(
        subject="The parts of every profile, as the report's page reads them",
        origin="python/assay/records/profile.py",
    )
    return "\n".join([head, *_interfaces(_of_all_profiles())])


def page_typescript(page: type[msgspec.Struct], subject: str, name: str, origin: types.ModuleType) -> str:
    """The TypeScript module of one profiler's page: one interface a struct, and the metrics."""
    shared = _of_all_profiles()
    page_only = {key: schema for key, schema in _definitions([page]).items() if key not in shared}
    text = "\n".join([*_interfaces(page_only), _metrics(name, origin.METRICS)])
    code = re.sub(r"/\*\*.*?\*/", "", text, flags=re.DOTALL)
    used = [key for key in shared if re.search(rf": {key}\b|, {key}>", code)]
    head = _PROFILE_HEAD.format(
        subject=f"A {subject} as the report's page reads it, and its metrics",
        origin=f"{origin.__name__.replace('.', '/')}.py".replace("assay/", "python/assay/", 1),
    )
    return "\n".join([head, f'import type {{ {", ".join(used)} }} from "./profileTypes";\n', text])


def _definitions(structs: Sequence[type[msgspec.Struct]]) -> dict[str, JsonSchema]:
    _, definitions = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    return dict(sorted(definitions.items()))


def _of_all_profiles() -> dict[str, JsonSchema]:
    return _definitions([profile.Tree, profile.Source, profile.SourceProblem, profile.Metric])


def _interfaces(definitions: dict[str, JsonSchema]) -> list[str]:
    return [_interface(name, schema, optional=name == "Metric") for name, schema in definitions.items()]


def _metrics(name: str, metrics: Sequence[profile.Metric]) -> str:
    """The metrics as a TypeScript constant, in prettier's format."""
    lines = [f"export const {name}: Metric[] = ["]
    for metric in metrics:
        set_fields = {
            field.name: value
            for field in msgspec.structs.fields(metric)
            if (value := getattr(metric, field.name)) != field.default
        }
        lines += ["  {", *(f"    {key}: {json.dumps(value)}," for key, value in set_fields.items()), "  },"]
    return "\n".join([*lines, "];", ""])


def _interface(name: str, schema: JsonSchema, optional: bool = True) -> str:
    """``optional``: a field with a default may be absent, since the encoder leaves defaults out."""
    lines = []
    if description := schema.get("description"):
        lines += [
            "/**",
            *(f" * {line}".rstrip() for line in inspect.cleandoc(description).splitlines()),
            " */",
        ]
    lines.append(f"export interface {name} {{")
    required = set(schema.get("required", []))
    for field, field_schema in schema["properties"].items():
        mark = "" if field in required or not optional else "?"
        lines.append(f"  {field}{mark}: {_type(field_schema)};")
    return "\n".join([*lines, "}", ""])


def _type(schema: JsonSchema) -> str:
    """The TypeScript type of one JSON Schema node."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        # dict.fromkeys: integer and number are one type here, and the order stays.
        options = list(dict.fromkeys(_type(option) for option in schema["anyOf"]))
        if {"string", "number", "boolean"} <= set(options):
            options = ["Scalar", *(o for o in options if o not in ("string", "number", "boolean"))]
        return " | ".join(options)
    if schema["type"] == "array":
        item = _type(schema["items"])
        return f"({item})[]" if "|" in item else f"{item}[]"
    if schema["type"] == "object":
        return f"Record<string, {_type(schema['additionalProperties'])}>"
    return _SCALARS[schema["type"]]


def generated() -> dict[str, str]:
    """Returns the contents of each generated file, by its path from the repository's root."""
    return {
        SCHEMA_FILE: json.dumps(json_schema(), indent=2) + "\n",
        TYPES_FILE: typescript(),
        PROFILE_TYPES_FILE: profile_typescript(),
        HEAP_TYPES_FILE: page_typescript(HeapPage, "heap profile", "HEAP_METRICS", heap),
        NUMA_TYPES_FILE: page_typescript(NumaPage, "NUMA profile", "NUMA_METRICS", numa),
        PROFILE_STRUCTS_FILE: cpp_structs(
            "call tree", "python/assay/records/profile.py", [profile.Tree], "assay::profile", []
        ),
        HEAP_STRUCTS_FILE: cpp_structs(
            "heap profile",
            "python/assay/records/heap.py",
            [heap.HeapProfile],
            "assay::heap",
            [profile],
            cpp_figures("HeapFigures", heap.METRICS),
        ),
    }


def main() -> None:
    root = Path(__file__).resolve().parents[3]
    for name, text in generated().items():
        (root / name).write_text(text, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
