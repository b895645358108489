"""``assay gpu`` on planted GPUs: a driver library (tests/engines/fake_cuda) that copies at known rates, and fails in
known ways."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machines import COBALT, plant

from assay.cli import main
from assay.launch.engines import describe, engines_folder, probe

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "build/tests/fake_cuda"

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the planted driver is not built"),
]

SMALL = ["--size", "256KiB", "--copies", "4", "--repeats", "5"]
TWO = [
    {"name": "Fast", "pci": "0000:03:00.0", "h2d": 400e6, "d2h": 200e6},
    {"name": "Slow", "pci": "0000:83:00.0", "h2d": 100e6, "d2h": 100e6},
]
Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the verb on a planted machine. Returns the exit code, the records, and standard error."""
    assert engines_folder()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKE))
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path / "none"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def run(*arguments: str, small: bool = True, **plan: Any) -> tuple[int, list[dict[str, Any]], str]:
        monkeypatch.setenv("FAKE_CUDA", json.dumps(plan))
        describe.cache_clear()
        status = main(["gpu", "--json", "-v", "-o", "out", *(SMALL if small else []), *arguments])
        out, err = capfd.readouterr()
        assert "fake:" not in err, err
        return status, json.loads(out)["records"], err

    return run


def figures(records: list[dict[str, Any]], metric: str) -> dict[tuple[str, ...], float]:
    """Medians by device (if there is one), direction, and "one" or "all" GPUs at a time (if it is given)."""
    medians = {}
    for r in records:
        if r["kind"] == "measurement" and r["metric"] == metric and r.get("status", "ok") == "ok":
            p = r["params"]
            key = (r["subject"].get("device"), p["direction"], p.get("gpus"))
            medians[tuple(k for k in key if k)] = r["summary"]["median"]
    return medians


def failure(records: list[dict[str, Any]]) -> str:
    (record,) = [r for r in records if r["kind"] == "failure"]
    return f"{record['problem']}; {record.get('fix', '')}"


def test_planted_rates_are_found(gpu: Run) -> None:
    status, records, _ = gpu(gpus=TWO)
    assert status == 0
    bandwidth = figures(records, "bandwidth")
    for device, planted in (("gpu0", TWO[0]), ("gpu1", TWO[1])):
        for direction in ("h2d", "d2h"):
            for gpus in ("one", "all"):
                assert bandwidth[device, direction, gpus] == pytest.approx(planted[direction], rel=0.02)
        # Both directions at once: all bytes over the time until the slower direction has ended.
        slower = min(planted["h2d"], planted["d2h"])
        assert bandwidth[device, "both", "one"] <= 2 * slower * 1.02
    assert set(figures(records, "corrupted").values()) == {0.0}
    # All bytes over the time until the slower GPU has ended. The time is measured, so a busy machine gives less.
    total = figures(records, "total")
    assert 0 < total["h2d",] <= 1.02 * 200e6
    assert 0 < total["d2h",] <= 1.02 * 200e6


@pytest.mark.parametrize("gpus", [TWO, TWO[1:]], ids=["two", "one"])
def test_a_host_that_sees_the_start_late_does_not_raise_the_total(
    gpu: Run, gpus: list[dict[str, Any]]
) -> None:
    """The copies of the slower GPU take 10 ms, and the host sees them begin after 8 ms."""
    _, records, _ = gpu(gpus=gpus, late=0.008)
    total = figures(records, "total")
    for direction in ("h2d", "d2h"):
        assert 0 < total[direction,] <= 1.02 * len(gpus) * 100e6


@pytest.mark.acceptance("node")
@pytest.mark.statistical(
    "1 in 1000, estimated: three of five repetitions of 10 ms would have to take three times as long"
)
def test_the_total_is_that_of_all_gpus(gpu: Run) -> None:
    _, records, _ = gpu(gpus=TWO)
    total = figures(records, "total")
    assert 0.3 * 200e6 < total["h2d",] <= 1.02 * 200e6
    assert 0.3 * 200e6 < total["d2h",] <= 1.02 * 200e6


def test_totals_are_printed_as_gpu_copy_prints_them(gpu: Run, capfd: pytest.CaptureFixture[str]) -> None:
    gpu(gpus=TWO[:1])
    status = main(["gpu", "-o", "again", *SMALL])
    out = capfd.readouterr().out
    assert status == 0
    assert "Total write speed: " in out and "Total read speed:  " in out
    assert [line.split()[:3] for line in out.splitlines() if line.startswith("gpu0")] == [
        ["gpu0", "Fast", "0000:03:00.0"]
    ]


@pytest.mark.acceptance("node")
@pytest.mark.statistical(
    "1 in 1000, estimated: in two of three repetitions a GPU would have to start 20 ms late"
)
def test_a_shared_link_is_measured_and_named(gpu: Run) -> None:
    gpu_rates = {"h2d": 200e6, "d2h": 200e6}
    # The copies take long compared with the delays of a busy machine.
    arguments = ["--size", "2MiB", "--copies", "8", "--repeats", "3"]
    _, records, _ = gpu(*arguments, gpus=[gpu_rates, gpu_rates], shared={"h2d": 200e6})
    bandwidth = figures(records, "bandwidth")
    for device in ("gpu0", "gpu1"):
        assert bandwidth[device, "h2d", "one"] == pytest.approx(200e6, rel=0.02)
        assert bandwidth[device, "h2d", "all"] == pytest.approx(
            115e6, rel=0.25
        )  # half, or 4 of 7 for the first
        assert bandwidth[device, "d2h", "all"] == pytest.approx(200e6, rel=0.02)
    assert figures(records, "total")["h2d",] <= 1.02 * 200e6
    (finding,) = [r for r in records if r["kind"] == "finding"]
    assert "share a link" in finding["cause"]
    assert all("to it" in detail for detail in finding["details"])


def test_one_slow_gpu_of_four_is_named_with_its_address(gpu: Run) -> None:
    """The planted driver's events give the rates of one direction, so no load changes them."""
    _, records, _ = gpu(gpus=[{"h2d": 100e6 if k == 1 else 400e6, "d2h": 400e6} for k in range(4)])
    found = [r for r in records if r.get("rule") == "slow_gpu"]
    (finding,) = [r for r in found if any("copies to it: " in detail for detail in r["details"])]
    assert finding["subject"]["device"] == "gpu1" and "gpu1 (0000:02:00.0) on " in finding["cause"]


def test_numa_nodes_and_links_are_read_from_the_machine(
    gpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted COBALT node: one GPU in a slot of 8 lanes, one that runs at PCIe 2 behind its riser."""
    monkeypatch.setenv("ASSAY_ROOT", str(plant(COBALT, tmp_path / "cobalt")))
    _, records, _ = gpu(gpus=TWO)
    nodes = {
        r["subject"]["device"]: r["subject"]["numa"]
        for r in records
        if r["kind"] == "measurement" and r["metric"] == "bandwidth"
    }
    assert nodes == {"gpu0": 0, "gpu1": 1}
    link = figures(records, "link")
    assert link["gpu0", "h2d", "all"] == pytest.approx(8e9 * 8 * 128 / 130 / 8)
    assert link["gpu1", "h2d", "all"] == pytest.approx(5e9 * 16 * 0.8 / 8)
    fixes = {r["subject"]["device"]: r["fix"] for r in records if r["kind"] == "finding"}
    assert "move the card" in fixes["gpu0"]
    assert "riser" in fixes["gpu1"]


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_wrong_byte_fails(gpu: Run, direction: str) -> None:
    """One flipped bit in one of four copies of one repetition, in memory that later copies do not touch."""
    status, records, _ = gpu(gpus=TWO, corrupt={"gpu": 1, "way": direction, "after": 11, "offset": 1234})
    assert status == 1
    corrupted = figures(records, "corrupted")
    assert sum(corrupted.values()) == 1
    (key,) = [key for key, count in corrupted.items() if count]
    assert key[0] == "gpu1"
    (corruption,) = [r for r in records if r["kind"] == "corruption"]
    # Its number among the four in a row, and the offset within it.
    assert 0 <= corruption["message"] < 4 and corruption["offset"] == 1234
    assert int(corruption["expected"], 16) ^ int(corruption["observed"], 16) == 0x10 << (8 * (1234 % 8))


def test_the_only_gpu_is_measured_once(gpu: Run) -> None:
    """Alone and all at once are the same copies, so they cannot differ."""
    status, records, _ = gpu(gpus=TWO[:1])
    assert status == 0
    bandwidth, total = figures(records, "bandwidth"), figures(records, "total")
    for direction in ("h2d", "d2h", "both"):
        assert bandwidth["gpu0", direction, "one"] == bandwidth["gpu0", direction, "all"]
        assert total[direction,] > 0
    assert len([r for r in records if r["kind"] == "measurement" and r["metric"] == "corrupted"]) == 3


def test_the_record_says_which_gpu_and_driver(
    gpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "sys/module/nvidia").mkdir(parents=True)
    (root / "sys/module/nvidia/version").write_text("580.159.04\n")
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    _, records, _ = gpu(gpus=TWO)
    (driver,) = {
        r["facts"]["gpu.driver"] for r in records if r["kind"] == "context" and "gpu.driver" in r["facts"]
    }
    assert driver == "580.159.04"
    identities = {
        (r["subject"]["device"], r["params"]["pci"], r["params"]["uuid"])
        for r in records
        if r["kind"] == "measurement" and r["metric"] != "total"
    }
    assert identities == {
        ("gpu0", "0000:03:00.0", "GPU-01020304-0506-0708-090a-0b0c0d0e0f00"),
        ("gpu1", "0000:83:00.0", "GPU-01020304-0506-0708-090a-0b0c0d0e0f01"),
    }


def test_an_interrupted_direction_keeps_its_copies(gpu: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is interrupted in its first direction, after some of very many repetitions."""
    monkeypatch.setenv("FAKE_CUDA", json.dumps({"gpus": TWO[:1]}))
    command = [str(probe()), "run", "node.gpu_copy", *SMALL[:4], "--repeats", "1000000"]
    # Unbuffered: communicate() leaves out what readline() has read ahead.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as engine:
        assert engine.stdout is not None
        started = 0  # repetitions, the untimed one included; the first two have ended when the third starts
        while started < 3:
            started += json.loads(engine.stdout.readline())["kind"] == "progress"
        engine.send_signal(signal.SIGINT)
        out, _ = engine.communicate(timeout=300)
    measured = [r for r in map(json.loads, out.splitlines()) if r["kind"] == "measurement"]
    assert {r["params"]["direction"] for r in measured} == {"h2d"}
    assert {r["metric"] for r in measured} == {"bandwidth", "corrupted", "total"}
    assert all(r["summary"]["n"] >= 1 for r in measured)


# ---- nothing to measure: waived, with the reason


def waived(records: list[dict[str, Any]]) -> str:
    measured = [r for r in records if r["kind"] == "measurement"]
    assert {r["metric"] for r in measured} == {"bandwidth", "total", "corrupted", "link"}
    assert {r.get("status", "ok") for r in measured} == {"waived"}
    (reason,) = {r["reason"] for r in measured}
    return reason


@pytest.mark.parametrize(
    "plan, reason",
    [
        ({"gpus": []}, "finds no GPU"),
        ({"gpus": TWO, "init": 100}, "finds no GPU"),
        ({"gpus": TWO, "init": 803}, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    ],
)
def test_waived_with_the_reason(gpu: Run, plan: dict[str, Any], reason: str) -> None:
    status, records, _ = gpu(**plan)
    assert status == 2
    assert reason in waived(records)


@pytest.mark.parametrize("visible", ["", "7"])
def test_hidden_gpus_are_no_missing_ones(
    gpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    root = plant(COBALT, tmp_path / "cobalt")
    (root / "sys/bus/pci/devices/0000:03:00.0/vendor").write_text("0x10de\n")
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    status, records, _ = gpu(gpus=[])
    assert status == 2
    assert waived(records) == (
        f"NVIDIA's driver finds no GPU with CUDA_VISIBLE_DEVICES='{visible}'; the PCI bus has 1"
    )


def test_gpus_on_the_bus_without_a_driver_are_named(
    gpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    root = plant(COBALT, tmp_path / "cobalt")
    (root / "sys/bus/pci/devices/0000:03:00.0/vendor").write_text("0x10de\n")
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    status, records, _ = gpu(gpus=[])
    assert status == 2
    assert waived(records).endswith("the PCI bus has 1 NVIDIA GPU, the driver shows 0")


def test_a_total_without_all_gpus_never_passes(
    gpu: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PCI bus has a GPU that the driver does not show. The total of the other GPUs is not the machine's."""
    root = plant(COBALT, tmp_path / "cobalt")
    for address in ("0000:03:00.0", "0000:83:00.0"):
        (root / f"sys/bus/pci/devices/{address}/vendor").write_text("0x10de\n")
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    (tmp_path / "fast.toml").write_text(
        'title = "fast"\n[[criterion]]\ntitle = "total"\nmetric = "node.gpu_copy/total"\nmin = "1 B/s"\n'
    )

    def verdict(records: list[dict[str, Any]]) -> str:
        (found,) = [r["outcome"] for r in records if r["kind"] == "verdict" and r["criterion"] == "total"]
        return str(found)

    status, records, _ = gpu("--spec", "fast.toml", gpus=TWO[:1])
    totals = [r for r in records if r["kind"] == "measurement" and r["metric"] == "total"]
    assert {r.get("status", "ok") for r in totals} == {"error"}
    assert "2 NVIDIA GPUs, the driver shows 1" in totals[0]["reason"]
    assert status != 0 and verdict(records) == "INCONCLUSIVE"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # left out on purpose
    _, records, _ = gpu("--spec", "fast.toml", "-o", "chosen", gpus=TWO[:1])
    assert verdict(records) == "PASS"


# ---- GPUs that fail: one line names them, and the measurements before are kept


def test_a_gpu_that_vanishes_is_named(gpu: Run) -> None:
    status, records, err = gpu(gpus=TWO, vanish={"gpu": 1, "after": 40})
    assert status == 2
    text = failure(records)
    assert "gpu1 (Slow, 0000:83:00.0)" in text and "unspecified launch failure" in text and "Xid" in text
    assert figures(records, "bandwidth")["gpu0", "h2d", "one"] == pytest.approx(400e6, rel=0.02)
    assert "Traceback" not in err


def test_a_gpu_that_hangs_is_named(gpu: Run) -> None:
    # The copies of the other GPU take some milliseconds.
    status, records, _ = gpu("--timeout", "3", gpus=TWO, hang={"gpu": 1, "after": 20})
    assert status == 2
    assert "gpu1 (Slow, 0000:83:00.0): does not answer" in failure(records)
    assert "within 3 s" in failure(records)


@pytest.mark.parametrize(
    "call, code, expected",
    [
        ("cuDevicePrimaryCtxRetain", 46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuMemHostRegister_v2", 304, "CUDA_ERROR_OPERATING_SYSTEM"),
        ("cuMemHostRegister_v2", 2, "free memory on this host"),
        ("cuMemAlloc_v2", 2, "or use a smaller --size"),
        ("cuDevicePrimaryCtxRetain", 2, "see in nvidia-smi who uses the GPU's memory, and free some"),
        ("cuStreamCreate", 999, "CUDA error 999"),
        ("cuEventCreate", 999, "cuEventCreate failed"),
        ("cuLaunchHostFunc", 719, "cuLaunchHostFunc failed"),
        ("cuMemcpyHtoDAsync_v2", 719, "cuMemcpyHtoDAsync failed"),
        ("cuMemcpyDtoHAsync_v2", 719, "cuMemcpyDtoHAsync failed"),
        ("cuMemsetD8Async", 719, "cuMemsetD8Async failed"),
        ("cuEventRecord", 719, "cuEventRecord failed"),
        ("cuEventElapsedTime", 719, "cuEventElapsedTime failed"),
        ("cuMemGetInfo_v2", 719, "cuMemGetInfo failed"),
    ],
)
def test_a_failed_call_of_the_driver_is_named(gpu: Run, call: str, code: int, expected: str) -> None:
    status, records, _ = gpu(
        gpus=TWO, fail={"call": call, "gpu": 1, "code": code, "after": 2 if "Mem" in call else 1}
    )
    if call == "cuMemGetInfo_v2":  # called once
        status, records, _ = gpu("-o", "again", gpus=TWO, fail={"call": call, "gpu": 1, "code": code})
    assert status == 2
    assert "gpu1" in failure(records) and expected in failure(records)


def test_copies_shrink_to_the_free_memory(gpu: Run) -> None:
    small = {**TWO[0], "memory": 64 << 20, "h2d": 4e9, "d2h": 4e9}
    status, records, _ = gpu("--copies", "2", "--repeats", "3", small=False, gpus=[small])
    assert status == 0
    sizes = {r["params"]["size"] for r in records if r["kind"] == "measurement"}
    assert sizes == {8 << 20}
    assert {r["params"]["requested"] for r in records if r["kind"] == "measurement"} == {64 << 20}


def test_a_failure_of_shrunk_copies_has_its_own_reason(gpu: Run) -> None:
    small = {**TWO[0], "memory": 64 << 20, "h2d": 4e9, "d2h": 4e9}
    arguments = ["--copies", "2", "--repeats", "3", "--timeout", "3"]
    status, records, _ = gpu(*arguments, small=False, gpus=[small], hang={"gpu": 0, "after": 4})
    assert status == 2
    assert "does not answer" in failure(records) and "give a longer --timeout" in failure(records)


def test_the_size_of_the_copies_is_printed(gpu: Run, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--copies", "2", "--repeats", "3"]
    gpu(*arguments, small=False, gpus=[{**TWO[0], "memory": 64 << 20, "h2d": 4e9, "d2h": 4e9}])
    main(["gpu", "-o", "shrunk", *arguments])
    assert "2 copies of 8 MiB in a row, not of 64 MiB: memory is short" in capfd.readouterr().out
    main(["gpu", "-o", "fits", *SMALL])
    assert "4 copies of 256 KiB in a row\n" in capfd.readouterr().out


def test_too_little_memory_is_reported(gpu: Run) -> None:
    status, records, _ = gpu("--copies", "2", small=False, gpus=[{**TWO[0], "memory": 4 << 20}])
    assert status == 2
    assert "too little free memory" in failure(records)


def may_have_realtime_priority() -> bool:
    """Root in a container may not."""
    command = [sys.executable, "-c", "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.skipif(not may_have_realtime_priority(), reason="real-time priority is not allowed here")
def test_realtime_priority_is_accepted(gpu: Run) -> None:
    assert gpu("--realtime", gpus=TWO[:1])[0] == 0


@pytest.mark.parametrize(
    "arguments", [["--size", "12"], ["--copies", "0"], ["--repeats", "2"], ["--sise", "1MiB"]]
)
def test_wrong_options_are_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    describe.cache_clear()
    assert main(["gpu", *arguments]) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and arguments[0] in err
    assert not (tmp_path / "runs").exists()
