"""Measures the load of this machine by other programs while an engine runs, and stolen time.

A rate that was measured while other programs ran is not a property of the machine. So while an engine runs, a thread
reads the processor time of all processes (/proc/PID/stat), except those of the measurement: this process, its
descendants, and processes with its token in their environment. Kernel threads are left out too, since they also carry
the measurement's packets. Where /proc hides processes, the time of all tells what those took. Stolen time is processor
time that the hypervisor gave to other guests (/proc/stat). All are known for this machine only, not for other hosts on
which ranks run.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from assay.launch.processes import (
    TICKS_PER_S,
    Process,
    hides_processes,
    start_thread,
    ticks_of_all,
    visible_processes,
)
from assay.launch.unseen import UnseenTime

PERIOD_S = 2.0  # between two readings of /proc; one takes about 20 us per process
BUSY_SHARE = 0.15  # of all processors: from this load on, timings are doubtful
STOLEN_SHARE = 0.05  # of all processors' time: the same
MIN_NAMED, MAX_NAMED = 0.1, 3  # processors that a program takes to be named; programs that are named
UNSEEN = "unseen programs"  # of other containers or users


@dataclass(frozen=True)
class Load:
    """``others``: processors that other programs took on average; ``stolen``: share of all processors' time."""

    others: float = 0.0
    stolen: float = 0.0
    average: float = 0.0  # the system's load average of a minute, at the end
    processors: int = 1
    programs: tuple[tuple[str, float], ...] = ()  # name and processors of those that took most

    def reason(self) -> str:
        """Why a measurement under this load is doubtful; "" where it is not."""
        parts = []
        if self.others >= BUSY_SHARE * self.processors:
            parts.append(
                f"other programs took {self.others:.1f} of {self.processors} processors "
                f"(load {self.average:.1f}{self._named_programs()})"
            )
        if self.stolen >= STOLEN_SHARE:
            parts.append(f"the hypervisor took {self.stolen:.0%} of the processors' time")
        return f"this machine was busy: {', '.join(parts)}" if parts else ""

    def _named_programs(self) -> str:
        named = [f"{name} {processors:.1f}" for name, processors in self.programs if processors >= MIN_NAMED]
        return "".join(f", {text}" for text in named[:MAX_NAMED])


class LoadMeter:
    """Measures the load from its construction until ``end``. ``token``: the environment of the measurement's
    processes holds it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._measurement_processes: dict[tuple[int, int], bool] = {}
        self._first_ticks: dict[tuple[int, int], int] = {}
        self._last_ticks: dict[tuple[int, int], int] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._started_at = time.monotonic()
        self._stolen = _stolen_s()
        self._ended = threading.Event()
        self._unseen: UnseenTime | None = None
        self._sample(first=True)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        start_thread(self._thread)

    def end(self) -> Load:
        self._ended.set()
        self._thread.join()
        self._sample()
        elapsed = max(time.monotonic() - self._started_at, 1e-3)
        processors = os.cpu_count() or 1
        taken: Counter[str] = Counter()
        for key, last in self._last_ticks.items():
            if not self._measurement_processes[key]:
                taken[self._names[key]] += last - self._first_ticks.get(key, 0)
        if self._unseen:
            taken[UNSEEN] = self._unseen.ticks()
        processors_of = {name: ticks / TICKS_PER_S / elapsed for name, ticks in taken.most_common()}
        return Load(
            others=sum(processors_of.values()),
            stolen=(_stolen_s() - self._stolen) / elapsed / processors,
            average=os.getloadavg()[0],
            processors=processors,
            programs=tuple(processors_of.items())[:MAX_NAMED],
        )

    def _watch(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self._sample()

    def _sample(self, first: bool = False) -> None:
        processes = visible_processes()
        if self._unseen:
            self._unseen.sample(processes)
        elif first and hides_processes():
            self._unseen = UnseenTime(processes)
        for pid, process in processes.items():
            key = (pid, process.started)
            self._belongs_to_measurement(pid, processes)
            if first:
                self._first_ticks[key] = process.ticks
            self._last_ticks[key] = process.ticks
            self._names[key] = process.name  # a program that is started in a shell has another name first

    def _belongs_to_measurement(self, pid: int, processes: dict[int, Process]) -> bool:
        """Whether a process belongs to the measurement. Decided once per process, as a parent may end before its
        child."""
        process = processes.get(pid)
        if process is None:
            return any(
                is_measurement
                for (seen_pid, _), is_measurement in self._measurement_processes.items()
                if seen_pid == pid
            )
        key = (pid, process.started)
        if key not in self._measurement_processes:
            # Ends the recursion if parents form a cycle, which a reused process id can cause.
            self._measurement_processes[key] = False
            self._measurement_processes[key] = (
                pid == os.getpid()
                or self._belongs_to_measurement(process.parent, processes)
                or self._token in _environment(pid)
            )
        return self._measurement_processes[key]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""  # another user's, so not of this measurement


def _stolen_s() -> float:
    """Stolen time since the machine's start, in seconds, summed over all processors."""
    ticks = ticks_of_all()
    return ticks[7] / TICKS_PER_S if len(ticks) > 7 else 0.0
