"""Folders for stores and files, and no direct writes: files on a local file system would be written without the store
that the tests are about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from background import store_folder


@pytest.fixture(autouse=True)
def through_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets ASSAY_IO_DIRECT=0. Tests of direct writes set ASSAY_IO_DIRECT=1 themselves."""
    monkeypatch.setenv("ASSAY_IO_DIRECT", "0")


@pytest.fixture
def shm() -> Iterator[Path]:
    """A folder in memory for stores."""
    yield from store_folder()


@pytest.fixture
def data(shm: Path) -> Iterator[Path]:
    """A folder in memory for the files, so that this machine's disk does not matter."""
    yield from store_folder()
