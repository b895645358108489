"""Storage benchmarks across lab hosts: reads from another node use the network; the playground makes and removes its
lab."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage_benches import in_acceptance, is_available, records_of_kind

from assay.cli import main
from assay.lab import Lab
from assay.lab.state import ROOT as LABS
from assay.launch.engines import engines_folder

ROOT = Path(__file__).parents[3]
BLOCK = 4 << 20
LIMIT_S = 280  # of the whole playground, which documents promise to take under five minutes

pytestmark = [pytest.mark.programs, pytest.mark.skipif(not is_available("openmpi"), reason="no openmpi here")]


def received_bytes(lab: Lab, host: str) -> int:
    arguments = lab.enter(host, ["cat", f"/sys/class/net/{lab.interface}/statistics/rx_bytes"])
    return int(subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=240).stdout)


@pytest.mark.skipif(
    not (engines_folder() / "libassay-io-openmpi.so").is_file(), reason="no accelerator is built"
)
@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich-wheel", marks=in_acceptance)])
def test_data_of_another_node_use_the_network(
    make_lab: Callable[..., Lab],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    mpi: str,
) -> None:
    if not is_available(mpi):
        pytest.skip(f"no {mpi} here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))  # for what runs inside the lab
    lab = make_lab(hosts=2)
    before = [received_bytes(lab, host) for host in lab.hosts]
    arguments = [
        "--lab",
        lab.name,
        "--mpi",
        mpi,
        "--accelerated",
        "--repeats",
        "1",
        "--node-counts",
        "1,2",
        "--json",
        "-o",
        "out",
    ]
    ior = ["-t", "64k", "-b", str(BLOCK), "-C", "-e", "-w", "-r", "-R"]
    assert main(["io", "bench", "ior", *arguments, "--", *ior]) == 0
    records: list[dict[str, Any]] = json.loads(capfd.readouterr().out)["records"]
    increases = [
        after - earlier
        for after, earlier in zip((received_bytes(lab, h) for h in lab.hosts), before, strict=True)
    ]
    assert min(increases) >= BLOCK
    reads = [
        r
        for r in records_of_kind(records, "measurement")
        if r["metric"] == "bandwidth" and r["params"]["op"] == "read"
    ]
    assert {(r["params"]["nodes"], r["params"]["data"]) for r in reads} == {(1, "own"), (2, "another node's")}
    assert {r["params"]["io"] for r in reads} == {"accelerated"}


def playground_labs() -> set[str]:
    return {path.name for path in LABS.glob("playground-*")} if LABS.is_dir() else set()


def playground(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "assay", "io", "playground", "-o", str(folder / "out"), *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@in_acceptance
@pytest.mark.skipif(os.geteuid() != 0, reason="labs need root")
def test_the_playground_runs_all_benchmarks_and_removes_its_lab(tmp_path: Path) -> None:
    others = playground_labs()
    process = playground(tmp_path, "--nodes", "2", "--repeats", "1", "--json")
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    run = json.loads(out)
    measured = {
        r["name"] for r in records_of_kind(run["records"], "measurement") if r.get("status", "ok") == "ok"
    }
    assert {"storage.ior", "storage.reaction_diffusion"} <= measured
    assert run["run"]["hosts"] == ["h0", "h1"] and run["run"]["outcome"] == "PASS"
    assert (tmp_path / "out" / "report.html").stat().st_size > 100_000
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_dir()] == []
    assert playground_labs() <= others


@in_acceptance
@pytest.mark.skipif(os.geteuid() != 0, reason="labs need root")
def test_an_interrupted_playground_keeps_its_figures_and_removes_its_lab(tmp_path: Path) -> None:
    process = playground(tmp_path, "--nodes", "2", "--repeats", "1", "--mpi", "openmpi")
    records = tmp_path / "out" / "records.jsonl"
    try:
        while not records.is_file() or b'"bandwidth"' not in records.read_bytes():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] == "partial"
    assert f"playground-{process.pid}" not in playground_labs()
