"""``assay mem``: loads that no machine sustains, operations on planted nodes, and interrupted runs. Whether a machine
sustains a load belongs to the acceptance tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.launch.engines import describe, engines_folder, probe

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (engines_folder() / "assay-probe").is_file(), reason="the engines are not built"),
]

WORKLOAD = """
title = "planted"
stations = 2
[transpose]
chunk = "4 kB"
multiplier = 7
[[step]]
operation = "write"
block = "64 kB"
rate = "{rate}"
[[step]]
operation = "transpose"
block = "64 kB"
rate = "{rate}"
[[step]]
operation = "read"
block = "32 kB"
rate = "{rate}"
"""


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    describe.cache_clear()
    return tmp_path


def figures(records: list[dict[str, Any]], *metrics: str) -> list[float]:
    medians = {r["metric"]: r["summary"]["median"] for r in records if r["kind"] == "measurement"}
    return [medians[metric] for metric in metrics]


def run(
    working_folder: Path, rate: str, capfd: pytest.CaptureFixture[str], *arguments: str
) -> list[dict[str, Any]]:
    (working_folder / "planted.toml").write_text(WORKLOAD.format(rate=rate))
    assert main(["mem", "--paced", "--workload", "planted.toml", "--json", "-o", "out", *arguments]) == 0
    records: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["records"]
    return records


def interrupt_after(seconds: float, folder: Path, budget: str) -> dict[str, Any]:
    """The run and records of a load that Ctrl-C ends."""
    (folder / "planted.toml").write_text(WORKLOAD.format(rate="8 Mbit/s"))
    arguments = ["mem", "--paced", "--workload", "planted.toml", "--budget", budget, "--json", "-o", "out"]
    process = subprocess.Popen(
        [str(ASSAY), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "node.memory_paced" in process.stderr.readline()  # the line of progress: the load runs
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    run_and_records: dict[str, Any] = json.loads(out)
    assert run_and_records["run"]["state"] == "partial"
    return run_and_records


@pytest.mark.acceptance("node")
@pytest.mark.statistical("1 in 500, estimated: a thread would have to be 75 ms late at the signal")
def test_ctrl_c_keeps_the_measurements(working_folder: Path) -> None:
    """The figure refers to the time until the signal, not to the hundred seconds of --budget."""
    records = interrupt_after(1.5, working_folder, budget="100s")["records"]
    assert figures(records, "achieved")[0] == pytest.approx(1, rel=0.05)


def test_ctrl_c_leaves_a_partial_run(working_folder: Path) -> None:
    interrupt_after(0, working_folder, budget="1000s")


def test_peak_measures_every_operation_with_each_kind_of_stores(
    working_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_TOPOLOGY", "numa:1 l3:1(size=1048576) core:2 pu:1")  # a pass takes milliseconds
    assert main(["mem", "--peak", "--json", "-o", "out"]) == 0
    records = [r for r in json.loads(capfd.readouterr().out)["records"] if r["kind"] == "measurement"]
    kinds = {(r["params"]["operation"], r["params"]["stores"]) for r in records}
    assert kinds == {("read", "none")} | {
        (operation, stores) for operation in ("write", "copy", "triad") for stores in ("regular", "streaming")
    }
    assert all(r["summary"]["min"] > 0 and r["summary"]["n"] >= 3 for r in records)
    assert {r["subject"].get("numa") for r in records} >= {0}


# Machines for $ASSAY_TOPOLOGY. Threads are not bound to planted cores, and pages not to planted nodes.
TWO_NODES = "numa:2 l3:1(size=1048576) core:2 pu:1"
EIGHT_NODES = "numa:8 l3:1(size=1048576) core:1 pu:1"


def planted_peak(machine: str, *arguments: str, root: Path | None = None) -> list[dict[str, Any]]:
    """The records of node.memory on a planted machine. ``root``: its files of /sys."""
    done = subprocess.run(
        [str(probe()), "run", "node.memory", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "ASSAY_TOPOLOGY": machine} | ({"ASSAY_ROOT": str(root)} if root else {}),
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return [r for r in records if r["kind"] == "measurement"]


def operations(records: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """How many operations there are of each node of the cores, number of threads and node of the memory."""
    keys = [(r["subject"].get("numa"), r["params"]["threads"], r["params"]["memory_node"]) for r in records]
    return Counter(keys)


def facts_of_this_machine(**variables: str) -> dict[str, Any]:
    """What node.settings says of the processors and nodes of this machine."""
    done = subprocess.run(
        [str(probe()), "run", "node.settings"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, **variables},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (facts,) = (r["facts"] for r in lines if "cpu.threads" in r.get("facts", {}))
    return {k: v for k, v in facts.items() if k.startswith(("cpu.", "numa.", "topology."))}


def test_another_machine_of_hwlocs_variables_is_not_measured() -> None:
    true = facts_of_this_machine()
    other = {"HWLOC_SYNTHETIC": EIGHT_NODES, "HWLOC_THISSYSTEM": "1", "HWLOC_XMLFILE": "/nowhere.xml"}
    ignored = {"topology.ignored": "HWLOC_SYNTHETIC, HWLOC_THISSYSTEM, HWLOC_XMLFILE"}
    assert facts_of_this_machine(**other) == true | ignored


def test_a_planted_machine_is_named() -> None:
    facts = facts_of_this_machine(ASSAY_TOPOLOGY=EIGHT_NODES)
    assert (facts["numa.nodes"], facts["topology.planted"]) == (8, EIGHT_NODES)


# Two packages of one core; only the first has a memory node.
PARTIAL = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0" {all} allowed_cpuset="0x3" allowed_nodeset="0x1">
 <object type="Package" os_index="0" {with_node}>
  <object type="NUMANode" os_index="0" {with_node} local_memory="{memory}"/>
  <object type="L3Cache" os_index="0" cache_size="1048576" depth="3" cache_type="0" {with_node}>
   <object type="Core" os_index="0" {with_node}><object type="PU" os_index="0" {with_node}/></object>
  </object>
 </object>
 <object type="Package" os_index="1" {without}>
  <object type="Core" os_index="1" {without}><object type="PU" os_index="1" {without}/></object>
 </object>
</object></topology>
"""


def partial(folder: Path, memory: int) -> str:
    """Writes the machine with ``memory`` bytes in its node; returns the file's name."""

    def sets(processors: str, nodes: str) -> str:
        values = {
            "cpuset": processors,
            "complete_cpuset": processors,
            "nodeset": nodes,
            "complete_nodeset": nodes,
        }
        return " ".join(f'{name}="{value}"' for name, value in values.items())

    text = PARTIAL.format(
        all=sets("0x3", "0x1"), with_node=sets("0x1", "0x1"), without=sets("0x2", "0x0"), memory=memory
    )
    (folder / "machine.xml").write_text(text)
    return str(folder / "machine.xml")


def with_offline_processors(folder: Path) -> str:
    """Writes a machine of four cores with two threads, core k with the processors k and k + 4. The kernel has taken
    1, 4, 5 and 7 offline, so core 1 is gone. Returns the file's name."""

    def item(kind: str, number: int, online: int, all_threads: int, inner: str = "", more: str = "") -> str:
        return (
            f'<object type="{kind}" os_index="{number}" cpuset="{online:#x}" complete_cpuset="{all_threads:#x}" '
            f'nodeset="0x1" complete_nodeset="0x1" {more}>{inner}</object>'
        )

    all_online = 0b01001101
    cores = ""
    for number in range(4):
        threads = 0b10001 << number
        inner = "".join(item("PU", n, 1 << n, 1 << n) for n in (number, number + 4) if all_online & (1 << n))
        cores += item("Core", number, threads & all_online, threads, inner) if inner else ""
    node = item("NUMANode", 0, all_online, 0xFF, more=f'local_memory="{1 << 30}"')
    cache = item("L3Cache", 0, all_online, 0xFF, cores, 'cache_size="1048576" depth="3" cache_type="0"')
    package = item("Package", 0, all_online, 0xFF, node + cache)
    allowed = f'allowed_cpuset="{all_online:#x}" allowed_nodeset="0x1"'
    path = folder / "offline.xml"
    path.write_text(
        f'<topology version="2.0">{item("Machine", 0, all_online, 0xFF, package, allowed)}</topology>'
    )
    return str(path)


def test_offline_processors_are_neither_counted_nor_measured(tmp_path: Path) -> None:
    machine = with_offline_processors(tmp_path)
    facts = facts_of_this_machine(ASSAY_TOPOLOGY=machine)
    assert (facts["cpu.cores"], facts["cpu.threads"], facts["numa.nodes"]) == (3, 4, 1)
    assert not [name for name in facts if name.startswith("numa.cores_")]
    assert {threads for _, threads, _ in operations(planted_peak(machine, "--budget", "0.01"))} == {1, 3}


def plant_nodes(folder: Path, *nodes: tuple[str, str]) -> Path:
    """Writes what the kernel says of each node: its processors and its distances. Returns the root."""
    for number, (processors, distances) in enumerate(nodes):
        files = folder / f"sys/devices/system/node/node{number}"
        files.mkdir(parents=True)
        (files / "cpulist").write_text(processors + "\n")
        (files / "distance").write_text(distances + "\n")
    meminfo = folder / "proc/meminfo"
    meminfo.parent.mkdir()
    meminfo.write_text("MemAvailable: 1000000 kB\n")
    return folder


def test_cores_without_a_memory_node_are_counted(tmp_path: Path) -> None:
    facts = facts_of_this_machine(ASSAY_TOPOLOGY=partial(tmp_path, 1 << 30))
    assert (facts["cpu.cores"], facts["numa.nodes"], facts["numa.cores_without_memory"]) == (2, 1, 1)
    assert facts["numa.nearest_memory"] == "no node -> 0"
    assert "numa.cores_without_memory" not in facts_of_this_machine(ASSAY_TOPOLOGY=TWO_NODES)


@pytest.mark.parametrize(("distances", "memory"), [("17 28 10", 0), ("28 17 10", 1)])
def test_the_kernels_distances_say_which_memory_is_nearest(
    tmp_path: Path, distances: str, memory: int
) -> None:
    """Node 2 has processors and no memory, node 1 has memory and no processors."""
    root = plant_nodes(tmp_path, ("0-1", "10 17 28"), ("", "17 10 28"), ("2-3", distances))
    facts = facts_of_this_machine(ASSAY_TOPOLOGY=TWO_NODES, ASSAY_ROOT=str(root))
    assert facts["numa.cores_without_memory"] == 2
    assert facts["numa.nearest_memory"] == f"node 2 -> {memory}"


def test_peak_measures_cores_without_memory_with_the_nearest(tmp_path: Path) -> None:
    root = plant_nodes(tmp_path, ("0-1", "10 17 28"), ("", "17 10 28"), ("2-3", "28 17 10"))
    records = planted_peak(TWO_NODES, "--budget", "0.01", root=root)
    assert set(operations(records)) == {
        (0, 1, 0),
        *((0, 2, memory) for memory in (0, 1)),
        (2, 2, 1),
        (None, 4, "nearest"),
    }
    remote = {
        (r["subject"].get("numa"), r["params"]["memory_node"])
        for r in records
        if r["params"].get("locality") == "remote"
    }
    assert remote == {(0, 1), (2, 1)}


def test_peak_measures_all_memory_where_no_node_has_cores_too(tmp_path: Path) -> None:
    root = plant_nodes(
        tmp_path, ("", "10 20 20 20"), ("", "20 10 20 20"), ("0-1", "30 20 10 20"), ("2-3", "20 30 20 10")
    )
    records = planted_peak(TWO_NODES, "--budget", "0.01", root=root)
    pairs = {(node, 2, memory) for node in (2, 3) for memory in (0, 1)}
    assert set(operations(records)) == pairs | {(2, 1, 1), (None, 4, "nearest")}
    assert all(r["params"].get("locality") == "remote" for r in records if r["params"]["threads"] < 4)


def test_peak_measures_cores_of_no_node(tmp_path: Path) -> None:
    records = planted_peak(partial(tmp_path, 1 << 30), "--budget", "0.01")
    assert set(operations(records)) == {(0, 1, 0), (None, 1, 0), (None, 2, "nearest")}
    assert all(
        ("locality" in r["params"]) == (r["subject"].get("numa") is None and r["params"]["threads"] == 1)
        for r in records
    )


def test_cores_whose_threads_are_in_several_nodes_are_counted(tmp_path: Path) -> None:
    root = plant_nodes(tmp_path, ("0,2", "10 20"), ("1,3", "20 10"))
    facts = facts_of_this_machine(ASSAY_TOPOLOGY="[numa] [numa] core:2 pu:2", ASSAY_ROOT=str(root))
    assert (facts["cpu.cores"], facts["numa.nodes"], facts["numa.cores_across_nodes"]) == (2, 2, 2)
    assert "numa.cores_without_memory" not in facts
    assert "numa.cores_across_nodes" not in facts_of_this_machine(ASSAY_TOPOLOGY=TWO_NODES)


# Two cores of two threads; the kernel has the threads of each in both nodes.
ACROSS = "[numa(memory=1GB)] [numa(memory=1GB)] l3:1(size=1048576) core:2 pu:2"


@pytest.mark.parametrize(
    ("processors", "all_cores"), [(("0,3", "1,2"), (None, 2, "local")), (("0,2", "1,3"), (0, 2, 0))]
)
def test_peak_leaves_out_no_core_whose_threads_are_in_several_nodes(
    tmp_path: Path, processors: tuple[str, str], all_cores: tuple[Any, ...]
) -> None:
    root = plant_nodes(tmp_path, *zip(processors, ("10 20", "20 10"), strict=True))
    counted = operations(planted_peak(ACROSS, "--budget", "0.01", root=root))
    assert all_cores in counted and max(threads for _, threads, _ in counted) == 2


def test_the_doctor_says_that_the_firmwares_cores_and_nodes_disagree(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    root = plant_nodes(working_folder / "root", ("0,3", "10 20"), ("1,2", "20 10"))
    monkeypatch.setenv("ASSAY_TOPOLOGY", ACROSS)
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    main(["doctor", "--json"])  # its exit code is on what is missing here
    found = [check["found"] for check in json.loads(capfd.readouterr().out)]
    (disagree,) = (text for text in found if "hardware threads in several NUMA nodes" in text)
    assert "the firmware's cores and its nodes disagree" in disagree and disagree.startswith("2 of 2 cores")


def test_a_machine_whose_nodes_have_no_memory_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(probe()), "run", "node.memory", "--limit", "0.05"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "ASSAY_TOPOLOGY": partial(tmp_path, 0)},
    )
    assert done.returncode == 2 and '"measurement"' not in done.stdout
    assert "no NUMA node has memory that this process may use" in done.stdout + done.stderr


def test_a_planted_machine_neither_passes_nor_fails(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASSAY_TOPOLOGY", TWO_NODES)
    main(["doctor", "--json"])  # its exit code is on what is missing here
    checks = [c for c in json.loads(capfd.readouterr().out) if c["section"] == "settings"]
    assert checks and all(c["state"] == "note" for c in checks)
    assert any(f"measured as the planted machine '{TWO_NODES}'" in c["found"] for c in checks)
    assert main(["doctor", "--write-inventory", "offer.toml"]) == 2
    assert "unset ASSAY_TOPOLOGY" in capfd.readouterr().err and not Path("offer.toml").exists()


def test_peak_of_planted_nodes_covers_each_pair_of_nodes() -> None:
    records = planted_peak(TWO_NODES, "--budget", "0.01")
    all_operations = len({(r["params"]["operation"], r["params"]["stores"]) for r in records})
    pairs = {(cores, 2, memory) for cores in (0, 1) for memory in (0, 1)}
    assert operations(records) == dict.fromkeys(pairs | {(0, 1, 0), (None, 4, "local")}, all_operations)
    assert all(r["summary"]["min"] > 0 and r["summary"]["n"] >= 9 for r in records)


def test_peak_names_what_its_limit_leaves_out() -> None:
    """An operation takes at least 10 ms, so at most five of them fit."""
    complete = operations(planted_peak(TWO_NODES, "--budget", "0.01"))
    records = planted_peak(TWO_NODES, "--limit", "0.05")
    assert operations(records) == complete
    waived = [r for r in records if "summary" not in r]
    assert len(waived) >= len(records) - 5
    for record in waived:
        assert record["status"] == "waived" and record["reason"].startswith("no time: ")
        assert "of 0.05 s were left" in record["reason"]


@pytest.mark.acceptance("node")
@pytest.mark.statistical(
    "1 in 1000, estimated: the last operation would have to take a second longer than its share"
)
def test_peak_keeps_its_limit_with_many_nodes() -> None:
    """65 pairs of nodes with seven operations of 0.3 s would take more than two minutes."""
    start = time.monotonic()
    records = planted_peak(EIGHT_NODES, "--limit", "5")
    assert time.monotonic() - start < 1.2 * 5
    assert len(operations(records)) == 8 * 8 + 1
    assert any("summary" in r for r in records)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes a capability away")
def test_realtime_without_permission_is_one_line(working_folder: Path) -> None:
    """As in a container, root lacks the capability."""
    done = subprocess.run(
        ["setpriv", "--bounding-set=-sys_nice", str(probe()), "run", "node.memory", "--realtime"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "real-time" in done.stderr and "ulimit -r" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peak", "--scale", "2"], "--scale"),
        (["--paced", "--budget", "never"], "--budget"),
        (["--paced", "--budget", "0"], "--budget"),
        (["--paced", "--workload", "none.toml"], "none.toml"),
        (["--peak", "--paced"], "--paced"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, working_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["mem", *arguments]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and message in err
    assert not (working_folder / "runs").exists()
