"""Slow links planted in simulated fabrics are named, healthy noise is not, and what cannot be told apart is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assay.cli import main
from assay.fabric import Routes, synthetic, tables
from assay.fabric.tomography import contention, find_slow_links, finding, separating
from assay.records.run import Run
from assay.records.schema import Pairs, Subject


def fat_tree(text: str) -> Routes:
    fabric = synthetic.build(synthetic.parse(text))
    return Routes(fabric, tables.compute(fabric, "d-mod-k"))


def every_pair(routes: Routes) -> tuple[np.ndarray, np.ndarray]:
    hosts = np.arange(routes.fabric.hosts)
    src, dst = np.repeat(hosts, len(hosts)), np.tile(hosts, len(hosts))
    return src[src != dst], dst[src != dst]


def logs(crossed: np.ndarray, rng: np.random.Generator, slow: dict[int, float], noise: float) -> np.ndarray:
    """Of bandwidths whose noise has heavy tails (Student, 4 degrees of freedom); a pair has its slowest link's rate."""
    value = noise * rng.standard_t(4, len(crossed))
    loss = np.zeros(len(crossed))
    for link, share in slow.items():
        loss = np.where((crossed == link).any(axis=1), np.minimum(loss, np.log(share)), loss)
    return value + loss


@pytest.mark.parametrize("seed", range(12))
def test_a_slow_link_is_named_and_nothing_else(seed: int) -> None:
    """Cables between switches, and of hosts."""
    routes = fat_tree("radix=8,nodes=30")
    crossed = routes.links(*every_pair(routes))
    rng = np.random.default_rng(seed)
    link = int(rng.choice(np.unique(crossed[crossed >= 0])))
    found = find_slow_links(crossed, logs(crossed, rng, {link: 0.5}, 0.05), routes.fabric.links)
    assert [suspect.links for suspect in found] == [(link,)]
    assert abs(found[0].effect - np.log(0.5)) < 0.1


def test_two_slow_links_are_both_named() -> None:
    routes = fat_tree("radix=8,nodes=30")
    crossed = routes.links(*every_pair(routes))
    fabric = routes.fabric
    planted = {int(fabric.next_link[0, 5]): 0.6, int(fabric.next_link[3, 7]): 0.4}
    found = find_slow_links(crossed, logs(crossed, np.random.default_rng(1), planted, 0.05), fabric.links)
    assert {suspect.links for suspect in found} == {(link,) for link in planted}


@pytest.mark.parametrize("worse", [0, 1])
def test_of_two_links_whose_pairs_are_all_slow_the_slower_is_first(worse: int) -> None:
    """Both directions of a host's cable."""
    routes = fat_tree("radix=8,nodes=8")
    src, dst = every_pair(routes)
    crossed = routes.links(src, dst)
    directions = [int(crossed[src == 4][0, 0]), int(crossed[dst == 4][0][crossed[dst == 4][0] >= 0][-1])]
    planted = {directions[worse]: 0.14, directions[1 - worse]: 0.4}
    found = find_slow_links(
        crossed, logs(crossed, np.random.default_rng(2), planted, 0.02), routes.fabric.links
    )
    assert [suspect.links for suspect in found] == [(link,) for link in planted]


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_named_on_a_healthy_fabric(seed: int) -> None:
    """Hosts that differ by some percent, and heavy tails."""
    routes = fat_tree("radix=8,nodes=30")
    src, dst = every_pair(routes)
    crossed = routes.links(src, dst)
    rng = np.random.default_rng(seed)
    of_host = rng.normal(0, 0.02, routes.fabric.hosts)
    value = logs(crossed, rng, {}, 0.1) + of_host[src] + of_host[dst]
    assert find_slow_links(crossed, value, routes.fabric.links) == []


def test_a_link_of_1296_is_named() -> None:
    routes = fat_tree("radix=36")
    assert routes.fabric.between_switches.sum() == 1296
    crossed = routes.links(*every_pair(routes))
    link = int(routes.fabric.next_link[20, 30])
    value = logs(crossed, np.random.default_rng(1), {link: 0.7}, 0.1)
    assert [s.links for s in find_slow_links(crossed, value, routes.fabric.links)] == [(link,)]


def test_links_with_the_same_pairs_are_all_named_with_the_pair_that_tells() -> None:
    """Without pairs inside a leaf switch, the cable down to the switch and the one on to the host are as one."""
    routes = fat_tree("radix=8,nodes=32")
    fabric = routes.fabric
    src, dst = every_pair(routes)
    outside = fabric.leaf_of[src] != fabric.leaf_of[dst]
    crossed = routes.links(src[outside], dst[outside])
    to_host = int(fabric.next_link[1, 2])
    host = int(fabric.link_to[to_host]) - fabric.switches
    to_leaf = int(routes.links(np.array([0]), np.array([host]))[0, 2])
    value = logs(crossed, np.random.default_rng(3), {to_leaf: 0.5}, 0.05)
    (suspect,) = find_slow_links(crossed, value, fabric.links)
    assert set(suspect.links) == {to_leaf, to_host}
    measured = set(zip(src[outside].tolist(), dst[outside].tolist(), strict=True))
    made = finding(routes, suspect, np.arange(32), measured)
    assert made.severity == "warning" and "one of 2 links" in made.cause
    details = " ".join(made.details)
    assert f"no pair of these hosts crosses {fabric.link_name(to_leaf)} without the others" in details
    pair = separating(routes, suspect.links, np.arange(32))[suspect.links.index(to_host)]
    assert fabric.leaf_of[pair[0]] == fabric.leaf_of[pair[1]] and pair[1] == host and pair not in measured
    assert f"{fabric.host_names[pair[0]]} -> {fabric.host_names[pair[1]]}" in details


def test_conflicts_of_a_shift_are_no_fault() -> None:
    routes = fat_tree("radix=36,nodes=45")
    src, dst = every_pair(routes)
    crossed, step = routes.links(src, dst), (dst - src) % 45
    expected = contention(crossed, step)
    assert int((expected > 0).sum()) == 2 * 81  # a conflict of two flows each
    value = logs(crossed, np.random.default_rng(1), {}, 0.05) - expected
    assert find_slow_links(crossed, value + contention(crossed, step), routes.fabric.links) == []


def test_no_pairs_at_all() -> None:
    assert find_slow_links(np.zeros((0, 4), np.int32), np.zeros(0), 10) == []


def a_run(path: Path, routes: Routes, slow: dict[int, float], leave_out: str = "") -> None:
    """A finished run of 'assay net', whose hosts are those of the fabric."""
    fabric = routes.fabric
    run = Run.create("net", ["assay", "net"], path=path)
    run.info.hosts = [name for name in fabric.host_names if name != leave_out]
    run.info.options = {"schedule": "circle"}
    rng = np.random.default_rng(1)
    for src, name in enumerate(fabric.host_names):
        dst = np.array([d for d in range(fabric.hosts) if d != src and fabric.host_names[d] != leave_out])
        value = logs(routes.links(np.full(len(dst), src), dst), rng, slow, 0.03)
        if name != leave_out:
            run.append(
                Pairs(
                    name="network.all_to_all",
                    metric="bandwidth",
                    unit="B/s",
                    subject=Subject(host=name),
                    params={"op": "send", "size": 1 << 20},
                    peers=[fabric.host_names[d] for d in dst],
                    values=[float(v) for v in 1e10 * np.exp(value)],
                )
            )
    run.finish("complete")


TREE = ["--fat-tree", "radix=8,nodes=30"]


def test_the_command_names_the_cable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    routes = fat_tree("radix=8,nodes=30")
    link = int(routes.fabric.next_link[2, 6])
    a_run(tmp_path / "slow", routes, {link: 0.5})
    assert main(["fabric", "blame", str(tmp_path / "slow"), *TREE]) == 1
    out = capsys.readouterr().out
    assert "fault: the link leaf2[6] -> spine1[3] carries 50" in out
    assert main(["fabric", "blame", str(tmp_path / "slow"), *TREE, "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["rule"] == "slow_link" and found["subject"]["device"] == "leaf2[6] -> spine1[3]"
    assert len(found["evidence"]) == 8 - 4  # the rows of the hosts of leaf2


def test_the_command_passes_a_healthy_run_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    routes = fat_tree("radix=8,nodes=30")
    a_run(tmp_path / "good", routes, {})
    assert main(["fabric", "blame", str(tmp_path / "good"), *TREE]) == 0
    assert "no slow link found" in capsys.readouterr().out
    few = fat_tree("radix=4,nodes=4")
    a_run(tmp_path / "few", few, {}, leave_out="node3")
    assert main(["fabric", "blame", str(tmp_path / "few"), "--fat-tree", "radix=4,nodes=4"]) == 2
    assert "fewer than 3 pairs, so not judged" in capsys.readouterr().out


def test_a_run_of_other_hosts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", fat_tree("radix=8,nodes=30"), {})
    assert main(["fabric", "blame", str(tmp_path / "run"), "--fat-tree", "radix=8,nodes=20"]) == 2
    assert "no host 'node20' in the fabric" in capsys.readouterr().err


def test_pairs_that_are_slow_everywhere_blame_no_link() -> None:
    """Two fifths of all pairs at half the rate, drawn at random: links with some pairs more of them are no culprits."""
    fabric = synthetic.build(synthetic.parse("radix=8,nodes=24"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    src, dst = np.nonzero(~np.eye(24, dtype=bool))
    crossed = routes.links(src, dst)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        slow = rng.random(len(crossed)) < 0.4
        value = np.where(slow, np.log(0.5), 0.0) + 0.01 * rng.standard_normal(len(crossed))
        assert find_slow_links(crossed, value, fabric.links) == []
