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
from assay.numa.topology import synthetic

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
        ("numa:99999999999 pu:1", "too large"),
        ("pu:1 " * 1000, "too large"),
        ("numa:2\0pu:1", "too large"),
    ],
)
def test_a_bad_topology_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        synthetic(text)


def test_a_file_is_not_taken_for_a_synthetic_string(tmp_path: Path) -> None:
    """Of a machine people have the file of lstopo."""
    (tmp_path / "machine").write_text("<topology/>")
    for name in ("other.xml", "machine"):
        with pytest.raises(UserError, match="is a file") as refused:
            synthetic(str(tmp_path / name))
        assert "--of synthetic" in refused.value.fix


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
