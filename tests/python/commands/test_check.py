"""``assay check``: a machine is measured, judged and shown. The machine is planted; the acceptance tests do the same on
this machine, complete."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import planted_machine
import pytest
from small_cache import link_engines

from assay.cli import main
from assay.commands import check
from assay.launch.engines import describe, engines_folder
from assay.launch.load import Load
from assay.measure.network import NetworkRequest
from assay.records.run import Run
from assay.records.schema import Context, Measurement, Verdict

pytestmark = pytest.mark.programs

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 300
IMPOSSIBLE = (
    '[[criterion]]\ntitle = "faster than light"\nmetric = "node.memory/bandwidth"\nmin = "900 TB/s"\n'
)
EASY = '[[criterion]]\nmetric = "node.memory/bandwidth"\nmin = "1 B/s"\n'


def assay(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ASSAY), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=cwd,
        env={**os.environ, **env},
    )


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("check")
    (folder / "impossible.toml").write_text(IMPOSSIBLE)
    # With a smaller budget, a busy machine has no time left for the network's latency.
    arguments = ["check", "--budget", "10s", "-o", "run", "--spec", "impossible.toml"]
    done = assay(*arguments, cwd=folder, **link_engines(folder / "engines"))
    return folder / "run", done


@pytest.mark.acceptance("node")
def test_everything_is_measured_judged_and_shown(
    checked: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run_path, done = checked
    run = Run.load(run_path)
    assert "Traceback" not in done.stderr
    names = {r.name for r in run.records if isinstance(r, Measurement)}
    assert {"node.memory", "node.noise", "network.all_to_all"} <= names
    assert any(isinstance(r, Context) for r in run.records)
    verdicts = {v.criterion: v for v in run.records if isinstance(v, Verdict)}
    # This machine has an MPI and memory, so no criterion of the specification "self" is inconclusive.
    assert "INCONCLUSIVE" not in {v.outcome for v in verdicts.values()}
    assert verdicts["every payload arrived as it was sent"].outcome == "PASS"
    for title in verdicts:
        assert title in done.stdout
    assert str(run_path.name) in done.stdout and (run_path / "report.html").stat().st_size > 100_000


@pytest.mark.acceptance("node")
def test_a_limit_that_is_missed_fails_the_run(
    checked: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run_path, done = checked
    assert done.returncode == 1
    run = Run.load(run_path)
    assert run.info.outcome == "FAIL"
    (light,) = [v for v in run.records if isinstance(v, Verdict) and v.criterion == "faster than light"]
    assert light.outcome == "FAIL" and light.required == 900e12
    assert light.margin is not None and light.margin < -0.9


@pytest.mark.acceptance("node")
def test_a_run_is_judged_again_by_another_specification(
    checked: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    run_path, _ = checked
    before = (run_path / "records.jsonl").read_bytes()
    (run_path.parent / "easy.toml").write_text(EASY)
    done = assay("judge", str(run_path), "easy.toml", cwd=run_path.parent)
    assert done.returncode == 0 and "PASS" in done.stdout
    assert (run_path / "records.jsonl").read_bytes() == before


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> planted_machine.Machine:
    """A sound machine without an MPI, on which the verbs of a test run."""
    planted_machine.plant(tmp_path / "bin", engines_folder() / "assay-probe")
    machine = planted_machine.sound_machine()
    planted_machine.write_machine(tmp_path / "bin", machine)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_ENGINES", str(tmp_path / "bin"))
    describe.cache_clear()
    return machine


def test_a_planted_machine_is_measured_judged_and_shown(
    machine: planted_machine.Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "impossible.toml").write_text(IMPOSSIBLE)
    assert main(["check", "-o", "run", "--spec", "impossible.toml"]) == 1
    out = capfd.readouterr().out
    run = Run.load(tmp_path / "run")
    assert run.info.outcome == "FAIL"
    measured = {r.name for r in run.records if isinstance(r, Measurement) and r.status == "ok"}
    assert {"node.memory", "node.noise"} <= measured
    assert any(isinstance(r, Context) for r in run.records)
    verdicts = {v.criterion: v for v in run.records if isinstance(v, Verdict)}
    light = verdicts["faster than light"]
    assert (light.outcome, light.required) == ("FAIL", 900e12)
    assert light.margin == pytest.approx(8e9 / 900e12 - 1)
    assert [title for title in verdicts if title not in out] == []
    assert (tmp_path / "run/report.html").stat().st_size > 100_000


def test_a_planted_run_is_judged_again_by_another_specification(
    machine: planted_machine.Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "-o", "run"]) == 2  # without an MPI nothing passes
    outcomes = {v.criterion: v.outcome for v in Run.load(tmp_path / "run").records if isinstance(v, Verdict)}
    assert outcomes["reading memory is at least a quarter as fast as copying it"] == "PASS"
    before = (tmp_path / "run/records.jsonl").read_bytes()
    (tmp_path / "easy.toml").write_text(EASY)
    assert main(["judge", "run", "easy.toml"]) == 0
    assert "PASS" in capfd.readouterr().out
    assert (tmp_path / "run/records.jsonl").read_bytes() == before


def test_slow_reads_of_a_planted_machine_fail(
    machine: planted_machine.Machine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    machine["memory"]["read"] = 0.2 * machine["memory"]["copy"]
    planted_machine.write_machine(tmp_path / "bin", machine)
    assert main(["check", "-o", "run"]) == 1
    assert (
        "criteria failed: reading memory is at least a quarter as fast as copying it"
        in capfd.readouterr().out
    )


def test_slow_reads_of_a_busy_machine_are_inconclusive_and_the_load_is_named(
    machine: planted_machine.Machine, plant_load: Callable[[Load], None], capfd: pytest.CaptureFixture[str]
) -> None:
    plant_load(Load(others=1.3, average=2.0, processors=2, programs=(("cc1plus", 1.3),)))
    machine["memory"]["read"] = 0.2 * machine["memory"]["copy"]
    planted_machine.write_machine(Path("bin"), machine)
    assert main(["check", "-o", "run"]) == 2
    (slow,) = [
        v
        for v in Run.load("run").records
        if isinstance(v, Verdict) and v.criterion.startswith("reading memory")
    ]
    assert slow.outcome == "INCONCLUSIVE" and "cc1plus 1.3" in slow.reason
    out = capfd.readouterr().out
    assert "\nFAIL" not in out and "\nresult  memory " in out


def test_without_an_mpi_the_network_is_waived_and_does_not_pass(tmp_path: Path) -> None:
    probe_only = tmp_path / "engines"
    probe_only.mkdir()
    link_engines(tmp_path / "all")
    (probe_only / "assay-probe").symlink_to(tmp_path / "all/assay-probe")
    done = assay("check", "--budget", "0.5s", "-o", "run", cwd=tmp_path, ASSAY_ENGINES=str(probe_only))
    run = Run.load(tmp_path / "run")
    waived = [
        r
        for r in run.records
        if isinstance(r, Measurement) and r.status == "waived" and r.name.startswith("network.")
    ]
    assert waived and all("no MPI can be used" in (r.reason or "") for r in waived)
    # A waived value never passes; the machine itself may still fail.
    assert done.returncode in (1, 2) and run.info.outcome in ("FAIL", "INCONCLUSIVE")
    outcomes = {v.criterion: v.outcome for v in run.records if isinstance(v, Verdict)}
    assert outcomes["every payload arrived as it was sent"] == "INCONCLUSIVE"


def requested(monkeypatch: pytest.MonkeyPatch, mpi: bool) -> list[NetworkRequest]:
    """The network that a check measures where no MPI can be used; ``mpi``: there is one all the same."""
    requests: list[NetworkRequest] = []
    monkeypatch.setattr(check, "chosen_launcher", lambda _: (None, "no MPI can be used here"))
    monkeypatch.setattr(check, "has_mpi", lambda: mpi)
    monkeypatch.setattr(check, "measure_network", lambda _, request: requests.append(request))
    main(["check", "-o", "run"])
    return requests


def test_where_there_is_no_mpi_the_network_is_measured_over_tcp(
    machine: planted_machine.Machine, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (request,) = requested(monkeypatch, mpi=False)
    assert (request.launcher.name, request.params["op"]) == ("tcp", "send")
    assert "no MPI is on PATH: the network is measured over TCP" in capfd.readouterr().err
    assert not any("MPI" in v.criterion for v in Run.load("run").records if isinstance(v, Verdict))


def test_an_mpi_that_cannot_be_used_is_not_replaced(
    machine: planted_machine.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert requested(monkeypatch, mpi=True) == []
    titles = [v.criterion for v in Run.load("run").records if isinstance(v, Verdict)]
    assert "MPI moves 64 KiB messages at memory speed" in titles


@pytest.mark.acceptance("node")
def test_the_verdict_stands_without_an_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "chosen_launcher", lambda _: (None, "no MPI can be used here"))
    monkeypatch.setattr(check, "has_mpi", lambda: False)
    describe.cache_clear()
    assert main(["check", "--budget", "30s", "-o", "run"]) in (0, 1)
    run = Run.load(tmp_path / "run")
    verdicts = {v.criterion: v.outcome for v in run.records if isinstance(v, Verdict)}
    assert "INCONCLUSIVE" not in verdicts.values()
    assert verdicts["every payload arrived as it was sent"] == "PASS"


def test_what_the_budget_leaves_out_is_named_and_does_not_pass(tmp_path: Path) -> None:
    """Memory has two fifths of 50 ms. An operation takes at least 10 ms."""
    done = assay("check", "--budget", "50ms", "-o", "run", cwd=tmp_path, **link_engines(tmp_path / "engines"))
    run = Run.load(tmp_path / "run")
    memory = [r for r in run.records if isinstance(r, Measurement) and r.name == "node.memory"]
    waived = [r for r in memory if r.status == "waived"]
    assert len(waived) >= len(memory) - 2 and all((r.reason or "").startswith("no time: ") for r in waived)
    assert "no time: " in done.stdout
    assert done.returncode in (1, 2) and run.info.outcome in ("FAIL", "INCONCLUSIVE")
    outcomes = {v.criterion: v.outcome for v in run.records if isinstance(v, Verdict)}
    assert outcomes["reading memory is at least a quarter as fast as copying it"] == "INCONCLUSIVE"


def test_without_engines_everything_is_waived_with_the_reason(tmp_path: Path) -> None:
    done = assay("check", "-o", "run", cwd=tmp_path, ASSAY_ENGINES=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    run = Run.load(tmp_path / "run")
    assert {v.outcome for v in run.records if isinstance(v, Verdict)} == {"INCONCLUSIVE"}
    assert "assay-probe is not built" in run.info.reason and "make setup" in done.stdout
    assert (tmp_path / "run" / "report.html").exists()


def test_list_and_doctor_agree_about_this_machine(tmp_path: Path) -> None:
    listed = json.loads(assay("list", "--json", cwd=tmp_path).stdout)
    by_name = {m["name"]: m for m in listed}
    assert by_name["network.all_to_all"]["waived"] is None
    assert by_name["network.counters"]["waived"]
    assert by_name["node.memory"]["metrics"]["bandwidth"]["unit"] == "B/s"
    doctor = assay("doctor", "--json", cwd=tmp_path)
    checks = {(c["section"], c["name"]): c for c in json.loads(doctor.stdout)}
    assert checks["engines", "assay-probe"]["state"] == "ok"
    assert checks["launchers", "openmpi"]["state"] == "ok"
    assert doctor.returncode == 0
    broken = assay("doctor", cwd=tmp_path, ASSAY_ENGINES=str(tmp_path))
    assert broken.returncode == 1 and "make setup" in broken.stdout
