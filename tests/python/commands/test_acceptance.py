"""``assay comply cobalt2`` on planted machines. A machine without faults passes. Each single planted fault must fail
the criteria that it concerns, and no others."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted_machine
import pytest
from planted_machine import GBIT, Machine, sound_machine

from assay.cli import main
from assay.launch.engines import describe, engines_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (engines_folder() / "assay-probe").is_file(), reason="the engines are not built"),
]

GOVERNOR, TURBO = "the frequency governor is performance", "turbo is off"
MEMORY = "mem-test: measured speed of desired"
WRITE, READ = "gpu-copy: total write speed", "gpu-copy: total read speed"
COPIES = "gpu-copy: every copy arrived as it was sent"
ETH, LOSS = "eth-test: total speed of each 10GbE port", "eth-test: average loss of each 10GbE port"
PAYLOAD = "eth-test: every payload arrived as it was sent"
RDMA, MESSAGES = "ib-bw: average bandwidth from each port", "ib-bw: every message arrived as it was sent"
LEFT, REACHED = "ib-bw: the bytes left the sending adapter", "ib-bw: the bytes reached the receiving adapter"
FAULT = "no fault was found"
# The inventories of cobalt2.toml, and of the offer that "assay doctor --write-inventory" wrote on the sound machine.
SOCKETS, NUMA, SIZE = "inventory: 2 sockets", "inventory: 2 NUMA nodes", "inventory: memory of 187 GiB"
GPUS = "inventory: 2 GPUs in use"
PORTS = "inventory: 2 RDMA ports active at 56 Gbit/s, InfiniBand"
ONE_ETH = "inventory: 1 Ethernet port up at 10 Gbit/s, MTU 9000 B"
TWO_ETH = "inventory: 2 Ethernet ports up at 10 Gbit/s, MTU 9000 B"
SLOW_ETH = "inventory: 1 Ethernet port up at 1 Gbit/s, MTU 1500 B"

Run = dict[str, Any]
Change = Callable[[Machine], object]


class Acceptance:
    """A planted machine, and ``assay comply`` run on it."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capfd, self.count = folder, capfd, 0
        self.write(sound_machine())
        assert main(["doctor", "--write-inventory", "offer.toml"]) == 0

    def write(self, machine: Machine) -> None:
        planted_machine.write_machine(self.folder / "bin", machine)

    def change(self, change: Change) -> None:
        """Makes it a sound machine with this change."""
        machine = sound_machine()
        change(machine)
        self.write(machine)

    def run(self, *arguments: str) -> tuple[int, Run, str]:
        """Runs the verb. Returns the exit code, the run as JSON, and standard error."""
        self.count += 1
        self.capfd.readouterr()
        status = main([*(arguments or ACCEPT), "--json", "-o", f"run{self.count}"])
        out, err = self.capfd.readouterr()
        return status, json.loads(out), err


ACCEPT = ("comply", "cobalt2", "--spec", "offer.toml", "--peer", "localhost")


@pytest.fixture
def acceptance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Acceptance:
    planted_machine.plant(tmp_path / "bin", engines_folder() / "assay-probe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_ENGINES", str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    describe.cache_clear()
    return Acceptance(tmp_path, capfd)


def verdicts(run: Run) -> dict[str, dict[str, Any]]:
    """The verdicts by criterion. If two specifications have the same criterion, a FAIL wins."""
    by_criterion: dict[str, dict[str, Any]] = {}
    for record in run["records"]:
        if record["kind"] == "verdict" and by_criterion.get(record["criterion"], {}).get("outcome") != "FAIL":
            by_criterion[record["criterion"]] = record
    return by_criterion


def failed_criteria(run: Run) -> set[str]:
    return {title for title, verdict in verdicts(run).items() if verdict["outcome"] == "FAIL"}


def test_a_sound_machine_passes(acceptance: Acceptance) -> None:
    status, run, err = acceptance.run()
    assert {v["criterion"]: v.get("reason") for v in verdicts(run).values() if v["outcome"] != "PASS"} == {}
    assert (status, run["run"]["outcome"], run["run"]["state"]) == (0, "PASS", "complete")
    assert {"node.gpu_copy", "node.rdma", "node.udp_receive", "node.udp_send"} <= set(run["run"]["completed"])
    specified = {GOVERNOR, TURBO, MEMORY, WRITE, READ, COPIES, ETH, LOSS, PAYLOAD}
    specified |= {RDMA, MESSAGES, LEFT, REACHED}
    inventory = {SOCKETS, NUMA, SIZE, GPUS, PORTS, ONE_ETH, TWO_ETH, SLOW_ETH}
    assert set(verdicts(run)) == specified | inventory | {FAULT}
    tested = {
        r["subject"]["device"]
        for r in run["records"]
        if r["kind"] == "measurement" and "device" in r["subject"]
    }
    assert tested == {"gpu0", "gpu1", "eth2", "eth3", "mlx4_0:1", "mlx4_1:1"}  # neither eth0 nor ib0
    assert "eth0 is up at 1.00 Gbit/s, MTU 1500 B: left out" in err


def set_device_facts(name: str, **facts: Any) -> Change:
    """Changes facts of a device: ``interface__state="down"``."""
    return lambda machine: machine["devices"][name].update(
        {key.replace("__", "."): value for key, value in facts.items()}
    )


def without_device(name: str) -> Change:
    return lambda machine: machine["devices"].pop(name)


def set_figures(kind: str, name: str, **figures: Any) -> Change:
    return lambda machine: machine[kind][name].update(figures)


def set_host_facts(**facts: Any) -> Change:
    return lambda machine: machine["host"].update({key.replace("__", "."): v for key, v in facts.items()})


def all_of(*changes: Change) -> Change:
    return lambda machine: [change(machine) for change in changes]


GPU = "0000:83:00.0"
remove_gpu: Change = lambda machine: machine["gpus"].pop(GPU)  # noqa: E731
X8 = 8e9 * 8 * 128 / 130 / 8

# Name of the fault, the change of the machine, exactly the criteria that fail, and a text that a reason must contain.
FAULTS: list[tuple[str, Change, set[str], str]] = [
    ("governor", set_host_facts(cpu__governor="powersave"), {GOVERNOR}, ""),
    ("one governor differs", set_host_facts(cpu__governor="performance, powersave"), {GOVERNOR}, ""),
    ("turbo", set_host_facts(cpu__turbo="on"), {TURBO}, ""),
    ("a socket is missing", set_host_facts(cpu__packages=1), {SOCKETS}, "offered has 1, not 2"),
    ("other NUMA set-up", set_host_facts(numa__nodes=4), {NUMA}, "offered has 4, not 2"),
    ("a memory module is missing", set_host_facts(memory__bytes=171 * 2**30), {SIZE}, "offered has less"),
    ("memory is slow", lambda m: m.update(paced=0.9974), {MEMORY}, ""),
    ("slow to one GPU", set_figures("gpus", GPU, h2d=80 * GBIT), {WRITE}, ""),
    ("slow from one GPU", set_figures("gpus", GPU, d2h=80 * GBIT), {READ}, ""),
    ("a corrupted copy", set_figures("gpus", GPU, corrupted=1), {COPIES, FAULT}, "gpu1"),
    ("a narrow GPU link", set_figures("gpus", GPU, link=X8), {FAULT}, "0000:83:00.0"),
    ("a GPU is missing", all_of(remove_gpu, without_device(GPU)), {GPUS, WRITE, READ}, "has 1 of 2"),
    ("a GPU without driver", remove_gpu, {GPUS, WRITE, READ}, "0000:83:00.0 was not measured"),
    ("a hidden GPU", all_of(remove_gpu, set_host_facts(gpu__visible_devices="0")), {GPUS, WRITE, READ},
     "CUDA_VISIBLE_DEVICES=0"),
    ("no GPU", lambda m: m["gpus"].clear(), {GPUS, WRITE, READ}, "has 0 of 2"),
    ("slow 10GbE port", set_figures("udp", "eth3", bandwidth=8.99 * GBIT), {ETH}, "eth3"),
    ("UDP loss", set_figures("udp", "eth3", loss=0.001, drops={"lost_nic": 2500}), {LOSS, FAULT}, "eth3"),
    ("one message lost", set_figures("udp", "eth2", loss=4e-7, drops={"lost_unattributed": 1}), {LOSS, FAULT}, "eth2"),
    ("corrupted UDP payload", set_figures("udp", "eth3", corrupted=1), {PAYLOAD, FAULT}, "eth3"),
    ("10GbE port down", set_device_facts("eth3", interface__state="down", interface__speed=0), {ETH, TWO_ETH},
     "eth3 is down"),
    ("10GbE port at 1G", set_device_facts("eth3", interface__speed=GBIT), {ETH, TWO_ETH}, "eth3 is up at 1.00 Gbit/s"),
    ("10GbE port missing", without_device("eth3"), {TWO_ETH}, "has 1 of 2: "),
    ("half duplex", set_device_facts("eth3", interface__duplex="half"), {TWO_ETH}, "half duplex"),
    ("no jumbo frames", set_device_facts("eth3", interface__mtu=1500), {TWO_ETH},
     "eth3 is up at 10.00 Gbit/s, MTU 1500 B"),
    ("no address", lambda m: m["addresses"].pop("eth3"), {ETH}, "the interface eth3 of"),
    ("port of a bond", set_device_facts("eth3", interface__master="bond0"), {ETH}, "part of bond0"),
    ("slow RDMA port", set_figures("rdma", "mlx4_1:1", bandwidth=49.9 * GBIT), {RDMA}, "mlx4_1:1"),
    ("corrupted RDMA message", set_figures("rdma", "mlx4_0:1", corrupted=3), {MESSAGES, FAULT}, "mlx4_0:1"),
    ("the bytes stay in the card", set_figures("rdma", "mlx4_0:1", sent=0.0), {LEFT, FAULT}, "mlx4_0:1"),
    ("the bytes go elsewhere", set_figures("rdma", "mlx4_1:1", received=0.4), {REACHED, FAULT}, "mlx4_1:1"),
    ("RDMA port down", set_device_facts("mlx4_1:1", rdma__state="DOWN", rdma__physical_state="Polling"), {RDMA, PORTS},
     "mlx4_1:1 is DOWN (Polling)"),
    ("no subnet manager", set_device_facts("mlx4_1:1", rdma__state="INIT"), {RDMA, PORTS}, "mlx4_1:1 is INIT"),
    ("RDMA port missing", without_device("mlx4_1:1"), {PORTS}, "has 1 of 2: no other is there"),
    ("degraded RDMA width", set_device_facts("mlx4_1:1", rdma__rate=14 * GBIT, rdma__link="1X FDR"), {PORTS},
     "mlx4_1:1 is ACTIVE at 14.00 Gbit/s (1X FDR)"),
    ("degraded RDMA speed", set_device_facts("mlx4_0:1", rdma__rate=40 * GBIT, rdma__link="4X QDR"), {PORTS}, "4X QDR"),
    ("RDMA port in Ethernet mode", set_device_facts("mlx4_1:1", rdma__link_layer="Ethernet"), {PORTS}, "mlx4_1:1"),
    ("another port, down", lambda m: m["devices"].update({"mlx4_2:1": {"rdma.state": "DOWN"}}), {RDMA},
     "mlx4_2:1 is DOWN"),
    ("another 10GbE port, down", lambda m: m["devices"].update(
        {"eth4": {**m["devices"]["eth2"], "interface.state": "down", "interface.speed": 0}}), {ETH}, "eth4 is down"),
    ("the slow port is down", set_device_facts("eth0", interface__state="down", interface__speed=0), {SLOW_ETH},
     "eth0"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("change", "criteria", "names"), [fault[1:] for fault in FAULTS],
                         ids=[fault[0] for fault in FAULTS])  # fmt: skip
def test_a_single_fault_fails_exactly_its_criteria(
    acceptance: Acceptance, change: Change, criteria: set[str], names: str
) -> None:
    acceptance.change(change)
    status, run, _ = acceptance.run()
    assert failed_criteria(run) == criteria
    assert (status, run["run"]["outcome"]) == (1, "FAIL")
    reasons = [
        f"{v.get('reason', '')} {v.get('subject')}" for v in verdicts(run).values() if v["outcome"] == "FAIL"
    ]
    assert any(names in reason for reason in reasons), reasons


# The same for values that cannot be measured: the criteria are inconclusive.
UNMEASURED: list[tuple[str, Change, set[str], str]] = [
    ("no settings of turbo", lambda m: m["host"].pop("cpu.turbo"), {TURBO}, "no cpu.turbo"),
    ("a sender that is too weak",
     set_figures("udp", "eth3", error="the sender could only send 8 of 9.018 Gbit/s"), {ETH},
     "could only send 8"),
    ("an adapter without counters", set_figures("rdma", "mlx4_0:1", sent=None), {LEFT}, "no counter"),
    ("an RDMA engine that fails", lambda m: m["fails"].update({"node.rdma mlx4_0:1": "cannot open mlx4_0"}),
     {RDMA, MESSAGES, LEFT, REACHED, FAULT}, "cannot open mlx4_0"),
    ("a UDP engine that fails", lambda m: m["fails"].update({"node.udp_receive eth2": "port 18520 is taken"}),
     {ETH, LOSS, PAYLOAD, FAULT}, "port 18520 is taken"),
    ("a GPU that falls off the bus", lambda m: m["fails"].update({"node.gpu_copy": "gpu1 is lost"}), {FAULT}, "gpu1"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("change", "criteria", "names"), [fault[1:] for fault in UNMEASURED],
                         ids=[fault[0] for fault in UNMEASURED])  # fmt: skip
def test_unmeasured_values_are_inconclusive_and_the_run_goes_on(
    acceptance: Acceptance, change: Change, criteria: set[str], names: str
) -> None:
    acceptance.change(change)
    status, run, _ = acceptance.run()
    assert status != 0
    inconclusive = {title: v for title, v in verdicts(run).items() if v["outcome"] == "INCONCLUSIVE"}
    assert criteria <= set(inconclusive)
    assert any(names in v.get("reason", "") for v in inconclusive.values())
    # The devices after the one that failed were measured.
    tested = {
        r["subject"].get("device") for r in run["records"] if r["kind"] == "measurement" and "summary" in r
    }
    assert {"eth3", "mlx4_1:1"} <= tested
    assert (acceptance.folder / f"run{acceptance.count}/report.html").stat().st_size > 100_000


def test_one_card_at_both_ends_fails_without_a_peer(acceptance: Acceptance) -> None:
    """A dual-port card looks like two devices. The specification requires two distinct cards."""
    acceptance.change(
        set_device_facts("mlx4_1:1", device__pci="0000:02:00.1", rdma__adapter="0002:c903:00e1:0003")
    )
    status, run, _ = acceptance.run("comply", "cobalt2", "--spec", "offer.toml")
    assert status == 1 and failed_criteria(run) == {RDMA}
    assert "on the same card; expected: an active port of another card" in verdicts(run)[RDMA]["reason"]


def test_a_lone_port_sends_to_the_peer(acceptance: Acceptance) -> None:
    acceptance.change(without_device("mlx4_1:1"))
    _, run, err = acceptance.run()
    assert "offered" not in err.split("mlx4_0:1")[0] and "mlx4_0:1 sends to localhost" in err
    assert verdicts(run)[RDMA]["outcome"] == verdicts(run)[LEFT]["outcome"] == "PASS"
    assert verdicts(run)[REACHED]["outcome"] == "INCONCLUSIVE"  # the planted peer counts nothing


def test_a_wrong_byte_fails_a_specification_of_speed_alone(acceptance: Acceptance) -> None:
    acceptance.change(set_figures("gpus", GPU, corrupted=7))
    Path("speed.toml").write_text('[[criterion]]\nmetric = "node.gpu_copy/total"\nmin = "1 Gbit/s"\n')
    status, run, _ = acceptance.run("comply", "speed.toml")
    assert status == 1
    assert failed_criteria(run) == {"no wrong byte was seen", "no fault was found"}
    assert verdicts(run)["no wrong byte was seen"]["observed"] > 0
    assert main(["judge", f"run{acceptance.count}", "speed.toml"]) == 1
    out = acceptance.capfd.readouterr().out
    assert "failed: no wrong byte was seen; gpu1 on offered: payloads did not arrive as they were sent" in out


def test_a_machine_without_devices_names_each_reason(acceptance: Acceptance) -> None:
    """A machine without settings, GPUs, Ethernet, RDMA or a peer: each verdict has its reason."""
    machine = sound_machine()
    for name in ("cpu.governor", "cpu.turbo"):
        del machine["host"][name]
    for kind in ("devices", "addresses", "gpus", "udp"):
        machine[kind].clear()
    acceptance.write(machine)
    status, run, _ = acceptance.run("comply", "cobalt2")
    assert status == 1 and run["run"]["state"] == "complete"
    found = verdicts(run)
    assert len(found) == 19
    missing = {
        title
        for title in found
        if title.startswith(("inventory: 2 GPUs", "inventory: 2 RDMA", "inventory: 1"))
    }
    assert failed_criteria(run) == missing and len(missing) == 3
    rest = {title: v for title, v in found.items() if not title.startswith("inventory: ")}
    assert {rest.pop(MEMORY)["outcome"], rest.pop(FAULT)["outcome"]} == {"PASS"}
    assert {v["outcome"] for v in rest.values()} == {"INCONCLUSIVE"}
    reasons = " / ".join(v["reason"] for v in rest.values())
    for text in ("no cpu.governor", "no cpu.turbo", "finds no GPU", "give --peer HOST", "RDMA"):
        assert text in reasons


def test_the_last_line_names_only_the_failed_criteria(acceptance: Acceptance) -> None:
    """The last line names neither inconclusive criteria nor warnings."""
    machine = sound_machine()
    machine["paced"] = 0.5
    machine["fails"]["node.udp_receive eth2"] = "the MTU of eth2 is too small"
    acceptance.write(machine)
    assert main([*ACCEPT, "-o", "failing"]) == 1
    out = acceptance.capfd.readouterr().out
    (line,) = [text for text in out.splitlines() if text.startswith("FAIL  1 of ")]
    assert line.endswith(f"criteria failed: {MEMORY}")


def test_an_ignored_device_is_reported_and_not_tested(acceptance: Acceptance) -> None:
    machine = sound_machine()
    machine["devices"]["mlx4_2:1"] = {"rdma.state": "DOWN"}
    acceptance.write(machine)
    Path("spare.toml").write_text('[inventory]\nsockets = 2\nignore = ["mlx4_2:1"]\n')
    status, _, err = acceptance.run(*ACCEPT, "--spec", "spare.toml")
    assert status == 0 and "mlx4_2:1: left out, the inventory ignores it" in err


def test_the_host_keeps_the_name_by_which_the_user_calls_it(acceptance: Acceptance) -> None:
    assert socket.gethostname() != planted_machine.HOST
    status, run, _ = acceptance.run()
    assert status == 0 and run["run"]["hosts"] == [socket.gethostname()]


def test_doctor_writes_the_inventory_and_checks_it(acceptance: Acceptance) -> None:
    text = Path("offer.toml").read_text()
    assert 'rdma_ports = {count = 2, rate = "56 Gbit/s", link_layer = "InfiniBand"}' in text
    assert 'memory = "187 GiB"' in text and "gpus = {count = 2}" in text
    assert main(["doctor", "--write-inventory", "offer.toml"]) == 2
    assert "offer.toml is there already" in acceptance.capfd.readouterr().err
    acceptance.change(set_device_facts("mlx4_1:1", rdma__state="DOWN"))
    assert main(["doctor", "--write-inventory", "degraded.toml"]) == 0
    assert "# Not counted: mlx4_1:1 is DOWN" in Path("degraded.toml").read_text()
    main(["doctor", "--spec", "offer.toml"])
    printed = " ".join(acceptance.capfd.readouterr().out.split())
    assert "1 (offered has 1 of 2: mlx4_1:1 is DOWN" in printed


def test_check_goes_on_after_a_failed_measurement(acceptance: Acceptance) -> None:
    machine = sound_machine()
    machine["fails"]["node.memory"] = "no message from any rank for 90 s"
    acceptance.write(machine)
    status, run, _ = acceptance.run("check")
    assert status == 2 and run["run"]["state"] == "partial"
    failures = [r["problem"] for r in run["records"] if r["kind"] == "failure"]
    assert any("no message from any rank for 90 s" in failure for failure in failures)
    measured = {(r["name"], r.get("status", "ok")) for r in run["records"] if r["kind"] == "measurement"}
    assert ("node.noise", "ok") in measured  # after the one that failed
    assert ("network.all_to_all", "waived") in measured  # attempted: this planted machine has no MPI
    assert verdicts(run)["a busy loop loses at most a fifth of its core"]["outcome"] == "PASS"


def test_expected_figures_are_derived_and_missing_them_is_a_warning(acceptance: Acceptance) -> None:
    acceptance.capfd.readouterr()
    assert main(["expect"]) == 0
    out = acceptance.capfd.readouterr().out
    assert "offered eth2  node.udp_receive/bandwidth  9.73 Gbit/s to 9.93 Gbit/s" in out
    assert "link 10.00 Gbit/s x (9000 - 28) / (9000 + 38) = 9.93 Gbit/s of UDP payload" in out
    assert "eth0  node.udp_receive" in out and "ib0" not in out
    acceptance.change(set_figures("rdma", "mlx4_1:1", bandwidth=45 * GBIT))
    _, run, _ = acceptance.run()
    (warning,) = [r for r in run["records"] if r["kind"] == "finding"]
    assert (warning["rule"], warning["subject"]["device"]) == ("below_expected", "mlx4_1:1")
    assert main(["expect", f"run{acceptance.count}", "--json"]) == 0
    figures = json.loads(acceptance.capfd.readouterr().out)
    assert {f["device"] for f in figures} >= {"eth2", "mlx4_1:1", GPU}
