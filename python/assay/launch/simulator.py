"""SimGrid as a launcher: the ranks of a job are actors in one process, on the hosts of a platform file.

Assay's network measurements and users' MPI programs run in the simulator with the same arguments as on a cluster. Ranks
of Assay's engine share its global variables, which is harmless; each rank of a user's program gets copies of them,
SimGrid's default.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from assay.errors import UserError
from assay.launch.engines import flavours
from assay.launch.placement import Segment, Site

FLAVOUR = "smpi"
# SimGrid keeps each detached send (from a copy of the data) in a list, and searches it at every completion.
# The event builder sends far more small messages than any other measurement.
EVENT_BUILDER = "events.build"
NO_DETACHED_SENDS = ["--cfg=smpi/send-is-detached-thresh:0", "--cfg=smpi/async-small-thresh:0"]
MAX_HOSTS = 1_000_000  # of a platform: a few bytes can name a range of any size


def unavailable() -> str | None:
    """Returns why SimGrid cannot be used here; None if it can."""
    if shutil.which("smpirun") is None:
        return "no smpirun of SimGrid on PATH (Debian: apt-get install libsimgrid-dev, then make setup)"
    if FLAVOUR not in flavours():
        return "no engine is built for SimGrid (Debian: apt-get install libsimgrid-dev, then make setup)"
    return None


class Simulator:
    """A launcher of simulated ranks on a platform file. Host files for smpirun are written into ``folder``."""

    name = "simgrid"
    flavour = FLAVOUR

    def __init__(self, platform: Path, folder: Path) -> None:
        self.platform = platform.resolve()
        self.folder = folder

    def unavailable(self) -> str | None:
        return unavailable()

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        hosts = [host for segment in segments for host in segment.hosts]
        config = ["--cfg=smpi/simulate-computation:no", "--cfg=smpi/coll-selector:default"]
        if EVENT_BUILDER in argv:
            config += NO_DETACHED_SENDS
        return self.smpirun(hosts, argv, ["-no-privatize", *config])

    def smpirun(self, hosts: Sequence[str], argv: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".hosts", delete=False) as file:
            file.write("".join(f"{host}\n" for host in hosts))
        command = ["smpirun", "-quiet", "--log=root.thres:error", *options, "-np", str(len(hosts))]
        return [*command, "-platform", str(self.platform), "-hostfile", file.name, *argv]

    def environment(self, site: Site) -> dict[str, str]:
        return {}

    def diagnose(self, stderr: str) -> str | None:
        """Extracts SimGrid's message about the platform or a deadlock."""
        complaint = re.search(r"\[\S*/?CRITICAL\]\s*(.+)|Parse error.*|Uncaught exception.*?: (.+)", stderr)
        if complaint is None:
            return None
        return f"SimGrid failed: {(complaint[1] or complaint[2] or complaint[0]).strip()}"


def platform_hosts(path: Path) -> list[str]:
    """Returns the hosts of a platform file in its order, those of clusters too. Raises UserError."""
    try:
        root = ET.parse(path).getroot()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}", "check the path") from None
    except (ET.ParseError, LookupError, ValueError) as error:  # the last two: an unknown encoding
        raise UserError(
            f"{path}: not XML: {error}", "give a platform file of SimGrid, as 'assay model' writes it"
        ) from None
    if root.tag != "platform":
        raise UserError(
            f"{path}: not a platform of SimGrid: <{root.tag}>", "give what 'assay model' has written"
        )
    hosts: list[str] = []
    for node in root.iter():
        if node.tag == "host":
            hosts.append(str(node.get("id")))
        elif node.tag == "cluster":
            ids = expand_radical(str(node.get("radical", "")), path)
            if len(hosts) + len(ids) > MAX_HOSTS:
                raise _too_many(path)
            hosts += [f"{node.get('prefix', '')}{i}{node.get('suffix', '')}" for i in ids]
    if not hosts:
        raise UserError(f"{path}: no host in it", "give what 'assay model' has written")
    return hosts


def computing(path: Path, speed_ratio: float) -> list[str]:
    """smpirun's options for the simulated time of a program's computing. ``speed_ratio``: speed of the platform's first
    host over this machine's; 0: computing takes no time. Raises UserError for a speed that cannot be read."""
    if speed_ratio == 0:
        return ["--cfg=smpi/simulate-computation:no"]
    speed = next((node.get("speed") for node in ET.parse(path).getroot().iter() if node.get("speed")), "1Gf")
    # "1.5Gf", "1e9", "2Gf,1Gf" (one for each of its states)
    number = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kMGTPE]?)f?", str(speed).split(",")[0].strip())
    if number is None or float(number[1]) <= 0:
        raise UserError(f"{path}: the speed '{speed}' of a host", "write it like 1Gf")
    flops = float(number[1]) * 10 ** (3 * " kMGTPE".index(number[2] or " "))
    return ["--cfg=smpi/simulate-computation:yes", f"--cfg=smpi/host-speed:{flops / speed_ratio:.9g}f"]


def expand_radical(text: str, path: Path) -> list[int]:
    """The numbers of a cluster's hosts: "0-3,7" is 0, 1, 2, 3, 7. Raises UserError."""
    numbers: list[int] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part.strip())
        if not bounds:
            raise UserError(
                f"{path}: radical '{text[:100]}': expected numbers and ranges", "write it like 0-15,20"
            )
        new_numbers = range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)
        if len(numbers) + len(new_numbers) > MAX_HOSTS:
            raise _too_many(path)
        numbers += new_numbers
    return numbers


def _too_many(path: Path) -> UserError:
    return UserError(f"{path}: more than {MAX_HOSTS} hosts", "give a platform with fewer")
