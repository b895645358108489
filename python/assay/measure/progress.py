"""Combines the progress of several engines that run in turn: the completed share and the remaining time.

Each step has an expected time. The measured time of completed steps corrects the estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from assay.records.schema import Progress


class ProgressTracker:
    """``expected_s``: the expected time of each step that is still to be made, in seconds."""

    def __init__(self, expected_s: Sequence[float]) -> None:
        self._total_s = sum(expected_s)
        self._done_s = 0.0  # expected time of the completed steps
        self._begun = time.monotonic()

    def step(self, label: str, expected_s: float) -> Callable[[Progress], Progress]:
        """Returns a function from the progress of one step to that of all steps."""

        def overall_progress(progress: Progress) -> Progress:
            done = (self._done_s + progress.done * expected_s) / self._total_s
            seconds_left = (time.monotonic() - self._begun) * (1 - done) / done if done > 0 else -1.0
            return Progress(done=done, label=f"{label}: {progress.label}", left_s=seconds_left)

        return overall_progress

    def completed(self, expected_s: float) -> None:
        self._done_s += expected_s
