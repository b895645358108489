"""A course of several engines one after the other, seen as one: how far it has come, and the time left.

Each step is expected to take so long; what the steps so far have really taken corrects the estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from assay.records.schema import Progress


class Course:
    """``expected_s``: of every step that is still to be made."""

    def __init__(self, expected_s: Sequence[float]) -> None:
        self._whole_s = sum(expected_s)
        self._done_s = 0.0  # of what was expected
        self._begun = time.monotonic()

    def step(self, label: str, expected_s: float) -> Callable[[Progress], Progress]:
        """A reader of one step's progress, which makes that of the whole of it."""

        def whole(said: Progress) -> Progress:
            done = (self._done_s + said.done * expected_s) / self._whole_s
            left = (time.monotonic() - self._begun) * (1 - done) / done if done > 0 else -1.0
            return Progress(done=done, label=f"{label}: {said.label}", left_s=left)

        return whole

    def completed(self, expected_s: float) -> None:
        self._done_s += expected_s
