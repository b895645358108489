"""Names of hosts, ports and switches: a description is a text for people, a name is for Slurm and launchers."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_fabrics import dual_rail

from assay.cli import main
from assay.errors import UserError
from assay.fabric.names import EndPort, name_ports, name_switches
from assay.fabric.read import read_fabric, read_order
from assay.records.padding import meant


def named(*descriptions: str) -> tuple[list[str], list[str]]:
    return name_ports([EndPort(text, 16 * k, 16 * k + 1, 1) for k, text in enumerate(descriptions, 1)])


@pytest.mark.parametrize(
    ("descriptions", "names"),
    [
        (["MF0;isw1:SX6036/U1", "MF0;isw2:SX6036/U1"], ["isw1", "isw2"]),
        (["MF0;core:SX6506/S1/U1", "MF0;core:SX6506/L2/U1"], ["core-S1-U1", "core-L2-U1"]),
        (["SwitchIB Mellanox Technologies"] * 2, ["SwitchIB-2", "SwitchIB-1"]),
        (["leaf one", "leaf-1", "leaf two"], ["leaf-one", "leaf-1", "leaf-two"]),
        (["leaf 0 rack B", "leaf 1 rack B", "core"], ["leaf-0-rack-B", "leaf-1-rack-B", "core"]),
        (["leaf 0 (row A)", "leaf 0 (row B)"], ["leaf-0-row-A", "leaf-0-row-B"]),
        (["spine 0", "core 7 # new", "top of rack 3"], ["spine-0", "core-7-new", "top"]),
        (["sw 1", "sw/1", "sw-1-1"], ["sw-1-3", "sw-1-2", "sw-1-1"]),
        (["", "MF0;:MQM8700/U1", "a,b[3]"], ["switch", "MQM8700", "a-b-3"]),
    ],
)
def test_switches_have_short_safe_names(descriptions: list[str], names: list[str]) -> None:
    assert name_switches(descriptions, range(9, 9 - len(descriptions), -1)) == names


@pytest.mark.parametrize(
    ("descriptions", "hosts"),
    [
        (["n1 mlx5_0", "n1 HCA-2", "n2 mlx5_0"], ["n1", "n1", "n2"]),
        (["n1", "n1"], ["n1", "n1"]),
        (["n1 hfi1_0", "n1 ibp65s0", "n1.x.org HCA-1"], ["n1", "n1", "n1.x.org"]),
        (["MT4123 ConnectX6 Mellanox Technologies", "IBM G2 Logical HCA ", "(none) HCA-1"], ["", "", ""]),
        (["localhost mlx5_0", "", "HCA-1", "mlx5_0"], ["", "", "", ""]),
        (["Hca0", "hca1", "HCA-2 x"], ["Hca0", "hca1", ""]),  # ibsim's hosts, and a device
        (["ubuntu mlx5_0", "ubuntu mlx5_0"], ["", ""]),  # two machines that nobody has named
        (["rack one", "rack two"], ["", ""]),
        (["rack1 node1", "rack1 node2", "rack1 Server-3"], ["", "", ""]),
        (["n1", "n1 mlx5_1"], ["n1", "n1"]),
        (["n1 mlx5_0 storage", "n1 mlx5_1 (MPI)", "n1 ibA"], ["", "", ""]),
        (["n1 mlx5_0 storage", "n1 mlx5_1 (MPI)"], ["n1", "n1"]),
        (["n1 S 10.0.0.1,10.0.0.2 HCA-1", "n1 S 10.0.0.1,10.0.0.2 HCA-2"], ["n1", "n1"]),
        (["n1 S 10.0.0.1 HCA-1", "n1 S 10.0.0.2 HCA-1", "n2 C 10.0.0.3 HCA-1"], ["", "", "n2"]),
        (["rack1 node1 HCA-1", "rack1 node1 HCA-2"], ["", ""]),
        (["node 0", "node 1"], ["", ""]),  # two hosts, no two rails of one
    ],
)
def test_a_host_is_the_first_word_of_its_adapters(descriptions: list[str], hosts: list[str]) -> None:
    names, found = named(*descriptions)
    assert found == hosts
    assert len(set(names)) == len(names)


def test_rails_and_ports_of_a_host_are_named() -> None:
    assert named("n1 mlx5_0", "n1 mlx5_1", "n2 mlx5_0")[0] == ["n1 mlx5_0", "n1 mlx5_1", "n2"]
    two_ports = [EndPort("n1 mlx5_0", 16, 17, 1), EndPort("n1 mlx5_0", 16, 18, 2)]
    assert name_ports(two_ports) == (["n1 mlx5_0:1", "n1 mlx5_0:2"], ["n1", "n1"])


@pytest.fixture
def rails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    Path("net.txt").write_text(dual_rail(["n1", "n2"]))
    return ["--fabric", "net.txt", "--routing", "min-hop"]


def test_launcher_files_hold_hosts_and_the_rails_are_beside(rails: list[str]) -> None:
    assert main(["fabric", "schedule", *rails, "--into", "x"]) == 0
    for launcher in ("slurm", "mpich", "openmpi"):
        text = Path("x", launcher).read_text()
        assert "mlx5" not in text and text.count("n1") == text.count("n2") == 2
    assert sorted(Path("x/rails").read_text().splitlines()) == [
        "n1 mlx5_0",
        "n1 mlx5_1",
        "n2 mlx5_0",
        "n2 mlx5_1",
    ]
    arguments = ["--schedule-file", "x/schedule.txt", "--order", "x/rails", "-o", "run"]
    assert main(["fabric", "conflicts", *rails, *arguments]) == 0


def test_a_host_in_w_is_all_of_its_ports_and_in_an_order_the_next_one(
    rails: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fabric", "conflicts", *rails, "-w", "n[1-2]", "-o", "run"]) == 0
    assert "shift of 4 ranks" in capsys.readouterr().out
    Path("order").write_text("n2\nn1\nn2\nn1 mlx5_1\n")
    fabric = read_fabric("net.txt")
    assert [fabric.host_names[k] for k in read_order("order", fabric)] == [
        "n2 mlx5_0", "n1 mlx5_0", "n2 mlx5_1", "n1 mlx5_1"
    ]  # fmt: skip
    Path("order").write_text("n2\nn2\nn2\n")
    assert main(["fabric", "conflicts", *rails, "--order", "order"]) == 2
    assert "n2 mlx5_1 comes twice, first on line 2" in capsys.readouterr().err


def test_hosts_are_counted_beside_their_ports(rails: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "schedule", *rails]) == 0
    assert "net.txt, 2 hosts with 4 ports; tables: " in capsys.readouterr().out
    Path("order").write_text("n1 mlx5_0\nn2 mlx5_1\n")
    assert main(["fabric", "schedule", *rails, "--order", "order"]) == 0
    assert "net.txt, 2 hosts; tables: " in capsys.readouterr().out


def test_pairs_of_rails_have_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.txt").write_text(dual_rail(["n1", "n2"]))
    arguments = ["--fabric", "net.txt", "--routing", "min-hop", "-o", "run"]
    assert main(["fabric", "conflicts", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    pairs = [line for line in lines if " -> n" in line and "mlx5_" in line]
    assert pairs and all(line.count("->") == 1 + ("[" in line) for line in pairs)


def test_w_takes_the_name_of_a_rail(rails: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "conflicts", *rails, "-w", "n1 mlx5_0, n2 mlx5_1", "-o", "run"]) == 0
    assert "shift of 2 ranks" in capsys.readouterr().out
    assert main(["fabric", "schedule", *rails, "-w", "n1,n2 mlx5_1,n1"]) == 0
    assert "net.txt, 2 hosts with 3 ports" in capsys.readouterr().out
    for text, problem in (
        ("n1 mlx5_7", "no host 'n1 mlx5_7' in the fabric"),
        ("n1 n2", "blanks between names; fix: write n1,n2"),
        ("n1,n1 mlx5_0", "host n1 mlx5_0 takes part twice"),
    ):
        assert main(["fabric", "schedule", *rails, "-w", text]) == 2
        assert problem in capsys.readouterr().err


def test_w_takes_the_name_that_it_proposes(rails: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "conflicts", *rails, "-w", "x9"]) == 2
    proposed = capsys.readouterr().err.split("such as ")[1].strip()
    assert main(["fabric", "conflicts", *rails, "-w", proposed, "-o", "run"]) == 0


def test_a_host_with_other_zeros_is_proposed(rails: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.txt").write_text(dual_rail(["n01", "n02"]))
    Path("order").write_text("n[1-2]\n")
    for members in (["-w", "n[1-2]"], ["--order", "order"], ["-w", "n01.x.org"], ["-w", "N01"]):
        assert main(["fabric", "conflicts", *rails, *members]) == 2
        assert "did you mean n01?" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["n1 slots=4", "n1:4", "n1.x.org", "n1 4 all.q UNDEFINED"])
def test_an_order_of_slots_or_full_names_is_refused_with_the_host(line: str, rails: list[str]) -> None:
    Path("order").write_text(line + "\n")
    with pytest.raises(UserError) as refused:
        read_order("order", read_fabric("net.txt"))
    assert (refused.value.what.startswith("order:1: "), refused.value.fix) == (True, "did you mean n1?")


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("N1.x.org", ["n1"], ["n1"]),
        ("n1", ["n1.x.org"], ["n1.x.org"]),
        ("n1.y.org", ["n1.x.org"], []),
        ("w", ["w.1.x", "w.2.x"], []),
        ("10.0.0.2", ["10.0.0.1"], []),
    ],
)
def test_a_domain_or_capitals_are_guessed_where_one_host_is_meant(
    name: str, known: list[str], expected: list[str]
) -> None:
    assert meant([name], known) == expected


def test_an_order_keeps_that_of_every_bracket(tmp_path: Path) -> None:
    names = [f"r{rack}n{node}-ib0" for rack in (1, 2) for node in (1, 2)]
    (tmp_path / "net").write_text(dual_rail(names))
    (tmp_path / "order").write_text("r[2,1]n[2,1]-ib0\n")
    fabric = read_fabric(tmp_path / "net")
    found = [fabric.hosts_of_ports[k] for k in read_order(tmp_path / "order", fabric)]
    assert found == ["r2n2-ib0", "r2n1-ib0", "r1n2-ib0", "r1n1-ib0"]


def test_no_launcher_file_names_a_port_without_a_host(
    rails: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = dual_rail(["n1", "n2"]).replace("n2 mlx5_1", "MT4123 ConnectX6 Mellanox Technologies")
    Path("net.txt").write_text(text)
    assert main(["fabric", "schedule", *rails, "--into", "x"]) == 0
    assert not Path("x/slurm").exists() and Path("x/schedule.txt").exists()
    assert "the description of 1 of 4 ports names no host" in capsys.readouterr().out


def test_rails_stay_rails_in_anonymised_files(rails: list[str]) -> None:
    assert main(["fabric", "anonymise", "--fabric", "net.txt", "--into", "shared"]) == 0
    fabric = read_fabric("shared/topology.txt")
    assert fabric.host_names == ["host1 mlx5_0", "host1 mlx5_1", "host2 mlx5_0", "host2 mlx5_1"]
    assert fabric.ports_of == {"host1": [0, 1], "host2": [2, 3]}


@pytest.mark.parametrize("rail", ["mlx5_1", "mlx5_1:1"])
def test_a_rail_chooses_the_port_of_each_host(rails: list[str], rail: str) -> None:
    fabric = read_fabric("net.txt")
    chosen = [fabric.find_rails(name, rail) for name in ("n1", "n2", "n1 mlx5_0")]
    assert [fabric.host_names[k] for (k,) in chosen] == ["n1 mlx5_1", "n2 mlx5_1", "n1 mlx5_0"]


def test_a_host_with_several_ports_is_refused_where_none_is_its_rail(rails: list[str]) -> None:
    message = r"n1 has 2 ports .*\(mlx5_0, mlx5_1\), and 0 of them are mlx5_7"
    with pytest.raises(UserError, match=message) as refused:
        read_fabric("net.txt").find_rails("n1", "mlx5_7")
    assert refused.value.fix.endswith("--rail mlx5_0")


def test_net_takes_the_rails_of_its_option_or_of_ucx(
    rails: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows an adapter that the hosts have is another error: the hosts are not there."""
    command = ["net", "-w", "n1,n2", "--fabric", "net.txt", "--routing", "min-hop", "--launcher", "mpich"]

    def refusal(*options: str) -> str:
        assert main([*command, *options]) == 2
        return capsys.readouterr().err

    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    assert "ports in the fabric" not in refusal()
    assert "ports in the fabric" not in refusal("--rail", "mlx5_0,mlx5_1")
    assert "0 of them are mlx5_7" in refusal("--rail", "mlx5_7")
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1")
    assert "ports in the fabric" not in refusal()
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_7:1")
    assert "0 of them are mlx5_7:1" in refusal()
