"""UDP between two hosts of a lab with a planted rate, loss and failures.

Five streams of 60 Mbit/s over cables of 400 Mbit/s are a thirtieth of the load of a 10GbE port. Tests that need this
rate belong to acceptance. How losses are named is tested on planted records in ``tests/python/explain``, and
what the engines count by ``tests/engines/node/udp``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from assay.lab import Fault, Lab
from assay.lab.namespaces import find_processes
from assay.records.run import Run
from assay.records.schema import Finding, Measurement, Verdict

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root (network namespaces)")
in_acceptance = pytest.mark.acceptance("network")
keeps_its_rate = pytest.mark.statistical(
    "1 in 200, assumed: the sender cannot keep a thirtieth of a port's load only if another program wakes up"
)

ASSAY = Path(__file__).parents[3] / "assay"
MBIT = 1e6 / 8
OFFERED = 300 * MBIT
LIMIT_S = 240  # against hangs
LOAD = ["--streams", "5", "--rate", "60 Mbit/s", "--budget", "1.5s"]

SPECIFICATION = """
title = "a port that takes what is sent"

[[criterion]]
title = "total speed"
metric = "node.udp_receive/bandwidth"
where = {stream = "all"}
min = "299 Mbit/s"

[[criterion]]
title = "average loss"
metric = "node.udp_receive/loss"
where = {stream = "all"}
max = "0 %"

[parameters."node.udp_send"]
streams = 5
rate = "60 Mbit/s"
budget = "1.5s"
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(2, host_rate="400mbit", mtu=9000)


@contextmanager
def planted_fault(lab: Lab, host: str, fault: Fault) -> Iterator[None]:
    lab.fault([host], fault)
    try:
        yield
    finally:
        lab.fault([host], None)


@contextmanager
def running_on(lab: Lab, host: str, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A command of Assay that runs on a host for the block. Its engines are killed at the end."""
    process = subprocess.Popen(
        lab.enter(host, [str(ASSAY), *command]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        # A receiver that outlives the killed command would answer the next test's sender.
        for pid in engines_in(lab, host, "node.udp"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def await_text(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"the output never had '{text}'")


def engines_in(lab: Lab, host: str, measurement: str) -> list[int]:
    """Process ids of engines in a host of the lab."""
    pids = []
    for pid, (_, node) in find_processes(lab.name).items():
        with suppress(OSError):  # it has ended
            if node == host and measurement.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.append(pid)
    return pids


def await_data(lab: Lab, host: str, amount: float) -> None:
    """Waits until a host has received ``amount`` more bytes."""

    def received() -> int:
        table = Path(f"/proc/{lab.nodes[host].pid}/net/dev").read_text()
        (line,) = [line for line in table.splitlines() if line.strip().startswith(f"{lab.interface}:")]
        return int(line.partition(":")[2].split()[0])

    begin, deadline = received(), time.monotonic() + LIMIT_S
    while received() < begin + amount:
        assert time.monotonic() < deadline, "no data came"
        time.sleep(0.01)


def judged_run(lab: Lab, run_path: Path, tested: str, peer: str, specification: Path) -> tuple[int, Run]:
    """Runs ``assay comply``."""
    arguments = ["comply", str(specification), "--lab", lab.name, "-w", tested, "--peer", peer]
    done = subprocess.run(
        [str(ASSAY), *arguments, "--interfaces", "eth0", "-o", str(run_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, Run.load(run_path)


def figure(run: Run, metric: str, name: str = "node.udp_receive") -> float:
    (record,) = [
        r
        for r in run.records
        if isinstance(r, Measurement) and (r.name, r.metric) == (name, metric)
        and r.params.get("stream", "all") == "all" and "counter" not in r.params
    ]  # fmt: skip
    assert record.summary
    return record.summary.median


def outcomes(run: Run) -> dict[str, str]:
    return {v.criterion: v.outcome for v in run.records if isinstance(v, Verdict)}


@pytest.fixture
def specification(tmp_path: Path) -> Path:
    path = tmp_path / "port.toml"
    path.write_text(SPECIFICATION)
    return path


# ---- planted rate and loss, judged in both directions


@in_acceptance
@keeps_its_rate
def test_a_port_without_loss_passes(lab: Lab, tmp_path: Path, specification: Path) -> None:
    status, run = judged_run(lab, tmp_path / "run", "h1", "h0", specification)
    assert outcomes(run) == {"total speed": "PASS", "average loss": "PASS"}, run.records
    assert status == 0
    assert figure(run, "bandwidth") == pytest.approx(OFFERED, rel=0.003)
    assert {
        figure(run, metric) for metric in ("loss", "duplicates", "reordered", "corrupted", "foreign")
    } == {0}
    assert set(run.info.completed) == {"node.settings", "node.udp_receive", "node.udp_send"}
    assert not [r for r in run.records if isinstance(r, Finding)]


@in_acceptance
@keeps_its_rate
@pytest.mark.parametrize(("tested", "peer", "outcome"), [("h1", "h0", "FAIL"), ("h0", "h1", "PASS")])
def test_planted_loss_is_judged_in_each_direction(
    lab: Lab, tmp_path: Path, specification: Path, tested: str, peer: str, outcome: str
) -> None:
    with planted_fault(lab, "h1", Fault(rx_loss=0.01)):
        status, run = judged_run(lab, tmp_path / "run", tested, peer, specification)
    assert outcomes(run)["average loss"] == outcome
    assert status == (1 if outcome == "FAIL" else 0)
    if outcome == "PASS":
        return
    messages = 1.5 * OFFERED / 8900
    assert figure(run, "loss") == pytest.approx(0.01, abs=5 * (0.01 / messages) ** 0.5)
    assert figure(run, "lost_unattributed") == pytest.approx(figure(run, "loss") * messages, rel=0.01)
    (finding,) = [r for r in run.records if isinstance(r, Finding)]
    assert (finding.rule, finding.severity, finding.subject.host) == ("udp_loss", "fault", "h1")
    assert "in the network" in finding.cause


@in_acceptance
@keeps_its_rate
@pytest.mark.parametrize(("tested", "peer", "outcome"), [("h1", "h0", "FAIL"), ("h0", "h1", "PASS")])
def test_a_slow_port_is_judged_in_each_direction(
    lab: Lab, tmp_path: Path, specification: Path, tested: str, peer: str, outcome: str
) -> None:
    with planted_fault(lab, "h1", Fault(rx=200 * MBIT)):
        _, run = judged_run(lab, tmp_path / "run", tested, peer, specification)
    assert outcomes(run) == {"total speed": outcome, "average loss": outcome}
    if outcome == "FAIL":
        # 200 Mbit/s on the wire, of which a message is 8900 of 8942 bytes; the queue holds a little besides.
        assert figure(run, "bandwidth") == pytest.approx(200 * MBIT * 8900 / 8942, rel=0.06)


# ---- started by hand on each side


@in_acceptance
@keeps_its_rate
def test_sender_and_receiver_are_started_by_hand(lab: Lab, tmp_path: Path) -> None:
    """The clocks of the hosts are hours apart. Neither side uses the other's clock."""
    receive = ["udp", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "run")]
    send = ["udp", "send", "-w", lab.address("h1"), *LOAD, "-o", str(tmp_path / "send")]
    with running_on(lab, "h1", receive) as receiver:
        await_text(receiver, "waiting for a sender")
        with_other_clock = ["unshare", "--time", "--monotonic", "100000", "--fork", "--", str(ASSAY), *send]
        sender = subprocess.run(
            lab.enter("h0", with_other_clock), capture_output=True, text=True, timeout=LIMIT_S
        )
        out, err = receiver.communicate(timeout=LIMIT_S)
    assert (sender.returncode, receiver.returncode) == (0, 0), sender.stderr + out + err
    assert "Total speed:  0.30 Gbit/s" in out and "Average loss: 0.000%" in out
    assert "the receiver has 100.000% of the messages" in sender.stdout


@in_acceptance
def test_a_killed_sender_is_named_and_its_data_counted(lab: Lab, tmp_path: Path) -> None:
    """The received messages are counted. A run without its sender's final message never passes."""
    receive = ["udp", "receive", "-w", lab.address("h1"), "--json", "-o", str(tmp_path / "run")]
    send = ["udp", "send", "-w", lab.address("h1"), *LOAD[:4], "--budget", "60s", "-o", str(tmp_path / "run")]
    with running_on(lab, "h1", receive) as receiver:
        await_text(receiver, "waiting for a sender")
        with running_on(lab, "h0", send):
            await_data(lab, "h1", OFFERED)
            for pid in engines_in(lab, "h0", "node.udp_send"):
                os.kill(pid, signal.SIGKILL)
            begun = time.monotonic()
            out, _ = receiver.communicate(timeout=LIMIT_S)
    assert time.monotonic() - begun < 20
    assert receiver.returncode == 2
    report: dict[str, Any] = json.loads(out)
    assert (report["run"]["state"], report["run"]["outcome"]) == ("partial", "INCONCLUSIVE")
    (failure,) = [r for r in report["records"] if r["kind"] == "failure"]
    assert "the sender fell silent after" in failure["problem"]
    loss = [r for r in report["records"] if r["kind"] == "measurement" and r["metric"] == "loss"]
    assert {r["status"] for r in loss} == {"error"}
    assert any(r["summary"]["n"] for r in loss), "what was seen is kept"
    (judged,) = [
        r for r in report["records"] if r["kind"] == "verdict" and r["criterion"] == "no message was lost"
    ]
    assert judged["outcome"] == "INCONCLUSIVE"


@in_acceptance
@pytest.mark.parametrize(
    ("ports", "message"),
    [("15301-15400", "nothing of what h0 sent arrived"), ("15300-15400", "no sender came")],
    ids=["no data", "nothing at all"],
)
def test_a_firewall_that_drops_data_or_everything_is_reported(
    lab: Lab, tmp_path: Path, ports: str, message: str
) -> None:
    """A firewall on the tested host drops only the data, or everything."""
    nft = f"table ip wall {{ chain in {{ type filter hook input priority 0; udp dport {ports} drop; }}; }}"
    subprocess.run(lab.enter("h1", ["nft", "-f", "-"]), input=nft, text=True, timeout=120, check=True)
    try:
        done = subprocess.run(
            [str(ASSAY), "udp", "receive", "-w", lab.address("h1"), "--peer", "h0", "--lab", lab.name, *LOAD,
             "--wait", "4", "-v", "-o", str(tmp_path / "run")],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
    finally:
        subprocess.run(lab.enter("h1", ["nft", "delete", "table", "ip", "wall"]), timeout=120, check=True)
    run = Run.load(tmp_path / "run")
    assert run.info.outcome != "PASS"
    if ports.startswith("15301"):
        assert (done.returncode, figure(run, "loss")) == (1, 1.0), done.stderr
        assert message in done.stderr
    else:
        assert done.returncode == 2
        assert message in done.stderr + done.stdout or "does not answer" in done.stdout


@in_acceptance
@keeps_its_rate
def test_ctrl_c_keeps_the_measurements(lab: Lab, tmp_path: Path) -> None:
    arguments = ["udp", "receive", "-w", lab.address("h1"), "--peer", "h0", "--lab", lab.name, *LOAD[:4]]
    process = subprocess.Popen(
        [str(ASSAY), *arguments, "--budget", "60s", "-o", str(tmp_path / "run")],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    await_data(lab, "h1", OFFERED)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, out + err
    run = Run.load(tmp_path / "run")
    assert run.info.state == "partial"
    assert figure(run, "bandwidth") > 0.5 * OFFERED
    assert engines_in(lab, "h0", "node.udp") == engines_in(lab, "h1", "node.udp") == []


# ---- wrong input is one line


def refusal(lab: Lab, host: str, *arguments: str) -> str:
    done = subprocess.run(
        lab.enter(host, [str(ASSAY), "udp", *arguments]),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd="/tmp",
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_a_port_in_use_is_refused(lab: Lab, tmp_path: Path) -> None:
    with running_on(
        lab, "h1", ["udp", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "first")]
    ) as first:
        await_text(first, "waiting for a sender")
        output = refusal(lab, "h1", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "second"))
    assert "15300" in output and "in use" in output


def test_an_unknown_host_is_refused(lab: Lab, tmp_path: Path) -> None:
    output = refusal(lab, "h0", "send", "-w", "nowhere.invalid", "-o", str(tmp_path / "run"))
    assert "nowhere.invalid" in output


def test_an_interface_without_jumbo_frames_is_refused(lab: Lab, tmp_path: Path) -> None:
    subprocess.run(lab.enter("h1", ["ip", "link", "set", "eth0", "mtu", "1500"]), timeout=120, check=True)
    try:
        output = refusal(lab, "h1", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "run"))
    finally:
        subprocess.run(lab.enter("h1", ["ip", "link", "set", "eth0", "mtu", "9000"]), timeout=120, check=True)
    assert "MTU" in output and "1500" in output and "eth0" in output


def test_a_sender_without_a_receiver_is_refused(lab: Lab, tmp_path: Path) -> None:
    output = refusal(lab, "h0", "send", "-w", lab.address("h1"), "--wait", "1", "-o", str(tmp_path / "run"))
    assert "udp receive" in output and lab.address("h1") in output


def test_json_output_has_the_metrics(lab: Lab, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ASSAY), "udp", "receive", "-w", lab.address("h1"), "--peer", "h0", "--lab", lab.name, *LOAD[:4],
         "--budget", "0.3s", "--json", "-o", str(tmp_path / "run")],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)
    assert {r["metric"] for r in report["records"] if r["kind"] == "measurement"} >= {
        "bandwidth",
        "loss",
        "delivered",
    }
