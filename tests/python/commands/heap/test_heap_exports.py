"""Showing, comparing and exporting profiles; other tools read the exports."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    load_profile,
    run_heap,
    stack_metrics,
    usage_error,
)

from assay.cli import main

pytestmark = [*REQUIREMENTS, pytest.mark.programs]


def test_diff_shows_the_planted_leak(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_heap(tmp_path / "a", planted, "clean")
    run_heap(tmp_path / "b", planted, "leak")
    arguments = ["heap", "diff", str(tmp_path / "a"), str(tmp_path / "b")]
    assert main([*arguments, "--metric", "leaked"]) == 0
    assert "+977 KiB" in capsys.readouterr().out
    assert main([*arguments, "--metric", "leaked", "--json"]) == 0
    comparison = json.loads(capsys.readouterr().out)
    leak = next(function for function in comparison["functions"] if "leak" in function["function"])
    assert (leak["before"], leak["after"]) == (0, 1_000_000)
    assert main(["heap", "diff", str(tmp_path / "a"), str(tmp_path / "a")]) == 0
    assert "no function differs" in capsys.readouterr().out


def test_show_as_json(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_heap(tmp_path / "run", planted, "leak")
    assert main(["heap", "show", str(tmp_path / "run"), "--json"]) == 0
    (profile,) = json.loads(capsys.readouterr().out)
    assert profile["totals"]["leaked"] >= 1_000_000
    assert profile["functions"]["leaked"][0]["exclusive"] == 1_000_000


@pytest.mark.skipif(shutil.which("callgrind_annotate") is None, reason="no valgrind")
def test_callgrind_annotate_reads_the_export(planted: Path, tmp_path: Path) -> None:
    run_heap(tmp_path / "run", planted, "leak")
    text = subprocess.run(
        [ASSAY, "heap", "export", tmp_path / "run", "callgrind"], capture_output=True, check=True
    )
    (tmp_path / "callgrind.out.1").write_bytes(text.stdout)
    listing = subprocess.run(
        ["callgrind_annotate", "--threshold=100", "--show=leaked", "--inclusive=yes", tmp_path / "callgrind.out.1"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (line,) = [line for line in listing.splitlines() if ":leak [" in line]
    assert "1,000,000" in line


def test_the_pprof_export_has_the_planted_leak(planted: Path, tmp_path: Path) -> None:
    """The fields of a pprof profile by number (profile.proto)."""
    run_heap(tmp_path / "run", planted, "leak")
    exported = subprocess.run(
        [ASSAY, "heap", "export", tmp_path / "run", "pprof"], capture_output=True, check=True
    )
    fields = list(messages(gzip.decompress(exported.stdout)))
    strings = [str(value, "utf-8") for field, value in fields if field == 6 and isinstance(value, bytes)]
    assert strings[0] == ""
    types = [dict(messages(value)) for field, value in fields if field == 1 and isinstance(value, bytes)]
    leaked = [strings[int(fields_of[1])] for fields_of in types].index("not freed")
    functions = {
        int(fields_of[1]): strings[int(fields_of[2])]
        for fields_of in (
            dict(messages(value)) for field, value in fields if field == 5 and isinstance(value, bytes)
        )
    }
    total = 0
    for field, value in fields:
        if field != 2 or not isinstance(value, bytes):
            continue
        sample = dict(messages(value))
        if any(functions[location] == "leak" for location in varints(sample[1])):
            total += varints(sample[2])[leaked]
    assert total == 1_000_000


def messages(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protocol buffer with varints and length-delimited fields only."""
    offset = 0

    def read_varint() -> int:
        nonlocal offset
        value, shift = 0, 0
        while True:
            byte = data[offset]
            offset += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while offset < len(data):
        key = read_varint()
        if key & 7 == 0:
            yield key >> 3, read_varint()
        else:
            size = read_varint()
            yield key >> 3, data[offset : offset + size]
            offset += size


def varints(data: int | bytes) -> list[int]:
    assert isinstance(data, bytes)
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value, shift = 0, 0
    return values


def test_show_and_the_collapsed_and_speedscope_exports(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_heap(tmp_path / "run", planted, "leak")
    assert main(["heap", "show", str(tmp_path / "run")]) == 0
    assert "not freed" in capsys.readouterr().out
    assert main(["heap", "export", str(tmp_path / "run"), "collapsed", "--metric", "leaked"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines if "leak" in line.split(";")[-1]) == 1_000_000
    assert main(["heap", "export", str(tmp_path / "run"), "speedscope"]) == 0
    scope = json.loads(capsys.readouterr().out)
    leaked = next(p for p in scope["profiles"] if p["name"] == "not freed")
    assert leaked["endValue"] == sum(leaked["weights"]) >= 1_000_000
    assert all(
        0 <= frame < len(scope["shared"]["frames"]) for sample in leaked["samples"] for frame in sample
    )


@pytest.mark.skipif(shutil.which("heaptrack") is None, reason="no heaptrack")
def test_import_of_a_heaptrack_file(planted: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["heaptrack", "-o", tmp_path / "heaptrack", planted, "leak"], capture_output=True, timeout=LIMIT_S
    )
    (file,) = tmp_path.glob("heaptrack*.zst")
    done = subprocess.run(
        [ASSAY, "heap", "import", file, "-o", tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "imported from heaptrack" in done.stdout
    profile = load_profile(tmp_path / "run")
    nodes = [stack for stack in stack_metrics(profile) if stack.count and "leak" in stack.site.function]
    assert [(n.count, n.bytes, n.leaked) for n in nodes] == [(10, 1_000_000, 1_000_000)]
    assert (tmp_path / "run/report.html").is_file()
    cut = tmp_path / "cut.zst"
    cut.write_bytes(file.read_bytes()[:-2])
    done = subprocess.run(
        [ASSAY, "heap", "import", cut, "-o", tmp_path / "cut"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "cut.zst lacks its end" in done.stdout, done.stderr


def test_files_that_cannot_be_imported_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.zst"
    other.write_text("hello")
    assert "is not a heaptrack file" in usage_error("import", other, cwd=tmp_path)
    assert "No such file" in usage_error("import", tmp_path / "none", cwd=tmp_path)
