"""Every Python reader of foreign bytes under random damage (hypothesis): it returns a result or raises UserError.

``make fuzz`` runs more rounds, with random damage: ASSAY_FUZZ_ROUNDS for each test.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

import make_heap
import msgspec
import pytest
from damage import ROUNDS, damaged, fuzzed, read_or_refuse, read_or_refuse_file
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.judge import Vocabulary, load_specification
from assay.launch.engines import probe
from assay.launch.hosts import parse_hosts, read_hosts
from assay.launch.platforms import expand_radical, platform_hosts
from assay.measure.workload import load_workload
from assay.numa.topology import synthetic, topology_of
from assay.profile.heap import load_profile
from assay.profile.sources import load_sources
from assay.records.run import Run, read_records
from assay.records.schema import (
    Measurement,
    RunInfo,
    decode_line,
    encode,
)
from assay.records.units import parse_quantity, parse_size

pytestmark = pytest.mark.slow

RECORD = encode(Measurement(name="node.memory", metric="bandwidth", unit="B/s", params={"size": 3}))
INFO = encode(RunInfo(id="x", command=["assay"], assay="0", started="2026-01-01T00:00:00+00:00"))
ROOT = Path(__file__).resolve().parents[3]
SPECIFICATION = (ROOT / "specs" / "self.toml").read_bytes()
WORKLOAD = next(iter(sorted((ROOT / "workloads").glob("*.toml")))).read_bytes()
PLATFORM = b"""<?xml version='1.0' encoding='utf-8'?><platform version="4.1"><zone id="a" routing="Full">
<host id="h0" speed="1Gf"/>
<cluster id="c" prefix="n" suffix="" radical="0-3,7" speed="1Gf" bw="1" lat="0"/>
</zone></platform>"""
HOSTS = b"""# hosts
node[1-3],a
rack[1-2]n[01-08]!rack1n02
b:4
c slots=4 max_slots=8
d cpu=2
e 8 all.q@e <NULL>
[fe80::1%ib0]:4
"""
TOPOLOGY = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x1"
   complete_nodeset="0x1" allowed_nodeset="0x1">
  <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1"
    local_memory="1024"/>
  <object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1">
   <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"/></object>
  <object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1">
   <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1"/></object>
 </object>
</topology>
"""
QUANTITY = r"[0-9]{1,400}(\.[0-9]*)?([eE][+-]?[0-9]{1,5})? ?[kKMGTPi]{0,2}[bB]?(/s)?"
HEAP_ANALYSIS = msgspec.json.encode(make_heap.make_profile(3))


@fuzzed
@given(damaged(RECORD))
def test_damaged_lines_of_engines(content: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError):
        decode_line(content)


@fuzzed
@given(damaged(RECORD + b"\n" + RECORD + b"\n"))
def test_damaged_records(content: bytes) -> None:
    read_or_refuse_file(content, "records.jsonl", lambda path: list(read_records(path)))


@fuzzed
@given(damaged(INFO), damaged(RECORD + b"\n"))
def test_damaged_runs(info: bytes, records: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-hostile-") as folder:
        (Path(folder) / "run.json").write_bytes(info)
        (Path(folder) / "records.jsonl").write_bytes(records)
        read_or_refuse(lambda: Run.load(folder))


@fuzzed
@given(damaged(SPECIFICATION))
def test_damaged_specifications(content: bytes) -> None:
    read_or_refuse_file(content, "x.toml", lambda path: load_specification(path, Vocabulary()))


@fuzzed
@given(damaged(WORKLOAD))
def test_damaged_workloads(content: bytes) -> None:
    read_or_refuse_file(content, "x.toml", lambda path: load_workload(str(path)))


@fuzzed
@given(damaged(PLATFORM))
def test_damaged_platforms(content: bytes) -> None:
    read_or_refuse_file(content, "x.xml", platform_hosts)


@fuzzed
@given(damaged(TOPOLOGY))
def test_damaged_machines(content: bytes) -> None:
    read_or_refuse_file(content, "x.xml", lambda path: topology_of(str(path)))


@fuzzed
@given(st.text("0123456789-,²x ", max_size=30))
def test_random_radicals_of_platforms(text: str) -> None:
    read_or_refuse(lambda: expand_radical(text, Path("x.xml")))


@fuzzed
@given(damaged(HOSTS))
def test_damaged_host_files(content: bytes) -> None:
    read_or_refuse_file(content, "hosts", lambda path: read_hosts(path, "--hosts-file"))


@fuzzed
@given(st.text("abn0123456789-,[]!&^@:*%/ \n\0²", max_size=25))
def test_random_host_lists(text: str) -> None:
    read_or_refuse(lambda: parse_hosts(text, "-w"))


@fuzzed
@given(st.text(max_size=20) | st.from_regex(QUANTITY, fullmatch=True))
def test_random_quantities(text: str) -> None:
    read_or_refuse(lambda: parse_quantity(text))
    read_or_refuse(lambda: parse_size(text))


@fuzzed
@given(damaged(HEAP_ANALYSIS))
def test_damaged_analyses_of_heap_traces(content: bytes) -> None:
    read_or_refuse_file(content, "x.json", load_profile)


@fuzzed
@given(damaged(b'{"files": {"/a.c": {"text": "int a;", "changed": false}}, "left_out": {"/b": "c"}}'))
def test_damaged_kept_sources(content: bytes) -> None:
    read_or_refuse_file(content, "sources.json", lambda path: load_sources(path.parent))


@fuzzed
@given(st.text("numacorepuk:[]()=,. 0123456789indexsmryGiB", max_size=40))
def test_random_synthetic_topologies(text: str) -> None:
    read_or_refuse(lambda: synthetic(text))


def planted_settings(machine: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [probe(), "run", "node.settings"],
        capture_output=True,
        timeout=300,
        env={**os.environ, "ASSAY_TOPOLOGY": machine},
    )


@settings(fuzzed, max_examples=max(20, ROUNDS // 20))  # a process for each
@given(damaged(TOPOLOGY))
def test_damaged_topologies_of_hwloc(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(content)
        file.flush()
        assert planted_settings(file.name).returncode in (0, 2)


def test_undamaged_seeds_are_read(tmp_path: Path) -> None:
    """If the seeds were refused, damaging them would test nothing."""
    assert isinstance(decode_line(RECORD), Measurement)
    (tmp_path / "run.json").write_bytes(INFO)
    (tmp_path / "records.jsonl").write_bytes(RECORD + b"\n")
    assert len(Run.load(tmp_path).records) == 1
    (tmp_path / "x.toml").write_bytes(SPECIFICATION)
    assert load_specification(tmp_path / "x.toml", Vocabulary()).criteria
    (tmp_path / "w.toml").write_bytes(WORKLOAD)
    assert '"steps"' in load_workload(str(tmp_path / "w.toml"))
    (tmp_path / "x.xml").write_bytes(PLATFORM)
    assert platform_hosts(tmp_path / "x.xml") == ["h0", "n0", "n1", "n2", "n3", "n7"]
    (tmp_path / "hosts").write_bytes(HOSTS)
    assert len(read_hosts(tmp_path / "hosts", "--hosts-file")) == 24
    (tmp_path / "machine.xml").write_bytes(TOPOLOGY)
    assert b'"cpu.cores":2' in planted_settings(str(tmp_path / "machine.xml")).stdout


@pytest.mark.parametrize("encoding", ["no-such", "utf-32"])
def test_a_platform_in_an_unknown_encoding_is_refused(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text(f'<?xml version="1.0" encoding="{encoding}"?><platform/>')
    with pytest.raises(UserError, match=r"is not known|not utf-32"):
        platform_hosts(tmp_path / "x.xml")
