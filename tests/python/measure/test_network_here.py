"""``assay net`` under every MPI on this host, and under srun on the hosts of a lab.

The MPIs are Open MPI and MPICH of the system and the MPICH wheel. The tests cover both modes, every operation, odd
numbers of ranks, and exact counts of bytes. In the gate each MPI has a part of the cases, and a rank
may be named as slow, since it is slow on a busy machine. Acceptance has all cases, and all must pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.errors import EXIT_OF
from assay.lab import Lab
from assay.launch.launchers import LAUNCHERS
from assay.records.run import Run
from assay.records.schema import Context, Corruption, Failure, Measurement, Pairs

pytestmark = pytest.mark.programs

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 240  # against hangs
MPIS = ["openmpi", "mpich", "mpich-wheel"]
MPIS_OF_GATE = [
    "mpich",
    *(pytest.param(mpi, marks=pytest.mark.acceptance("network")) for mpi in ("openmpi", "mpich-wheel")),
]
ITERATIONS = 20
SIZES = (1, 4096, 300_000)
GATE = [("openmpi", "shift"), ("mpich", "circle"), ("mpich-wheel", "random")]
in_acceptance = pytest.mark.acceptance("network")
no_rank_is_named = pytest.mark.statistical(
    "1 in 500, assumed: equal ranks on one machine, of which none is named as slow"
)
SWEEP = ["--sizes", ",".join(map(str, SIZES)), "--repeats", str(ITERATIONS)]


def assay(run_path: Path, verb: str, *arguments: str) -> tuple[int, Run]:
    done = subprocess.run(
        [str(ASSAY), verb, "-o", str(run_path), *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert (run_path / "run.json").exists(), done.stderr
    return done.returncode, Run.load(run_path)


def values(run: Run, metric: str) -> dict[tuple[object, object], float]:
    """The median of a metric by (operation, size)."""
    return {
        (r.params["op"], r.params["size"]): r.summary.median
        for r in run.records
        if isinstance(r, Measurement) and r.metric == metric and r.summary and "op" in r.params
    }


def check_no_failure(run: Run) -> None:
    assert [r for r in run.records if isinstance(r, Failure | Corruption)] == []
    assert run.info.state == "complete"
    assert set(values(run, "corrupted").values()) == {0.0}


def test_the_mpis_of_these_tests_are_installed() -> None:
    reasons = {x.name: x.unavailable() for x in LAUNCHERS if x.name in MPIS}
    assert reasons == dict.fromkeys(MPIS)


@pytest.mark.parametrize(("launcher", "schedule"), GATE)
def test_all_to_all_of_three_ranks_counts_every_byte(tmp_path: Path, launcher: str, schedule: str) -> None:
    check_all_to_all(tmp_path, launcher, schedule)


@in_acceptance
@no_rank_is_named
@pytest.mark.parametrize("schedule", ["shift", "circle", "random"])
@pytest.mark.parametrize("launcher", MPIS)
def test_all_to_all_of_three_ranks_passes(tmp_path: Path, launcher: str, schedule: str) -> None:
    assert check_all_to_all(tmp_path, launcher, schedule) == 0


def check_all_to_all(tmp_path: Path, launcher: str, schedule: str) -> int:
    """Three ranks with each operation. Returns the exit code, which belongs to the outcome."""
    status, run = assay(
        tmp_path / "run", "net", "--ranks", "3", "--launcher", launcher, "--schedule", schedule,
        "--op", "send,put,get", *SWEEP,
    )  # fmt: skip
    assert status == EXIT_OF[run.info.outcome]
    check_no_failure(run)
    rounds = 2 if schedule != "random" else None
    for (op, size), arrived in values(run, "bytes").items():
        assert op in ("send", "put", "get")
        if rounds:  # every rank to each of the two others
            assert arrived == 3 * 2 * ITERATIONS * float(str(size))
    pairs = {(r.subject.host, peer) for r in run.records if isinstance(r, Pairs) for peer in r.peers}
    assert len(pairs) == 6 or schedule == "random"
    (context,) = [r for r in run.records if isinstance(r, Context) and "mpi.library" in r.facts]
    expected = "Open MPI" if launcher == "openmpi" else "MPICH"
    assert expected in str(context.facts["mpi.library"])
    return status


@pytest.mark.parametrize("launcher", MPIS_OF_GATE)
def test_results_beyond_the_limit_of_one_gather_arrive(
    tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of 10,000 ranks exceed 2 GiB. Here the limit is set to 10 bytes."""
    monkeypatch.setenv("ASSAY_MAX_GATHERED", "10")
    status, run = assay(tmp_path / "run", "net", "--ranks", "3", "--launcher", launcher, *SWEEP)
    assert status == EXIT_OF[run.info.outcome]
    check_no_failure(run)
    pairs = {(r.subject.host, peer) for r in run.records if isinstance(r, Pairs) for peer in r.peers}
    assert len(pairs) == 6


@pytest.mark.parametrize("launcher", MPIS_OF_GATE)
def test_client_server_counts_every_byte(tmp_path: Path, launcher: str) -> None:
    status, run = assay(
        tmp_path / "run", "run", "network.client_server", "--ranks", "4", "--launcher", launcher,
        "--servers", "1", "--op", "send,put,get", "--nflight", "4", *SWEEP,
    )  # fmt: skip
    assert status == 0
    check_no_failure(run)
    for (_, size), arrived in values(run, "bytes").items():
        assert arrived == 3 * 1 * ITERATIONS * float(str(size))
    # A send is answered, so half of its round trip is reported besides its latency.
    trips, latencies = values(run, "half_round_trip"), values(run, "latency")
    assert {op for op, _ in trips} == {"send"}
    for key, trip in trips.items():
        assert trip == pytest.approx(latencies[key] / 2, rel=0.02)


@in_acceptance
@pytest.mark.statistical("1 in 200, assumed: four equal hosts, of which none may be named as slow")
@pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root (network namespaces)")
def test_srun_starts_ranks_on_the_hosts_of_a_lab(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    assert shutil.which("slurmctld"), "install slurm-wlm"
    lab = make_lab(hosts=4, host_rate="100mbit", slurm=True)
    status, run = assay(
        tmp_path / "run", "net", "--lab", lab.name, "--launcher", "srun", "--sizes", "1KiB,64KiB",
        "--budget", "15s",
    )  # fmt: skip
    check_no_failure(run)
    assert status == 0
    of_hosts = [r for r in run.records if isinstance(r, Context) and not r.subject.device]
    # Each measurement tells facts of its own.
    assert sorted({str(r.subject.host) for r in of_hosts}) == lab.hosts
    shares = [r for r in run.records if isinstance(r, Measurement) and r.metric == "share"]
    wire = [r for r in shares if r.name == "network.wire" and r.summary]
    # One of the all-to-all measurement and one of the one-way measurement.
    assert sorted(str(r.subject.host) for r in wire) == sorted(lab.hosts * 2)
    assert all(r.summary is not None and r.summary.median >= 1.0 for r in wire)


def test_pairs_are_measured_alone_and_sizes_have_units(tmp_path: Path) -> None:
    status, run = assay(
        tmp_path / "run", "run", "network.pairs", "--ranks", "3", "--pairs", "0-2,2-1", "--size", "64KiB",
        "--repeats", "3",
    )  # fmt: skip
    assert status == 0
    check_no_failure(run)
    alone = [r for r in run.records if isinstance(r, Measurement) and r.metric == "bandwidth"]
    assert [str(r.subject.host)[-2:] + str(r.subject.peer)[-2:] for r in alone] == [":0:2", ":2:1"]
    assert {r.params["size"] for r in alone} == {65536}
    for record in alone:
        # A pair also ends after a second. On a busy machine a single burst may take that long.
        longest = record.params["iterations"] * 65536 / min(record.samples)
        assert len(record.samples) == 3 or (1 <= len(record.samples) < 3 and longest >= 1)


def test_a_run_that_ended_early_is_resumed(tmp_path: Path) -> None:
    run_path = tmp_path / "run"
    status, complete_run = assay(run_path, "net", "--ranks", "2", *SWEEP)
    assert status == EXIT_OF[complete_run.info.outcome]
    # As after a kill during the second size: later records and the conclusion are missing.
    cut = next(
        i for i, r in enumerate(complete_run.records) if getattr(r, "params", {}).get("size") == SIZES[1]
    )
    lines = (run_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    (run_path / "records.jsonl").write_bytes(b"".join(lines[: cut + 2]) + b'{"kind":"measu')
    complete_run.info.state, complete_run.info.outcome, complete_run.info.completed = "running", None, []
    complete_run.save()

    done = subprocess.run(
        [str(ASSAY), "run", "--resume", str(run_path)], capture_output=True, text=True, timeout=LIMIT_S
    )
    run = Run.load(run_path)
    assert run.info.state == "complete", done.stderr
    assert done.returncode == EXIT_OF[run.info.outcome]
    assert sorted(values(run, "corrupted")) == [("send", size) for size in SIZES]
    kept_ids = [r.id for r in run.records if isinstance(r, Measurement) and r.params.get("size") == SIZES[0]]
    assert kept_ids == [
        r.id for r in complete_run.records if isinstance(r, Measurement) and r.params.get("size") == SIZES[0]
    ]
    assert len({r.id for r in run.records}) == len(run.records)

    second = subprocess.run(
        [str(ASSAY), "run", "--resume", str(run_path)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert second.returncode == 2 and "nothing to resume" in second.stderr
