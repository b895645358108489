#!/usr/bin/env python3
"""The remedies for fabrics: planned exchanges, repaired forwarding tables, and slow links found by tomography.

    schedule   steps over the least possible for 45, 64 and 512 nodes of radix 36, and the time of 512
    repair     500 nodes with ten dead cables: time; bandwidth of an all-to-all over what any tables reach, and over
               what the linear programme reaches, which may split each flow (a switch has one entry for all its hosts);
               with four LIDs a host, 99 % of the linear programme
    blame      648 nodes, 1,296 links between switches, every pair measured with 10 % noise of heavy tails: share of
               100 planted slow links (at 70 % of their rate) that are the only one named, and links named on 100
               healthy fabrics

The module ``conflicts`` verifies each schedule. No other program does this; the limits are Assay's own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

import numpy as np  # noqa: E402
from figures import exit_code_of, figure  # noqa: E402

from assay.fabric import Routes, conflicts, synthetic, tables  # noqa: E402
from assay.fabric.remedies.exchange import conflict_free, demand_of  # noqa: E402
from assay.fabric.remedies.tables import entry_bound, lower_bound, repair, without_cables  # noqa: E402
from assay.fabric.tomography import find_slow_links  # noqa: E402

CASES = 100  # fabrics with one slow link each
SHARE, NOISE = 0.7, 0.1  # of a slow link's rate that is left; relative noise of a pair


def fat_tree(text: str) -> Routes:
    fabric = synthetic.build(synthetic.parse(text))
    return Routes(fabric, tables.compute(fabric, "d-mod-k"))


def measure_schedules() -> None:
    for nodes in (45, 64, 512):
        routes = fat_tree(f"radix=36,nodes={nodes}")
        begun = time.monotonic()
        demand = demand_of(routes, np.arange(nodes))
        plan = conflict_free(demand)
        seconds = time.monotonic() - begun
        found = conflicts.analyse(routes, plan, np.arange(nodes))
        figure(f"fabric.schedule.{nodes}.conflicts", [found.total], 0, "lower")
        figure(f"fabric.schedule.{nodes}.steps", [plan.steps / demand.bound()], 1.01, "lower")
        figure(f"fabric.schedule.{nodes}.time", [seconds], 5 if nodes < 100 else 60, "lower", "s")


def measure_repaired_schedules() -> None:
    """Exchanges on tables repaired around four dead cables. Network flow alone does not find the fewest steps there;
    the planner also has to search."""
    for nodes in (45, 64):
        routes = fat_tree(f"radix=36,nodes={nodes}")
        between = np.flatnonzero(routes.fabric.between_switches)
        dead = np.random.default_rng(1).choice(between, 4, replace=False)
        left = without_cables(routes.fabric, dead.tolist())
        routes = Routes(left, repair(left, routes.tables).tables)
        begun = time.monotonic()
        demand = demand_of(routes, np.arange(nodes))
        plan = conflict_free(demand, 60.0)
        figure(f"fabric.schedule.{nodes}.repaired.time", [time.monotonic() - begun], 60, "lower", "s")
        found = conflicts.analyse(routes, plan, np.arange(nodes))
        figure(f"fabric.schedule.{nodes}.repaired.conflicts", [found.total], 0, "lower")
        figure(f"fabric.schedule.{nodes}.repaired.steps", [plan.steps / demand.bound()], 1.01, "lower")


def measure_repairs() -> None:
    routes = fat_tree("radix=36,nodes=500")
    between = np.flatnonzero(routes.fabric.between_switches)
    seconds, of_tables, of_split, with_lids = [], [], [], []
    for seed in range(5):
        dead = np.random.default_rng(seed).choice(between, 10, replace=False)
        left = without_cables(routes.fabric, dead.tolist())
        begun = time.monotonic()
        result = repair(left, routes.tables)
        seconds.append(time.monotonic() - begun)
        of_tables.append(entry_bound(left) / result.heaviest)
        split = lower_bound(left) or np.nan
        of_split.append(split / result.heaviest)
        begun = time.monotonic()
        result = repair(left, routes.tables, 4)
        seconds.append(time.monotonic() - begun)
        with_lids.append(split / result.heaviest)
    figure("fabric.repair.500.time", seconds, 10, "lower", "s")
    figure("fabric.repair.500.of_any_tables", of_tables, 0.99, "higher")
    figure("fabric.repair.500.of_split_flows", of_split, None, "higher")
    figure("fabric.repair.500.four_lids.of_split_flows", with_lids, 0.99, "higher")


def measure_blame() -> None:
    routes = fat_tree("radix=36")
    hosts = np.arange(routes.fabric.hosts)
    src, dst = np.repeat(hosts, len(hosts)), np.tile(hosts, len(hosts))
    crossed = routes.links(src[src != dst], dst[src != dst])
    between = np.flatnonzero(routes.fabric.between_switches)
    named, false, seconds = 0, 0, []
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        healthy = NOISE * rng.standard_t(4, len(crossed))
        false += len(find_slow_links(crossed, healthy, routes.fabric.links))
        link = int(rng.choice(between))
        slow = healthy + np.where((crossed == link).any(axis=1), np.log(SHARE), 0)
        begun = time.monotonic()
        found = find_slow_links(crossed, slow, routes.fabric.links)
        seconds.append(time.monotonic() - begun)
        named += [suspect.links for suspect in found] == [(link,)]
    figure("fabric.blame.1296.named", [named / CASES], 0.95, "higher")
    figure("fabric.blame.1296.false", [false], 0, "lower")
    figure("fabric.blame.1296.time", seconds, 30, "lower", "s")


def main() -> None:
    measure_schedules()
    measure_repaired_schedules()
    measure_repairs()
    measure_blame()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
