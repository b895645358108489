"""Predictions for another topology, compared with planted placements and with a run on that topology."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from planted_numa import USES_PER_NUMBER, planted_profile

from assay.errors import UserError
from assay.numa.predict import predict
from assay.numa.topology import Topology, synthetic, topology_of

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "tests" / "fixtures" / "numa" / "placed.c"
PROCESSORS = len(os.sched_getaffinity(0))
TOLERANCE = 0.02  # of a predicted remote share


def test_a_synthetic_string_gives_nodes() -> None:
    assert synthetic("numa:2 core:2 pu:2").processors == ((0, 1, 2, 3), (4, 5, 6, 7))
    far = synthetic("[numa] pack:2 [numa] pu:2")
    assert sorted(far.processors) == [(), (0, 1), (2, 3)] and far.processors[far.memory_nodes[0]] == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hwloc reads no topology"),
        ("four nodes", "hwloc reads no topology"),
        ("numa:4 pu:0", "hwloc reads no topology"),
        ("numa:70000 pu:1", "too large"),
        ("numa:2 70000", "too large"),
        ("0x20000", "too large"),
        ("numa:+2 pu:+70000", "too large"),
        ("numa:2(indexes=1,0) 70000", "too large"),
        ("numa:99999999999 pu:1", "too large"),
        ("pu:1 " * 1000, "too large"),
        ("numa:2\0pu:1", "too large"),
    ],
)
def test_a_bad_topology_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        synthetic(text)


def machine_xml(version: str, root: str, *objects: str) -> str:
    return (
        f'<topology version="{version}"><object type="Machine" {root}>{"".join(objects)}</object></topology>'
    )


def node(number: int, mask: str, memory: int = 4096) -> str:
    return f'<object type="NUMANode" os_index="{number}" cpuset="{mask}" local_memory="{memory}"/>'


UNITS = "".join(f'<object type="PU" os_index="{k}" cpuset="{1 << k:#x}"/>' for k in (0, 1, 2, 32))


@pytest.mark.parametrize("version", ["", "2.0", "3.0"])
def test_the_xml_of_a_machine_gives_nodes(version: str, tmp_path: Path) -> None:
    """Of a machine people have the file of lstopo. Node 9 is memory beside node 4."""
    path = tmp_path / "machine.xml"
    path.write_text(machine_xml(version, "", node(9, "0x3", 1), node(4, "0x3"), node(7, "0x1,0x4"), UNITS))
    assert topology_of(str(path)) == Topology(((0, 1), (2, 32), ()), (4, 7, 9), (4096, 4096, 1))


@pytest.mark.parametrize("allowed", ["0xf...f", "0x0"])
def test_a_machine_without_numa_nodes_is_one_node(allowed: str, tmp_path: Path) -> None:
    """So hwloc 1 describes it."""
    path = tmp_path / "machine"
    path.write_text(machine_xml("", f'local_memory="8192" allowed_nodeset="{allowed}"', UNITS))
    assert topology_of(str(path)) == Topology(((0, 1, 2, 32),), (0,), (8192,))


def test_what_the_machine_does_not_allow_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.xml"
    root = 'allowed_cpuset="0x1,0x6" allowed_nodeset="0x2"'
    path.write_text(machine_xml("3.0", root, node(0, "0x1,0x0"), node(1, "0x7"), UNITS))
    assert topology_of(str(path)) == Topology(((1, 2),), (1,), (4096,))
    assert "1 of 3 processors without memory of their own left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<topology>", "not XML"),
        ("<topology/>", "cannot be read"),
        (machine_xml("3.0", "", node(0, "0xf...f"), UNITS), "cannot be read"),
        (machine_xml("3.0", "", node(0, "0x0"), UNITS), "no NUMA node with processors"),
        (machine_xml("3.0", "", '<object type="NUMANode"/>', UNITS), "cannot be read"),
        (machine_xml("3.0", ""), "no NUMA node with processors"),
        ("<platform version='4.1'/>", "a SimGrid platform, not an hwloc XML"),
        ("numa:2", "not XML"),
        (
            '<topology><object type="System">'
            + 2 * f'<object type="Machine">{UNITS}</object>'
            + "</object></topology>",
            "2 machines in it",
        ),
    ],
)
def test_another_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "machine.xml").write_text(content)
    with pytest.raises(UserError, match=message) as refused:
        topology_of(str(tmp_path / "machine.xml"))
    assert "lstopo FILE.xml" in refused.value.fix
    with pytest.raises(UserError, match="No such file"):
        topology_of("other.xml")


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_serial_initialisation_is_remote_on_more_nodes(nodes: int) -> None:
    """All pages lie on the main thread's node: all uses by the others are remote."""
    prediction = predict([planted_profile(threads=4)], synthetic(f"numa:{nodes} pu:{4 // nodes}"))
    assert prediction.recorded == pytest.approx(USES_PER_NUMBER / 2 / (USES_PER_NUMBER + 1))
    assert prediction.shares["first touch"] == pytest.approx(
        (1 - 1 / nodes) * USES_PER_NUMBER / (USES_PER_NUMBER + 1)
    )
    # A part on its user's node: only its initialisation by the main thread comes from afar.
    assert prediction.shares["parallel first touch"] == pytest.approx((1 - 1 / nodes) / (USES_PER_NUMBER + 1))
    assert prediction.shares["interleave"] == pytest.approx(1 - 1 / nodes)


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_parallel_initialisation_stays_local(nodes: int) -> None:
    prediction = predict(
        [planted_profile(threads=4, is_serial=False)], synthetic(f"numa:{nodes} pu:{4 // nodes}")
    )
    assert prediction.recorded == 0
    assert prediction.shares["first touch"] == pytest.approx(0, abs=1e-9)


def test_a_node_of_memory_alone_is_remote_to_all_threads() -> None:
    topology = synthetic("[numa] pack:2 [numa] pu:2")
    prediction = predict([planted_profile(threads=4)], topology)
    assert prediction.shares[f"node {topology.memory_nodes[0]}"] == 1  # no thread runs there
    assert prediction.shares["first touch"] == pytest.approx(USES_PER_NUMBER / 2 / (USES_PER_NUMBER + 1))
    assert prediction.shares["interleave"] == pytest.approx(2 / 3)


def test_nodes_have_the_numbers_of_the_string() -> None:
    topology = synthetic("pack:2 numa:2(indexes=8,7,5,6) core:1 pu:2(indexes=0,4,2,6,1,3,5,7)")
    assert topology.numbers == (5, 6, 7, 8)
    assert topology.processors == ((1, 3), (5, 7), (2, 6), (0, 4))
    mixed = synthetic("[numa(memory=64GiB)] pack:2 [numa(indexes=7,3,4)] pu:2")
    assert mixed.numbers == (3, 4, 7) and mixed.memory_nodes == [1]
    assert "node 4" in predict([planted_profile(threads=4)], mixed).shares


def test_a_node_that_does_not_hold_the_heap_is_not_offered() -> None:
    profile = planted_profile(threads=4)
    size = sum(row.pages for row in profile.recording.touches) * profile.recording.process.page_bytes
    fits = predict([profile], synthetic(f"[numa(memory={size})] pack:2 [numa] pu:2")).shares
    small = predict([profile], synthetic(f"[numa(memory={size - 4096})] pack:2 [numa] pu:2")).shares
    assert fits.keys() - small.keys() == {"node 2"}


def test_threads_that_are_not_bound_are_spread() -> None:
    prediction = predict([planted_profile(threads=4, nodes=1, bound=False)], synthetic("numa:4 pu:2"))
    assert prediction.shares["first touch"] == pytest.approx(3 / 4 * USES_PER_NUMBER / (USES_PER_NUMBER + 1))
    bound = predict([planted_profile(threads=4)], synthetic("numa:4 pu:2"))  # on processors 0 to 3: two nodes
    assert bound.shares["first touch"] == pytest.approx(1 / 2 * USES_PER_NUMBER / (USES_PER_NUMBER + 1))
    spread = predict([planted_profile(threads=4)], synthetic("numa:4 pu:2"), spread=True)
    assert spread.shares == prediction.shares


@pytest.mark.parametrize(
    "processors",
    [((0, 2, 4, 6), (1, 3, 5, 7)), ((0, 1, 4, 5), (2, 3, 6, 7))],
    ids=["the nodes in turn", "second threads last"],
)
@pytest.mark.parametrize("threads", [3, 5])  # two and four beside the main one
def test_threads_are_spread_over_nodes_whatever_the_processors_numbers(
    processors: tuple[tuple[int, ...], ...], threads: int
) -> None:
    profile = planted_profile(threads=threads, nodes=1, bound=False)
    here = predict([profile], Topology(processors, (0, 1), (0, 0)))
    assert here == predict([profile], synthetic("numa:2 pu:4"))
    assert here.shares["first touch"] > 0


def test_an_interleaved_program_stays_interleaved() -> None:
    prediction = predict([planted_profile(threads=4, policy=3)], synthetic("numa:4 pu:1"))
    assert prediction.shares["first touch"] == pytest.approx(3 / 4)


def test_first_touches_without_accesses_are_refused() -> None:
    with pytest.raises(UserError, match="were not counted; fix: compile it"):
        predict([planted_profile(threads=2, mode="touch")], synthetic("numa:2 pu:1"))


@pytest.mark.skipif(PROCESSORS < 2 or (PROCESSORS > 2 and PROCESSORS % 4), reason="no equal emulated nodes")
@pytest.mark.acceptance("numa")  # takes long
def test_emulated_two_nodes_predict_four(tmp_path: Path) -> None:
    """A run on two emulated nodes predicts one on four; of two processors only two of the four nodes have one."""
    threads = min(4, PROCESSORS)

    def assay(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "assay", "numa", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "CC": "gcc"},
        )

    assert assay("cc", "-O1", "-pthread", SOURCE, "-o", tmp_path / "placed").returncode == 0
    for nodes in (1, 2, 4):
        done = assay(
            "--emulate", nodes, "-o", tmp_path / f"{nodes}", "--", tmp_path / "placed", "serial", threads
        )
        assert done.returncode == 7, done.stderr
    with_processors = min(4, PROCESSORS)
    topology = f"numa:{with_processors} pu:{PROCESSORS // with_processors}"
    measured = json.loads(assay("export", tmp_path / "4", "json").stdout)["accesses"]
    cells = list(zip(measured["thread_node"], measured["page_node"], measured["count"], strict=True))
    share = sum(count for a, b, count in cells if a != b) / sum(count for _, _, count in cells)
    assert share > 0.3
    for nodes in (1, 2):
        done = assay("predict", tmp_path / f"{nodes}", topology, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["predicted"]["first touch"] == pytest.approx(share, abs=TOLERANCE)
