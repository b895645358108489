"""``assay doctor``: what this machine has, what it lacks, and the command that would mend each."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import asdict, dataclass

from rich.table import Table
from rich.text import Text

from assay.errors import EXIT_FAIL, EXIT_PASS, UserError
from assay.launch.engines import describe, engines_folder, probe
from assay.launch.launchers import LAUNCHERS
from assay.measure.settings import read_settings
from assay.report.terminal import console

# Programs beside Assay: what each is for, and what brings it on Debian.
TOOLS = {
    "ip": ("the lab", "apt-get install iproute2"),
    "tc": ("the lab", "apt-get install iproute2"),
    "nsenter": ("the lab", "apt-get install util-linux"),
    "srun": ("starting ranks under Slurm", "apt-get install slurm-client"),
    "ssh": ("starting ranks on other hosts", "apt-get install openssh-client"),
    "ibstat": ("naming InfiniBand adapters", "apt-get install infiniband-diags"),
}


@dataclass
class Check:
    """``state``: "ok", "missing" (something needed is), or "note" (worth knowing; nothing fails by it)."""

    section: str
    name: str
    state: str
    found: str
    mend: str = ""


class Doctor:
    """Tools, MPIs, launchers and settings of this machine, each with the command that would mend it.
    Exit code 1 when something is missing without which nothing can be measured."""

    name = "doctor"
    examples = """
  assay doctor
  assay doctor --json
"""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="as JSON")

    def run(self, args: argparse.Namespace) -> int:
        checks = [*_engines(), *_launchers(), *_tools(), *_settings()]
        if args.json:
            print(json.dumps([asdict(c) for c in checks], indent=1))
        else:
            _show(checks)
        return EXIT_FAIL if any(c.state == "missing" for c in checks) else EXIT_PASS


def _engines() -> list[Check]:
    try:
        description = describe(probe())
    except UserError as error:
        return [Check("engines", "assay-probe", "missing", error.what, "make setup")]
    found = f"version {description.version}, {len(description.measurements)} measurements, {engines_folder()}"
    return [Check("engines", "assay-probe", "ok", found)]


def _launchers() -> list[Check]:
    checks = []
    for launcher in LAUNCHERS:
        reason = launcher.unavailable()
        if reason is None:
            engine = f"engine {launcher.flavour}" if launcher.flavour else "node measurements, no MPI"
            checks.append(Check("launchers", launcher.name, "ok", engine))
        else:
            what, _, mend = reason.partition(" (Debian: ")
            checks.append(Check("launchers", launcher.name, "note", what, mend.rstrip(")")))
    if not any(c.state == "ok" and c.name != "local" for c in checks):
        checks.append(Check("launchers", "any MPI", "missing", "none can be used", "make setup"))
    return checks


def _tools() -> list[Check]:
    checks = []
    for tool, (purpose, mend) in TOOLS.items():
        path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        checks.append(
            Check("tools", tool, "ok", path) if path else Check("tools", tool, "note", f"for {purpose}", mend)
        )
    return checks


def _settings() -> list[Check]:
    checks = []
    for r in read_settings():
        if r.good is False:
            checks.append(Check("settings", r.name, "note", f"{r.value}; wanted: {r.wanted}", r.mend))
        else:
            checks.append(Check("settings", r.name, "ok" if r.good else "note", r.value))
    return checks


def _show(checks: list[Check]) -> None:
    out = console()
    styles = {"ok": "green", "missing": "bold red", "note": "yellow"}
    for section in dict.fromkeys(c.section for c in checks):
        table = Table(box=None, pad_edge=False, show_header=False, title=section, title_justify="left")
        for _ in range(4):
            table.add_column(overflow="fold")
        for c in (c for c in checks if c.section == section):
            mend = f"mend: {c.mend}" if c.mend else ""
            table.add_row(f"  {c.name}", Text(c.state, styles[c.state]), c.found, mend)
        out.print(table)
        out.print()
