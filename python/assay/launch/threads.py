"""A launcher of ranks as threads of one process on this machine, over the null transport. Without a network it measures
the engine's own limit."""

from __future__ import annotations

from collections.abc import Sequence

from assay.errors import UserError
from assay.launch.placement import HERE, Segment, Site
from assay.launch.without_mpi import WithoutMpi


class Threads(WithoutMpi):
    """The launcher. ``ranks``: the number of threads."""

    name = "null"

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        if site.name != HERE.name:
            raise UserError("the null transport has no network", "leave the hosts out, or --transport null")
        return list(argv)

    def environment(self, site: Site) -> dict[str, str]:
        return {"ASSAY_NULL_RANKS": str(self._ranks)}
