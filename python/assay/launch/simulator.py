"""SimGrid as a launcher: the ranks of a job are actors in one process, on the hosts of a platform file.

Assay's network measurements and users' MPI programs run in the simulator with the same arguments as on a cluster. Ranks
of Assay's engine share its global variables, which is harmless; each rank of a user's program gets copies of them,
SimGrid's default.
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError, rebuild
from assay.launch.engines import flavours, probe
from assay.launch.flows import Flows
from assay.launch.launchers import Launcher
from assay.launch.placement import Segment, Site
from assay.launch.platforms import platform_settings
from assay.launch.without_mpi import WithoutMpi

FLAVOUR = "smpi"
# SimGrid keeps each detached send (from a copy of the data) in a list, and searches it at every completion.
# The event builder sends far more small messages than any other measurement.
EVENT_BUILDER = "events.build"
NO_DETACHED_SENDS = ["--cfg=smpi/send-is-detached-thresh:0", "--cfg=smpi/async-small-thresh:0"]
_LISTED_SETTING = re.compile(r"^  ([\w/-]+): \(", re.MULTILINE)
_SETTING = re.compile(r"[\w-]+/[\w/-]+", re.ASCII)  # smpirun is a shell script
MAX_KEPT = 10_000  # lines of SimGrid's complaint
_COMPLAINT = re.compile(
    r"(?:^|\] )(Parse error at .+)|Uncaught exception.*?: (.+)|^(Bad config key: .+)|defect: (Bad gateways for .+)|"
    r"\[\S*/(?:CRITICAL|ERROR)\]\s*(.+)",
    re.MULTILINE,
)
_NO_ROUTE = ("no connecting path", "Bad gateways for route")
ROUTE_FIX = "the platform needs a <route> or <zoneRoute> for each pair of its hosts"


def unavailable() -> str | None:
    """Returns why SimGrid cannot be used here; None if it can."""
    if FLAVOUR not in flavours():
        return f"no engine is built for SimGrid ({rebuild('libsimgrid-dev', in_wheel=False)})"
    if shutil.which("smpirun") is None:
        return "no smpirun of SimGrid on PATH (Debian: apt-get install libsimgrid-dev)"
    return None


def _is_plain(folder: str) -> bool:
    """Whether files in it can be named to smpirun, a shell script, and to SimGrid, whose lists have commas."""
    return re.fullmatch(r"[\w./+~-]+", folder, re.ASCII) is not None


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for a simulation's files: in the user's folder of temporary files, if that can be named to SimGrid."""
    place = None if _is_plain(tempfile.gettempdir()) else "/tmp"
    return tempfile.TemporaryDirectory(prefix="assay-simulate-", dir=place)


def simulates(launcher: Launcher) -> bool:
    """Whether its ranks are simulated: their times are not this machine's."""
    return launcher.name in (Simulator.name, Flows.name)


class Simulator(WithoutMpi):
    """A launcher of simulated ranks on a platform file. Host files for smpirun are written into ``folder``.
    ``original``: the user's file, whose folder has the traces that it names."""

    name = "simgrid"
    flavour = FLAVOUR

    def __init__(self, platform: Path, folder: Path, original: Path | None = None) -> None:
        self.platform = platform.resolve()
        self.folder = folder
        self._options: list[str] = []
        home = (original or platform).resolve().parent
        if (
            home != self.platform.parent
        ):  # SimGrid looks beside the copy alone, and reads no blank in this option
            traces = folder / "traces"
            traces.symlink_to(home)
            self._options = [f"--cfg=path:{traces}"]

    def unavailable(self) -> str | None:
        return unavailable()

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        hosts = [host for segment in segments for host in segment.hosts]
        config = ["--cfg=smpi/simulate-computation:no", "--cfg=smpi/coll-selector:default"]
        if EVENT_BUILDER in argv:
            config += NO_DETACHED_SENDS
        return self.smpirun(hosts, argv, ["-no-privatize", *config])

    def smpirun(self, hosts: Sequence[str], argv: Sequence[str], options: Sequence[str]) -> list[str]:
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".hosts", delete=False) as file:
            file.write("".join(f"{host}\n" for host in hosts))
        # smpirun has temporary files of its own.
        other_place = [] if _is_plain(tempfile.gettempdir()) else ["env", f"TMPDIR={self.folder}"]
        command = [*other_place, "smpirun", "-quiet", "--log=root.thres:error", *self._options, *options]
        command += ["-np", str(len(hosts))]
        return [*command, "-platform", str(self.platform), "-hostfile", file.name, *argv]

    def require_known_settings(self, shown: Path) -> None:
        """Raises UserError for settings in the platform's <config> that SimGrid does not have; it would abort at the
        first. ``shown``: the user's name of the platform.

        Refused a setting, SimGrid lists all that it has, without their former names: each other is tried."""
        keys = platform_settings(self.platform)
        listed = _LISTED_SETTING.findall(self._refusal("no/such")) if keys else []
        unknown = [
            key
            for key in keys
            if key not in listed
            and (not _SETTING.fullmatch(key) or f"Bad config key: {key}" in self._refusal(key))
        ]
        if unknown:
            similar = [name for key in unknown for name in difflib.get_close_matches(key, listed, 1, 0.9)]
            raise UserError(
                f"{shown}: SimGrid has no setting {', '.join(key[:60] for key in unknown)} (<config>)",
                "remove each such <prop>" + (f", or rename it: {', '.join(similar)}" if similar else ""),
            )

    def _refusal(self, key: str) -> str:
        command = self.smpirun(
            ["none"], [str(probe(FLAVOUR)), "--describe"], ["-no-privatize", f"--cfg={key}:0"]
        )
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
        return done.stdout + done.stderr

    def diagnose(self, stderr: str) -> str | None:
        """Extracts SimGrid's message about the platform or a deadlock."""
        return complaint(stderr)


def complaint(stderr: str) -> str | None:
    """SimGrid's own message about a platform, an option or a deadlock, in one line; None without one."""
    for match in _COMPLAINT.finditer(stderr):
        text = next(filter(None, match.groups()))
        if not text.startswith(("Current backtrace", "Exiting now")):
            if any(part in text for part in _NO_ROUTE):
                text = f"{text.strip().removesuffix('.')}; {ROUTE_FIX}"
            return f"SimGrid failed: {text.strip()}"
    return None


def pass_messages(process: subprocess.Popen[bytes]) -> str | None:
    """Passes the standard error of smpirun on until it ends. From SimGrid's first complaint on it is kept back: a list
    of all its options and a back trace follow. Returns the complaint in one line; None for a program that SimGrid has
    not ended."""
    assert process.stderr is not None
    kept: list[bytes] = []
    for line in process.stderr:
        if kept or _COMPLAINT.search(line.decode(errors="replace")):
            kept.append(line) if len(kept) < MAX_KEPT else None
        else:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
    text = b"".join(kept).decode(errors="replace")
    if process.wait() == 0 and "/CRITICAL]" not in text:  # smpirun ends with 0 after a deadlock
        sys.stderr.write(text)
        return None
    return complaint(text)
