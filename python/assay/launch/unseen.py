"""Processor time of programs that /proc does not show.

In a container (a PID namespace of its own), and where /proc is mounted with hidepid, other programs cannot be seen one
by one. But /proc/stat counts the time of all. What the visible processes did not take of it, others took. Only time in
user mode counts: kernel threads, which a container does not see either, carry the measurement's packets and blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from assay.launch.processes import Process, ticks_of_all


class UnseenTime:
    """Measures it from its construction on. ``processes``: the visible ones by id, here and in ``sample``."""

    def __init__(self, processes: Mapping[int, Process]) -> None:
        self._before = processes
        self._seen = 0
        self._first = _user_ticks()

    def sample(self, processes: Mapping[int, Process]) -> None:
        self._seen += taken_between(self._before, processes)
        self._before = processes

    def ticks(self) -> int:
        """Until the last sample."""
        return max(0, _user_ticks() - self._first - self._seen)


def taken_between(before: Mapping[int, Process], now: Mapping[int, Process]) -> int:
    """The ticks in user mode that the processes of two samples took between them.

    The time of a process that has ended, from its start on, is what its parent has waited for. Of that, what the
    earlier sample has already counted is left out.
    """
    known = {
        pid: process for pid, process in before.items() if pid in now and now[pid].started == process.started
    }
    taken = sum(_total(now[pid]) - (_total(known[pid]) if pid in known else 0) for pid in now)
    counted: Counter[int] = Counter()  # before, of the ended, by the ancestor that is left
    for pid, process in before.items():
        if pid not in known:
            counted[_ancestor_left(process, before, known)] += _total(process)
    for pid, ticks in counted.items():
        if pid in known:
            taken -= min(ticks, now[pid].waited_for - known[pid].waited_for)
    return taken


def _ancestor_left(process: Process, before: Mapping[int, Process], known: Mapping[int, Process]) -> int:
    ancestor = process.parent
    for _ in before:  # no longer: parents form a cycle where process ids are reused while they are read
        if ancestor in known or ancestor not in before:
            break
        ancestor = before[ancestor].parent
    return ancestor


def _total(process: Process) -> int:
    return process.user + process.waited_for


def _user_ticks() -> int:
    return sum(ticks_of_all()[:2])
