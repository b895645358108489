"""The placement of ranks with empty slots, which avoids conflicts of shifts, and the launchers' files for it."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from assay.fabric import Routes, schedules, synthetic, tables
from assay.fabric.conflicts import analyse
from assay.fabric.remedies import placement


def fat_tree(text: str) -> Routes:
    fabric = synthetic.build(synthetic.parse(text))
    return Routes(fabric, tables.compute(fabric, "d-mod-k"))


@pytest.mark.parametrize(("nodes", "slots"), [(45, 54), (64, 72), (512, 522)])
def test_empty_slots_avoid_the_conflicts_of_a_shift(nodes: int, slots: int) -> None:
    routes = fat_tree(f"radix=36,nodes={nodes}")
    order = placement.by_slots(routes, np.arange(nodes))
    assert len(order) == slots
    assert sorted(order[order >= 0]) == list(range(nodes))
    result = analyse(routes, placement.padded_shift(order), order[order >= 0])
    assert (result.total, result.rounds) == (0, slots)
    assert analyse(routes, schedules.shift(slots), order).total == 0


def test_a_padded_shift_has_each_pair_once() -> None:
    order = np.array([4, -1, 0, 2, -1, 1, 3])
    pairs_sent = Counter(
        (src, int(dst)) for step in placement.padded_shift(order) for src, dst in enumerate(step) if dst >= 0
    )
    assert pairs_sent == Counter((src, dst) for src in range(5) for dst in range(5))


def test_missing_places_within_the_tree_become_empty_slots() -> None:
    """D-mod-k counts hosts and not places, so the second leaf switch begins with another up port."""
    routes = fat_tree("radix=8,nodes=30,missing=5;9")
    hosts = np.arange(30)
    plain = analyse(routes, schedules.shift(30), hosts).total
    order = placement.by_slots(routes, hosts)
    assert analyse(routes, placement.padded_shift(order), order[order >= 0]).total < plain


def test_the_files_of_each_launcher() -> None:
    hosts = ["a", "b", "a"]
    assert placement.rankfile(hosts) == "rank 0=a slot=0\nrank 1=b slot=0\nrank 2=a slot=1\n"
    assert placement.mpich_hosts(hosts) == "a:1\nb:1\na:1\n"
    assert placement.slurm_hosts(hosts) == "a\nb\na\n"


def test_a_schedule_file_is_read_back(tmp_path: Path) -> None:
    schedule = placement.padded_shift(np.array([0, -1, 1, 2]))
    (tmp_path / "s").write_text(placement.schedule_text(schedule, "three hosts"))
    assert (schedules.read(tmp_path / "s", 3).array() == schedule.array()).all()
