"""The tests of the accelerator use files on this machine, which it would write directly, without the store."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def through_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the direct route set ASSAY_IO_DIRECT=1 themselves."""
    monkeypatch.setenv("ASSAY_IO_DIRECT", "0")
