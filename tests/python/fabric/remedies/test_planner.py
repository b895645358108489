"""Exchanges that are planned anew for the ranks that are left. Conflicts are counted by following the tables."""

from __future__ import annotations

import io
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exchange import check_schedule, fat_tree, links_of_route

from assay.cli import main
from assay.errors import UserError
from assay.fabric.remedies.exchange import Demand, conflict_free, demand_of
from assay.fabric.remedies.planner import command, links_of, plan_for, read_links, write_links

pytestmark = pytest.mark.slow


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_members_come_first_without_conflicts_and_every_pair_has_a_step(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 18))
    routes = fat_tree(f"radix=6,nodes={nodes}")
    demand = demand_of(routes, np.arange(nodes))
    planned = conflict_free(demand).array()
    members = data.draw(st.lists(st.integers(0, nodes - 1), unique=True, min_size=1).map(sorted))
    table = plan_for(demand, planned, members)
    check_schedule(routes, list(range(nodes)), table)
    among = [np.isin(step, members)[members].any() for step in table]
    steps = sum(among)
    assert all(among[:steps]) and steps <= len(planned)
    # The least that is possible: a rank's messages, or the flows of the fullest link.
    load = Counter(
        link for src in members for dst in members if src != dst for link in links_of_route(routes, src, dst)
    )
    assert steps == max(len(members) - 1, *load.values(), 0)


def test_links_are_read_as_they_were_written(tmp_path: Path) -> None:
    demand = demand_of(fat_tree("radix=4,nodes=7"), np.arange(7))
    path = tmp_path / "links.npz"
    path.write_bytes(write_links(demand))
    read = read_links(path, 7)
    assert (
        (read.leaf == demand.leaf).all() and (read.paths == demand.paths).all() and read.links == demand.links
    )
    with pytest.raises(UserError, match="not of 8 ranks"):
        read_links(path, 8)


def saved(**values: object) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **values)
    return file.getvalue()


GOOD = {"leaf": np.array([0, 0, 1]), "paths": np.zeros((2, 3, 1), np.int32), "links": 1}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        saved(leaf=GOOD["leaf"]),
        saved(**{**GOOD, "leaf": np.array([0, 0, 2])}),
        saved(**{**GOOD, "leaf": np.array([0, -1, 1])}),
        saved(**{**GOOD, "leaf": np.array([0, 0, 0])}),
        saved(**{**GOOD, "leaf": np.array([0.0, 0.0, 1.0])}),
        saved(**{**GOOD, "leaf": np.array(["a", "b", "c"])}),
        saved(**{**GOOD, "leaf": np.array([None, None, 1], object)}),
        saved(**{**GOOD, "paths": np.full((2, 3, 1), 1)}),
        saved(**{**GOOD, "paths": np.full((2, 3, 1), -2)}),
        saved(**{**GOOD, "paths": np.zeros((2, 3, 0), np.int32)}),
        saved(**{**GOOD, "links": -1}),
        saved(**{**GOOD, "links": np.array([1, 2])}),
        saved(**GOOD)[:-30],
    ],
)
def test_a_damaged_file_of_links_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "links.npz"
    path.write_bytes(saved(**GOOD))
    assert isinstance(read_links(path, 3), Demand)
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_links(path, 3)
    assert len(str(caught.value).splitlines()) == 1 and str(path) in str(caught.value)


def test_the_planner_answers_each_line_and_ends_with_its_input(tmp_path: Path) -> None:
    exchange = tmp_path / "exchange"
    assert main(["fabric", "schedule", "--fat-tree", "radix=4,nodes=7", "--into", str(exchange)]) == 0
    schedule = exchange / "schedule.txt"
    assert links_of(schedule).exists() and command(exchange / "padded.txt", 7) == []
    with subprocess.Popen(
        command(schedule, 7), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as planner:
        assert planner.stdin is not None and planner.stdout is not None and planner.stderr is not None
        for members in ([0, 1, 2, 4, 5, 6], [0], [0, 1, 2, 3, 4, 5, 6]):
            planner.stdin.write(json.dumps({"kind": "members", "ranks": members}) + "\n")
            planner.stdin.flush()
            plan = json.loads(planner.stdout.readline())
            assert (plan["kind"], plan["ranks"]) == ("plan", members)
            check_schedule(fat_tree("radix=4,nodes=7"), list(range(7)), np.array(plan["steps"]))
        planner.stdin.close()
        assert planner.wait(240) == 0 and planner.stderr.read() == ""


@pytest.mark.parametrize("line", ["{", '{"kind":"members","ranks":[7]}', '{"kind":"members","ranks":[-1]}'])
def test_the_planner_refuses_what_is_no_membership(line: str, tmp_path: Path) -> None:
    exchange = tmp_path / "exchange"
    assert main(["fabric", "schedule", "--fat-tree", "radix=4,nodes=7", "--into", str(exchange)]) == 0
    planner = subprocess.Popen(
        command(exchange / "schedule.txt", 7), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # Its input stays open: it ends by itself.
    assert planner.stdin is not None and planner.stderr is not None
    planner.stdin.write(line + "\n")
    planner.stdin.flush()
    assert planner.wait(240) == 2
    assert planner.stderr.read().startswith("assay: ")
    planner.stdin.close()
    planner.stderr.close()
