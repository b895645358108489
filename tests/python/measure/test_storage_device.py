"""``assay io device``: it measures every requested combination, keeps the user's files and removes its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.launch.engines import describe, engines_folder
from assay.records.run import Run

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not (engines_folder() / "assay-probe").is_file(), reason="the engines are not built"),
]
SHORT = ["--budget", "0.02s", "--repeats", "2", "--bytes", "4MiB"]
ROOT = Path(__file__).parents[3]
FAULTY_FS = engines_folder().parent / "tests/faulty_fs/libfaulty-fs.so"
CALLS = ["--method", "call", "--pattern", "sequential", "--sizes", "4k"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    describe.cache_clear()
    (tmp_path / "disk").mkdir()
    return tmp_path


def measured(capfd: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[dict[str, Any]]:
    assert main(["io", "device", *arguments, *SHORT, "--json", "-o", "out"]) == status
    records = json.loads(capfd.readouterr().out)["records"]
    return [r for r in records if r["kind"] == "measurement"]


def test_every_combination_is_measured_and_its_data_compared(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    records = measured(capfd, "disk", "--threads", "1,3", "--sizes", "4k,64k")
    expected = set(
        product(("write", "read"), ("sequential", "random"), ("call", "mmap"), (1, 3), (4096, 65536))
    )
    bandwidths = {
        tuple(r["params"][key] for key in ("op", "pattern", "method", "threads", "transfer")): r
        for r in records
        if r["metric"] == "bandwidth" and r.get("status", "ok") == "ok"
    }
    assert expected <= set(bandwidths)  # where possible also the methods direct and stream
    assert all(len(r["samples"]) == 2 and r["summary"]["median"] > 0 for r in bandwidths.values())
    wrong_counts = [r["summary"]["median"] for r in records if r["metric"] == "wrong"]
    assert len(wrong_counts) >= 16 and set(wrong_counts) == {0}
    for (*_, transfer), r in bandwidths.items():
        (rate,) = (
            record["summary"]["median"]
            for record in records
            if record["metric"] == "rate" and record["params"] == r["params"]
        )
        assert rate * transfer == pytest.approx(r["summary"]["median"], rel=0.5)
    assert list((folder / "disk").iterdir()) == []


def test_impossible_combinations_are_waived_once(capfd: pytest.CaptureFixture[str]) -> None:
    """With 8 threads and 4 MiB, a thread's part is shorter than a transfer of 2 MiB."""
    records = measured(capfd, "disk", "--threads", "8", "--sizes", "4k,2m", "--method", "call,mmap")
    waived = [r for r in records if r.get("status") == "waived"]
    assert {(r["params"]["method"], "shorter than a transfer" in r["reason"]) for r in waived} == {
        ("call", True),
        ("mmap", True),
    }
    assert len(waived) == 2


def plant(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    if not FAULTY_FS.is_file():
        pytest.skip("the engines' tests are not built")
    for name, value in {
        "LD_PRELOAD": str(FAULTY_FS),
        "FAULTY_FS": rule,
        "FAULTY_FS_FILES": "*/disk/*",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("operations", "outcome", "is_said"),
    [("write", "PASS", True), ("write,read", "PASS", False), ("read", None, False)],
)
def test_writing_alone_is_a_result_that_says_that_nothing_was_read_back(
    operations: str, outcome: str | None, is_said: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["io", "device", "disk", *CALLS, "--threads", "1", *SHORT, "--op", operations, "-o", "out"]
    assert main(command) == 0
    assert Run.load(Path("out")).info.outcome == outcome
    assert ("nothing was read back" in capfd.readouterr().out) == is_said


def test_a_slow_device_is_as_slow_for_several_threads(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted write takes at least 5 ms. The threads share one time, which begins before the first write of all."""
    plant(monkeypatch, "write:SLEEP5")
    rates = {
        r["params"]["threads"]: r["samples"]
        for r in measured(capfd, "disk", *CALLS, "--threads", "1,3")
        if (r["metric"], r["params"]["op"]) == ("rate", "write")
    }
    assert all(0 < rate <= threads / 0.005 for threads in (1, 3) for rate in rates[threads])


def test_an_error_of_the_device_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "write:EIO")
    assert main(["io", "device", "disk", *CALLS, "--threads", "2", *SHORT, "-o", "out"]) == 2
    captured = capfd.readouterr()
    assert "cannot write 4096 bytes: Input/output error" in captured.out + captured.err
    assert list((folder / "disk").iterdir()) == []


def test_a_file_of_the_user_is_not_overwritten(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    user_file = folder / "disk" / "data"
    user_file.write_bytes(b"x" * (1 << 20))
    assert main(["io", "device", str(user_file), *SHORT, "-o", "refused"]) == 2
    captured = capfd.readouterr()
    assert "exists and would be overwritten; fix: give --overwrite" in captured.out + captured.err
    read = measured(capfd, str(user_file), "--op", "read", "--sizes", "4k")
    assert read and all(r["params"]["op"] == "read" for r in read if "op" in r["params"])
    assert user_file.read_bytes() == b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere/at/all"], "does not exist"),
        (["disk", "--sizes", "6000"], "not a multiple of 4 KiB"),
        (["disk", "--op", "erase"], "unknown value 'erase'"),
        (["disk", "--method", "fast"], "choose one of call, direct, mmap, stream"),
        (["/dev/null", "--op", "read"], "cannot map"),
    ],
)
def test_bad_input_is_one_line(capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["io", "device", *arguments, "--budget", "0.02s", "-o", "out"]) == 2
    captured = capfd.readouterr()
    assert message in captured.err + captured.out and "Traceback" not in captured.err


def test_ctrl_c_keeps_the_measurements_and_removes_the_file(folder: Path) -> None:
    command = [sys.executable, "-m", "assay", "io", "device", "disk", "--budget", "1s", "--repeats", "1", "-o", "out",
               "--bytes", "4MiB", "--threads", "1"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    records = folder / "out" / "records.jsonl"
    # Each of the other points takes a second too.
    while not records.is_file() or b'"bandwidth"' not in records.read_bytes():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    assert process.returncode == 130
    assert list((folder / "disk").iterdir()) == []
    assert json.loads((folder / "out" / "run.json").read_text())["state"] == "partial"
