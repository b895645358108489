"""Files of the field: a node that did not answer, LIDs that overlap, no switch, ports without a cable, routers, odd
descriptions, what OpenSM does not know, numbered tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recorded import SIX, db_csv

from assay.errors import UserError
from assay.explain import explain
from assay.fabric import Routes, anonymous, faults, tables
from assay.fabric.read import read_fabric, read_tables
from assay.fabric.topology import ROUTER
from assay.measure.fabric import cable_records


def switch_and_two_hosts(first: str = "lid 1 lmc 0", second: str = "lid 9 lmc 0") -> str:
    """The output of ibnetdiscover for a switch with two hosts; their LIDs are given."""
    hosts = "".join(
        f'\nCa 1 "H-{guid:016x}" # "n{guid} mlx5_0"\n'
        f'[1]({guid + 16:x}) "S-{1:016x}"[{guid - 1}] # {lids} "sw" lid 100 4xHDR\n'
        for guid, lids in ((2, first), (3, second))
    )
    return (
        f'Switch 36 "S-{1:016x}" # "sw" enhanced port 0 lid 100 lmc 0\n'
        f'[1] "H-{2:016x}"[1](12) # "n2 mlx5_0" lid 1 4xHDR\n[2] "H-{3:016x}"[1](13) # "n3 mlx5_0" lid 2 4xHDR\n{hosts}'
    )


@pytest.mark.parametrize(
    ("message", "where"),
    [
        (
            "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1,7 Attr 0x11:0) bad status 110; timed out",
            "the node at the direct route 0,1,7 did not answer",
        ),
        (
            "ibwarn: [2718] mad_rpc: _do_madrpc failed; dport (DR path slid 65535; dlid 65535; 0,1,19,2)",
            "the node at the direct route 0,1,19,2 did not answer",
        ),
        ("ibwarn: [2718] _do_madrpc: recv failed: Connection timed out", "recv failed: Connection timed out"),
    ],
)
@pytest.mark.parametrize("line", [1, 2])
def test_a_node_that_did_not_answer_makes_the_file_incomplete(
    message: str, where: str, line: int, tmp_path: Path
) -> None:
    lines = switch_and_two_hosts().splitlines()
    lines.insert(line - 1, message)
    path = tmp_path / "net.txt"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=f":{line}: .*may be incomplete") as refused:
        read_fabric(path)
    assert where in refused.value.what
    assert "unchanged" not in refused.value.fix
    assert re.search("then take (it again|the file anew)", refused.value.fix)
    path.write_text(switch_and_two_hosts())
    assert read_fabric(path).hosts == 2


def test_an_adapter_without_a_cable_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ibnetdiscover lists the adapter that it begins at, be it plugged or not."""
    path = tmp_path / "net.txt"
    lone = f'# Topology file\nvendid=0x2c9\nCa\t1 "H-{9:016x}"\t\t# "n9 HCA-1"\n'
    path.write_text(lone)
    with pytest.raises(UserError, match="no cable in it, only the adapter n9 HCA-1") as refused:
        read_fabric(path)
    assert "-C mlx5_1" in refused.value.fix
    path.write_text(switch_and_two_hosts() + lone)
    assert read_fabric(path).hosts == 2
    assert capsys.readouterr().err == f"note: {path}: adapters without a cable left out: n9 HCA-1\n"


def test_a_cable_from_a_switch_to_itself_is_read_and_named(tmp_path: Path) -> None:
    own = "".join(f'[{a}] "S-{1:016x}"[{b}] # "sw" lid 100 4xHDR\n' for a, b in ((5, 6), (6, 5)))
    path = tmp_path / "net.txt"
    path.write_text(switch_and_two_hosts().replace("\nCa 1", f"{own}\nCa 1", 1))
    fabric = read_fabric(path)
    assert (fabric.hosts, fabric.switches, fabric.links) == (2, 1, 6)
    findings = explain(list(cable_records(fabric)))
    assert [(f.rule, f.subject.device) for f in findings] == [("self_loop", "sw[5] -> sw[6]")]
    assert faults.unreachable_pairs(Routes(fabric, tables.compute(fabric, "up/down"))) == 0


def test_lids_of_an_lmc_belong_to_one_port(tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text(switch_and_two_hosts("lid 4 lmc 2", "lid 6 lmc 0"))
    with pytest.raises(UserError, match=r"LID 6 of n3 mlx5_0 is one of 4 to 7 of n2 mlx5_0 \(LMC 2"):
        read_fabric(path)
    path.write_text(switch_and_two_hosts("lid 4 lmc 2", "lid 8 lmc 0"))
    assert read_fabric(path).hosts == 2


@pytest.mark.parametrize("blank", ["", " "])
def test_hosts_without_a_switch_between_them_are_named(blank: str, tmp_path: Path) -> None:
    """ibnetdiscover writes a blank before the GUID of an adapter that is cabled to an adapter or router."""
    path = tmp_path / "net.txt"
    path.write_text(
        f'Ca 1 "H-{2:016x}" # "a mlx5_0"\n'
        f'[1](12) "H-{3:016x}"[1]{blank}(13) # lid 1 lmc 0 "b mlx5_0" lid 2 4xHDR\n\n'
        f'Ca 1 "H-{3:016x}" # "b mlx5_0"\n'
        f'[1](13) "H-{2:016x}"[1]{blank}(12) # lid 2 lmc 0 "a mlx5_0" lid 1 4xHDR\n'
    )
    with pytest.raises(UserError, match="a mlx5_0 and b mlx5_0 are cabled to each other: no switch"):
        read_fabric(path)


@pytest.mark.parametrize(
    ("file", "pattern", "unset"),
    [
        ("topology.txt", r"\blid [0-9]+", "lid 65535"),
        ("opensm-subnet.lst", r"LID:[0-9A-F]+", "LID:FFFF"),
    ],
)
def test_a_fabric_without_a_subnet_manager_is_read(
    file: str, pattern: str, unset: str, tmp_path: Path
) -> None:
    path = tmp_path / "net"
    path.write_text(re.sub(pattern, unset, (SIX / file).read_text()))
    fabric = read_fabric(path)
    assert (fabric.hosts, fabric.switch_lids.any(), fabric.host_lids.any()) == (6, False, False)


@pytest.mark.parametrize("lid", ["65535", "0"])
def test_a_port_without_a_cable_has_no_lid_to_judge(lid: str, tmp_path: Path) -> None:
    text = db_csv(read_fabric(SIX / "topology.txt"))
    guid = next(line.split(",")[0] for line in text.splitlines() if line.startswith("0x00000000001"))
    path = tmp_path / "db"
    path.write_text(text.replace("END_PORTS", f"{guid},0x99,2,{lid},0,0\nEND_PORTS"))
    assert read_fabric(path).hosts == 6


def test_a_router_is_no_host_and_stays_a_router_in_anonymised_files(tmp_path: Path) -> None:
    text = switch_and_two_hosts().replace('Ca 1 "H-0000000000000003"', 'Rt 1 "R-0000000000000003"')
    path = tmp_path / "net.txt"
    path.write_text(text.replace('"H-0000000000000003"[1](13)', '"R-0000000000000003"[1](13)'))
    fabric = read_fabric(path)
    assert fabric.is_host.tolist() == [name == "n2" for name in fabric.host_names]
    written, *_ = anonymous.write(fabric, None, None, tmp_path / "shared")
    assert read_fabric(written).host_kinds.count("router") == 1


def test_a_greeting_of_the_simulator_is_no_message(tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text(
        'ibwarn: [3141] sim_connect: attached as client 1 at node "Switch1"\n' + switch_and_two_hosts()
    )
    assert read_fabric(path).hosts == 2


@pytest.mark.parametrize("indent", ["    ", "\t", " \t "])
def test_a_listing_copied_out_of_a_page_is_read(indent: str, tmp_path: Path) -> None:
    greeting = 'ibwarn: [3141] sim_connect: attached as client 1 at node "Switch1"\n'
    path = tmp_path / "net.txt"
    lines = (greeting + switch_and_two_hosts()).splitlines(keepends=True)
    path.write_text("".join(indent + line for line in lines))
    fabric = read_fabric(path)
    assert (fabric.hosts, fabric.switches, fabric.links) == (2, 1, 4)


def test_a_greeting_alone_is_not_given_as_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text('ibwarn: [3141] sim_connect: attached as client 1 at node "Switch1"\n')
    with pytest.raises(UserError, match=r": no topology of a fabric;"):
        read_fabric(path)


def test_a_comparison_of_two_fabrics_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "net.txt"
    path.write_text(
        'Switch 8 "S-0000000000000001" # "sw" base port 0 lid 3 lmc 0\n< [1] "H-0000000000000002"[1](12)\n'
    )
    with pytest.raises(UserError, match=r":2: a difference \(ibnetdiscover --diff\)"):
        read_fabric(path)


@pytest.mark.parametrize(
    "message",
    [
        "ibwarn: [27] mad_rpc_open_port: client_register for mgmt 1 failed",
        "/usr/sbin/ibnetdiscover: iberror: failed",
    ],
)
def test_a_file_with_nothing_but_a_message_says_so(message: str, tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(message + "\n")
    with pytest.raises(UserError, match="no node in it, only a message of the tool: ") as refused:
        read_fabric(tmp_path / "net.txt")
    assert message in refused.value.what


def test_a_router_of_opensm_is_read(tmp_path: Path) -> None:
    """OpenSM writes "Rt" where other tools write "RT"."""
    text = (SIX / "opensm-subnet.lst").read_text().splitlines()
    path = tmp_path / "opensm-subnet.lst"
    path.write_text("\n".join(re.sub(r"CA(?= [^}]*\{node4\})", "Rt", line) for line in text))
    assert read_fabric(path).host_kinds.count(ROUTER) == 1


def test_a_rate_that_opensm_does_not_know_is_unknown(tmp_path: Path) -> None:
    text = (SIX / "opensm-subnet.lst").read_text()
    path = tmp_path / "opensm-subnet.lst"
    path.write_text(text.replace("PHY=4x LOG=ACT SPD=2.5", "PHY=?? LOG=ACT SPD=??", 2))
    fabric = read_fabric(path)
    assert (fabric.link_width.tolist().count(0), fabric.link_speed.count("")) == (2, 2)
    assert fabric.links == read_fabric(SIX / "opensm-subnet.lst").links


@pytest.mark.parametrize(
    "description", ['rack "4" node', '"node4"', 'a "b,c" d', "4\\", "# node, 4", '"', "node '4'"]
)
def test_a_description_between_quotes_is_read_as_the_node_gives_it(description: str, tmp_path: Path) -> None:
    """ibdiagnet does not double the quotes within a description."""
    path = tmp_path / "ibdiagnet2.db_csv"
    path.write_text(db_csv(read_fabric(SIX / "topology.txt")).replace('"node4"', f'"{description}"'))
    fabric = read_fabric(path)
    assert description in fabric.host_texts and fabric.hosts == 6


def test_a_quote_that_is_not_closed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ibdiagnet2.db_csv"
    path.write_text(db_csv(read_fabric(SIX / "topology.txt")).replace('"node4"', '"node4'))
    with pytest.raises(UserError, match=r":[0-9]+: a quote is not closed"):
        read_fabric(path)


def test_the_number_of_the_one_private_table_is_read(tmp_path: Path) -> None:
    """Newer ibdiagnet numbers the tables of each switch from 0."""
    fabric = read_fabric(SIX / "topology.txt")
    head, text = "LID    : Port : Hops : Optimal", (SIX / "opensm.fdbs").read_text()
    path = tmp_path / "ibdiagnet2.fdbs"
    path.write_text(text.replace(head, f"PLFT_NUM: 0\n{head}"))
    assert (read_tables(path, fabric).ports == read_tables(SIX / "opensm.fdbs", fabric).ports).all()
    path.write_text(path.read_text().replace("PLFT_NUM: 0", "PLFT_NUM: 1", 1))
    with pytest.raises(UserError, match="several private tables"):
        read_tables(path, fabric)


def test_lids_of_virtual_ports_are_named_as_a_reason(tmp_path: Path) -> None:
    fabric, text = read_fabric(SIX / "topology.txt"), (SIX / "opensm.fdbs").read_text()
    head = "dump_ucast_routes: Switch"
    path = tmp_path / "ibdiagnet2.fdbs"
    path.write_text(text.replace(f"\n{head}", f"\n0x0300 : 001  : 00   : yes\n{head}"))
    with pytest.raises(UserError, match="LID 768 belongs to no port") as refused:
        read_tables(path, fabric)
    assert "both at the same time" in refused.value.fix and "virtual ports" in refused.value.fix


def test_output_that_is_grouped_by_chassis_is_read(tmp_path: Path) -> None:
    """``ibnetdiscover -g``: headings, the place of a node after its GUIDs, and the number on the case of a port."""
    text = (
        switch_and_two_hosts().replace("[1] ", "[1][ext 7] ", 1).replace('"[1] # lid', '"[1][ext 7] # lid', 1)
    )
    grouped = (
        "\nChassis 1 (guid 0x8f1)\nHostname: director\n\n# Spine Nodes\nvendid=0x8f1\n"
        "sysimgguid=0x8f2\t\t# Chassis 1 (ISR 9288) slot 2\nswitchguid=0x1(1)\t# ISR9288 Spine 1 Chip 1\n"
    )
    path = tmp_path / "net.txt"
    path.write_text(grouped + text.replace("\nCa 1", "\nNon-Chassis Nodes\n\nCa 1", 1))
    fabric = read_fabric(path)
    assert (fabric.hosts, fabric.switches, fabric.links) == (2, 1, 4)


@pytest.mark.parametrize(
    ("message", "where"),
    [
        (
            "SubnGet(LFT) failed on switch 'leaf1' DR path slid 0; dlid 0; 0,1,19 Node GUID 0x200001; MAD status 0x6e",
            "the node at the direct route 0,1,19 did not answer",
        ),
        ("ibwarn: [27] _do_madrpc: recv failed: Connection timed out", "recv failed: Connection timed out"),
    ],
)
def test_a_switch_that_did_not_answer_makes_its_table_incomplete(
    message: str, where: str, tmp_path: Path
) -> None:
    """``dump_fts > FILE 2>&1``: its entries are then those of other LIDs."""
    fabric, lines = read_fabric(SIX / "topology.txt"), (SIX / "fts.txt").read_text().splitlines()
    path = tmp_path / "fts.txt"
    path.write_text("\n".join([*lines[:5], message, *lines[5:]]))
    with pytest.raises(UserError, match=r":6: .*may be incomplete") as refused:
        read_tables(path, fabric)
    assert where in refused.value.what and refused.value.fix.endswith("take the file anew")
    greeting = 'ibwarn: [3141] sim_connect: attached as client 1 at node "leaf1"'
    path.write_text("\n".join([*lines[:5], greeting, *lines[5:]]))
    assert (read_tables(path, fabric).ports == read_tables(SIX / "fts.txt", fabric).ports).all()
