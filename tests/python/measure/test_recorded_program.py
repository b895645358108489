"""Programs under a recorder: signals reach them, also one that comes while the recorder is being started."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from assay.measure.recorded_program import run_recorded


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_early", [True, False], ids=["before the start", "after the start"])
def test_a_signal_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, is_early: bool
) -> None:
    class Started(subprocess.Popen[bytes]):
        def __init__(self, *arguments: object, **options: object) -> None:
            if is_early:
                os.kill(os.getpid(), number)
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            if not is_early:
                os.kill(os.getpid(), number)

    monkeypatch.setattr("assay.measure.recorded_program.subprocess.Popen", Started)
    before = signal.getsignal(number)
    assert run_recorded(["sleep", "1000"]) == 128 + number
    assert signal.getsignal(number) is before
