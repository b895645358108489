"""A lab as the rest of Assay sees it: made, found, entered, made ill, taken down.

``Lab.up`` is all or nothing: whatever goes wrong on the way, Ctrl-C included, undoes it. The head node
stands on the core bridge without limits; launchers run there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ClusterShell.NodeSet import NodeSet, NodeSetException

from assay.errors import UserError
from assay.lab import namespaces, slurm, state, tools, traffic
from assay.lab.state import Fault, Host, Rates

_MOST_HOSTS = 250
_HEAD = Host(traffic.HEAD, "core", "10.77.255.1")


def lay_out(hosts: int, cabinets: int) -> list[Host]:
    """h0, h1, ... in cabinet order, spread evenly, the first cabinets one more. Raises UserError."""
    if not 1 <= hosts <= _MOST_HOSTS:
        raise UserError(
            f"a lab of {hosts} hosts is not possible", f"give --nodes a number from 1 to {_MOST_HOSTS}"
        )
    if not 1 <= cabinets <= hosts:
        raise UserError(
            f"{hosts} hosts cannot fill {cabinets} cabinets", f"give --cabinets a number from 1 to {hosts}"
        )
    each, remainder = divmod(hosts, cabinets)
    slots = [(c, k) for c in range(cabinets) for k in range(each + (c < remainder))]
    return [Host(f"h{i}", f"c{c}", f"10.77.{c}.{k + 1}") for i, (c, k) in enumerate(slots)]


class Lab:
    """A lab that is up. ``hosts`` are in cabinet order; ``head`` is where launchers run.

    ``agent`` is the path of what launchers use in place of ssh, ``interface`` the network device that
    the hosts reach each other by.
    """

    interface = traffic.INTERFACE
    head = traffic.HEAD

    def __init__(self, lab_state: state.State) -> None:
        self.name = lab_state.name
        self.rates = lab_state.rates
        self.mtu = lab_state.mtu
        self.slurm = lab_state.slurm
        self.nodes = {host.name: host for host in lab_state.hosts}
        self.hosts = list(self.nodes)
        self.cabinets: dict[str, list[str]] = {}
        for host in lab_state.hosts:
            self.cabinets.setdefault(host.cabinet, []).append(host.name)
        self.agent = str(state.folder(self.name) / "agent")

    @classmethod
    def load(cls, name: str | None = None) -> Lab:
        """The lab called ``name`` (else ASSAY_LAB's, else "lab"). Raises UserError when it is not up."""
        lab_state = state.read(state.lab_name(name))
        tools.require()  # to enter its nodes, or to look at them
        return cls(lab_state)

    @classmethod
    def up(
        cls,
        hosts: int = 8,
        cabinets: int = 1,
        rates: Rates = Rates(),  # noqa: B008 (frozen)
        *,
        with_slurm: bool = False,
        name: str | None = None,
        mtu: int = 1500,
    ) -> Lab:
        """Make a lab, whole or not at all. Raises UserError when one is up, or it cannot be."""
        name = state.lab_name(name)
        members = lay_out(hosts, cabinets)
        tools.require()
        namespaces.refuse_inside()
        if with_slurm:
            slurm.require()
        folder = state.claim(name)
        try:
            return cls._build(state.State(name, members, rates, with_slurm, mtu), folder)
        except BaseException:
            _undo(name)
            raise

    @classmethod
    def _build(cls, lab_state: state.State, folder: Path) -> Lab:
        for script in ("enter", "agent"):
            copy = shutil.copy(Path(__file__).with_name(f"{script}.sh"), folder / script)
            os.chmod(copy, 0o755)
        everyone = [*lab_state.hosts, _HEAD]
        names = "".join(f"{host.address} {host.name}\n" for host in everyone)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        lab = cls(lab_state)
        with namespaces.nodes(lab_state.name, [*(h.name for h in everyone), traffic.SWITCH], folder) as pids:
            for host in lab_state.hosts:
                host.pid = pids[host.name]
            head = Host(_HEAD.name, _HEAD.cabinet, _HEAD.address, pids[_HEAD.name])
            traffic.build(lab_state.hosts, head, lab_state.rates, pids[traffic.SWITCH], lab_state.mtu)
            lab._share(Path.cwd(), Path(__file__), Path(sys.executable))
            if lab_state.slurm:
                slurm.start(lab_state.name, folder / "slurm", lab_state.hosts, _HEAD.name, lab.enter)
            state.write(lab_state)
        return lab

    def _share(self, *paths: Path) -> None:
        """Show in every node what of the machine's /tmp commands will need (entering from there does)."""
        for path_folder in {path if path.is_dir() else path.parent for path in paths}:
            if path_folder.is_relative_to("/tmp"):
                subprocess.run(
                    self.enter(self.head, ["true"]), cwd=path_folder, timeout=tools.TIME_LIMIT_S, check=True
                )

    def address(self, host: str) -> str:
        """The IPv4 address of a host or of the head."""
        return (_HEAD if host == self.head else self._host(host)).address

    def _host(self, name: str) -> Host:
        if name not in self.nodes:
            raise UserError(
                f"no host '{name}' in lab '{self.name}'", f"its hosts are {NodeSet.fromlist(self.hosts)}"
            )
        return self.nodes[name]

    def select(self, names: str) -> list[str]:
        """The hosts, in lab order, that a node set such as "h[0-3],h6" names. Raises UserError."""
        return [name for name in self._parse(names) if self._host(name)]

    def select_nodes(self, names: str) -> list[str]:
        """Like ``select``, of all that can be entered: the head and the switch too."""
        others = (self.head, traffic.SWITCH)
        return [name for name in self._parse(names) if name in others or self._host(name)]

    def _parse(self, names: str) -> list[str]:
        try:
            chosen = list(NodeSet(names))
        except NodeSetException as error:
            raise UserError(f"'{names}' is not a node set: {error}", "write it like h0 or h[0-3,6]") from None
        if not chosen:
            raise UserError(f"'{names}' names no host", f"the hosts are {NodeSet.fromlist(self.hosts)}")
        return chosen

    def enter(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command that runs ``argv`` inside a node, in the present folder and environment."""
        return [str(state.folder(self.name) / "enter"), host, *argv]

    def fault(self, hosts: Sequence[str], fault: Fault | None) -> None:
        """Add to what is wrong with the hosts; None makes them healthy. Stays until then."""
        with state.updated(self.name) as lab_state:
            switch = self._holder(traffic.SWITCH)
            had_loss = _is_lossy(lab_state)
            for host in lab_state.hosts:
                if host.name in hosts:
                    self._holder(host.name)
                    host.fault = _merged_fault(host.fault, fault) if fault else Fault()
                    traffic.apply_fault(host, host.fault, lab_state.rates, switch)
            self._lose(lab_state, had_loss, switch)
        self.nodes = {host.name: host for host in lab_state.hosts}

    def _lose(self, lab_state: state.State, had_loss: bool, switch: int) -> None:
        """Plant the loss that the hosts' faults ask for; nft is needed only where some is, or was."""
        if not had_loss and not _is_lossy(lab_state):
            return
        standing = [host for host in lab_state.hosts if self.alive(host.name)]
        head = Host(_HEAD.name, _HEAD.cabinet, _HEAD.address, self._holder(_HEAD.name))
        traffic.plant_loss(standing, head, switch)

    def fault_rate(self, text: str, side: str) -> float:
        """B/s of "50mbit", or of "50%" of what a host is planted to send ("tx") or receive ("rx") at.

        Raises UserError for anything else, and for a rate above the planted one.
        """
        rate_limit = traffic.planted_rate(self.rates, side)
        if text.strip().endswith("%"):
            return _share_of(text, rate_limit)
        rate = traffic.parse_rate(text)
        if rate_limit is not None and rate > rate_limit:
            raise UserError(f"--{side} {text} is above the planted rate", "a fault can only slow a host down")
        return rate

    def _holder(self, node: str) -> int:
        """The process that holds the node open. Raises UserError when it is gone."""
        folder = state.folder(self.name) / "nodes" / node
        with contextlib.suppress(OSError, ValueError):
            pid = int((folder / "pid").read_text())
            if os.path.samefile(f"/proc/{pid}/cwd", folder):
                return pid
        raise UserError(
            f"node '{node}' of lab '{self.name}' is not running",
            f"start anew: assay lab down --lab {self.name}, then assay lab up",
        )

    def alive(self, node: str) -> bool:
        """Whether the node stands."""
        with contextlib.suppress(UserError):
            return self._holder(node) > 0
        return False

    def down(self) -> None:
        take_down(self.name)


def take_down(name: str | None = None) -> tuple[str, bool]:
    """End a lab, and whatever a crash left of one: its name, and whether there was anything to end.

    Raises UserError when processes resist.
    """
    name = state.lab_name(name)
    tools.require()
    namespaces.refuse_inside()
    existed = state.folder(name).exists()
    return name, _undo(name) > 0 or existed


def _undo(name: str) -> int:
    with _uninterrupted():
        ended = namespaces.end(name)
        state.forget(name)
    return ended


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C waits until the lab is undone (that is bounded)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _merged_fault(old: Fault, new: Fault) -> Fault:
    return Fault(
        new.tx or old.tx,
        new.rx or old.rx,
        new.down or old.down,
        new.tx_loss or old.tx_loss,
        new.rx_loss or old.rx_loss,
    )


def _is_lossy(lab_state: state.State) -> bool:
    return any(host.fault.tx_loss or host.fault.rx_loss for host in lab_state.hosts)


def _share_of(text: str, rate_limit: float | None) -> float:
    if rate_limit is None:
        raise UserError(f"{text} of what? No rate is planted", "give an absolute rate, such as 50mbit")
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UserError(
            f"'{text}' is not a share", "give one above 0% and up to 100%; --down cuts a host off"
        )
    return share * rate_limit
