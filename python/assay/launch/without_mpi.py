"""What launchers of Assay's own ranks have in common: no MPI starts them, and no tool of one reports errors."""

from __future__ import annotations

from assay.errors import UserError
from assay.launch.engines import probe
from assay.launch.placement import Site


def missing_engine() -> str | None:
    """Returns why the engine without MPI cannot run here; None if it can."""
    try:
        probe("")
    except UserError as error:
        return str(error)
    return None


class WithoutMpi:
    """The parts of a launcher (see ``assay.launch.launchers.Launcher``) that need nothing but the engine."""

    flavour = ""

    def unavailable(self) -> str | None:
        return missing_engine()

    def program(self) -> str | None:
        return None

    def environment(self, site: Site) -> dict[str, str]:
        return {}

    def diagnose(self, stderr: str) -> str | None:
        return None
