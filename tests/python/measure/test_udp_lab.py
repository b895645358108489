"""UDP between two hosts of a virtual cluster, with a rate, a loss and failures that we planted ourselves.

Five streams of 60 Mbit/s over cables of 400 Mbit/s: what a 10GbE port has to take, at a thirtieth.
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

ASSAY = Path(__file__).parents[3] / "assay"
MBIT = 1e6 / 8
OFFERED = 300 * MBIT
TRIES = 3
LIMIT_S = 60
LOAD = ["--streams", "5", "--rate", "60 Mbit/s", "--budget", "1.5"]

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
def afflicted(lab: Lab, host: str, fault: Fault) -> Iterator[None]:
    lab.fault([host], fault)
    try:
        yield
    finally:
        lab.fault([host], None)


@contextmanager
def on(lab: Lab, host: str, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """The tool as its user starts it on a host."""
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


def await_word(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"it never said '{word}'")


def engines_in(lab: Lab, host: str, measurement: str) -> list[int]:
    """Process ids of engines in a host of the lab."""
    pids = []
    for pid, (_, node) in find_processes(lab.name).items():
        with suppress(OSError):  # it has ended
            if node == host and measurement.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.append(pid)
    return pids


def await_data(lab: Lab, host: str, amount: float) -> None:
    """Until so many bytes have come to a host."""

    def received() -> int:
        table = Path(f"/proc/{lab.nodes[host].pid}/net/dev").read_text()
        (line,) = [line for line in table.splitlines() if line.strip().startswith(f"{lab.interface}:")]
        return int(line.partition(":")[2].split()[0])

    begin, deadline = received(), time.monotonic() + LIMIT_S
    while received() < begin + amount:
        assert time.monotonic() < deadline, "no data came"
        time.sleep(0.01)


def judged(lab: Lab, where: Path, tested: str, peer: str, specification: Path) -> tuple[int, Run]:
    """On a machine that has better things to do, a sender falls behind and nothing is judged: then once more."""
    arguments = ["comply", str(specification), "--lab", lab.name, "-w", tested, "--peer", peer]
    for attempt in range(TRIES):
        into = where / str(attempt)
        done = subprocess.run(
            [str(ASSAY), *arguments, "--interfaces", "eth0", "-o", str(into)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert "Traceback" not in done.stderr, done.stderr
        run = Run.load(into)
        reasons = [r.reason or "" for r in run.records if isinstance(r, Measurement)]
        if not any(reason.startswith("the sender could only send") for reason in reasons):
            break
    return done.returncode, run


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


@pytest.mark.alone
def test_what_arrives_whole_passes(lab: Lab, tmp_path: Path, specification: Path) -> None:
    status, run = judged(lab, tmp_path / "run", "h1", "h0", specification)
    assert outcomes(run) == {"total speed": "PASS", "average loss": "PASS"}, run.records
    assert status == 0
    assert figure(run, "bandwidth") == pytest.approx(OFFERED, rel=0.003)
    assert {
        figure(run, metric) for metric in ("loss", "duplicates", "reordered", "corrupted", "foreign")
    } == {0}
    assert set(run.info.completed) == {"node.settings", "node.udp_receive", "node.udp_send"}
    assert not [r for r in run.records if isinstance(r, Finding)]


@pytest.mark.alone
@pytest.mark.parametrize(("tested", "peer", "outcome"), [("h1", "h0", "FAIL"), ("h0", "h1", "PASS")])
def test_planted_loss_is_judged_in_each_direction(
    lab: Lab, tmp_path: Path, specification: Path, tested: str, peer: str, outcome: str
) -> None:
    with afflicted(lab, "h1", Fault(rx_loss=0.01)):
        status, run = judged(lab, tmp_path / "run", tested, peer, specification)
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


@pytest.mark.alone
@pytest.mark.parametrize(("tested", "peer", "outcome"), [("h1", "h0", "FAIL"), ("h0", "h1", "PASS")])
def test_a_slow_port_is_judged_in_each_direction(
    lab: Lab, tmp_path: Path, specification: Path, tested: str, peer: str, outcome: str
) -> None:
    with afflicted(lab, "h1", Fault(rx=200 * MBIT)):
        _, run = judged(lab, tmp_path / "run", tested, peer, specification)
    assert outcomes(run) == {"total speed": outcome, "average loss": outcome}
    if outcome == "FAIL":
        # 200 Mbit/s on the wire, of which a message is 8900 of 8942 bytes; the queue holds a little besides.
        assert figure(run, "bandwidth") == pytest.approx(200 * MBIT * 8900 / 8942, rel=0.06)


# ---- by hand, on each side


@pytest.mark.alone
def test_the_two_commands_of_the_seed(lab: Lab, tmp_path: Path) -> None:
    """And with clocks that are hours apart: neither side looks at the other's."""
    receive = ["udp", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "run")]
    send = ["udp", "send", "-w", lab.address("h1"), *LOAD, "-o", str(tmp_path / "send")]
    with on(lab, "h1", receive) as receiver:
        await_word(receiver, "waiting for a sender")
        away = ["unshare", "--time", "--monotonic", "100000", "--fork", "--", str(ASSAY), *send]
        sender = subprocess.run(lab.enter("h0", away), capture_output=True, text=True, timeout=LIMIT_S)
        out, err = receiver.communicate(timeout=LIMIT_S)
    assert (sender.returncode, receiver.returncode) == (0, 0), sender.stderr + out + err
    assert "Total speed:  0.30 Gbit/s" in out and "Average loss: 0.000%" in out
    assert "the receiver has 100.000% of the messages" in sender.stdout


def test_a_sender_that_is_killed(lab: Lab, tmp_path: Path) -> None:
    """What arrived is kept and reckoned; a run without its sender's last word never passes."""
    receive = ["udp", "receive", "-w", lab.address("h1"), "--json", "-o", str(tmp_path / "run")]
    send = ["udp", "send", "-w", lab.address("h1"), *LOAD[:4], "--budget", "60", "-o", str(tmp_path / "run")]
    with on(lab, "h1", receive) as receiver:
        await_word(receiver, "waiting for a sender")
        with on(lab, "h0", send):
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


@pytest.mark.alone
@pytest.mark.parametrize(
    ("ports", "says"),
    [("15301-15400", "nothing of what h0 sent arrived"), ("15300-15400", "no sender came")],
    ids=["no data", "nothing at all"],
)
def test_when_nothing_arrives(lab: Lab, tmp_path: Path, ports: str, says: str) -> None:
    """A firewall on the tested host, for the data alone and for everything."""
    nft = f"table ip wall {{ chain in {{ type filter hook input priority 0; udp dport {ports} drop; }}; }}"
    subprocess.run(lab.enter("h1", ["nft", "-f", "-"]), input=nft, text=True, timeout=10, check=True)
    try:
        done = subprocess.run(
            [str(ASSAY), "udp", "receive", "-w", lab.address("h1"), "--peer", "h0", "--lab", lab.name, *LOAD,
             "--wait", "4", "-v", "-o", str(tmp_path / "run")],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
    finally:
        subprocess.run(lab.enter("h1", ["nft", "delete", "table", "ip", "wall"]), timeout=10, check=True)
    run = Run.load(tmp_path / "run")
    assert run.info.outcome != "PASS"
    if ports.startswith("15301"):
        assert (done.returncode, figure(run, "loss")) == (1, 1.0), done.stderr
        assert says in done.stderr
    else:
        assert done.returncode == 2
        assert says in done.stderr + done.stdout or "does not answer" in done.stdout


@pytest.mark.alone
def test_ctrl_c_keeps_what_has_arrived(lab: Lab, tmp_path: Path) -> None:
    arguments = ["udp", "receive", "-w", lab.address("h1"), "--peer", "h0", "--lab", lab.name, *LOAD[:4]]
    process = subprocess.Popen(
        [str(ASSAY), *arguments, "--budget", "60", "-o", str(tmp_path / "run")],
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


# ---- bad input: one line


def refused(lab: Lab, host: str, *arguments: str) -> str:
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


def test_a_port_in_use(lab: Lab, tmp_path: Path) -> None:
    with on(lab, "h1", ["udp", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "first")]) as first:
        await_word(first, "waiting for a sender")
        output = refused(lab, "h1", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "second"))
    assert "15300" in output and "in use" in output


def test_a_host_that_does_not_resolve(lab: Lab, tmp_path: Path) -> None:
    output = refused(lab, "h0", "send", "-w", "nowhere.invalid", "-o", str(tmp_path / "run"))
    assert "nowhere.invalid" in output


def test_an_interface_without_jumbo_frames(lab: Lab, tmp_path: Path) -> None:
    subprocess.run(lab.enter("h1", ["ip", "link", "set", "eth0", "mtu", "1500"]), timeout=10, check=True)
    try:
        output = refused(lab, "h1", "receive", "-w", lab.address("h1"), "-o", str(tmp_path / "run"))
    finally:
        subprocess.run(lab.enter("h1", ["ip", "link", "set", "eth0", "mtu", "9000"]), timeout=10, check=True)
    assert "MTU" in output and "1500" in output and "eth0" in output


def test_no_receiver(lab: Lab, tmp_path: Path) -> None:
    output = refused(lab, "h0", "send", "-w", lab.address("h1"), "--wait", "1", "-o", str(tmp_path / "run"))
    assert "udp receive" in output and lab.address("h1") in output


def test_json(lab: Lab, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ASSAY), "udp", "receive", "-w", lab.address("h1"), "--peer", "h0", "--lab", lab.name, *LOAD[:4],
         "--budget", "0.3", "--json", "-o", str(tmp_path / "run")],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)
    assert {r["metric"] for r in report["records"] if r["kind"] == "measurement"} >= {
        "bandwidth",
        "loss",
        "delivered",
    }
