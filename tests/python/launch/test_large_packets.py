"""Packets that are lost because something on the way has a smaller MTU are found from outside."""

from __future__ import annotations

import subprocess
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
    monkeypatch.setattr(large_packets, "_mtu", lambda sender, level, option: 9216)
    monkeypatch.setattr(large_packets, "_arrives", lambda sender, size: size + 28 <= passing)
    assert large_packets._loss("127.0.0.1") == expected


def test_a_closed_port_of_this_machine_answers_every_size() -> None:
    assert large_packets._loss("127.0.0.1") is None


def test_a_name_that_does_not_resolve_tells_nothing() -> None:
    assert lost_large_packets(REMOTE, ["no-such-host.invalid"]) == {}


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
        assert "ip link set INTERFACE mtu" in failure.fix
    else:
        assert failure == Failure(problem="no answer from n1", fix="is it up?")


@pytest.mark.acceptance("lab")
def test_a_switch_port_with_a_smaller_mtu_is_named_when_a_host_does_not_answer(
    make_lab, tmp_path: Path
) -> None:
    lab: Lab = make_lab(3, host_rate="200mbit", mtu=9000)
    assert lost_large_packets(lab_site(lab), lab.hosts) == {}
    switch = ["nsenter", "--target", str(lab._holder(SWITCH)), "--net"]
    subprocess.run([*switch, "ip", "link", "set", "h1", "mtu", "1500"], timeout=60, check=True)
    assert lost_large_packets(lab_site(lab), lab.hosts) == {"h1": Loss(9000, 1500)}
    command = [str(ROOT / "assay"), "net", "-w", "h[0-2]", "--lab", lab.name, "--launcher", "openmpi"]
    done = subprocess.run(
        [*command, "--budget", "5s", "-o", str(tmp_path / "run")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    (failure,) = [r for r in Run.load(tmp_path / "run").records if isinstance(r, Failure)]
    assert "packets of 9000 B to h1 are lost on the way, those of 1500 B arrive" in failure.problem
