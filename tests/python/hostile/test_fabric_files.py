"""Readers of fabric files on randomly damaged files: each file is read or refused in one line.

The damage knows the formats better than that of damage.py: lines change places, fields are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from damage import fuzzed
from hypothesis import given
from hypothesis import strategies as st
from recorded import SIX, db_csv, opa_topology, snapshot

from assay.errors import UserError
from assay.fabric import Routes, schedules, synthetic
from assay.fabric.faults import unreachable_pairs
from assay.fabric.read import read_fabric, read_order, read_tables
from assay.fabric.remedies import placement
from assay.fabric.remedies.slurm import topology_conf, topology_yaml, tree_of
from assay.fabric.remedies.slurm_files import read_topology
from assay.fabric.remedies.slurm_verify import differences

pytestmark = pytest.mark.slow

FABRIC = read_fabric(SIX / "topology.txt")
TABLES = read_tables(SIX / "fts.txt", FABRIC)


def check_topology(path: Path) -> None:
    fabric = read_fabric(path)
    assert (
        fabric.links == len(fabric.reverse)
        and (fabric.reverse[fabric.reverse] == np.arange(fabric.links)).all()
    )
    assert len(set(fabric.host_names)) == fabric.hosts
    assert all(name.isprintable() for name in [*fabric.host_names, *fabric.switch_names])


def check_tables(path: Path) -> None:
    unreachable_pairs(Routes(FABRIC, read_tables(path, FABRIC)))


def check_schedule(path: Path) -> None:
    assert all((step >= -1).all() and (step < 6).all() for step in schedules.read(path, 6))


def check_slurm(path: Path) -> None:
    differences(path, read_topology(path).switches, FABRIC)


def check_description(path: Path) -> None:
    tree = synthetic.read(path)
    if len(tree.places) <= 1000:
        synthetic.build(tree)


TREE = tree_of(FABRIC)
SAMPLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "ibnetdiscover": (check_topology, (SIX / "topology.txt").read_text()),
    "subnet list": (check_topology, (SIX / "opensm-subnet.lst").read_text()),
    "db_csv": (check_topology, db_csv(FABRIC)),
    "snapshot": (check_topology, snapshot(FABRIC, TABLES)),
    "opa topology": (check_topology, opa_topology(FABRIC)),
    "dump_fts": (check_tables, (SIX / "fts.txt").read_text()),
    "lfts": (check_tables, (SIX / "opensm-lfts.dump").read_text()),
    "fdbs": (check_tables, (SIX / "opensm.fdbs").read_text()),
    "snapshot tables": (check_tables, snapshot(FABRIC, TABLES)),
    "order": (lambda path: read_order(path, FABRIC), (SIX / "opensm-ftree-ca-order.dump").read_text()),
    "schedule": (check_schedule, placement.schedule_text(schedules.circle(6), "six")),
    "topology.conf": (check_slurm, topology_conf(TREE)),
    "topology.yaml": (check_slurm, topology_yaml(TREE)),
    "fat tree": (check_description, "radix=8\nnodes=30\nmissing=3;7\ndead=leaf0:5\nrate=4xHDR # all\n"),
}
TOKENS = [
    "",
    "-1",
    "0x",
    "999999999999999999999",
    "\x00",
    "\x1b[31m",
    "é",
    '"',
    "<a>",
    "&#0;",
    "[0-999999]",
    "\n",
    ",",
    "@x",
]


def damaged(data: st.DataObject, text: str) -> str:
    """The text after one to three damages: a cut, a copy, truncation, a strange token, or two swapped lines."""
    for _ in range(data.draw(st.integers(1, 3))):
        offset = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 80))
        damage = data.draw(st.sampled_from(["cut", "copy", "end", "word", "lines"]))
        if damage == "cut":
            text = text[:offset] + text[offset + length :]
        elif damage == "copy":
            text = text[:offset] + text[offset : offset + length] * 2 + text[offset + length :]
        elif damage == "end":
            text = text[:offset]
        elif damage == "word":
            text = text[:offset] + data.draw(st.sampled_from(TOKENS)) + text[offset + length % 7 :]
        else:
            lines = text.splitlines(keepends=True)
            first, second = (data.draw(st.integers(0, max(len(lines) - 1, 0))) for _ in range(2))
            if lines:
                lines[first], lines[second] = lines[second], lines[first]
            text = "".join(lines)
    return text


@pytest.mark.parametrize("name", SAMPLES)
@fuzzed
@given(data=st.data())
def test_damaged_files_are_read_or_refused_in_one_line(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    read, text = SAMPLES[name]
    path = tmp_path / "file"
    path.write_bytes(damaged(data, text).encode("utf-8", errors="surrogatepass"))
    try:
        read(path)
    except UserError as error:
        assert str(error).isprintable(), str(error)


@pytest.mark.parametrize("name", SAMPLES)
@fuzzed
@given(noise=st.binary(max_size=400))
def test_any_bytes_are_refused_in_one_line(name: str, noise: bytes, tmp_path: Path) -> None:
    read, text = SAMPLES[name]
    path = tmp_path / "file"
    path.write_bytes(text.encode()[:200] + noise)
    try:
        read(path)
    except UserError as error:
        assert str(error).isprintable(), str(error)


@pytest.mark.parametrize("name", SAMPLES)
def test_undamaged_samples_are_read(name: str, tmp_path: Path) -> None:
    read, text = SAMPLES[name]
    (tmp_path / "file").write_text(text)
    read(tmp_path / "file")
