"""Time of programs that /proc does not show, from planted tables of processes and a real PID namespace."""

from __future__ import annotations

import pytest

from assay.launch import unseen
from assay.launch.processes import Process
from assay.launch.unseen import UnseenTime, taken_between


def process(parent: int, user: int, waited_for: int = 0, started: int = 1) -> Process:
    return Process(parent, started, user, "p", user, waited_for)


@pytest.mark.parametrize(
    ("before", "now", "taken"),
    [
        ({5: process(1, 10)}, {5: process(1, 17)}, 7),
        ({1: process(0, 3)}, {1: process(0, 3), 5: process(1, 4)}, 4),  # has started
        ({1: process(0, 3, 100)}, {1: process(0, 3, 120)}, 20),  # started and ended
        # One that had taken 50 ended with 60: 10 are new.
        ({1: process(0, 3), 5: process(1, 50)}, {1: process(0, 3, 60)}, 10),
        # Its parent ended too, having taken 5 more itself.
        (
            {1: process(0, 0), 5: process(1, 20), 6: process(5, 50)},
            {1: process(0, 0, 20 + 5 + 50)},
            5,
        ),
        # Nobody waited for it, or the one who did is not seen.
        ({1: process(0, 3), 5: process(1, 50)}, {1: process(0, 3)}, 0),
        ({5: process(1, 50)}, {}, 0),
        # Its number was given to another process.
        (
            {1: process(0, 0), 5: process(1, 50)},
            {1: process(0, 0, 52), 5: process(1, 9, started=7)},
            11,
        ),
        # A cycle of parents, which were read while numbers changed hands.
        ({5: process(6, 1), 6: process(5, 1)}, {}, 0),
    ],
)  # fmt: skip
def test_time_of_ended_processes_counts_once(
    before: dict[int, Process], now: dict[int, Process], taken: int
) -> None:
    assert taken_between(before, now) == taken


def test_what_visible_processes_did_not_take_others_took(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[100, 10, 999, 5], [160, 20, 2000, 6]])
    monkeypatch.setattr(unseen, "ticks_of_all", lambda: next(readings))
    meter = UnseenTime({5: process(1, 10)})
    meter.sample({5: process(1, 40)})
    assert meter.ticks() == 70 - 30


@pytest.mark.parametrize("reading", [[], [5], [50, 0]])
def test_no_time_is_made_up(reading: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/stat is unreadable, or counts this container alone, as lxcfs has it."""
    monkeypatch.setattr(unseen, "ticks_of_all", lambda: reading)
    meter = UnseenTime({5: process(1, 10)})
    meter.sample({5: process(1, 40)})
    assert meter.ticks() == 0
