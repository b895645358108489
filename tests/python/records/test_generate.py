"""The committed schema and TypeScript types match the structs and describe the records that are written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.records import generate
from assay.records.schema import Measurement, RunInfo, Subject, Summary, encode

ROOT = Path(__file__).resolve().parents[3]


TYPES = ["PROFILE_TYPES_FILE", "HEAP_TYPES_FILE", "NUMA_TYPES_FILE"]


@pytest.mark.parametrize(
    "name", [generate.SCHEMA_FILE, generate.TYPES_FILE, *(getattr(generate, name) for name in TYPES)]
)
def test_the_committed_file_is_what_the_generator_writes(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == generate.generated()[name], (
        "run: python -m assay.records.generate"
    )


def test_every_stored_kind_is_in_both_files() -> None:
    schema, types = generate.json_schema(), generate.typescript()
    kinds = set(schema["discriminator"]["mapping"])
    assert kinds >= {"measurement", "pairs", "corruption", "context", "failure", "verdict", "finding"}
    for kind in kinds - {"hello", "progress", "ready", "waiting"}:
        assert f'kind: "{kind}";' in types
    assert "hello" not in types


def test_fields_with_defaults_are_optional_and_unions_keep_their_members() -> None:
    types = generate.typescript()
    assert "  name: string;" in types
    assert "  samples?: number[];" in types
    assert '  status?: "error" | "ok" | "unfit" | "waived";' in types
    assert "  params?: Record<string, Scalar>;" in types
    assert "  options?: Record<string, Scalar | string[] | null>;" in types
    assert "export type AnyRecord =" in types and "  | Verdict;" in types
    assert "ReportData" not in types and "ReportData" in generate.json_schema()["$defs"]


def test_encoded_records_carry_only_fields_of_the_schema() -> None:
    record = Measurement(
        id=3,
        name="network.all_to_all",
        metric="latency",
        unit="s",
        subject=Subject(host="h0", peer="h1"),
        params={"size": 8, "op": "send"},
        summary=Summary(n=2, median=1e-6, p99=2e-6),
        samples=[1e-6, 2e-6],
    )
    definitions = generate.json_schema()["$defs"]
    assert_fits(definitions["Measurement"], json.loads(encode(record)), definitions)
    info = RunInfo(id="x", command=["net"], assay="0.1.0", started="2026-01-01T00:00:00Z", hosts=["h0"])
    assert_fits(definitions["RunInfo"], json.loads(encode(info)), definitions)


def assert_fits(schema: dict, value: dict, definitions: dict) -> None:
    assert set(schema.get("required", [])) <= set(value) <= set(schema["properties"])
    for field, item in value.items():
        reference = schema["properties"][field].get("$ref")
        if reference:
            assert_fits(definitions[reference.rsplit("/", 1)[1]], item, definitions)
