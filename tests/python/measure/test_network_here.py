"""The same suite under every MPI on this one host, and under srun across hosts.

Open MPI and MPICH of the system, and the MPICH wheel: both modes, every operation, odd numbers of ranks,
exact accounting. Figures of speed are not looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.lab import Lab
from assay.launch.launchers import LAUNCHERS
from assay.records.run import Run
from assay.records.schema import Context, Corruption, Failure, Measurement, Pairs

pytestmark = pytest.mark.programs

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 120
MPIS = ["openmpi", "mpich", "mpich-wheel"]
ITERATIONS = 20
SIZES = (1, 4096, 300_000)
SWEEP = ["--sizes", ",".join(map(str, SIZES)), "--repeats", str(ITERATIONS)]


def assay(where: Path, verb: str, *arguments: str) -> tuple[int, Run]:
    done = subprocess.run(
        [str(ASSAY), verb, "-o", str(where), *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert (where / "run.json").exists(), done.stderr
    return done.returncode, Run.load(where)


def values(run: Run, metric: str) -> dict[tuple[object, object], float]:
    """The median of a metric by (operation, size)."""
    return {
        (r.params["op"], r.params["size"]): r.summary.median
        for r in run.records
        if isinstance(r, Measurement) and r.metric == metric and r.summary and "op" in r.params
    }


def nothing_failed(run: Run) -> None:
    assert [r for r in run.records if isinstance(r, Failure | Corruption)] == []
    assert run.info.state == "complete"
    assert set(values(run, "corrupted").values()) == {0.0}


def test_the_mpis_of_the_suite_are_here() -> None:
    reasons = {x.name: x.unavailable() for x in LAUNCHERS if x.name in MPIS}
    assert reasons == dict.fromkeys(MPIS)


@pytest.mark.parametrize("schedule", ["shift", "circle", "random"])
@pytest.mark.parametrize("launcher", MPIS)
def test_all_to_all_of_three(tmp_path: Path, launcher: str, schedule: str) -> None:
    status, run = assay(
        tmp_path / "run", "net", "--ranks", "3", "--launcher", launcher, "--schedule", schedule,
        "--op", "send,put,get", *SWEEP,
    )  # fmt: skip
    assert status == 0
    nothing_failed(run)
    rounds = 2 if schedule != "random" else None
    for (op, size), arrived in values(run, "bytes").items():
        assert op in ("send", "put", "get")
        if rounds:  # every rank to each of the two others
            assert arrived == 3 * 2 * ITERATIONS * float(str(size))
    pairs = {(r.subject.host, peer) for r in run.records if isinstance(r, Pairs) for peer in r.peers}
    assert len(pairs) == 6 or schedule == "random"
    (context,) = [r for r in run.records if isinstance(r, Context) and not r.subject.device]
    expected = "Open MPI" if launcher == "openmpi" else "MPICH"
    assert expected in str(context.facts["mpi.library"])


@pytest.mark.parametrize("launcher", MPIS)
def test_results_that_are_too_long_for_one_gather(
    tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with 10,000 ranks, whose results exceed 2 GiB; here the limit is 10 bytes."""
    monkeypatch.setenv("ASSAY_MAX_GATHERED", "10")
    status, run = assay(tmp_path / "run", "net", "--ranks", "3", "--launcher", launcher, *SWEEP)
    assert status == 0
    nothing_failed(run)
    pairs = {(r.subject.host, peer) for r in run.records if isinstance(r, Pairs) for peer in r.peers}
    assert len(pairs) == 6


@pytest.mark.parametrize("launcher", MPIS)
def test_client_server(tmp_path: Path, launcher: str) -> None:
    status, run = assay(
        tmp_path / "run", "run", "network.client_server", "--ranks", "4", "--launcher", launcher,
        "--servers", "1", "--op", "send,put,get", "--nflight", "4", *SWEEP,
    )  # fmt: skip
    assert status == 0
    nothing_failed(run)
    for (_, size), arrived in values(run, "bytes").items():
        assert arrived == 3 * 1 * ITERATIONS * float(str(size))
    # A send is answered: half its round trip is reported apart from its latency.
    trips, latencies = values(run, "half_round_trip"), values(run, "latency")
    assert {op for op, _ in trips} == {"send"}
    for key, trip in trips.items():
        assert trip == pytest.approx(latencies[key] / 2, rel=0.02)


@pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root (network namespaces)")
def test_srun_across_hosts(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    assert shutil.which("slurmctld"), "install slurm-wlm"
    lab = make_lab(hosts=4, host_rate="100mbit", slurm=True)
    status, run = assay(
        tmp_path / "run", "net", "--lab", lab.name, "--launcher", "srun", "--sizes", "1KiB,64KiB",
        "--budget", "4s",
    )  # fmt: skip
    nothing_failed(run)
    assert status == 0
    of_hosts = [r for r in run.records if isinstance(r, Context) and not r.subject.device]
    assert sorted(str(r.subject.host) for r in of_hosts) == lab.hosts
    shares = [r for r in run.records if isinstance(r, Measurement) and r.metric == "share"]
    wire = [r for r in shares if r.name == "network.wire" and r.summary]
    # Of all to all, and of each direction by itself.
    assert sorted(str(r.subject.host) for r in wire) == sorted(lab.hosts * 2)
    assert all(r.summary is not None and r.summary.median >= 1.0 for r in wire)


def test_pairs_are_measured_alone_and_sizes_have_units(tmp_path: Path) -> None:
    status, run = assay(
        tmp_path / "run", "run", "network.pairs", "--ranks", "3", "--pairs", "0-2,2-1", "--size", "64KiB",
        "--repeats", "3",
    )  # fmt: skip
    assert status == 0
    nothing_failed(run)
    alone = [r for r in run.records if isinstance(r, Measurement) and r.metric == "bandwidth"]
    assert [str(r.subject.host)[-2:] + str(r.subject.peer)[-2:] for r in alone] == [":0:2", ":2:1"]
    assert {r.params["size"] for r in alone} == {65536}
    for record in alone:
        # A pair ends after a second too, which a single burst takes on a machine that is busy with other programs.
        longest = record.params["iterations"] * 65536 / min(record.samples)
        assert len(record.samples) == 3 or (1 <= len(record.samples) < 3 and longest >= 1)


def test_a_run_that_ended_early_is_resumed(tmp_path: Path) -> None:
    where = tmp_path / "run"
    status, whole = assay(where, "net", "--ranks", "2", *SWEEP)
    assert status == 0
    # As it would be after a kill during the second size: no later record, no conclusion.
    cut = next(i for i, r in enumerate(whole.records) if getattr(r, "params", {}).get("size") == SIZES[1])
    lines = (where / "records.jsonl").read_bytes().splitlines(keepends=True)
    (where / "records.jsonl").write_bytes(b"".join(lines[: cut + 2]) + b'{"kind":"measu')
    whole.info.state, whole.info.outcome, whole.info.completed = "running", None, []
    whole.save()

    done = subprocess.run(
        [str(ASSAY), "run", "--resume", str(where)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    run = Run.load(where)
    assert (run.info.state, run.info.outcome) == ("complete", "PASS")
    assert sorted(values(run, "corrupted")) == [("send", size) for size in SIZES]
    kept_ids = [r.id for r in run.records if isinstance(r, Measurement) and r.params.get("size") == SIZES[0]]
    assert kept_ids == [
        r.id for r in whole.records if isinstance(r, Measurement) and r.params.get("size") == SIZES[0]
    ]
    assert len({r.id for r in run.records}) == len(run.records)

    again = subprocess.run(
        [str(ASSAY), "run", "--resume", str(where)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert again.returncode == 2 and "nothing to resume" in again.stderr
