"""Programs of the user: signals reach them, also one that comes while the recorder is being started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.measure.recorded_program import run_to_end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
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
    assert run_to_end(["sleep", "1000"]) == 128 + number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_stays_so_for_the_program(number: signal.Signals) -> None:
    """As under nohup, and in the background of a script."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        name = number.name.removeprefix("SIG")
        assert run_to_end(["sh", "-c", f"kill -{name} $$; exit 7"]) == 7
        os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("verb", ["heap", "numa"])
def test_recorders_leave_ignored_signals_so(verb: str, tmp_path: Path) -> None:
    """As nohup and a shell's background do. The other signals have their effect."""
    program = "kill -HUP $$; kill -INT $$; (kill -TERM $BASHPID); [ $? = 143 ] && exit 7"
    done = subprocess.run(
        ["env", "--ignore-signal=HUP,INT", sys.executable, "-m", "assay", verb, "-o", str(tmp_path / "run"), "--",
         "bash", "-c", program],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
