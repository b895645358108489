"""Load by other programs, from planted tables of processes, some of which belong to the measurement."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from assay.launch import load
from assay.launch.load import Load, LoadMeter
from assay.launch.processes import Process, visible_processes

SECOND = os.sysconf("SC_CLK_TCK")
TOKEN = "ASSAY_RUN=planted"
OWN_PID = os.getpid()


def test_processes_of_the_measurement_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each table is pid: (parent, start time, processor time in 1/100 s). Other programs: one that ran before (3 s
    more), one that started during the measurement (2 s), and one that reused a process number (1 s)."""
    tables = [
        {1: (0, 1, 50), OWN_PID: (1, 2, 10), 70: (1, 3, 400), 80: (1, 4, 900)},
        {
            1: (0, 1, 50),
            OWN_PID: (1, 2, 90),
            70: (1, 3, 550),
            71: (OWN_PID, 5, 30),
            72: (1, 6, 40),
            73: (1, 7, 200),
        },
        {
            1: (0, 1, 50),
            OWN_PID: (1, 2, 95),
            70: (1, 3, 700),
            72: (1, 6, 900),
            74: (71, 8, 10),
            80: (1, 9, 100),
        },
    ]
    remaining_tables = iter(tables)
    monkeypatch.setattr(
        load,
        "visible_processes",
        lambda: {
            pid: Process(parent, started, ticks * SECOND // 100, f"p{pid}")
            for pid, (parent, started, ticks) in next(remaining_tables).items()
        },
    )
    monkeypatch.setattr(load, "_environment", lambda pid: TOKEN.encode() if pid == 72 else b"PATH=/bin")
    monkeypatch.setattr(load, "hides_processes", lambda: False)
    monkeypatch.setattr(load, "PERIOD_S", 1e9)
    clock = iter([100.0, 104.0])
    monkeypatch.setattr(load, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    meter = LoadMeter(TOKEN)
    meter._sample()
    load_of_others = meter.end()
    assert load_of_others.others == pytest.approx((3 + 2 + 1) / 4)
    assert load_of_others.programs == (("p70", 0.75), ("p73", 0.5), ("p80", 0.25))


def test_a_child_is_no_other_program_except_to_another_process() -> None:
    """A child of this process uses processor time. To a meter in another process, the child is another program."""
    burn = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        watcher = (
            "import sys; from assay.launch.load import LoadMeter\n"
            "meter = LoadMeter('ASSAY_RUN=x'); print(flush=True); sys.stdin.read(); print(meter.end().others)"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", watcher],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert other.stdout is not None
        other.stdout.readline()
        own_meter = LoadMeter("ASSAY_RUN=x")
        begin = processor_time_s(burn.pid)
        while processor_time_s(burn.pid) < begin + 0.5:
            time.sleep(0.05)
        other_load = float(other.communicate("", timeout=240)[0])
        own_meter.end()
        assert other_load > 0
        assert own_meter._measurement_processes[burn.pid, visible_processes()[burn.pid].started]
    finally:
        burn.kill()
        burn.wait()


def processor_time_s(pid: int) -> float:
    return visible_processes()[pid].ticks / SECOND


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        (Load(others=0.2, stolen=0.01, average=0.4, processors=2), ""),
        (Load(others=2.0, average=3.0, processors=128), ""),
        (
            Load(others=1.31, average=5.24, processors=2),
            "this machine was busy: other programs took 1.3 of 2 processors (load 5.2)",
        ),
        (
            Load(others=1.4, average=3.0, processors=2, programs=(("python", 1.2), ("cc1plus", 0.15), ("cron", 0.05))),
            "this machine was busy: other programs took 1.4 of 2 processors (load 3.0, python 1.2, cc1plus 0.1)",
        ),
        (Load(stolen=0.2, processors=2), "this machine was busy: the hypervisor took 20% of the processors' time"),
    ],
)  # fmt: skip
def test_the_reason_of_a_busy_machine(planted: Load, reason: str) -> None:
    assert planted.reason() == reason


def test_programs_outside_a_container_count() -> None:
    """A container has a PID namespace of its own; /proc shows nothing of the child that uses processor time."""
    burn = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        watcher = (
            "import sys; from assay.launch.load import UNSEEN, LoadMeter\n"
            "meter = LoadMeter('ASSAY_RUN=x'); print(flush=True); sys.stdin.read()\n"
            "print(dict(meter.end().programs).get(UNSEEN, 0.0))"
        )
        container = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
        inside = subprocess.Popen(
            [*container, sys.executable, "-c", watcher],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert inside.stdout is not None
        assert inside.stdout.readline() == "\n"
        begin = processor_time_s(burn.pid)
        while processor_time_s(burn.pid) < begin + 0.5:
            time.sleep(0.05)
        assert float(inside.communicate("", timeout=240)[0]) > 0
    finally:
        burn.kill()
        burn.wait()
