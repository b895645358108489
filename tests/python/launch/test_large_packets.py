"""Packets that are lost because something on the way has a smaller MTU are found from outside."""

from __future__ import annotations

import contextlib
import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.lab import Lab
from assay.lab.traffic import SWITCH
from assay.launch import large_packets
from assay.launch.large_packets import Loss, lost_large_packets, name_lost_packets
from assay.launch.placement import HERE, REMOTE, Site, lab_site
from assay.records.run import Run
from assay.records.schema import Failure

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("passing", "expected"),
    [(576, (9216, 576)), (1400, (9216, 1400)), (1500, (9216, 1500)), (9216, None), (0, None)],
)
def test_the_largest_size_that_passes_is_found(
    passing: int, expected: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_packets, "_largest_segment", lambda host: 9216 - 40)
    monkeypatch.setattr(large_packets, "_arrives", lambda sender, size: size + 28 <= passing)
    assert large_packets._loss("127.0.0.1") == expected


def test_a_closed_port_of_this_machine_answers_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(5)
        sender.connect(("127.0.0.1", large_packets.PORT))
        assert large_packets._arrives(sender, 100) and large_packets._arrives(sender, 9000)
    monkeypatch.setattr(large_packets, "_largest_segment", lambda host: 9000)
    assert large_packets._loss("127.0.0.1") is None


def test_a_smaller_mtu_that_the_network_reports_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def reported(sender: socket.socket, size: int) -> bool:
        if size > 1472:
            raise OSError(errno.EMSGSIZE, "Message too long")
        return True

    monkeypatch.setattr(large_packets, "_largest_segment", lambda host: 8960)
    monkeypatch.setattr(large_packets, "_arrives", reported)
    assert large_packets._loss("127.0.0.1") is None


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_name_that_cannot_be_one_tells_nothing(host: str) -> None:
    assert large_packets._loss(host) is None


@pytest.mark.parametrize(("site", "is_told"), [(REMOTE, True), (HERE, False)], ids=["ssh", "here"])
def test_a_failure_tells_the_sizes_and_the_fix(
    site: Site, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_packets, "lost_large_packets", lambda site, hosts: {hosts[0]: Loss(9000, 1500)})
    failure = Failure(problem="no answer from n1", fix="is it up?")
    name_lost_packets(failure, site, ["n1", "n1", "n2"])
    if is_told:
        assert (
            failure.problem
            == "no answer from n1; packets of 9000 B to n1 are lost on the way, those of 1500 B arrive"
        )
        assert failure.fix.startswith(
            "is it up?; give the switch ports on the way to n1 the MTU of the hosts"
        )
    else:
        assert failure == Failure(problem="no answer from n1", fix="is it up?")


@pytest.fixture
def lab(make_lab) -> Iterator[Lab]:
    """A lab with large packets, whose hosts listen on the port of ssh."""
    lab: Lab = make_lab(3, host_rate="200mbit", mtu=9000)
    server = [sys.executable, "-u", "-m", "http.server", str(large_packets.SSH_PORT)]
    with contextlib.ExitStack() as started:
        for host in lab.hosts:
            process = subprocess.Popen(lab.enter(host, server), stdout=subprocess.PIPE)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None and b"Serving" in process.stdout.readline()
        yield lab


@pytest.mark.acceptance("lab")
def test_a_switch_port_with_a_smaller_mtu_is_named_when_a_host_does_not_answer(
    lab: Lab, tmp_path: Path
) -> None:
    site = lab_site(lab)
    assert lost_large_packets(site, lab.hosts) == {}
    # A host with a smaller MTU is no fault: TCP agrees on it.
    interface = ["ip", "link", "set", "eth0", "mtu"]
    subprocess.run(lab.enter("h2", [*interface, "1500"]), timeout=60, check=True)
    assert lost_large_packets(site, lab.hosts) == {}
    subprocess.run(lab.enter("h2", [*interface, "9000"]), timeout=60, check=True)
    switch = ["nsenter", "--target", str(lab._holder(SWITCH)), "--net"]
    subprocess.run([*switch, "ip", "link", "set", "h1", "mtu", "1500"], timeout=60, check=True)
    ((host, loss),) = lost_large_packets(site, lab.hosts).items()
    assert host == "h1" and 8900 < loss.largest <= 9000 and loss.passing == 1500
    command = [str(ROOT / "assay"), "net", "-w", "h[0-2]", "--lab", lab.name, "--launcher", "openmpi"]
    done = subprocess.run(
        [*command, "--budget", "5s", "-o", str(tmp_path / "run")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    (failure,) = [r for r in Run.load(tmp_path / "run").records if isinstance(r, Failure)]
    assert f"packets of {loss.largest} B to h1 are lost on the way, those of 1500 B arrive" in failure.problem
