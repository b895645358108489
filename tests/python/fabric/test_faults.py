"""``assay fabric check``: each planted fault of a fabric is found, and a healthy fabric has no finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import SIX
from small_fabrics import connected, ring

from assay.explain import explain
from assay.fabric import Fabric, ForwardingTables, Routes, faults, synthetic, tables
from assay.fabric.read import read_fabric, read_tables
from assay.fabric.topology import AGGREGATION_NODE, HOST
from assay.judge import find_specification, judge, load_specification, overall
from assay.measure.fabric import cable_records, check_records
from assay.records.schema import AnyRecord, Finding


def recorded_routes() -> Routes:
    """The recorded fabric of six hosts with OpenSM's tables."""
    fabric = read_fabric(SIX / "topology.txt")
    return Routes(fabric, read_tables(SIX / "fts.txt", fabric))


def check_outcome(routes: Routes, one_lane: bool = False) -> tuple[str, list[Finding]]:
    """The outcome of ``assay fabric check``, and its findings."""
    records: list[AnyRecord] = list(check_records(routes, one_lane))
    for number, record in enumerate(records, 1):
        record.id = number
    findings = explain(records)
    verdicts = judge(load_specification(find_specification("fabric")), [*records, *findings])
    return overall(verdicts), findings


def with_rate(fabric: Fabric, name: str, width: int, speed: str, both_directions: bool = True) -> Fabric:
    widths, speeds = fabric.link_width.copy(), list(fabric.link_speed)
    link = next(k for k in range(fabric.links) if fabric.link_name(k) == name)
    for end in [link, int(fabric.reverse[link])] if both_directions else [link]:
        widths[end], speeds[end] = width, speed
    return replace(fabric, link_width=widths, link_speed=speeds)


def with_port(routes: Routes, switch: int, host: int, port: int) -> Routes:
    ports = routes.tables.ports.copy()
    ports[switch, host] = port
    return Routes(routes.fabric, replace(routes.tables, ports=ports))


def test_a_healthy_fabric_passes_without_a_finding() -> None:
    assert check_outcome(recorded_routes()) == ("PASS", [])


@pytest.mark.parametrize("both_directions", [True, False])
@pytest.mark.parametrize(("width", "speed", "share"), [(1, "SDR", 0.25), (2, "SDR", 0.5)])
def test_a_narrow_cable_is_named(width: int, speed: str, share: float, both_directions: bool) -> None:
    routes = recorded_routes()
    fabric = with_rate(routes.fabric, "leaf1[3] -> spine0[2]", width, speed, both_directions)
    outcome, (finding,) = check_outcome(Routes(fabric, routes.tables))
    assert (outcome, finding.rule, finding.subject.device) == ("FAIL", "slow_cable", "leaf1[3] -> spine0[2]")
    assert finding.effect == pytest.approx(share - 1)


def test_switches_of_one_description_are_told_apart_by_their_guids() -> None:
    """The number in their names is of Assay alone."""
    routes = recorded_routes()
    fabric = with_rate(routes.fabric, "leaf1[3] -> spine0[2]", 1, "SDR")
    texts = ["Infiniscale-IV Mellanox Technologies" if s == "leaf1" else s for s in fabric.switch_names]
    assert check_cables(replace(fabric, switch_texts=texts))[0].details == []
    same = replace(fabric, switch_texts=["Infiniscale-IV Mellanox Technologies"] * fabric.switches)
    numbers = zip(fabric.switch_names, map(int, fabric.switch_guids), strict=True)
    guid = {name: f"{number:#018x}" for name, number in numbers}
    assert check_cables(same)[0].details == [f"leaf1 is {guid['leaf1']}; spine0 is {guid['spine0']}"]


def test_a_hosts_cable_is_compared_with_cables_of_hosts() -> None:
    routes = recorded_routes()
    speeds = np.where(routes.fabric.between_switches, "HDR", "EDR").tolist()
    assert check_outcome(Routes(replace(routes.fabric, link_speed=speeds), routes.tables)) == ("PASS", [])
    slow = with_rate(replace(routes.fabric, link_speed=speeds), "leaf0[1] -> node0[1]", 1, "EDR")
    outcome, (finding,) = check_outcome(Routes(slow, routes.tables))
    assert (outcome, finding.subject.device) == ("FAIL", "leaf0[1] -> node0[1]")


@pytest.mark.parametrize(
    ("supported", "outcome"), [(0.0, "INCONCLUSIVE"), (4 * 14.0625e9, "PASS"), (4 * 25.78125e9, "FAIL")]
)
def test_a_cable_of_another_generation_is_accused_only_where_both_ends_could_be_faster(
    supported: float, outcome: str
) -> None:
    """One host at 4x FDR among hosts at 4x EDR. ``supported``: the rate of the ports, 0: unknown."""
    routes = recorded_routes()
    fabric = replace(routes.fabric, link_speed=["EDR"] * routes.fabric.links)
    fabric = with_rate(fabric, "leaf0[1] -> node0[1]", 4, "FDR")
    link = next(k for k in range(fabric.links) if fabric.link_name(k) == "leaf0[1] -> node0[1]")
    port_rates = np.zeros(fabric.links)
    port_rates[[link, fabric.reverse[link]]] = supported
    found, findings = check_outcome(Routes(replace(fabric, link_max_rate=port_rates), routes.tables))
    assert found == outcome
    differs = findings[-1]
    assert (differs.rule, differs.severity) == ("mixed_rates", "warning")
    assert differs.cause.startswith("1 of 6 host cables runs at 4x FDR, 55% of the rate of most: it differs")
    assert differs.details == ["leaf0[1] -> node0[1]"]
    assert [f.severity for f in findings[:-1]] == (["fault"] if outcome == "FAIL" else [])


def test_a_slower_cable_of_two_switches_that_are_faster_elsewhere_is_accused() -> None:
    routes = recorded_routes()
    fabric = replace(routes.fabric, link_speed=["EDR"] * routes.fabric.links)
    outcome, (finding,) = check_outcome(
        Routes(with_rate(fabric, "leaf1[3] -> spine0[2]", 4, "FDR"), routes.tables)
    )
    assert (outcome, finding.rule, finding.subject.device) == ("FAIL", "slow_cable", "leaf1[3] -> spine0[2]")


@pytest.mark.parametrize(("supported", "outcome"), [(0.0, "PASS"), (10e9, "PASS"), (40e9, "FAIL")])
def test_equally_slow_cables_are_compared_with_their_ports(supported: float, outcome: str) -> None:
    """All cables run at 4x SDR, 10 Gbit/s. ``supported``: the rate of the hosts' ports, 0: unknown."""
    routes = recorded_routes()
    port_rates = np.where(routes.fabric.between_switches, 0.0, supported)
    found, findings = check_outcome(Routes(replace(routes.fabric, link_max_rate=port_rates), routes.tables))
    assert found == outcome
    assert [finding.cause for finding in findings] == (
        ["6 host cables run at 4x SDR, 25% of what both ends support"] if outcome == "FAIL" else []
    )


def test_a_port_that_supports_more_than_its_peer_is_no_fault() -> None:
    routes = recorded_routes()
    port_rates = np.where(routes.fabric.link_from < routes.fabric.switches, 40e9, 10e9)
    port_rates[routes.fabric.between_switches] = 10e9
    assert check_outcome(Routes(replace(routes.fabric, link_max_rate=port_rates), routes.tables)) == (
        "PASS",
        [],
    )


def test_a_slow_cable_among_equally_slow_cables_is_named() -> None:
    routes = recorded_routes()
    fabric = replace(routes.fabric, link_max_rate=np.full(routes.fabric.links, 40e9))
    outcome, findings = check_outcome(
        Routes(with_rate(fabric, "leaf0[1] -> node0[1]", 1, "SDR"), routes.tables)
    )
    assert outcome == "FAIL"
    assert [finding.cause for finding in findings] == [
        "the cable leaf0[1] -> node0[1] runs at 1x SDR, 25% of the other host cables",
        "5 host cables run at 4x SDR, 25% of what both ends support",
        "6 switch cables run at 4x SDR, 25% of what both ends support",
    ]


def test_unknown_rates_are_inconclusive() -> None:
    fabric = synthetic.build(synthetic.parse("radix=4,nodes=6"))
    outcome, findings = check_outcome(Routes(fabric, tables.d_mod_k(fabric)))
    assert (outcome, findings) == ("INCONCLUSIVE", [])


def test_a_missing_entry_of_a_leaf_switch_cuts_off_its_hosts() -> None:
    """Both hosts of leaf0 cannot reach node4. No other route uses this entry."""
    routes = with_port(recorded_routes(), 0, 4, tables.NO_ENTRY)
    assert faults.unreachable_pairs(routes) == 2
    outcome, (finding,) = check_outcome(routes)
    assert (outcome, finding.rule) == ("FAIL", "lost_route")
    assert "2 ordered pairs" in finding.cause
    assert "black hole at leaf0" in finding.cause
    assert "LID 10 (node4)" in finding.details[0]


def test_missing_entries_of_spines_count_every_pair() -> None:
    routes = recorded_routes()
    spines = np.flatnonzero(routes.fabric.levels == 1)
    for spine in spines:
        routes = with_port(routes, int(spine), 0, tables.NO_ENTRY)
    assert faults.unreachable_pairs(routes) == 4
    assert not routes.reachable()[:, 0][1:].any()


def test_a_routing_loop_is_found() -> None:
    routes = recorded_routes()
    for spine in np.flatnonzero(routes.fabric.levels == 1):
        routes = with_port(routes, int(spine), 5, 1)  # to leaf0, which sends it up again
    outcome, findings = check_outcome(routes)
    assert outcome == "FAIL"
    lost = [finding for finding in findings if finding.rule == "lost_route"]
    assert "loop" in lost[0].cause


@pytest.mark.parametrize("switches", [4, 5, 8])
def test_shortest_paths_in_a_ring_have_a_credit_loop(switches: int) -> None:
    fabric = ring(switches)
    clockwise = np.full((switches, switches), 2, np.uint16)
    clockwise[np.arange(switches), np.arange(switches)] = 1
    routes = Routes(fabric, ForwardingTables(clockwise, "clockwise"))
    loops = faults.credit_loops(routes)
    assert [len(loop) for loop in loops] == [switches]
    assert (fabric.link_to[loops[0]] == fabric.link_from[np.roll(loops[0], -1)]).all()
    outcome, (finding,) = check_outcome(routes, one_lane=True)
    assert (outcome, finding.rule, len(finding.details)) == ("FAIL", "credit_loop", switches)
    outcome, (finding,) = check_outcome(routes)  # virtual lanes may keep its routes apart
    assert (outcome, finding.rule, finding.severity) == ("INCONCLUSIVE", "credit_loop", "warning")
    assert "if their routes share a virtual lane" in finding.cause and "--one-lane" in finding.fix


def test_routes_from_aggregation_nodes_make_no_credit_loop() -> None:
    """They send to those of their tree alone. Hosts are on two switches of the ring."""
    clockwise = np.full((5, 5), 2, np.uint16)
    clockwise[np.arange(5), np.arange(5)] = 1
    of_hosts = Routes(ring(5), ForwardingTables(clockwise, "clockwise"))
    assert len(faults.credit_loops(of_hosts)) == 1
    fabric = replace(ring(5), host_kinds=[HOST, HOST, *[AGGREGATION_NODE] * 3])
    routes = Routes(fabric, ForwardingTables(clockwise, "clockwise"))
    assert (faults.credit_loops(routes), faults.unreachable_pairs(routes)) == ([], 0)


@pytest.mark.parametrize("switches", [3, 4, 5, 8])
def test_up_down_in_a_ring_has_no_credit_loop_and_no_lost_pair(switches: int) -> None:
    fabric = ring(switches)
    routes = Routes(fabric, tables.compute(fabric, "up/down"))
    assert faults.credit_loops(routes) == []
    assert faults.unreachable_pairs(routes) == 0


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_routing_engines_reach_every_host_of_any_connected_fabric(data: st.DataObject) -> None:
    switches = data.draw(st.integers(2, 9))
    pairs = {(data.draw(st.integers(0, s - 1)), s) for s in range(1, switches)}
    pair = st.tuples(st.integers(0, switches - 1), st.integers(0, switches - 1))
    pairs |= {(min(a, b), max(a, b)) for a, b in data.draw(st.lists(pair, max_size=8)) if a != b}
    hosts = data.draw(st.lists(st.integers(0, switches - 1), min_size=2, max_size=8))
    fabric = connected(switches, sorted(pairs), hosts)
    for engine in ("up/down", "min-hop"):
        routes = Routes(fabric, tables.compute(fabric, engine))
        assert faults.unreachable_pairs(routes) == 0
        if engine == "up/down":
            assert faults.credit_loops(routes) == []


@pytest.mark.parametrize("engine", sorted(tables.ENGINES))
@pytest.mark.parametrize("text", ["radix=8,nodes=30", "radix=4,levels=3", "radix=8,dead=leaf0:5;leaf3:8"])
def test_trees_have_no_credit_loop(text: str, engine: str) -> None:
    fabric = synthetic.build(synthetic.parse(text))
    routes = Routes(fabric, tables.compute(fabric, engine))
    assert faults.credit_loops(routes) == []
    assert faults.unreachable_pairs(routes) == 0


def test_a_crowded_up_port_is_a_warning() -> None:
    """All routes from leaf0 upwards use one of its two ports."""
    routes = recorded_routes()
    for host in range(2, 6):
        routes = with_port(routes, 0, host, 3)
    outcome, (finding,) = check_outcome(routes)
    assert (outcome, finding.rule, finding.severity) == ("PASS", "crowded_port", "warning")
    assert finding.subject.device == "leaf0[3] -> spine0[1]"


def check_cables(fabric: Fabric) -> list[Finding]:
    """The findings of a check without tables."""
    records: list[AnyRecord] = list(cable_records(fabric))
    for number, record in enumerate(records, 1):
        record.id = number
    return explain(records)


def of_rates(rates: list[tuple[int, str]]) -> Fabric:
    """A switch with a host at each rate."""
    fabric = connected(1, [], [0] * len(rates))
    widths, speeds = zip(*rates, *rates, strict=True)
    return replace(fabric, link_width=np.array(widths, np.int32), link_speed=list(speeds))


@pytest.mark.parametrize(
    ("slower", "outcome"),
    [
        ([(2, "HDR")] * 6, ["mixed_rates"]),  # halves of split ports
        ([(4, "QDR")] * 3, ["mixed_rates"]),  # an older generation
        ([(2, "HDR")], ["mixed_rates"]),  # few, and nothing shows that they could be faster
        ([(1, "HDR")] * 3, ["slow_cable"] * 3),  # nobody builds 1x
        ([(2, "EDR")] * 3, ["slow_cable"] * 3),  # EDR has no split ports
        ([(4, "QDR")] * 3 + [(4, "SDR")], ["mixed_rates", "mixed_rates"]),
    ],
)
def test_a_cable_is_held_against_its_peers(slower: list[tuple[int, str]], outcome: list[str]) -> None:
    findings = check_cables(of_rates([*[(4, "HDR")] * 10, *slower]))
    assert [finding.rule for finding in findings] == outcome


def test_a_port_of_one_plane_of_an_xdr_switch_is_built_so() -> None:
    findings = check_cables(of_rates([*[(4, "NDR")] * 10, *[(1, "XDR")] * 3]))
    assert [finding.rule for finding in findings] == ["mixed_rates"]


def test_an_older_leaf_switch_is_a_group_however_few_its_hosts_are() -> None:
    fabric = connected(2, [(0, 1)], [0] * 60 + [1] * 4)
    speeds = ["QDR" if 1 in (a, b) else "FDR" for a, b in zip(fabric.link_from, fabric.link_to, strict=True)]
    assert [f.rule for f in check_cables(replace(fabric, link_speed=speeds))] == ["mixed_rates"]
    link = next(k for k in range(fabric.links) if fabric.link_to[k] == 1 and fabric.link_from[k] > 1)
    speeds[link] = speeds[int(fabric.reverse[link])] = "FDR"
    (finding,) = check_cables(replace(fabric, link_speed=speeds))
    assert finding.rule == "mixed_rates" and "3 of 64 host cables run" in finding.cause
    assert "they differ, and nothing shows that both ends could be faster" in finding.cause


def test_a_group_that_its_ports_could_exceed_is_a_fault() -> None:
    fabric = of_rates([*[(4, "HDR")] * 10, *[(4, "QDR")] * 6])
    findings = check_cables(replace(fabric, link_max_rate=np.full(fabric.links, 4 * 53.125e9)))
    assert [finding.rule for finding in findings] == ["slow_cable", "mixed_rates"]
    assert "6 host cables run at 4x QDR, 19% of what both ends support" in findings[0].cause


def two_sites(extender: str, guid: int, local: tuple[int, str], line: tuple[int, str]) -> Fabric:
    """Two switches with four hosts each, and an extender at each; all cables but those are 4x EDR."""
    fabric = connected(4, [(0, 1), (0, 1), (0, 2), (2, 3), (3, 1)], [0] * 4 + [1] * 4)
    widths, speeds = [4] * fabric.links, ["EDR"] * fabric.links
    for link in range(fabric.links):
        on = [node in (2, 3) for node in (fabric.link_from[link], fabric.link_to[link])]
        if any(on):
            widths[link], speeds[link] = line if all(on) else local
    return replace(
        fabric,
        link_width=np.array(widths, np.int32),
        link_speed=speeds,
        switch_texts=["leaf0", "leaf1", f"{extender} A", f"{extender} B"],
        switch_guids=np.array([1, 2, guid + 3, guid + 4], np.uint64),
        link_max_rate=np.where(np.array(widths) > 0, 4 * 25.78125e9, 0) * (np.array(speeds) != local[1]),
    )


@pytest.mark.parametrize(
    ("extender", "guid"),
    [
        ("Longbow C103", 0),
        ("x", 0x001777 << 40),
        ("MF0;m:MTX6100/U1", 0),
        ("IBEx_G40", 0),
        ("dc1_MTX6100", 0),
    ],
)
def test_the_cables_of_an_extender_between_two_sites_are_not_accused(extender: str, guid: int) -> None:
    findings = check_cables(two_sites(extender, guid, (4, "QDR"), (1, "SDR")))
    assert [(finding.rule, finding.severity) for finding in findings] == [("mixed_rates", "warning")] * 2
    assert all("to a long-haul extender" in finding.cause for finding in findings)


def test_other_switches_and_narrow_cables_to_an_extender_are_accused() -> None:
    for name in ("spine", "ibex-leaf", "obsidian-leaf1", "longbow-sw1", "ibex m1:QM8700"):
        assert "slow_cable" in [f.rule for f in check_cables(two_sites(name, 0, (4, "QDR"), (1, "SDR")))]
    (first, second, _) = check_cables(two_sites("Longbow C103", 0, (1, "EDR"), (4, "SDR")))
    assert first.rule == second.rule == "slow_cable" and first.severity == "fault"


def test_islands_are_named_with_their_hosts_and_pairs() -> None:
    (finding,) = check_cables(connected(2, [], [0, 0, 1]))
    assert (finding.rule, finding.severity) == ("island", "fault")
    assert "2 islands: h[0-1] and h2 are not joined by any cable; 4 ordered pairs" in finding.cause
    assert "opensm" not in finding.fix
    routes = Routes(connected(2, [], [0, 0, 1]), tables.min_hop(connected(2, [], [0, 0, 1])))
    assert faults.unreachable_pairs(routes) == 0  # no table can join them


def test_hosts_with_a_rail_on_each_island_are_not_apart() -> None:
    fabric = replace(connected(2, [], [0, 0, 1, 1]), machines=["a", "b", "a", "b"])
    (finding,) = check_cables(fabric)
    assert (finding.severity, "no two hosts are apart" in finding.cause) == ("warning", True)
    assert "2 islands: a,b (h0, h1) and a,b (h2, h3) are" in finding.cause


def test_islands_of_rails_are_told_apart_by_their_adapters() -> None:
    rails = [f"n{host} mlx5_{rail}" for rail in range(8) for host in range(2)]
    hosts = [name.split()[0] for name in rails]
    fabric = replace(connected(8, [], [k // 2 for k in range(16)]), host_names=rails, machines=hosts)
    (finding,) = check_cables(fabric)
    assert finding.details == [f"2 hosts: n[0-1] (mlx5_{rail})" for rail in range(8)]
    mixed = replace(connected(2, [], [0, 0, 1]), host_names=["a x0", "b", "a x1"], machines=["a", "b", "a"])
    (finding,) = check_cables(mixed)
    assert finding.details == ["2 hosts: a,b (x0)", "1 hosts: a (x1)"]


def test_a_cable_from_a_switch_to_itself_is_named() -> None:
    (finding,) = check_cables(connected(1, [(0, 0)], [0, 0]))
    assert (finding.rule, finding.details) == ("self_loop", ["s0[3] -> s0[4]"])
    assert finding.severity == "warning"
    two = connected(2, [(0, 0), (0, 1)], [0, 1])
    (finding,) = check_cables(replace(two, switch_texts=["x", "x"]))
    assert finding.details == [f"s0[2] -> s0[3] (s0 is {int(two.switch_guids[0]):#018x})"]


def test_ports_without_a_lid_are_named_where_others_have_one() -> None:
    fabric = replace(connected(2, [(0, 1)], [0, 0, 1]), host_names=["a", "b", "c"])
    assert check_cables(replace(fabric, host_lids=np.zeros(3, np.int32))) == []
    (finding,) = check_cables(replace(fabric, host_lids=np.array([7, 0, 9], np.int32)))
    assert (finding.rule, finding.severity, finding.details) == ("no_lid", "warning", ["b at s0"])


def test_computed_tables_make_no_verdict_about_a_real_fabric() -> None:
    """Shortest paths in a ring have a credit loop, whoever computes them."""
    for lines, severity in ((np.ones(10, np.int32), "warning"), (np.zeros(0, np.int32), "fault")):
        fabric = replace(ring(5), node_lines=lines)
        _, findings = check_outcome(Routes(fabric, tables.min_hop(fabric)))
        assert {(f.rule, f.severity) for f in findings} == {("credit_loop", severity)}
        assert findings[0].cause.startswith("with tables that min-hop computes here")
        assert "opensm" not in findings[0].fix
