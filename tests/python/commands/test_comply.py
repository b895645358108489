"""``assay comply`` measures exactly what the specification requires. A criterion without a measurement never passes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.launch.engines import describe, engines_folder

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "build/tests/fake_cuda"

pytestmark = pytest.mark.skipif(
    not (engines_folder() / "assay-probe").is_file() or not (FAKE / "libcuda.so.1").exists(),
    reason="the engines or the planted driver are not built",
)

GPUS = [{"name": "Planted", "h2d": 200e6, "d2h": 100e6}, {"name": "Planted", "h2d": 200e6, "d2h": 100e6}]
SMALL = '[parameters."node.gpu_copy"]\nsize = "256 KiB"\ncopies = 4\nrepeats = 3\n'
TOTAL = """
[[criterion]]
title = "total {direction} speed"
metric = "node.gpu_copy/total"
where = {{direction = "{direction}"}}
min = "{minimum}"
"""
Comply = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def comply(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Comply:
    """Runs the verb on this machine with planted GPUs; it may have real ones too, which are hidden.

    Returns the exit code, the run as JSON, and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKE))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path / "no devices"))
    monkeypatch.setenv("FAKE_CUDA", json.dumps({"gpus": GPUS}))
    describe.cache_clear()

    def run(specification: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        (tmp_path / "site.toml").write_text(specification)
        status = main(
            ["comply", "site.toml", "--json", "-o", f"out{len(list(tmp_path.iterdir()))}", *arguments]
        )
        out, err = capfd.readouterr()
        return status, json.loads(out), err

    return run


def outcomes(run: dict[str, Any]) -> dict[str, str]:
    return {r["criterion"]: r["outcome"] for r in run["records"] if r["kind"] == "verdict"}


def test_only_specified_measurements_are_made(comply: Comply) -> None:
    specification = (
        TOTAL.format(direction="h2d", minimum="1 MB/s")  # the planted 400 MB/s, on a busy machine
        + TOTAL.format(direction="d2h", minimum="900 MB/s")
        + SMALL
    )
    status, run, _ = comply(specification)
    assert status == 1
    assert outcomes(run) == {"total h2d speed": "PASS", "total d2h speed": "FAIL"}
    assert run["run"]["completed"] == ["node.settings", "node.gpu_copy"]
    assert {r["name"] for r in run["records"] if r["kind"] == "measurement"} == {"node.gpu_copy"}
    assert {r["params"]["size"] for r in run["records"] if r["kind"] == "measurement"} == {256 << 10}


@pytest.mark.acceptance("node")
@pytest.mark.statistical("1 in 1000, estimated: 1 % of a load of 1 % would have to be late")
def test_cobalt2_on_a_machine_without_devices_names_each_reason(
    comply: Comply, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real specification on a machine without settings, GPUs, RDMA or a peer: each verdict has its reason."""
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path / "nothing"))
    monkeypatch.setenv("FAKE_CUDA", json.dumps({"gpus": []}))
    quick = '\n[parameters."node.memory_paced"]\nbudget = "1s"\nscale = 0.01\n'
    status, run, _ = comply((ROOT / "specs/cobalt2.toml").read_text() + quick)
    assert status == 1
    verdicts = {
        r["criterion"]: (r["outcome"], r.get("reason", "")) for r in run["records"] if r["kind"] == "verdict"
    }
    assert len(verdicts) == 19
    for title in ("2 GPUs", "2 RDMA ports", "1 Ethernet port"):
        (line,) = [line for line in verdicts if line.startswith(f"inventory: {title}")]
        assert verdicts[line][0] == "FAIL"
    verdicts = {title: verdict for title, verdict in verdicts.items() if not title.startswith("inventory: ")}
    assert verdicts.pop("mem-test: measured speed of desired")[0] == "PASS"
    assert verdicts.pop("no fault was found")[0] == "PASS"
    assert {outcome for outcome, _ in verdicts.values()} == {"INCONCLUSIVE"}
    reasons = " / ".join(reason for _, reason in verdicts.values())
    for text in ("no cpu.governor", "no cpu.turbo", "finds no GPU", "give --peer HOST", "RDMA"):
        assert text in reasons
    assert run["run"]["state"] == "complete"


def test_the_run_goes_on_after_a_failed_measurement(comply: Comply, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU fails during its measurement. The next measurement still runs, and the run does not pass."""
    monkeypatch.setenv("FAKE_CUDA", json.dumps({"gpus": GPUS, "vanish": {"gpu": 1, "after": 5}}))
    received = '[[criterion]]\ntitle = "received"\nmetric = "node.udp_receive/bandwidth"\nmin = "1 Mbit/s"\n'
    status, run, _ = comply(TOTAL.format(direction="h2d", minimum="1 MB/s") + received + SMALL)
    assert status == 2
    assert outcomes(run) == {"total h2d speed": "INCONCLUSIVE", "received": "INCONCLUSIVE"}
    assert (run["run"]["state"], run["run"]["outcome"]) == ("partial", "INCONCLUSIVE")
    assert "gpu1" in run["run"]["reason"]
    waived = [r for r in run["records"] if r["kind"] == "measurement" and r["name"] == "node.udp_receive"]
    assert waived and {r["status"] for r in waived} == {"waived"}


def test_a_run_is_judged_again_by_a_harder_specification(
    comply: Comply, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    comply(TOTAL.format(direction="h2d", minimum="1 MB/s") + SMALL)
    (folder,) = tmp_path.glob("out*")
    (tmp_path / "harder.toml").write_text(TOTAL.format(direction="h2d", minimum="80 GB/s"))
    assert main(["judge", str(folder), "site.toml"]) == 0
    assert main(["judge", str(folder), "harder.toml"]) == 1
    assert "80 GB/s" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.toml"], "nowhere.toml"),
        (["cobalt2", "--peer", "a,b"], "--peer names 2 hosts"),
        (["cobalt2", "--peer", socket.gethostname()], "among the offered hosts"),
        (["cobalt2", "--interfaces", "eth0,,eth1"], "an empty name"),
        (["cobalt2", "--launcher", "none"], "--launcher"),
        (["cobalt2", "--peer", "nowhere.invalid"], "nowhere.invalid"),
        (["broken.toml"], "broken.toml:3"),
        (["cobalt2", "--lab", "none-such"], "none-such"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text(
        '[[criterion]]\nmetric = "node.gpu_copy/total"\nmin = "180 Gbyte"\n'
    )
    describe.cache_clear()
    assert main(["comply", *arguments]) == 2
    err = capfd.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
