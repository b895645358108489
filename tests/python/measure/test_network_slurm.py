"""A network run inside an allocation of Slurm, started on the head node. The hosts have other names than Slurm's nodes
and two adapters each, and the host list names them in several ways."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.lab import Lab
from assay.records.run import Run
from assay.records.schema import Context, Failure, Measurement, Pairs

pytestmark = [
    pytest.mark.lab,
    pytest.mark.acceptance("network"),
    pytest.mark.statistical("1 in 200, assumed: four equal hosts, of which none may be named as slow"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root (network namespaces)"),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed (slurm-wlm)"),
]

ASSAY = Path(__file__).parents[3] / "assay"


def add_adapters_and_rename(lab: Lab) -> None:
    """Adds the adapter eth1 in another network to each host, and changes its host name."""
    for number, host in enumerate(lab.hosts):
        script = (
            f"ip link add link eth0 name eth1 type macvlan mode bridge && "
            f"ip addr add 10.99.0.{number + 1}/24 dev eth1 && ip link set eth1 up && hostname n{number}.site"
        )
        subprocess.run(lab.enter(host, ["sh", "-c", script]), check=True, capture_output=True, timeout=30)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder outside /tmp, which all hosts of the lab share. Each has its own /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="assay-test-") as folder:
        yield Path(folder)


# A node name of Slurm, a host name, an address of the second adapter, which Slurm does not know, and an address that
# Slurm knows.
LISTED = ["h0", "n1.site", "10.99.0.3", "10.77.0.4"]


def test_hosts_with_other_names_and_two_adapters_are_measured_under_srun(
    make_lab: Callable[..., Lab], shared: Path
) -> None:
    lab = make_lab(hosts=4, host_rate="100mbit", slurm=True)
    add_adapters_and_rename(lab)
    command = [
        "salloc",
        "-Q",
        "-N4",
        str(ASSAY),
        "net",
        "-w",
        ",".join(LISTED),
        "--sizes",
        "64KiB",
        "--budget",
        "8s",
    ]
    done = subprocess.run(
        lab.enter("head", [*command, "-o", str(shared / "run")]),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "under srun" in done.stderr, done.stderr
    run = Run.load(shared / "run")
    assert [r for r in run.records if isinstance(r, Failure)] == []
    assert (done.returncode, run.info.state) == (0, "complete"), done.stdout
    pairs = {(r.subject.host, peer) for r in run.records if isinstance(r, Pairs) for peer in r.peers}
    assert {host for pair in pairs for host in pair} == set(LISTED)  # not the hosts' own names, nor Slurm's
    own_names = {r.subject.host: r.facts["host.own_name"] for r in run.records
           if isinstance(r, Context) and "host.own_name" in r.facts}  # fmt: skip
    assert own_names == {
        host: f"n{number}.site" for number, host in enumerate(LISTED) if host != f"n{number}.site"
    }
    wire = [
        r
        for r in run.records
        if isinstance(r, Measurement) and (r.name, r.metric) == ("network.wire", "share")
    ]
    assert {r.subject.host for r in wire} == set(LISTED) and min(r.median for r in wire) >= 1.0

    wrong_host = [*command[:3], str(ASSAY), "net", "-w", "h0,h7", "-o", str(shared / "none")]
    refused = subprocess.run(lab.enter("head", wrong_host), capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "h7: no node of this allocation (h[0-3]) has this name or address" in refused.stderr
    assert not (shared / "none").exists()
