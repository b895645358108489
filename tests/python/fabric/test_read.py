"""Readers of fabric files: files of OpenSM and the diagnostic tools are read, damaged files are refused with file and
line."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from recorded import SIX, assert_same_cables, db_csv, decompress

from assay.errors import UserError
from assay.fabric import Fabric, Routes, conflicts, faults, schedules, synthetic, tables
from assay.fabric.read import read_fabric, read_order, read_tables
from assay.fabric.remedies.slurm_files import read_topology
from assay.measure.fabric import members_of

TOPOLOGIES = ["topology.txt", "opensm-subnet.lst"]
TABLES = ["fts.txt", "opensm-lfts.dump", "opensm.fdbs"]


def conflicts_of_shift(routes: Routes, members: np.ndarray | None = None) -> conflicts.Conflicts:
    chosen = np.arange(routes.fabric.hosts) if members is None else members
    return conflicts.analyse(routes, schedules.shift(len(chosen)), chosen)


@pytest.mark.parametrize(
    ("nodes", "total", "rounds", "padded"), [(45, 81, 62, 54), (64, 160, 98, 72), (512, 2160, 971, 522)]
)
def test_conflicts_of_recorded_tables_of_opensm(
    nodes: int, total: int, rounds: int, padded: int, tmp_path: Path
) -> None:
    """Recorded tables of OpenSM's fat-tree engine. With the empty slots of its order file there is no conflict."""
    fabric = read_fabric(decompress(f"of{nodes}", "topology.txt", tmp_path))
    routes = Routes(fabric, read_tables(decompress(f"of{nodes}", "opensm.fdbs", tmp_path), fabric))
    result = conflicts_of_shift(routes)
    assert (fabric.hosts, result.total, result.rounds) == (nodes, total, rounds)
    order = read_order(decompress(f"of{nodes}", "opensm-ftree-ca-order.dump", tmp_path), fabric)
    result = conflicts_of_shift(routes, order)
    assert (result.ranks, result.total, result.rounds) == (padded, 0, padded)


def test_pairs_of_the_published_example_share_an_up_port(tmp_path: Path) -> None:
    fabric = read_fabric(decompress("of45", "topology.txt", tmp_path))
    routes = Routes(fabric, read_tables(decompress("of45", "opensm.fdbs", tmp_path), fabric))
    shared = conflicts.Loads(routes, np.arange(45)).shared_links(schedules.shift(45).step(28))
    pairs = [set(zip(s.src.tolist(), s.dst.tolist(), strict=True)) for s in shared]
    assert {(20, 37), (29, 1)} in pairs


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_topology_is_read_as_it_was_simulated(topology: str) -> None:
    truth, fabric = synthetic.build(synthetic.parse("radix=4,nodes=6")), read_fabric(SIX / topology)
    assert fabric.switch_names == truth.switch_names
    assert fabric.host_names == truth.host_names
    assert {fabric.link_name(k) for k in range(fabric.links)} == {
        truth.link_name(k) for k in range(truth.links)
    }
    assert set(fabric.link_width) == {4}
    assert set(fabric.link_speed) == {"SDR"}
    assert (fabric.levels == truth.levels).all()


def test_both_topologies_agree() -> None:
    first, second = (read_fabric(SIX / name) for name in TOPOLOGIES)
    assert_same_cables(first, second)


@pytest.mark.parametrize("name", TABLES)
def test_a_greeting_before_tables_is_left_out(name: str, tmp_path: Path) -> None:
    fabric, path = read_fabric(SIX / "topology.txt"), tmp_path / name
    path.write_text("Welcome to the cluster\n" + (SIX / name).read_text())
    assert (read_tables(path, fabric).ports == read_tables(SIX / name, fabric).ports).all()


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_all_tables_agree(topology: str) -> None:
    fabric = read_fabric(SIX / topology)
    read = [read_tables(SIX / name, fabric) for name in TABLES]
    assert all((table.ports == read[0].ports).all() for table in read)
    assert (read[0].ports != tables.NO_ENTRY).all()


def test_entries_keep_their_line_numbers() -> None:
    fabric = read_fabric(SIX / "topology.txt")
    table = read_tables(SIX / "fts.txt", fabric)
    lines = (SIX / "fts.txt").read_text().splitlines()
    for switch in range(fabric.switches):
        for host in range(fabric.hosts):
            entry = lines[table.lines[switch, host] - 1]
            assert entry.startswith(f"{fabric.host_lids[host]:#06x} {table.ports[switch, host]:03d} ")


def test_files_of_ibdiagnet_are_read(tmp_path: Path) -> None:
    truth = read_fabric(SIX / "topology.txt")
    path = tmp_path / "ibdiagnet2.db_csv"
    path.write_text(db_csv(truth))
    fabric = read_fabric(path)
    for name in (
        "switch_guids",
        "switch_lids",
        "host_guids",
        "host_lids",
        "link_to",
        "link_to_port",
        "link_width",
    ):
        assert (getattr(fabric, name) == getattr(truth, name)).all(), name
    assert fabric.link_speed == truth.link_speed
    text = (SIX / "opensm.fdbs").read_text().replace("dump_ucast_routes", "osm_ucast_mgr_dump_ucast_routes")
    (tmp_path / "ibdiagnet2.fdbs").write_text(text)
    read = read_tables(tmp_path / "ibdiagnet2.fdbs", fabric)
    assert (read.ports == read_tables(SIX / "fts.txt", truth).ports).all()


def damaged(tmp_path: Path, name: str, change: Callable[[str], str]) -> Path:
    """A recorded file after a change of its text."""
    text = (SIX / name).read_text()
    assert change(text) != text
    path = tmp_path / name
    path.write_text(change(text))
    return path


def without_line(start: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        lines.remove(next(line for line in lines if line.startswith(start)))
        return "".join(lines)

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("topology.txt", lambda t: "", "the file is empty"),
        ("topology.txt", lambda t: t[: t.index('"S-0000000000200004"') + 6], "not a line of ibnetdiscover"),
        ("topology.txt", lambda t: re.sub(r"^(\[1\])\(\w+\)", r"\1", t, flags=re.M), "as in ibnetdiscover of 2006"),
        ("topology.txt", without_line('[3]\t"S-0000000000200003"[3]'), "is not listed at its other end"),
        ("topology.txt", lambda t: t[: t.rindex(" lmc 0")], "the file ends within this line"),
        ("topology.txt", lambda t: t.partition("Ca\t")[0], "which is not listed; fix: is the file complete?"),
        ("topology.txt", lambda t: t + t, "switch 0x0000000000200002 is listed twice"),
        ("topology.txt", lambda t: t.replace("lid 11", "lid 10"), "LID 10 belongs to node"),
        ("topology.txt", lambda t: t.replace("Switch\t4", "Switch\t3"), "which has 3"),
        ("topology.txt", lambda t: t.replace("[4]\t", "[3]\t", 1), "has a cable already, on line 13"),
        ("topology.txt", lambda t: t.replace("lid 10", "lid 60000"), "60000 is no LID"),
        ("opensm-subnet.lst", lambda t: t.replace("LOG=ACT", "LOG=INI", 1), "leaf0 port 1 is in state INI"),
        ("opensm-subnet.lst", lambda t: "LID:0009".join(t.rsplit("LID:0002", 1)), "of switch leaf0 differ from line 1"),
        ("opensm-subnet.lst", lambda t: t[:-40], "not a line of opensm-subnet.lst"),
        ("opensm-subnet.lst", lambda t: "".join(t.splitlines(keepends=True)[1:]), "not listed at its other end"),
    ],
)  # fmt: skip
def test_a_damaged_topology_is_refused(
    name: str, change: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = damaged(tmp_path, name, change)
    with pytest.raises(UserError) as error:
        read_fabric(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}:")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("fts.txt", lambda t: "", "the file is empty"),
        ("fts.txt", lambda t: t[: t.index("0x0005") + 8], "not a line of forwarding tables"),
        ("fts.txt", without_line("0x0005"), "entries, and 11 were written"),
        ("fts.txt", lambda t: t.replace("0000000000200002 (", "0000000000abcdef ("), "is not in"),
        ("fts.txt", lambda t: t + t, "a second table of switch leaf2, the first is on line 1"),
        ("fts.txt", lambda t: t.replace("0x0005", "0x0105"), "LID 261 belongs to no port"),
        ("fts.txt", lambda t: t.replace("0x000b", "0x000c"), "LID 12 belongs to no port"),
        ("fts.txt", lambda t: t.replace("0x0005", "0x0001"), "a second entry for LID 1"),
        ("fts.txt", lambda t: t.replace("100003", "100103"), "LID 5 belongs to 0x0000000000100103 here"),
        ("fts.txt", lambda t: "".join(t.splitlines(keepends=True)[:15]), "ends without a table of switch leaf0"),
        ("opensm-lfts.dump", lambda t: t.rpartition("0x000b")[0], "ends within a table"),
        ("opensm.fdbs", lambda t: t[t.index("LID") :], "an entry before the first switch"),
        ("opensm.fdbs", lambda t: t.replace(": 001", ": 901", 1), "no port has the number 901"),
        ("opensm.fdbs", lambda t: t.replace("LID ", "PLFT_NUM: 2\nLID ", 1), "several private tables"),
        ("opensm.fdbs", lambda t: t.rpartition("dump_ucast")[0], "ends without a table"),
        ("opensm.fdbs", lambda t: t.rpartition(": 003")[0] + ": 00", "not a line of a forwarding database"),
    ],
)  # fmt: skip
def test_damaged_tables_are_refused(
    name: str, change: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = damaged(tmp_path, name, change)
    fabric = read_fabric(SIX / "topology.txt")
    with pytest.raises(UserError) as error:
        read_tables(path, fabric)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}:")


def test_the_table_of_one_switch_is_named_as_such(tmp_path: Path) -> None:
    fabric = read_fabric(SIX / "topology.txt")
    text = (SIX / "fts.txt").read_text()
    (tmp_path / "t").write_text(text[: text.index("Unicast", 1)])
    with pytest.raises(
        UserError, match="the output of ibroute, which has the table of leaf2 alone"
    ) as refused:
        read_tables(tmp_path / "t", fabric)
    assert "dump_fts" in refused.value.fix
    (tmp_path / "t").write_text(text[text.index("0x0001") : text.index("Unicast", 1)])
    with pytest.raises(UserError, match="entries of a forwarding table without their switch"):
        read_tables(tmp_path / "t", fabric)


@pytest.mark.parametrize(
    "read",
    [
        lambda path, fabric: read_order(path, fabric),
        lambda path, fabric: schedules.read(path, fabric.hosts),
        lambda path, fabric: synthetic.read(path),
        lambda path, fabric: read_tables(path, fabric),
        lambda path, fabric: read_fabric(path),
        lambda path, fabric: read_topology(path),
    ],
    ids=["order", "schedule", "fat tree", "tables", "fabric", "slurm"],
)
def test_every_reader_names_another_file(read: Callable[[Path, Fabric], object], tmp_path: Path) -> None:
    fabric = read_fabric(SIX / "topology.txt")
    (tmp_path / "t").write_text("Slot:\t3b:00.0\nClass:\tx\n")
    with pytest.raises(UserError, match="t: the output of lspci") as refused:
        read(tmp_path / "t", fabric)
    assert refused.value.fix


def test_a_missing_entry_is_named_by_switch_lid_and_line(tmp_path: Path) -> None:
    fabric = read_fabric(SIX / "topology.txt")
    path = damaged(tmp_path, "opensm.fdbs", without_line("0x0005"))  # of leaf0, where node1 is
    routes = Routes(fabric, read_tables(path, fabric))
    with pytest.raises(UserError) as error:
        routes.links(np.array([0]), np.array([1]))
    assert str(error.value) == f"{path}:1: switch leaf0 has no entry for LID 5 (node1)"


def test_a_routing_loop_is_named_by_switch_lid_and_line(tmp_path: Path) -> None:
    """leaf0 sends node2 (LID 8) up, and both spines send it down to leaf0 again."""
    fabric = read_fabric(SIX / "topology.txt")
    parts = (SIX / "opensm.fdbs").read_text().split("dump_ucast_routes")
    looped = [
        p.replace("0x0008 : 002", "0x0008 : 001") if "200003" in p or "200004" in p else p for p in parts
    ]
    path = tmp_path / "looped.fdbs"
    path.write_text("dump_ucast_routes".join(looped))
    routes = Routes(fabric, read_tables(path, fabric))
    with pytest.raises(
        UserError, match=r"looped.fdbs:[0-9]+: switch \w+ forwards LID 8 \(node2\) .* in a loop"
    ):
        routes.links(np.array([0]), np.array([2]))


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_refused_as_a_topology(name: str) -> None:
    with pytest.raises(UserError, match=r": (forwarding tables|an opareport).*, no topology of a fabric"):
        read_fabric(SIX / name)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_topology_is_refused_as_tables(name: str) -> None:
    with pytest.raises(UserError, match=r"(ibnetdiscover|subnet.lst|db_csv|opareport), no forwarding tables"):
        read_tables(SIX / name, read_fabric(SIX / "topology.txt"))


def test_tables_of_another_fabric_are_refused(tmp_path: Path) -> None:
    fabric = read_fabric(SIX / "topology.txt")
    with pytest.raises(UserError, match="both at the same time"):
        read_tables(decompress("of45", "opensm.fdbs", tmp_path), fabric)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node[0-2]\nDUMMY\nnode5\n", [0, 1, 2, -1, 5]),
        ("0x0001\tnode0\n0xFFFF\tDUMMY\n", [0, -1]),
        ("node[5,2-3],node1,node0\n", [5, 2, 3, 1, 0]),
    ],
)
def test_an_order_is_read(text: str, expected: list[int], tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.write_text(text)
    assert read_order(path, read_fabric(SIX / "topology.txt")).tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node[0-2]\nnode1\n", ":2: node1 comes twice, first on line 1"),
        ("nodeX\n", ":1: host nodeX is not in"),
        ("0x0001\tnode3\n", ":1: LID 1 is node3 here and node0 in"),
        ("0x0077\tnode3\n", ":1: LID 119 belongs to no host"),
        ("node[0-\n", ":1: not a list of hosts"),
        ("\n", "the file is empty"),
        ("# nobody\nDUMMY\n", ":2: the file names no host"),
        ("DUMMY\n" * 70000, ":65537: more than 65536 ranks"),
        ("node[0-9999999]\n", ":1: more than 65536 hosts in one line"),
        ("@all\n", ":1: a group of hosts"),
        ("node0,@*\n", ":1: a group of hosts"),
    ],
)
def test_a_wrong_order_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_order(path, read_fabric(SIX / "topology.txt"))
    assert message in str(error.value)


def test_further_lids_of_a_port_follow_from_its_lmc(tmp_path: Path) -> None:
    """With LMC 1 node5 has the LIDs 11 and 12. Routes use the first."""
    more = damaged(tmp_path, "topology.txt", lambda t: t.replace("lid 11 lmc 0", "lid 11 lmc 1"))

    def doubled(text: str) -> str:
        text = re.sub(r"0x000b( .*\n)", r"0x000b\g<1>0x000c\g<1>", text)
        return re.sub(r"(\d+) valid", lambda match: f"{int(match[1]) + 1} valid", text)

    path = damaged(tmp_path, "fts.txt", doubled)
    with pytest.raises(UserError, match="LID 12 belongs to no port"):
        read_tables(path, read_fabric(SIX / "topology.txt"))
    read = read_tables(path, read_fabric(more))
    assert (read.ports == read_tables(SIX / "fts.txt", read_fabric(SIX / "topology.txt")).ports).all()


def test_routes_from_hosts_without_a_switch_are_refused(tmp_path: Path) -> None:
    pair = """
Ca\t1 "H-00000000000aaaa0"\t\t# "left"
[1](aaaa1) \t"H-00000000000bbbb0"[1](bbbb1)\t\t# lid 100 lmc 0 "right" lid 101 4xSDR

Ca\t1 "H-00000000000bbbb0"\t\t# "right"
[1](bbbb1) \t"H-00000000000aaaa0"[1](aaaa1)\t\t# lid 101 lmc 0 "left" lid 100 4xSDR
"""
    fabric = read_fabric(damaged(tmp_path, "topology.txt", lambda t: t + pair))
    left = fabric.host_names.index("left")
    assert fabric.host_switch[left] == -1
    with pytest.raises(UserError, match="host left is attached to no switch"):
        Routes(fabric, tables.compute(fabric, "min-hop")).links(np.array([0]), np.array([left]))


def test_control_characters_in_names_of_adapters_are_replaced(tmp_path: Path) -> None:
    path = damaged(tmp_path, "topology.txt", lambda t: t.replace('"node4"', '"\x1b[31mred\x07"'))
    names = read_fabric(path).host_names
    assert "?[31mred?" in names
    assert all(name.isprintable() for name in names)


def test_unicode_digits_in_names_are_read(tmp_path: Path) -> None:
    """str.isdigit is true of a superscript, which int does not convert."""
    path = damaged(tmp_path, "topology.txt", lambda t: t.replace('"node4"', '"²"').replace("node5", "٣x"))
    assert {"²", "٣x"} < set(read_fabric(path).host_names)


def test_a_negative_lmc_is_refused(tmp_path: Path) -> None:
    text = db_csv(read_fabric(SIX / "topology.txt"))
    rows = [
        line + (",LMC" if line.startswith("NodeGuid,PortGuid") else ",-1" if line.count(",") == 5 else "")
        for line in text.splitlines()
    ]
    path = tmp_path / "negative.csv"
    path.write_text("\n".join(rows))
    with pytest.raises(UserError, match="LMC is '-1', which is not a number"):
        read_fabric(path)


@pytest.mark.parametrize("rate", ["99xSDR", "3xSDR", "0xSDR", "4xFOO"])
def test_a_rate_that_no_cable_has_is_unknown(rate: str, tmp_path: Path) -> None:
    fabric = read_fabric(damaged(tmp_path, "topology.txt", lambda t: t.replace("4xSDR", rate, 1)))
    assert sorted(zip(fabric.link_width.tolist(), fabric.link_speed, strict=True))[0] == (0, "")


def test_supported_rates_of_ports_are_read(tmp_path: Path) -> None:
    """The values are bit masks: widths 1x, 4x, 12x are 1, 2, 8; speeds SDR, DDR, QDR are 1, 2, 4, EDR is 512."""
    text = db_csv(read_fabric(SIX / "topology.txt"))
    rows, masks = [], iter([",3,7", ",2,0", ",N/A,N/A", *[",3,519"] * 99])
    for line in text.splitlines():
        values = next(masks) if line.count(",") == 5 and line.startswith("0x") else ""
        rows.append(line + (",LinkWidthSup,LinkSpeedSup" if line.startswith("NodeGuid,PortGuid") else values))
    path = tmp_path / "supported.csv"
    path.write_text("\n".join(rows))
    fabric = read_fabric(path)
    assert set(fabric.link_max_rate.tolist()) == {4 * 25.78125e9}
    assert set(read_fabric(SIX / "topology.txt").link_max_rate.tolist()) == {0.0}


def test_an_aggregation_node_is_not_a_rank(tmp_path: Path) -> None:
    path = damaged(
        tmp_path, "topology.txt", lambda t: t.replace('"node4"', '"Mellanox Technologies Aggregation Node"')
    )
    fabric = read_fabric(path)
    assert fabric.host_names[0] == "Mellanox Technologies Aggregation Node 0x0000000000100009"
    assert [fabric.host_names[host] for host in members_of(fabric, None, None)] == [
        f"node{k}" for k in (0, 1, 2, 3, 5)
    ]
    routes = Routes(fabric, tables.compute(fabric, "d-mod-k"))
    assert faults.unreachable_pairs(routes) == 0 and faults.broken_routes(routes, 1) == []


def test_a_compressed_file_with_a_byte_order_mark_is_read_as_the_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "topology.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + (SIX / "topology.txt").read_bytes()))
    fabric, plain = read_fabric(path), read_fabric(SIX / "topology.txt")
    assert (fabric.switch_names, fabric.host_names) == (plain.switch_names, plain.host_names)
    assert (fabric.link_lines == plain.link_lines).all()
    assert_same_cables(fabric, plain)


def test_adapters_with_one_description_are_told_apart(tmp_path: Path) -> None:
    path = damaged(
        tmp_path, "topology.txt", lambda t: t.replace('"node4"', '"mlx5_0"').replace('"node5"', '"mlx5_0"')
    )
    assert read_fabric(path).host_names[:2] == ["mlx5_0 0x000000000010000b", "mlx5_0 0x0000000000100009"]


PORT_COLUMNS = [
    "NodeGuid",
    "PortGuid",
    "PortNum",
    "MKey",
    "GIDPrfx",
    "MSMLID",
    "LID",
    "CapMsk",
    "M_KeyLeasePeriod",
    "DiagCode",
    "LinkWidthActv",
    "LinkWidthSup",
    "LinkWidthEn",
    "LocalPortNum",
    "LinkSpeedEn",
    "LinkSpeedActv",
    "LMC",
    "MKeyProtBits",
    "LinkDownDefState",
    "PortPhyState",
    "PortState",
    "LinkSpeedSup",
    "CapMsk2",
    "FECActv",
    "RetransActv",
]


def test_the_column_order_of_ibdiagnet_is_read(tmp_path: Path) -> None:
    """A switch of 65 ports at NDR with ibdiagnet's columns: codes and order as published dumps have them."""
    common = {
        "LinkWidthActv": "2",
        "LinkSpeedActv": "2048",
        "LinkWidthSup": "19",
        "LinkSpeedSup": "3841",
        "LMC": "0",
    }

    def port(**columns: str) -> str:
        return ",".join(
            (common | columns).get(column, "N/A" if column == "FECActv" else "0") for column in PORT_COLUMNS
        )

    switch, hosts = "0x0c42a103005a1c3a", [f"0x0c42a10300aa00{k:02x}" for k in range(2)]
    ports = [
        port(NodeGuid=switch, PortGuid=switch, PortNum="0", LID="22", LinkWidthActv="0", LinkSpeedActv="0")
    ]
    for k, host in enumerate(hosts):
        ports.append(port(NodeGuid=host, PortGuid=host, PortNum="1", LID=str(k + 1)))
        ports.append(port(NodeGuid=switch, PortGuid=switch, PortNum=str(k + 1), LID="0"))
    (tmp_path / "db").write_text(
        "\n".join([
            "START_NODES",
            "NodeDesc,NumPorts,NodeType,ClassVersion,BaseVersion,SystemImageGUID,NodeGUID,PortGUID,DeviceID",
            *(f'"node{k} mlx5_0",1,1,1,1,{host},{host},{host},4129' for k, host in enumerate(hosts)),
            f'"SW, a",65,2,1,1,{switch},{switch},{switch},54002',
            "END_NODES\n\nSTART_PORTS",
            ",".join(PORT_COLUMNS),
            *ports,
            "END_PORTS\n\nSTART_SYSTEM_GENERAL_INFORMATION",
            "NodeGuid,SerialNumber,PartNumber,Revision,ProductName",
            f'{switch},SN,PN,AA,"Gorilla"',
            "END_SYSTEM_GENERAL_INFORMATION\n\nSTART_LINKS\nNodeGuid1,PortNum1,NodeGuid2,PortNum2",
            *(f"{host},1,{switch},{k + 1}" for k, host in enumerate(hosts)),
            "END_LINKS",
            "",
        ])
    )  # fmt: skip
    fabric = read_fabric(tmp_path / "db")
    assert (fabric.host_names, fabric.switch_names) == (["node0", "node1"], ["SW"])
    assert (set(fabric.link_width), set(fabric.link_speed)) == ({4}, {"NDR"})
    assert (fabric.link_max_rate == 4 * 106.25e9).all()
    assert fabric.switch_lids.tolist() == [22]


def test_a_row_outside_of_the_sections_is_refused(tmp_path: Path) -> None:
    lines = db_csv(read_fabric(SIX / "topology.txt")).strip().splitlines()
    path = tmp_path / "db"
    path.write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]))
    with pytest.raises(UserError, match=f"db:{len(lines)}: a row outside of the sections"):
        read_fabric(path)


def test_an_active_port_without_a_cable_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = db_csv(read_fabric(SIX / "topology.txt"))
    states = re.sub(r"(?m)^(0x\w+,0x\w+,[1-9].*)$", r"\1,4", text)
    states = re.sub(
        r"(?m)^(0x\w+,0x\w+,0,.*)$", r"\1,4", states.replace("LinkSpeedActv", "LinkSpeedActv,PortState")
    )
    path = tmp_path / "db"
    path.write_text(states)
    assert read_fabric(path).hosts == 6 and not capsys.readouterr().err
    path.write_text(states.replace("0x0000000000200000,2,0x0000000000100002,1\n", ""))
    assert read_fabric(path).hosts == 5
    assert (
        "db: active ports without a cable in LINKS: leaf0 port 2, node1 port 1\n" in capsys.readouterr().err
    )


def test_the_subnet_list_of_ibdiagnet_is_read(tmp_path: Path) -> None:
    """ibdiagnet2.lst is of the same form, with hexadecimal digits in small letters and short device numbers."""
    text = (SIX / "opensm-subnet.lst").read_text()
    small = re.sub(r"(GUID|VenID|DevID|Rev):([0-9A-F]+)", lambda m: f"{m[1]}:{m[2].lower()}", text)
    small = re.sub(r"DevID:0*([0-9a-f]+)", r"DevID:\1", small)
    (tmp_path / "ibdiagnet2.lst").write_text(small)
    fabric, original = read_fabric(tmp_path / "ibdiagnet2.lst"), read_fabric(SIX / "opensm-subnet.lst")
    assert (fabric.host_guids == original.host_guids).all() and (fabric.link_to == original.link_to).all()


def test_a_rate_at_one_end_is_that_of_the_cable(tmp_path: Path) -> None:
    def at_adapters_alone(text: str) -> str:  # as ibnetdiscover of 2006 writes
        return re.sub(r"^(\[[0-9]+\]\s.*) 4xSDR$", r"\1", text, flags=re.MULTILINE)

    fabric = read_fabric(damaged(tmp_path, "topology.txt", at_adapters_alone))
    is_host = np.maximum(fabric.link_from, fabric.link_to) >= len(fabric.switch_names)
    assert (fabric.link_width == np.where(is_host, 4, 0)).all()
    assert fabric.link_speed == ["SDR" if host else "" for host in is_host]


def test_the_last_lid_that_dump_fts_leaves_out_is_no_missing_route(tmp_path: Path) -> None:
    """infiniband-diags reads whole blocks of 64 LIDs, and leaves out the last one where a block would begin with it."""
    (tmp_path / "net.txt").write_text((SIX / "topology.txt").read_text().replace("lid 11 ", "lid 64 "))
    tables_of = (SIX / "fts.txt").read_text().replace("[0x0-0xb]", "[0x0-0x40]")
    without = re.sub(r"^0x000b .*\n", "", tables_of, flags=re.MULTILINE)
    counts = re.sub(
        r"^(\d+) valid lids", lambda m: f"{int(m[1]) - 1} valid lids", without, flags=re.MULTILINE
    )
    (tmp_path / "fts.txt").write_text(counts)
    fabric = read_fabric(tmp_path / "net.txt")
    with pytest.raises(
        UserError, match=r"no table has LID 64 \(node5\), the last one: dump_fts and ibroute leave"
    ):
        read_tables(tmp_path / "fts.txt", fabric)
    whole = re.sub(r"^0x000b ", "0x0040 ", tables_of, flags=re.MULTILINE)
    (tmp_path / "whole.txt").write_text(whole)
    assert read_tables(tmp_path / "whole.txt", fabric).ports.all()
