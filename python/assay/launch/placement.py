"""Where ranks run: this machine, hosts reached by ssh, a Slurm allocation, or the lab.

A *segment* is one rank on each of its hosts with an environment of its own (servers bound to one adapter,
say); rank order is segment order, hosts in their order. A *site* knows how its hosts are entered. A
launcher turns both into one command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.lab import Lab


@dataclass(frozen=True)
class Segment:
    """One rank on each host, in order; a host may stand in it several times."""

    hosts: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """Where the hosts are. ``agent`` stands in for ssh; ``interface`` is where MPI's traffic must go."""

    name: str  # "here", "ssh", "lab"
    agent: str | None = None
    interface: str | None = None
    lab: Lab | None = None

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command as it is started on this machine: in the lab, from its head."""
        return self.lab.enter(self.lab.head, argv) if self.lab else list(argv)


HERE = Site("here")
REMOTE = Site("ssh")


def lab_site(lab: Lab) -> Site:
    return Site("lab", agent=lab.agent, interface=lab.interface, lab=lab)
