"""``assay doctor``: checks this machine's tools, launchers and settings, and prints a fix for each problem."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from assay.commands.options import add_option
from assay.commands.parser import Example, Parser
from assay.commands.specifications import read_specification
from assay.errors import EXIT_FAIL, EXIT_PASS, REPAIR, SOURCE, UserError
from assay.explain.evidence import Evidence
from assay.explain.machine import topology
from assay.judge import Specification, doubt, judge
from assay.judge.doubt import planted_machine
from assay.judge.inventory_file import inventory_of, not_counted, to_toml
from assay.launch import simulator
from assay.launch.engines import describe, engines_folder, probe
from assay.launch.launchers import LAUNCHERS, default_launcher
from assay.launch.mpis import is_for_abi, loaded_library
from assay.measure.node import read_contexts
from assay.records.schema import Context
from assay.records.units import format_as
from assay.report.console import console
from assay.system import in_local_words

# Programs that Assay calls: the purpose of each, and the command that installs it on Debian
# (shown in this system's words).
TOOLS = {
    "ip": ("the lab", "apt-get install iproute2"),
    "tc": ("the lab", "apt-get install iproute2"),
    "nsenter": ("the lab", "apt-get install util-linux"),
    "srun": ("starting ranks under Slurm", "apt-get install slurm-client"),
    "ssh": ("starting ranks on other hosts", "apt-get install openssh-client"),
    "nft": ("the lab's planted losses", "apt-get install nftables"),
    "qemu-system-x86_64": ("the lab's guests", "apt-get install qemu-system-x86"),
    "busybox": ("the lab's guests", "apt-get install busybox-static"),
    "ibstat": ("naming InfiniBand adapters", "apt-get install infiniband-diags"),
}


# The facts that are shown of a device, with their unit; None: no unit.
SHOWN_FACTS: dict[str, str | None] = {
    "interface.state": None,
    "interface.speed": "Gbit/s",
    "interface.mtu": "B",
    "interface.driver": None,
    "rdma.state": None,
    "rdma.rate": "Gbit/s",
    "rdma.link_layer": None,
    "pcie.class": None,
    "pcie.speed": "GT/s",
    "pcie.width": None,
    "pcie.device_share": "%",
}

SHOWN_FORMATS = {"pcie.width": "x{}", "pcie.device_share": "{} of what the device can do"}


# What a checkout has and the wheel has not: it needs libraries of the site's, or has another licence.
NOT_IN_WHEEL = (
    "exact NUMA profiles (assay numa cc, --exact)",
    "simulated networks (SimGrid)",
    "the HDF5 benchmark of assay io",
)


@dataclass
class Check:
    """A line of the output. ``state``: "ok", "missing" (nothing can be measured without it) or "note" (for
    information)."""

    section: str
    name: str
    state: str
    found: str
    fix: str = ""


class Doctor:
    """Check this machine's tools, MPIs, launchers and settings, with fixes. Exit code 1 when something is missing
    without which nothing can be measured."""

    name = "doctor"
    examples = [
        Example("assay doctor"),
        Example("assay doctor --spec cobalt2", "and the settings that an acceptance requires"),
        Example("assay doctor --write-inventory offer.toml", "what this machine has, for 'assay comply'"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        add_option(parser, "--spec", "beside settings")
        parser.add_argument(
            "--write-inventory",
            metavar="FILE",
            type=Path,
            help="write this machine's devices as a specification; 'assay comply' then compares others with it",
        )
        add_option(parser, "--json")

    def run(self, args: argparse.Namespace) -> int:
        if args.write_inventory is not None:
            return _write_inventory(args.write_inventory)
        specs = [read_specification(name) for name in ["settings", *args.spec]]
        found = [*_engines(), *_launchers(), *_tools(), *_settings(specs)]
        checks = [replace(c, found=in_local_words(c.found), fix=in_local_words(c.fix)) for c in found]
        if args.json:
            print(json.dumps([asdict(c) for c in checks], indent=1))
        else:
            _show(checks)
        return EXIT_FAIL if any(c.state == "missing" for c in checks) else EXIT_PASS


def _write_inventory(path: Path) -> int:
    contexts = read_contexts()
    if planted := planted_machine(contexts):
        raise UserError(f"no inventory of it can be written: {planted}", "unset ASSAY_TOPOLOGY")
    host = next((c.subject.host for c in contexts if c.subject.device is None and c.subject.host), "")
    comments = [
        f"What {host} had on {datetime.now(UTC):%Y-%m-%d}. Rates, MTUs and memory are the least that pass."
    ]
    comments += [f"Not counted: {text}" for text in not_counted(contexts, host)]
    text = to_toml(inventory_of(contexts, host), comments)
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path} is there already", "name another file, or remove it") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}", "name a file that can be made") from None
    out = console()
    out.print(Text(text), end="")
    out.print(f"written to {path}; next: assay comply {path}", soft_wrap=True)
    return EXIT_PASS


def _engines() -> list[Check]:
    try:
        description = describe(probe())
    except UserError as error:
        return [Check("engines", "assay-probe", "missing", error.what, error.fix)]
    found = f"version {description.version}, {len(description.measurements)} measurements, {engines_folder()}"
    lacks = NOT_IN_WHEEL if is_for_abi() else ()
    return [
        Check("engines", "assay-probe", "ok", found),
        *(Check("engines", part, "note", "not in the wheel", SOURCE) for part in lacks),
    ]


def _launchers() -> list[Check]:
    checks = []
    default = _default_name()
    for launcher in LAUNCHERS:
        reason = launcher.unavailable()
        engine = f"engine {launcher.flavour}" if launcher.flavour else "node measurements, no MPI"
        if reason is None and launcher.flavour and is_for_abi():
            engine += f" with {loaded_library(launcher.flavour, launcher.program())}"
            engine += ", for the mpirun on PATH" if launcher.name == default else ""
        checks.append(_launcher(launcher.name, reason, engine))
    if not any(c.state == "ok" and c.name != "local" for c in checks):
        checks.append(Check("launchers", "any MPI", "missing", "none can be used", REPAIR))
    if not is_for_abi():
        simulates = "simulated networks: assay model, assay simulate"
        checks.append(_launcher("simgrid", simulator.unavailable(), simulates))
    return checks


def _default_name() -> str:
    try:
        return default_launcher().name
    except UserError:
        return ""


def _launcher(name: str, reason: str | None, engine: str) -> Check:
    if reason is None:
        return Check("launchers", name, "ok", engine)
    problem, _, fix = reason.partition(" (Debian: ")
    return Check("launchers", name, "note", problem, fix.rstrip(")"))


def _tools() -> list[Check]:
    checks = []
    for tool, (purpose, fix) in TOOLS.items():
        path = shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        checks.append(
            Check("tools", tool, "ok", path) if path else Check("tools", tool, "note", f"for {purpose}", fix)
        )
    return checks


def _settings(specifications: list[Specification]) -> list[Check]:
    """The verdicts of the specifications on the facts of this machine, then its devices."""
    try:
        contexts = read_contexts()
    except UserError as error:
        return [Check("settings", "facts", "note", error.what, error.fix)]
    checks = []
    for specification in specifications:
        facts = [criterion for criterion in specification.criteria if criterion.fact]
        verdicts = judge(replace(specification, criteria=facts), contexts, [socket.gethostname()])
        doubt(verdicts, contexts, busy="")
        for verdict in verdicts:
            observed = verdict.observed_text or "not on this machine"
            if verdict.reason and (verdict.observed_text or verdict.metric.startswith("inventory.")):
                observed = (
                    f"{verdict.observed_text} ({verdict.reason})" if verdict.observed_text else verdict.reason
                )
            if verdict.outcome == "PASS":
                checks.append(Check("settings", verdict.criterion, "ok", observed))
                continue
            required = f"; wanted: {verdict.required_text}" if verdict.required_text else ""
            checks.append(Check("settings", verdict.criterion, "note", observed + required, verdict.fix))
    checks += [
        Check("settings", "topology", "note", finding.cause, finding.fix)
        for finding in topology(Evidence(contexts))
    ]
    return [*checks, *_devices(contexts)]


def _devices(contexts: list[Context]) -> list[Check]:
    """The devices that can be measured: network adapters that are up, and PCIe devices."""
    checks = []
    for context in contexts:
        device, facts = context.subject.device, context.facts
        if device is None or facts.get("interface.kind") == "virtual":
            continue
        node = "" if context.subject.numa is None else f"NUMA node {context.subject.numa}"
        texts = [node] if node else []
        for name, unit in SHOWN_FACTS.items():
            value = facts.get(name)
            if value is not None:
                plain = unit is None or not isinstance(value, int | float)
                shown = str(value) if plain else _in_unit(float(value), unit or "")
                texts.append(SHOWN_FORMATS.get(name, "{}").format(shown))
        checks.append(Check("devices", device, "ok", ", ".join(texts)))
    return checks


def _in_unit(value: float, unit: str) -> str:
    return f"{value / 1e9:g} GT/s" if unit == "GT/s" else format_as(value, unit)


def _show(checks: list[Check]) -> None:
    out = console()
    styles = {"ok": "green", "missing": "bold red", "note": "yellow"}
    for section in dict.fromkeys(c.section for c in checks):
        table = Table(box=None, pad_edge=False, show_header=False, title=section, title_justify="left")
        for _ in range(4):
            table.add_column(overflow="fold")
        for c in (c for c in checks if c.section == section):
            fix = f"fix: {c.fix}" if c.fix else ""
            table.add_row(f"  {c.name}", Text(c.state, styles[c.state]), c.found, fix)
        out.print(table)
        out.print()
