"""Where ranks run: this machine, hosts reached by ssh, a Slurm allocation, or the lab.

A *segment* is a list of hosts, with one rank on each and a common environment (e.g. servers bound to one adapter);
ranks are numbered by segment, then by host. A *site* says how commands are started on hosts. A launcher turns both into
one command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.lab import Lab


@dataclass(frozen=True)
class Segment:
    """A group of hosts with one rank on each, in order, and a common environment. A host may occur several times."""

    hosts: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """Where the hosts are. ``agent`` replaces ssh; ``interface`` is the network device that MPI must use."""

    name: str  # "here", "ssh", "lab"
    agent: str | None = None
    interface: str | None = None
    lab: Lab | None = None

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """Returns the command as started on this machine; in a lab it runs on the head node."""
        return self.lab.enter(self.lab.head, argv) if self.lab else list(argv)


HERE = Site("here")
REMOTE = Site("ssh")


def lab_site(lab: Lab) -> Site:
    return Site("lab", agent=lab.agent, interface=lab.interface, lab=lab)


def with_env(segment: Segment, argv: Sequence[str]) -> list[str]:
    """Returns the command that starts a rank with its segment's environment, under any launcher."""
    return ["env", *(f"{k}={v}" for k, v in segment.env.items()), *argv] if segment.env else list(argv)
