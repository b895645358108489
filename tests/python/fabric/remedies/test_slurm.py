"""Slurm's topology files: written, read back, and each planted difference from the fabric is named."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_fabrics import connected

from assay.cli import main
from assay.errors import UserError
from assay.fabric import synthetic
from assay.fabric.remedies.slurm import comments, hostlist, topology_conf, topology_yaml, tree_of
from assay.fabric.remedies.slurm_files import read_topology
from assay.fabric.remedies.slurm_verify import differences, require_agreement

FABRIC = synthetic.build(synthetic.parse("radix=4,nodes=14,levels=3"))


@pytest.mark.parametrize("write", [topology_conf, topology_yaml])
def test_a_written_file_agrees_with_the_fabric(write, tmp_path: Path) -> None:
    file = tmp_path / "topology"
    file.write_text(write(tree_of(FABRIC)))
    assert differences(file, read_topology(file).switches, FABRIC) == ([], [])


def test_two_levels_are_leaves_and_one_switch_above() -> None:
    fabric = synthetic.build(synthetic.parse("radix=36,nodes=45"))
    assert topology_conf(tree_of(fabric)) == (
        "SwitchName=leaf0 Nodes=node[00-17]\nSwitchName=leaf1 Nodes=node[18-35]\nSwitchName=leaf2 Nodes=node[36-44]\n"
        "SwitchName=level1-0 Switches=leaf[0-2]\n"
    )


@pytest.mark.parametrize("cables", [[(0, 1)], [(0, 1), (1, 2), (2, 0)]])
def test_leaf_switches_that_are_cabled_to_each_other_have_one_above(cables: list[tuple[int, int]]) -> None:
    """No job of Slurm spans switches without a common one above."""
    switches = 1 + max(max(cable) for cable in cables)
    fabric = connected(switches, cables, [host % switches for host in range(2 * switches)])
    text = topology_conf(tree_of(fabric))
    assert text.endswith(f"SwitchName=level0-0 Switches=s[0-{switches - 1}]\n")
    assert text.count("Nodes=") == switches


def differences_after_change(tmp_path: Path, old: str, new: str) -> list[str]:
    text = topology_conf(tree_of(FABRIC))
    assert old in text
    file = tmp_path / "topology.conf"
    file.write_text(text.replace(old, new))
    mismatches, notes = differences(file, read_topology(file).switches, FABRIC)
    assert not (mismatches and notes)
    return [line.replace(str(file), "F") for line in mismatches + notes]


def test_a_switch_may_be_called_as_a_level_is(tmp_path: Path) -> None:
    fabric = synthetic.build(synthetic.parse("radix=4,nodes=4"))
    named = replace(fabric, switch_names=["level1-0", *fabric.switch_names[1:]])
    file = tmp_path / "topology.conf"
    file.write_text(topology_conf(tree_of(named)))
    names = [switch.name for switch in read_topology(file).switches]
    assert names == ["level1-0", "leaf1", "level1-0-top"]


def test_different_names_of_switches_are_not_a_difference(tmp_path: Path) -> None:
    assert differences_after_change(tmp_path, "leaf", "isw") == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("Nodes=node[02-03]", "Nodes=node02", "F: note: node03 of leaf1 is left out"),
        ("Nodes=node[02-03]", "Nodes=node02,x9", "F: node03 of leaf1 is missing"),
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
        ("", "neither topology.conf nor topology.yaml"),
        ("SwitchName=a\n", ":1: a switch needs SwitchName"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "defined twice"),
        ("SwitchName=a Nodes=n[1\n", ":1: 'n\\[1' is not a list of names"),
        ("SwitchName=a Nodes=n[0-999999999999]\n", "too many names in one list"),
        ("SwitchName=a Nodes=n[0-9999]x[1,3-9999]\n", "too many names in one list"),
        ("SwitchName=a Nodes=@all\n", "not a list of names"),
        ("- tree: {switches: [{switch: a}]}\n", "either 'nodes' or 'children'"),
        ("ClusterName=x\nTopologyPlugin=topology/tree\n", "Slurm's slurm.conf, no topology of Slurm"),
        ("topology/tree\n", "neither topology.conf nor topology.yaml"),
        ('{"switches": []}\n', "neither topology.conf nor topology.yaml"),
        ("{[", "neither topology.conf nor topology.yaml"),
    ],
)
def test_wrong_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(UserError, match=message):
        read_topology(tmp_path / "t")


def test_a_cycle_of_switches_is_reported(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("SwitchName=a Switches=b\nSwitchName=b Switches=a\n")
    assert differences(tmp_path / "t", read_topology(tmp_path / "t").switches, FABRIC)[0]


def verified(tmp_path: Path, text: str) -> list[str]:
    """The lines about a file for a tree of two leaf switches, of hosts node0 to node3 and node4 to node7."""
    fabric = synthetic.build(synthetic.parse("radix=8,nodes=8"))
    file = tmp_path / "topology.conf"
    file.write_text(text)
    lines, notes = differences(file, read_topology(file).switches, fabric)
    assert notes == []
    return [line.replace(str(file), "F") for line in lines]


TREE = "- topology: t\n  tree: {switches: [{switch: a, nodes: n1}]}\n"
RIGHT = "SwitchName=a Nodes=node[0-3]\nSwitchName=b Nodes=node[4-7]\nSwitchName=c Switches=a,b\n"


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        RIGHT.replace(" Nodes", " \\\n   Nodes"),
        RIGHT.replace(" Nodes", " \\  \nNodes"),
        RIGHT.replace("SwitchName", "switchname").replace("Nodes", "NODES"),
        RIGHT.replace("=node[0-3]", ' = "node[0-3]" LinkSpeed=10 # a comment \\'),
        "# SwitchName=x Nodes=y \\\n" + RIGHT.replace("\n", "\r\n"),
        "BlockName=x Nodes=node[0-7]\nBlockSizes=8\n" + RIGHT,
        "SwitchName=c Level=1 LinkSpeed=1 Nodes=node[0-7] Switches=a,b\n"
        + RIGHT.replace(" Nodes", " Level=0 LinkSpeed=1 Nodes").replace("SwitchName=c Switches=a,b\n", ""),
        "include leaves.conf\nSwitchName=c Switches=a,b\n",
    ],
)
def test_the_whole_grammar_of_topology_conf_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "leaves.conf").write_text("".join(RIGHT.splitlines(keepends=True)[:2]))
    assert verified(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Include /missing/x.conf\n", ":1: Include: /missing/x.conf: cannot be read"),
        ("Include t\n", "t is included already"),
        ("BlockName=b Nodes=n[1-2]\nBlockSizes=2\n", ":1: a topology of blocks: only trees are compared"),
        ("BlockName=b BlockIndex=0 Nodes=n[1-2] BlockSize=2\n", ":1: a topology of blocks: only trees"),
        ("- topology: x\n  block: {block_sizes: [8]}\n", "topology x: a topology of blocks"),
        ("AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[0-3] BlockSize=4\n", ":1: a topology of blocks"),
        ("RingName=r Nodes=n[1-2]\n", ":1: a topology of rings: only trees are compared"),
        ("# of the site\n\n  # to be filled in\n", "no switch in it, only comments"),
        ("No topology information available\n", "Slurm has no topology"),
        ("- topology: x\n  ring: {rings: []}\n", "topology x: ring: only trees are compared"),
        ("- topology: x\n", "topology x: without a type: only trees are compared"),
        (f"{TREE}  cluster_default: false\n{TREE}", "2 trees in it, none of them the cluster's default"),
        ("- topology: x\n  flat: true\n", "topology x: flat: only trees are compared"),
        ("SwitchName=a Nodes=n1 Nodes=n2\n", "Nodes is given twice in one line"),
        ("SwitchName=a Nodes=n1 Colour=red\n", "'Colour=red' is not understood"),
    ],
)
def test_what_cannot_be_compared_is_said(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(UserError, match=message):
        read_topology(tmp_path / "t")


def test_of_several_trees_that_of_the_default_is_compared(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TREE + TREE.replace("n1", "n2") + "  cluster_default: true\n")
    topology = read_topology(tmp_path / "t")
    assert [switch.nodes for switch in topology.switches] == [("n2",)]
    assert ["a second tree" in line for line in topology.left_out] == [True]


def test_a_missing_prefix_is_guessed(tmp_path: Path) -> None:
    lines = verified(tmp_path, RIGHT.replace("node[4-7]", "node4,[5-7]"))
    assert "F:2: [5-7] are not in the fabric; did you mean node[5-7]?" in lines
    lines = verified(tmp_path, RIGHT.replace("node[4-7]", "node4,[5-6],x9"))
    assert "F:2: [5-6],x9 are not in the fabric; did you mean node[5-6] for [5-6]?" in lines
    lines = verified(tmp_path, RIGHT.replace("node[4-7]", "node[4-7].x.org"))
    assert "F:2: node[4-7].x.org are not in the fabric; did you mean node[4-7]?" in lines


def test_hosts_that_slurm_does_not_use_are_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topology.conf"
    command = ["fabric", "slurm", "--fat-tree", "radix=8,nodes=8", "--verify", str(file)]
    file.write_text(RIGHT.replace("node[4-7]", "node[5-7]"))
    assert main(command) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("7 hosts") and second == f"{file}: note: node4 of leaf1 is left out"
    file.write_text(RIGHT.replace("node[0-3]", "node0").replace("node[4-7]", "node[5-7]"))
    assert main(command) == 1  # half of the hosts are not left out on purpose
    assert f"{file}: node[1-3] of leaf0 are missing" in capsys.readouterr().out


def test_parts_that_the_fabric_joins_are_named_with_the_switches(tmp_path: Path) -> None:
    two = RIGHT.replace("SwitchName=c Switches=a,b\n", "")
    assert verified(tmp_path, two) == [
        "F: a and b are joined in the fabric by spine0, spine1, spine2, spine3"
    ]


def test_parts_that_no_cable_joins_are_named(tmp_path: Path) -> None:
    fabric = connected(4, [(0, 1), (2, 3)], [0, 0, 2, 2])
    file = tmp_path / "t"
    file.write_text("SwitchName=a Nodes=h[0-1]\nSwitchName=b Nodes=h[2-3]\nSwitchName=c Switches=a,b\n")
    lines, _ = differences(file, read_topology(file).switches, fabric)
    assert lines == [f"{file}:3: c joins h[0-1] and h[2-3], which no cable joins"]


def test_hosts_with_rails_are_one_group_and_comments_say_of_which_switches(tmp_path: Path) -> None:
    """Hosts 0 and 1 have a port on switches 0 and 1, host 2 on switch 2, and a port has no host."""
    joined = connected(4, [(0, 3), (1, 3), (2, 3)], [0, 1, 0, 1, 2, 2])
    fabric = replace(
        joined,
        host_names=["n0 a1", "n0 a2", "n1 a1", "n1 a2", "n2", "MT4123 0x1"],
        machines=["n0", "n0", "n1", "n1", "n2", ""],
        switch_texts=["MF0;s0:X/U1", "s1", "s2", "s3"],
    )
    tree = tree_of(fabric)
    text = topology_conf(tree, comments(fabric, tree))
    assert text == (
        "# s0: MF0;s0:X/U1, s1\n# not in this file: 1 ports whose description names no host, such as MT4123 0x1\n"
        "SwitchName=s0 Nodes=n[0-1]\nSwitchName=s2 Nodes=n2\nSwitchName=level1-0 Switches=s[0,2]\n"
    )
    shared = replace(fabric, switch_texts=["MF0;s0:X/U1", "s1", "x", "x"])
    named = f"# s2: x, s2 is {int(fabric.switch_guids[2]):#018x}"
    assert named in comments(shared, tree_of(shared))
    (tmp_path / "t").write_text(text)
    require_agreement(read_topology(tmp_path / "t").switches, fabric)
    with pytest.raises(UserError, match="each host once"):
        require_agreement([replace(tree[0], nodes=("n0",)), replace(tree[1], nodes=("n1", "n2"))], fabric)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["n01", "n02", "n04"], "n[01-02,04]"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r1n[1-2],r2n[1-2]"),
        (["sh-1-4", "sh-2-4"], "sh-1-4,sh-2-4"),
        (["n1-ib", "n2-ib", "n1.x.org", "n3"], "n3,n1-ib,n2-ib,n1.x.org"),
        (["login"], "login"),
    ],
)
def test_brackets_are_at_the_end_of_a_name(names: list[str], expected: str, tmp_path: Path) -> None:
    assert hostlist(tuple(names)) == expected
    (tmp_path / "t").write_text(f"SwitchName=s Nodes={expected}\n")
    assert sorted(read_topology(tmp_path / "t").switches[0].nodes) == sorted(names)


def test_a_switch_in_two_places_is_named(tmp_path: Path) -> None:
    lines = verified(tmp_path, RIGHT + "SwitchName=d Switches=a,b\n")
    assert "F: a is below c and below d, and Slurm's tree has one place for it" in lines


@pytest.mark.parametrize(
    "other",
    [
        "  block: {block_sizes: [2], blocks: [{block: x, nodes: 'node[4-7]'}]}\n",
        "  tree: {switches: [{switch: x, nodes: 'node[4-7]'}, {switch: y, children: x}]}\n",
    ],
)
def test_nodes_of_another_topology_are_not_missed(other: str, tmp_path: Path) -> None:
    """A partition may use another topology of the file than the default."""
    (tmp_path / "t").write_text(
        f"- topology: o\n{other}- topology: t\n  cluster_default: true\n"
        "  tree: {switches: [{switch: a, nodes: 'node[0-2]'}]}\n"
    )
    topology = read_topology(tmp_path / "t")
    fabric = synthetic.build(synthetic.parse("radix=8,nodes=8"))
    lines, notes = differences(tmp_path / "t", topology.switches, fabric, topology.elsewhere)
    assert lines == []
    assert [line.partition(": note: ")[2] for line in notes] == [
        "node3 of leaf0 is left out",
        "node[4-7] of leaf1 are left out: in another topology of the file alone",
    ]
    assert len(differences(tmp_path / "t", topology.switches, fabric)[0]) == 2
