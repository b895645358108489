"""``assay fabric`` on the command line: the records, outcome and files of a run, and one line for wrong input."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from recorded import SIX, decompress

from assay.cli import main
from assay.errors import UserError
from assay.fabric import ForwardingTables, Routes, conflicts, routes, synthetic, tables
from assay.fabric.remedies import exchange
from assay.fabric.remedies.slurm_files import read_topology
from assay.records.run import Run
from assay.records.schema import Flows, Measurement

TREE = ["--fat-tree", "radix=36,nodes=45"]
FILES = ["--fabric", str(SIX / "topology.txt"), "--tables", str(SIX / "fts.txt")]


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def figures(path: str) -> dict[str, float]:
    """The totals of a run, by metric."""
    return {
        r.metric: r.median
        for r in Run.load(path).records
        if isinstance(r, Measurement) and "step" not in r.params
    }


def test_json_has_the_total_and_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "conflicts", *TREE, "--schedule", "shift", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    (total,) = [r for r in records if r.get("metric") == "conflicts_total"]
    assert total["summary"]["median"] == 81
    steps = {r["params"]["step"]: r["summary"]["median"] for r in records if r.get("metric") == "conflicts"}
    assert [steps[k] for k in range(45)] == [max(0, 9 - abs(k - 27)) for k in range(45)]


def test_the_pairs_of_each_shared_link_are_recorded() -> None:
    assert main(["fabric", "conflicts", *TREE, "-o", "run"]) == 0
    shared = [r for r in Run.load("run").records if isinstance(r, Flows)]
    assert sum(r.params["load"] - 1 for r in shared) == 81
    (flows,) = [r for r in shared if r.params["step"] == 28 and "node20" in r.sources]
    assert flows.subject.device == "leaf1[20] -> spine1[2]"
    assert set(zip(flows.sources, flows.targets, strict=True)) == {("node20", "node37"), ("node29", "node01")}


def test_recorded_files_with_and_without_an_order_with_empty_slots(tmp_path: Path) -> None:
    names = ("topology.txt", "opensm.fdbs", "opensm-ftree-ca-order.dump")
    topology, tables, order = (str(decompress("of45", name, tmp_path)) for name in names)
    files = ["--fabric", topology, "--tables", tables]
    assert main(["fabric", "conflicts", *files, "-o", "plain"]) == 0
    assert main(["fabric", "conflicts", *files, "--order", order, "-o", "padded"]) == 0
    plain, padded = figures("plain"), figures("padded")
    assert (plain["conflicts_total"], plain["rounds"], plain["rounds_bound"]) == (81, 62, 45)
    assert (padded["conflicts_total"], padded["rounds"]) == (0, 54)


def test_more_conflicts_than_pairs_of_ranks_are_no_share(capsys: pytest.CaptureFixture[str]) -> None:
    tree = ["--fat-tree", "radix=8,levels=3", "--routing", "min-hop"]
    assert main(["fabric", "conflicts", *tree, "-o", "run"]) == 0
    text = capsys.readouterr().out
    assert "shift of 128 ranks: 20736 conflicts, 1.27 a pair of ranks;" in text
    assert Run.load(Path("run")).info.result.startswith(
        "20736 conflicts of shift among 128 ranks, 1.27 a pair"
    )


def test_the_terminal_shows_totals_steps_and_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "conflicts", *TREE, "-o", "run"]) == 0
    text = capsys.readouterr().out
    assert "shift of 45 ranks: 81 conflicts, 0.04 a pair of ranks; 62 rounds, bound 45" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["27", "9", "2", "flows"] in lines
    assert "leaf1[19] -> spine0[2]      2  node18 -> node36, node27 -> node00" in text
    assert "and 7 more steps with conflicts" in text


def test_chosen_hosts_take_part_in_the_given_order() -> None:
    assert main(["fabric", "conflicts", *TREE, "-w", "node[00-17]", "-o", "one-leaf"]) == 0
    assert figures("one-leaf")["conflicts_total"] == 0
    assert figures("one-leaf")["rounds_bound"] == 18
    assert main(["fabric", "conflicts", *TREE, "-w", "node[20,03-04],node01", "-o", "written"]) == 0
    run = Run.load("written")
    assert run.info.hosts == ["node20", "node03", "node04", "node01"]
    assert (run.info.options["schedule"], run.info.options["matchings"]) == ("shift", "100")


def test_a_healthy_fabric_passes_and_a_broken_one_fails(tmp_path: Path) -> None:
    assert main(["fabric", "check", *FILES, "-o", "good"]) == 0
    cut = (SIX / "opensm.fdbs").read_text().replace("0x0005 : 002", "0x0005 : 255", 1)
    (tmp_path / "cut.fdbs").write_text(cut)
    arguments = ["fabric", "check", "--fabric", FILES[1], "--tables", "cut.fdbs", "-o", "bad"]
    assert main(arguments) == 1
    assert figures("bad")["unreachable_pairs"] > 0


def test_the_check_shows_the_rates_of_cables(capsys: pytest.CaptureFixture[str]) -> None:
    """Cables that are all equally slow pass. The shown rate tells a user who knows what was bought."""
    assert main(["fabric", "check", *FILES, "-o", "good"]) == 0
    text = capsys.readouterr().out
    assert "most cables: to hosts 4x SDR, between switches 4x SDR; what the ports support is unknown" in text
    assert main(["fabric", "check", "--fat-tree", "radix=8,rate=2xHDR", "-o", "model"]) == 0
    assert "most cables: to hosts 2x HDR, between switches 2x HDR\n" in capsys.readouterr().out


@pytest.fixture
def routed() -> str:
    """The file of a fabric with a router in the place of node4."""
    text = (SIX / "topology.txt").read_text().replace("H-0000000000100008", "R-0000000000100008")
    Path("net.txt").write_text(re.sub(r'Ca(\s+[0-9]+ "R-)', r"Rt\1", text))
    return "net.txt"


def test_the_check_counts_ports_of_routers(capsys: pytest.CaptureFixture[str], routed: str) -> None:
    assert main(["fabric", "check", "--fabric", routed, "--routing", "min-hop"]) == 0
    assert ": 5 hosts, 1 ports of routers and gateways, " in capsys.readouterr().out


def test_a_router_is_not_counted_among_the_ranks(routed: str) -> None:
    assert main(["fabric", "conflicts", "--fabric", routed, "--routing", "d-mod-k", "-o", "run"]) == 0
    assert Run.load("run").info.hosts == ["node0", "node1", "node2", "node3", "node5"]
    ranks = {r.params["ranks"] for r in Run.load("run").records if isinstance(r, Measurement)}
    assert ranks == {5} and figures("run")["rounds_bound"] == 5


def test_files_for_launchers_and_slurm_do_not_name_a_router(routed: str) -> None:
    source = ["--fabric", routed]
    assert main(["fabric", "schedule", *source, "--routing", "d-mod-k", "--into", "made"]) == 0
    assert main(["fabric", "slurm", *source, "--into", "made"]) == 0
    hosts = ["node0", "node1", "node2", "node3", "node5"]
    for name in ("openmpi", "mpich", "slurm", "slots"):
        assert re.findall(r"node\w+", Path("made", name).read_text()) == hosts, name
    for name in ("topology.conf", "topology.yaml"):
        switches = read_topology(Path("made", name)).switches
        assert sorted(node for switch in switches for node in switch.nodes) == hosts, name


def test_a_check_without_tables_judges_the_cables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "check", *FILES[:2], "-o", "cables"]) == 0
    text = capsys.readouterr().out
    assert "tables: none given, so none are judged" in text
    assert "cables join every host" in text and "every host reaches" not in text
    assert main(["fabric", "check", *FILES[:2], "--routing", "min-hop", "-o", "computed"]) == 0
    text = capsys.readouterr().out
    assert "min-hop, computed here; the fabric's own are not judged" in text
    assert "every host reaches" not in text


def test_a_model_with_rates_passes() -> None:
    assert main(["fabric", "check", "--fat-tree", "radix=8,rate=4xHDR,dead=leaf0:5", "-o", "model"]) == 0


def test_a_specification_limits_the_share_of_conflicts(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        'title = "site"\n[[criterion]]\nmetric = "fabric.conflicts/conflicts_share"\nmax = "1 %"\n'
    )
    assert main(["fabric", "conflicts", *TREE, "--spec", "site.toml", "-o", "fails"]) == 1
    assert (
        main(["fabric", "conflicts", "--fat-tree", "radix=36,nodes=54", "--spec", "site.toml", "-o", "ok"])
        == 0
    )


def test_anonymised_files_give_the_same_results(tmp_path: Path) -> None:
    names = ("topology.txt", "opensm.fdbs", "opensm-ftree-ca-order.dump")
    topology, tables, order = (str(decompress("of45", name, tmp_path)) for name in names)
    files = ["--fabric", topology, "--tables", tables, "--order", order]
    assert main(["fabric", "anonymise", *files, "--into", "shared"]) == 0
    other = ["--fabric", "shared/topology.txt", "--tables", "shared/fts.txt"]
    assert main(["fabric", "conflicts", *files[:4], "-o", "a"]) == 0
    assert main(["fabric", "conflicts", *other, "-o", "b"]) == 0
    assert figures("a") == figures("b")
    assert figures("b")["conflicts_total"] == 81
    assert main(["fabric", "conflicts", *other, "--order", "shared/order.txt", "-o", "c"]) == 0
    assert (figures("c")["conflicts_total"], figures("c")["rounds"]) == (0, 54)
    assert main(["fabric", "check", *other, "-o", "d"]) == 0


def test_anonymised_files_have_no_names_guids_or_dates() -> None:
    assert main(["fabric", "anonymise", *FILES, "--into", "shared"]) == 0
    text = Path("shared/topology.txt").read_text() + Path("shared/fts.txt").read_text()
    for identifying in ("node", "leaf", "spine", "100009", "200002", "2026"):
        assert identifying not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["conflicts"], "which fabric?"),
        (["conflicts", *TREE, *FILES[:2]], "which fabric?"),
        (["conflicts", *FILES[:2]], "--fabric without --tables"),
        (["conflicts", *TREE, *FILES[2:]], "--tables with --fat-tree"),
        (["conflicts", *FILES, "--routing", "min-hop"], "--tables with --routing"),
        (["conflicts", *TREE, "--routing", "dor"], "no 'dor'"),
        (["conflicts", *TREE, "--schedule", "shft"], "no 'shft'"),
        (["conflicts", *TREE, "-w", "node99"], "no host 'node99'"),
        (["conflicts", *TREE, "-w", "node00"], "one host alone"),
        (["conflicts", *TREE, "-w", "node00,node01", "--order", "x"], "both given"),
        (["conflicts", *TREE, "--order", "/dev/null"], "/dev/null is a device or a pipe, and no file"),
        (["conflicts", *TREE, "--schedule-file", "/dev/zero"], "/dev/zero is a device or a pipe"),
        (["conflicts", "--fat-tree", "/dev/zero"], "/dev/zero is a device or a pipe"),
        (["conflicts", "--fat-tree", "/"], "/ is a folder, and no file"),
        (["conflicts", "--fat-tree", " "], "--fat-tree is empty"),
        (["check", "--fabric", "/dev/zero", "--routing", "d-mod-k"], "/dev/zero is a device or a pipe"),
        (["check", "--fabric", FILES[1], "--tables", "/dev/zero"], "/dev/zero is a device or a pipe"),
        (["anonymise", "--fabric", "/dev/zero", "--into", "x"], "/dev/zero is a device or a pipe"),
        (["slurm", *TREE, "--verify", "/dev/zero"], "/dev/zero is a device or a pipe"),
        (["conflicts", *TREE, "--schedule", "xor", "--schedule-file", "x"], "both given"),
        (["conflicts", *TREE, "--matchings", "100000000"], "more than 100000"),
        (["conflicts", *TREE, "--schedule-file", "missing"], "missing: cannot be read"),
        (["conflicts", "--fat-tree", "missing"], "missing: cannot be read"),
        (["check", "--fabric", "missing", "--routing", "d-mod-k"], "missing: cannot be read"),
        (["check", "--fabric", FILES[3], "--tables", FILES[3]], ": forwarding tables"),
        (["anonymise", "--fabric", FILES[1], "--into", str(SIX)], "exists already"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["fabric", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_exchange_too_large_to_plan_leaves_the_other_remedies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exchange, "MAX_CELLS", 1000)
    assert main(["fabric", "schedule", *TREE, "--into", "made"]) == 0
    text = capsys.readouterr().out
    assert "planned                   not done for 45 hosts" in text
    assert "shift with empty slots        54          0      54" in text
    assert not Path("made/schedule.txt").exists() and Path("made/padded.txt").exists()


def test_routes_beyond_the_memory_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(routes, "available_memory", lambda: 10_000.0)
    assert main(["fabric", "conflicts", *TREE]) == 2
    error = capsys.readouterr().err
    assert "the routes of 45 hosts on 3 leaf switches need 0 GiB of memory" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("host", range(4))
def test_a_missing_entry_of_the_only_leaf_switch_is_found(host: int) -> None:
    fabric = synthetic.build(synthetic.parse("radix=8,nodes=4"))
    ports = tables.d_mod_k(fabric).ports.copy()
    ports[0, host] = tables.NO_ENTRY
    with pytest.raises(UserError, match=f"no entry for LID {host + 1}"):
        conflicts.require_all(Routes(fabric, ForwardingTables(ports, "x")), np.arange(4))


@pytest.mark.parametrize(
    "arguments",
    [
        ["conflicts", *TREE, "--order", "pipe"],
        ["conflicts", *TREE, "--schedule-file", "pipe"],
        ["conflicts", "--fat-tree", "pipe"],
        ["check", "--fabric", "pipe", "--routing", "d-mod-k"],
        ["check", *FILES[:2], "--tables", "pipe"],
    ],
)
def test_a_pipe_is_refused_at_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody writes into the pipe, so opening it would block."""
    os.mkfifo("pipe")
    assert main(["fabric", *arguments]) == 2
    assert capsys.readouterr().err.startswith("assay: pipe is a device or a pipe, and no file; fix: ")


def test_several_senders_to_one_host_need_a_round_each(tmp_path: Path) -> None:
    """Three ranks of a switch send to rank 0, whose cable carries one flow per round."""
    (tmp_path / "steps").write_text(" ".join(["-1", *["0"] * 3]) + "\n")
    tree = ["--fat-tree", "radix=8,nodes=4"]
    assert main(["fabric", "conflicts", *tree, "--schedule-file", "steps", "-o", "run"]) == 0
    totals = figures("run")
    assert (totals["conflicts_total"], totals["rounds"], totals["rounds_bound"]) == (0, 3, 1)


def test_aggregation_nodes_in_anonymised_files_are_not_ranks(tmp_path: Path) -> None:
    text = (SIX / "topology.txt").read_text().replace('"node4"', '"Mellanox Technologies Aggregation Node"')
    (tmp_path / "sharp.txt").write_text(text)
    assert (
        main(["fabric", "anonymise", "--fabric", "sharp.txt", "--tables", FILES[3], "--into", "shared"]) == 0
    )
    assert "Mellanox" not in Path("shared/topology.txt").read_text()
    for name, files in (
        ("a", ["--fabric", "sharp.txt", "--tables", FILES[3]]),
        ("b", ["--fabric", "shared/topology.txt", "--tables", "shared/fts.txt"]),
    ):
        assert main(["fabric", "conflicts", *files, "-o", name]) == 0
    assert figures("a") == figures("b")
    assert figures("b")["rounds_bound"] == 5


def test_a_broken_route_starts_no_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cut = (SIX / "opensm.fdbs").read_text().replace("0x0005 : 002", "0x0005 : 255", 1)
    (tmp_path / "cut.fdbs").write_text(cut)
    assert main(["fabric", "conflicts", "--fabric", FILES[1], "--tables", "cut.fdbs"]) == 2
    assert "cut.fdbs:1: switch leaf0 has no entry for LID 5 (node1)" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
