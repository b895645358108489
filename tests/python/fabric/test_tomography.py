"""Slow links by tomography: planted links are named, noise is not, and indistinguishable links are named together."""

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


def log_bandwidths(
    crossed: np.ndarray, rng: np.random.Generator, slow: dict[int, float], noise: float
) -> np.ndarray:
    """Logarithms of the bandwidths of pairs, relative to a healthy pair. ``crossed``: the links of each pair. The noise
    is Student-distributed with 4 degrees of freedom (heavy tails). A pair has the rate of its slowest link."""
    value = noise * rng.standard_t(4, len(crossed))
    loss = np.zeros(len(crossed))
    for link, share in slow.items():
        loss = np.where((crossed == link).any(axis=1), np.minimum(loss, np.log(share)), loss)
    return value + loss


@pytest.mark.parametrize("seed", range(12))
def test_a_slow_link_is_named_and_nothing_else(seed: int) -> None:
    """The link is one of any cable, between switches or of a host."""
    routes = fat_tree("radix=8,nodes=30")
    crossed = routes.links(*every_pair(routes))
    rng = np.random.default_rng(seed)
    link = int(rng.choice(np.unique(crossed[crossed >= 0])))
    suspects = find_slow_links(crossed, log_bandwidths(crossed, rng, {link: 0.5}, 0.05), routes.fabric.links)
    assert [suspect.links for suspect in suspects] == [(link,)]
    assert abs(suspects[0].effect - np.log(0.5)) < 0.1


def test_two_slow_links_are_both_named() -> None:
    routes = fat_tree("radix=8,nodes=30")
    crossed = routes.links(*every_pair(routes))
    fabric = routes.fabric
    planted = {int(fabric.next_link[0, 5]): 0.6, int(fabric.next_link[3, 7]): 0.4}
    suspects = find_slow_links(
        crossed, log_bandwidths(crossed, np.random.default_rng(1), planted, 0.05), fabric.links
    )
    assert {suspect.links for suspect in suspects} == {(link,) for link in planted}


@pytest.mark.parametrize("worse", [0, 1])
def test_of_two_links_whose_pairs_are_all_slow_the_slower_is_first(worse: int) -> None:
    """The two links are both directions of a host's cable."""
    routes = fat_tree("radix=8,nodes=8")
    src, dst = every_pair(routes)
    crossed = routes.links(src, dst)
    directions = [int(crossed[src == 4][0, 0]), int(crossed[dst == 4][0][crossed[dst == 4][0] >= 0][-1])]
    planted = {directions[worse]: 0.14, directions[1 - worse]: 0.4}
    suspects = find_slow_links(
        crossed, log_bandwidths(crossed, np.random.default_rng(2), planted, 0.02), routes.fabric.links
    )
    assert [suspect.links for suspect in suspects] == [(link,) for link in planted]


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_named_on_a_healthy_fabric(seed: int) -> None:
    """Hosts differ by a few percent, and the noise has heavy tails."""
    routes = fat_tree("radix=8,nodes=30")
    src, dst = every_pair(routes)
    crossed = routes.links(src, dst)
    rng = np.random.default_rng(seed)
    of_host = rng.normal(0, 0.02, routes.fabric.hosts)
    value = log_bandwidths(crossed, rng, {}, 0.1) + of_host[src] + of_host[dst]
    assert find_slow_links(crossed, value, routes.fabric.links) == []


@pytest.mark.slow
def test_a_slow_link_among_1296_is_named() -> None:
    routes = fat_tree("radix=36")
    assert routes.fabric.between_switches.sum() == 1296
    crossed = routes.links(*every_pair(routes))
    link = int(routes.fabric.next_link[20, 30])
    value = log_bandwidths(crossed, np.random.default_rng(1), {link: 0.7}, 0.1)
    assert [s.links for s in find_slow_links(crossed, value, routes.fabric.links)] == [(link,)]


def test_links_with_the_same_pairs_are_named_with_a_separating_pair() -> None:
    """Without pairs inside a leaf switch, the same pairs use the cable down to the switch and the host's cable."""
    routes = fat_tree("radix=8,nodes=32")
    fabric = routes.fabric
    src, dst = every_pair(routes)
    outside = fabric.edge_of[src] != fabric.edge_of[dst]
    crossed = routes.links(src[outside], dst[outside])
    to_host = int(fabric.next_link[1, 2])
    host = int(fabric.link_to[to_host]) - fabric.switches
    to_leaf = int(routes.links(np.array([0]), np.array([host]))[0, 2])
    value = log_bandwidths(crossed, np.random.default_rng(3), {to_leaf: 0.5}, 0.05)
    (suspect,) = find_slow_links(crossed, value, fabric.links)
    assert set(suspect.links) == {to_leaf, to_host}
    measured = set(zip(src[outside].tolist(), dst[outside].tolist(), strict=True))
    report = finding(routes, suspect, np.arange(32), measured)
    assert report.severity == "warning" and "one of 2 links" in report.cause
    details = " ".join(report.details)
    assert f"no pair of these hosts crosses {fabric.link_name(to_leaf)} without the others" in details
    pair = separating(routes, suspect.links, np.arange(32))[suspect.links.index(to_host)]
    assert fabric.edge_of[pair[0]] == fabric.edge_of[pair[1]] and pair[1] == host and pair not in measured
    assert f"{fabric.host_names[pair[0]]} -> {fabric.host_names[pair[1]]}" in details


def test_conflicts_of_a_shift_are_no_fault() -> None:
    routes = fat_tree("radix=36,nodes=45")
    src, dst = every_pair(routes)
    crossed, step = routes.links(src, dst), (dst - src) % 45
    expected = contention(crossed, step)
    assert int((expected > 0).sum()) == 2 * 81  # a conflict of two flows each
    value = log_bandwidths(crossed, np.random.default_rng(1), {}, 0.05) - expected
    assert find_slow_links(crossed, value + contention(crossed, step), routes.fabric.links) == []


def test_without_pairs_no_link_is_named() -> None:
    assert find_slow_links(np.zeros((0, 4), np.int32), np.zeros(0), 10) == []


def write_run(path: Path, routes: Routes, slow: dict[int, float], leave_out: str = "") -> None:
    """A finished run of 'assay net', whose hosts are those of the fabric."""
    fabric = routes.fabric
    run = Run.create("net", ["assay", "net"], path=path)
    run.info.hosts = [name for name in fabric.host_names if name != leave_out]
    run.info.options = {"schedule": "circle"}
    rng = np.random.default_rng(1)
    for src, name in enumerate(fabric.host_names):
        dst = np.array([d for d in range(fabric.hosts) if d != src and fabric.host_names[d] != leave_out])
        value = log_bandwidths(routes.links(np.full(len(dst), src), dst), rng, slow, 0.03)
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
    write_run(tmp_path / "slow", routes, {link: 0.5})
    assert main(["fabric", "blame", str(tmp_path / "slow"), *TREE]) == 1
    out = capsys.readouterr().out
    assert "fault: the link leaf2[6] -> spine1[3] carries 50" in out
    assert main(["fabric", "blame", str(tmp_path / "slow"), *TREE, "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert record["rule"] == "slow_link" and record["subject"]["device"] == "leaf2[6] -> spine1[3]"
    assert len(record["evidence"]) == 8 - 4  # the rows of the hosts of leaf2


def test_the_command_passes_only_a_healthy_run_with_enough_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    routes = fat_tree("radix=8,nodes=30")
    write_run(tmp_path / "good", routes, {})
    assert main(["fabric", "blame", str(tmp_path / "good"), *TREE]) == 0
    assert "no slow link found" in capsys.readouterr().out
    few = fat_tree("radix=4,nodes=4")
    write_run(tmp_path / "few", few, {}, leave_out="node3")
    assert main(["fabric", "blame", str(tmp_path / "few"), "--fat-tree", "radix=4,nodes=4"]) == 2
    assert "fewer than 3 pairs, so not judged" in capsys.readouterr().out


def test_a_run_of_other_hosts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run", fat_tree("radix=8,nodes=30"), {})
    assert main(["fabric", "blame", str(tmp_path / "run"), "--fat-tree", "radix=8,nodes=20"]) == 2
    assert "no host 'node20' in the fabric" in capsys.readouterr().err


def test_randomly_slow_pairs_name_no_link() -> None:
    """Two fifths of all pairs, drawn at random, have half the rate. Links that have a few more of them are not slow."""
    fabric = synthetic.build(synthetic.parse("radix=8,nodes=24"))
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    src, dst = np.nonzero(~np.eye(24, dtype=bool))
    crossed = routes.links(src, dst)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        slow = rng.random(len(crossed)) < 0.4
        value = np.where(slow, np.log(0.5), 0.0) + 0.01 * rng.standard_normal(len(crossed))
        assert find_slow_links(crossed, value, fabric.links) == []
