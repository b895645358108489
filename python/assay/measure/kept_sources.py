"""Keeps the source files of a recorded program in its run, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from assay.profile.sources import collect_sources, save_sources
from assay.profile.tree import CallTree
from assay.records.run import Run


def keep_sources(run: Run, trees: Sequence[CallTree]) -> None:
    """Copies the files that the call trees name into the run, with the names of those that were left out."""
    sources = collect_sources(trees, datetime.fromisoformat(run.info.started).timestamp())
    save_sources(run.path, sources)
