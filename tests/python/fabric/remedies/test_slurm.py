"""Slurm's topology files: written, read back, and each planted difference from the fabric is named."""

from pathlib import Path

import pytest

from assay.errors import UserError
from assay.fabric import synthetic
from assay.fabric.remedies.slurm import differences, read_topology, topology_conf, topology_yaml, tree_of

FABRIC = synthetic.build(synthetic.parse("radix=4,nodes=14,levels=3"))


@pytest.mark.parametrize("write", [topology_conf, topology_yaml])
def test_a_written_file_agrees_with_the_fabric(write, tmp_path: Path) -> None:
    file = tmp_path / "topology"
    file.write_text(write(tree_of(FABRIC)))
    assert differences(file, read_topology(file), FABRIC) == []


def test_two_levels_are_leaves_and_one_switch_above() -> None:
    fabric = synthetic.build(synthetic.parse("radix=36,nodes=45"))
    assert topology_conf(tree_of(fabric)) == (
        "SwitchName=leaf0 Nodes=node[00-17]\nSwitchName=leaf1 Nodes=node[18-35]\nSwitchName=leaf2 Nodes=node[36-44]\n"
        "SwitchName=level1-0 Switches=leaf[0-2]\n"
    )


def differences_after_change(tmp_path: Path, old: str, new: str) -> list[str]:
    text = topology_conf(tree_of(FABRIC))
    assert old in text
    file = tmp_path / "topology.conf"
    file.write_text(text.replace(old, new))
    return [line.replace(str(file), "F") for line in differences(file, read_topology(file), FABRIC)]


def test_different_names_of_switches_are_not_a_difference(tmp_path: Path) -> None:
    assert differences_after_change(tmp_path, "leaf", "isw") == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("Nodes=node[02-03]", "Nodes=node02", "F: node03 of leaf1 is missing"),
        ("Nodes=node[02-03]", "Nodes=node[02-03],x9", "F:2: x9 is not in the fabric"),
        (
            "Nodes=node[02-03]",
            "Nodes=node[02-04]",
            "F:2: node04 is with hosts of leaf1, the fabric has it on leaf2",
        ),
        ("Nodes=node[02-03]", "Nodes=node[01-03]", "F:2: node01 is on leaf1 and on leaf0"),
        ("Switches=leaf[2-3]", "Switches=leaf[2-3,9]", "F:9: switch leaf9 of level1-1 is not defined"),
    ],
)
def test_each_difference_is_named_with_its_line(old: str, new: str, line: str, tmp_path: Path) -> None:
    assert line in differences_after_change(tmp_path, old, new)


def test_wrong_groups_above_the_leaf_switches_are_named(tmp_path: Path) -> None:
    lines = differences_after_change(tmp_path, "Switches=leaf[0-1]", "Switches=leaf[0,2]")
    assert "F:8: no part of the fabric has just the 4 hosts of level1-0" in lines
    assert "F: no switch joins the 4 hosts that the fabric joins at level1-0" in lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no switch in it|trees in it"),
        ("SwitchName=a\n", ":1: a switch needs SwitchName"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "defined twice"),
        ("SwitchName=a Nodes=n[1\n", ":1: 'n\\[1' is not a list of names"),
        ("SwitchName=a Nodes=n[0-999999999999]\n", "too many names in one list"),
        ("SwitchName=a Nodes=n[0-9999]x[1,3-9999]\n", "too many names in one list"),
        ("SwitchName=a Nodes=@all\n", "not a list of names"),
        ("- tree: {switches: [{switch: a}]}\n", "either 'nodes' or 'children'"),
        ("{[", "neither topology.conf nor topology.yaml"),
    ],
)
def test_wrong_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(UserError, match=message):
        read_topology(tmp_path / "t")


def test_a_cycle_of_switches_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("SwitchName=a Switches=b\nSwitchName=b Switches=a\n")
    assert differences(tmp_path / "t", read_topology(tmp_path / "t"), FABRIC)
