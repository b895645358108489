"""Omni-Path: files of opareport are read, and damaged files are refused with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from recorded import SIX, assert_same_cables, opa_topology, snapshot

from assay.cli import main
from assay.errors import UserError
from assay.fabric import Fabric, ForwardingTables, Routes, cables, conflicts, schedules, synthetic, tables
from assay.fabric.read import read_fabric, read_tables


@pytest.fixture
def recorded() -> tuple[Fabric, ForwardingTables]:
    fabric = read_fabric(SIX / "topology.txt")
    return fabric, read_tables(SIX / "fts.txt", fabric)


@pytest.fixture
def snapshot_file(recorded: tuple[Fabric, ForwardingTables], tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.xml"
    path.write_text(snapshot(*recorded))
    return path


def test_a_snapshot_is_read(recorded: tuple[Fabric, ForwardingTables], snapshot_file: Path) -> None:
    truth, expected = recorded
    fabric = read_fabric(snapshot_file)
    assert_same_cables(fabric, truth)
    assert (fabric.switch_names, fabric.host_names) == (truth.switch_names, truth.host_names)
    assert (set(fabric.link_width), set(fabric.link_speed)) == ({4}, {"OPA25"})
    assert (fabric.link_max_rate == 4 * 25.78125e9).all()
    table = read_tables(snapshot_file, fabric)
    assert (table.ports == expected.ports).all()
    lines = snapshot_file.read_text().splitlines()
    assert (
        lines[table.lines[0, 3] - 1] == f'<Value LID="{fabric.host_lids[3]:#x}">{table.ports[0, 3]}</Value>'
    )


def test_a_snapshot_of_45_nodes_has_the_known_conflicts(tmp_path: Path) -> None:
    truth = synthetic.build(synthetic.parse("radix=36,nodes=45"))
    (tmp_path / "s.xml").write_text(snapshot(truth, tables.d_mod_k(truth)))
    fabric = read_fabric(tmp_path / "s.xml")
    result = conflicts.analyse(
        Routes(fabric, read_tables(tmp_path / "s.xml", fabric)), schedules.shift(45), np.arange(45)
    )
    assert (result.total, result.rounds) == (81, 62)


def test_a_lane_that_failed_is_a_slow_cable(snapshot_file: Path) -> None:
    full = "<LinkWidthActive_Int>8</LinkWidthActive_Int>"
    down = full + "<LinkWidthDowngradeTxActive_Int>4</LinkWidthDowngradeTxActive_Int>"
    snapshot_file.write_text(
        snapshot_file.read_text().replace(full, down, 3)
    )  # three ports of leaf0, its port 0 among them
    result = cables.cable_rates(read_fabric(snapshot_file))
    assert {(slow.width, slow.rate / slow.usual) for slow in result.slow} == {(3, 0.75)}
    assert 1 <= len(result.slow) <= 2
    assert result.supported == result.cables


def test_a_topology_without_tables_needs_a_routing_engine(
    recorded: tuple[Fabric, ForwardingTables], tmp_path: Path
) -> None:
    path = tmp_path / "topology.xml"
    path.write_text(opa_topology(recorded[0]))
    fabric = read_fabric(path)
    assert {fabric.link_name(k) for k in range(fabric.links)} == {
        recorded[0].link_name(k) for k in range(recorded[0].links)
    }
    assert (
        main(["fabric", "check", "--fabric", str(path), "--routing", "d-mod-k", "-o", str(tmp_path / "r")])
        == 0
    )
    with pytest.raises(UserError, match="contains no LIDs"):
        read_tables(SIX / "fts.txt", fabric)


def test_rates_of_400_gbits_are_read_and_a_slower_one_is_found(
    recorded: tuple[Fabric, ForwardingTables], tmp_path: Path
) -> None:
    path = tmp_path / "topology.xml"
    text = opa_topology(recorded[0]).replace("<Rate>100g<", "<Rate>400g<")
    path.write_text(text)
    fabric = read_fabric(path)
    assert (set(fabric.link_width), set(fabric.link_speed)) == ({4}, {"OPA100"})
    path.write_text(text.replace("<Rate>400g<", "<Rate>200g<", 1))
    (group,) = cables.cable_rates(read_fabric(path)).groups or cables.cable_rates(read_fabric(path)).slow
    assert (group.width, group.rate / group.usual) == (2, 0.5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</Snapshot>", "", "not XML as opareport writes it"),
        ("<Snapshot ", '<!DOCTYPE x [<!ENTITY a "b">]><Snapshot ', ":2: a document type"),
        ("<NodeType_Int>2</NodeType_Int>", "<NodeType_Int>7</NodeType_Int>", "7 is not a type of node"),
        ("<NodeType_Int>2</NodeType_Int>", "", "Node without NodeType_Int"),
        (
            "<PortNum>1</PortNum></From>",
            "<PortNum>77</PortNum></From>",
            "port 77 of .* is not among the nodes",
        ),
        ("<PortNum>1</PortNum></From>", "<PortNum>x</PortNum></From>", "'x', which is not a number"),
        ("</From>", "</From><!--", "not XML"),
        ("<Links>", "<Links><Link></Link>", "a Link with 0 ends"),
        ("<LMC>0</LMC>", "<LMC>9</LMC>", "9 is no LMC"),
        ("<Links>.*</Links>", "", "no Link in it"),
        ("<Node id.*?</Node>", "", "is not among the nodes"),
        ("<NodeDesc>leaf0", "<NodeDesc>" + "x" * 5000, "a value of more than"),
    ],
)
def test_damaged_topologies_are_refused(old: str, new: str, message: str, snapshot_file: Path) -> None:
    text = re.sub(old, new, snapshot_file.read_text(), count=1, flags=re.DOTALL)
    assert text != snapshot_file.read_text()
    snapshot_file.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_fabric(snapshot_file)
    assert re.match(rf"{re.escape(str(snapshot_file))}:[0-9]+: ", caught.value.what)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<SwitchData>.*?</SwitchData>", "", "ends without a table of switch"),
        ('LID="0x1"', 'LID="0x99"', "LID 153 belongs to no port"),
        ('LID="0x1"', 'LID="0x2"', "a second entry for LID 2"),
        ('LID="0x1"', "", "'', which is not a number"),
        ('<Value LID="0x1">[0-9]+', '<Value LID="0x1">256', "no port has the number 256"),
        ("<LinearFDB>", "<Other>", "not XML"),
    ],
)
def test_damaged_tables_are_refused(old: str, new: str, message: str, snapshot_file: Path) -> None:
    fabric = read_fabric(snapshot_file)
    text = re.sub(old, new, snapshot_file.read_text(), count=1, flags=re.DOTALL)
    assert text != snapshot_file.read_text()
    snapshot_file.write_text(text)
    with pytest.raises(UserError, match=message):
        read_tables(snapshot_file, fabric)


def test_a_snapshot_without_routes_is_refused_with_the_command(
    recorded: tuple[Fabric, ForwardingTables], snapshot_file: Path
) -> None:
    snapshot_file.write_text(snapshot(recorded[0]))
    with pytest.raises(UserError, match="no LinearFDB in it") as caught:
        read_tables(snapshot_file, read_fabric(snapshot_file))
    assert "opareport -o snapshot -r" in caught.value.fix
