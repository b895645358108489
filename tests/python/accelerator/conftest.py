"""Disables direct writes for the tests of the accelerator: files on a local file system would be written without the
store that the tests are about."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def through_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets ASSAY_IO_DIRECT=0. Tests of direct writes set ASSAY_IO_DIRECT=1 themselves."""
    monkeypatch.setenv("ASSAY_IO_DIRECT", "0")
