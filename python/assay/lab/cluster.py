"""``Lab``, the virtual cluster: create, load, enter its hosts, plant faults, take down.

``Lab.up`` creates a complete lab, or removes everything that it has made, also on Ctrl-C. The head node is attached to
the core bridge without rate limits; launchers run there.
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

_MAX_HOSTS = 250
_HEAD = Host(traffic.HEAD, "core", "10.77.255.1")


def lay_out(hosts: int, cabinets: int, adapters: int = 1) -> list[Host]:
    """Returns h0, h1, ... in cabinet order, spread evenly; the first cabinets get the remainder.

    Raises UserError for counts that are not possible.
    """
    if not 1 <= hosts <= _MAX_HOSTS:
        raise UserError(
            f"a lab of {hosts} hosts is not possible", f"give --nodes a number from 1 to {_MAX_HOSTS}"
        )
    if not 1 <= cabinets <= hosts:
        raise UserError(
            f"{hosts} hosts cannot fill {cabinets} cabinets", f"give --cabinets a number from 1 to {hosts}"
        )
    if not 1 <= adapters <= traffic.MAX_ADAPTERS:
        raise UserError(
            f"hosts with {adapters} adapters are not possible",
            f"give --adapters a number from 1 to {traffic.MAX_ADAPTERS}",
        )
    per_cabinet, remainder = divmod(hosts, cabinets)
    slots = [(c, k) for c in range(cabinets) for k in range(per_cabinet + (c < remainder))]
    healthy = [Fault()] * adapters
    return [Host(f"h{i}", f"c{c}", f"10.77.{c}.{k + 1}", faults=[*healthy]) for i, (c, k) in enumerate(slots)]


class Lab:
    """A lab that is up. ``hosts`` are in cabinet order; launchers run on ``head``. ``agent`` is the path of the
    program that launchers use in place of ssh, ``interface`` the network device of each host."""

    interface = traffic.INTERFACE
    head = traffic.HEAD

    def __init__(self, lab_state: state.State) -> None:
        self.name = lab_state.name
        self.rates = lab_state.rates
        self.mtu = lab_state.mtu
        self.slurm = lab_state.slurm
        self.nodes = {host.name: host for host in lab_state.hosts}
        self.hosts = list(self.nodes)
        self.interfaces = [traffic.interface_of(adapter) for adapter in range(len(lab_state.hosts[0].faults))]
        self.cabinets: dict[str, list[str]] = {}
        for host in lab_state.hosts:
            self.cabinets.setdefault(host.cabinet, []).append(host.name)
        self.cabinet_faults = lab_state.cabinet_faults
        self.agent = str(state.folder(self.name) / "agent")

    @classmethod
    def load(cls, name: str | None = None) -> Lab:
        """Loads the lab ``name`` (default: $ASSAY_LAB, else "lab"). Raises UserError if it is not up."""
        lab_state = state.read(state.lab_name(name))
        tools.require_tools()  # to enter its nodes, or to look at them
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
        adapters: int = 1,
    ) -> Lab:
        """Creates a lab completely or not at all. Raises UserError if it exists already or cannot be created."""
        name = state.lab_name(name)
        members = lay_out(hosts, cabinets, adapters)
        tools.require_tools()
        namespaces.refuse_inside()
        if with_slurm:
            slurm.require_slurm()
        folder = state.claim(name)
        try:
            return cls._build(state.State(name, members, rates, with_slurm, mtu), folder)
        except BaseException:
            _remove(name)
            raise

    @classmethod
    def _build(cls, lab_state: state.State, folder: Path) -> Lab:
        for script in ("enter", "agent"):
            copy = shutil.copy(Path(__file__).with_name(f"{script}.sh"), folder / script)
            os.chmod(copy, 0o755)
        nodes = [*lab_state.hosts, _HEAD]
        names = "".join(f"{host.address} {host.name}\n" for host in nodes)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        lab = cls(lab_state)
        with namespaces.start_nodes(
            lab_state.name, [*(h.name for h in nodes), traffic.SWITCH], folder
        ) as pids:
            for host in lab_state.hosts:
                host.pid = pids[host.name]
            head = lab._head(pids[_HEAD.name])
            traffic.build(lab_state.hosts, head, lab_state.rates, pids[traffic.SWITCH], lab_state.mtu)
            lab._share(Path.cwd(), Path(__file__), Path(sys.executable))
            if lab_state.slurm:
                slurm.start(lab_state.name, folder / "slurm", lab_state.hosts, _HEAD.name, lab.enter)
            state.write(lab_state)
        return lab

    def _share(self, *paths: Path) -> None:
        """Bind-mounts into every node the folders of the machine's /tmp that commands need (entering does it)."""
        for path_folder in {path if path.is_dir() else path.parent for path in paths}:
            if path_folder.is_relative_to("/tmp"):
                subprocess.run(
                    self.enter(self.head, ["true"]), cwd=path_folder, timeout=tools.TIME_LIMIT_S, check=True
                )

    def address(self, host: str) -> str:
        """Returns the IPv4 address of a host or of the head."""
        return (_HEAD if host == self.head else self._host(host)).address

    def _host(self, name: str) -> Host:
        if name not in self.nodes:
            raise UserError(
                f"no host '{name}' in lab '{self.name}'", f"its hosts are {NodeSet.fromlist(self.hosts)}"
            )
        return self.nodes[name]

    def select(self, names: str) -> list[str]:
        """Returns the hosts of a node set such as "h[0-3],h6". Raises UserError for an unknown one."""
        return [name for name in self._parse(names) if self._host(name)]

    def select_nodes(self, names: str) -> list[str]:
        """Like ``select``, but also accepts the head and the switch."""
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
        """Returns the command that runs ``argv`` inside a node, in the current folder and environment."""
        return [str(state.folder(self.name) / "enter"), host, *argv]

    def select_faulty(self, names: str) -> list[str]:
        """Like ``select``, but also accepts cabinets, such as "c0"."""
        chosen = self._parse(names)
        if unknown := [name for name in chosen if name not in self.nodes and name not in self.cabinets]:
            raise UserError(
                f"no host or cabinet '{unknown[0]}' in lab '{self.name}'",
                f"there are {NodeSet.fromlist([*self.hosts, *self.cabinets])}",
            )
        return chosen

    def fault(self, names: Sequence[str], fault: Fault | None, interface: str = "") -> None:
        """Adds a fault to hosts and cabinets; None removes all of their faults. ``interface``: of the hosts' adapters,
        that one alone.

        Raises UserError for a fault that a cabinet cannot have, and for an adapter that the hosts lack."""
        adapters = self._adapters(interface)
        with state.locked_update(self.name) as lab_state:
            switch = self._holder(traffic.SWITCH)
            had_loss = _is_lossy(lab_state)
            peers = {host.name: host for host in lab_state.hosts}
            for host in lab_state.hosts:
                if host.name in names:
                    self._holder(host.name)
                    for adapter in adapters:
                        host.faults[adapter] = (
                            _merged_fault(host.faults[adapter], fault) if fault else Fault()
                        )
                        traffic.apply_fault(host, adapter, lab_state.rates, peers, switch)
            for number, cabinet in enumerate(self.cabinets):
                if cabinet in names:
                    new = (
                        _merged_fault(lab_state.cabinet_faults.get(cabinet, Fault()), fault)
                        if fault
                        else Fault()
                    )
                    if interface or new != Fault(tx=new.tx, rx=new.rx):
                        raise UserError(
                            f"{cabinet} is a cabinet, which can only be slow", "give --tx, --rx or --clear"
                        )
                    lab_state.cabinet_faults[cabinet] = new
                    traffic.apply_cabinet_fault(number, new, lab_state.rates, switch)
            self._apply_packet_loss(lab_state, had_loss, switch)
        self.nodes = {host.name: host for host in lab_state.hosts}
        self.cabinet_faults = lab_state.cabinet_faults

    def _adapters(self, interface: str) -> list[int]:
        """The numbers of the adapters with this interface, of all if it is empty."""
        if interface and interface not in self.interfaces:
            raise UserError(
                f"the hosts of lab '{self.name}' have no {interface}",
                f"name one of {', '.join(self.interfaces)}",
            )
        return [n for n, name in enumerate(self.interfaces) if interface in ("", name)]

    def _apply_packet_loss(self, lab_state: state.State, had_loss: bool, switch: int) -> None:
        """Plants the packet loss of the hosts' faults; calls nft only if there is or was any."""
        if not had_loss and not _is_lossy(lab_state):
            return
        running_hosts = [host for host in lab_state.hosts if self.alive(host.name)]
        traffic.plant_loss(running_hosts, self._head(self._holder(_HEAD.name)), switch)

    def _head(self, pid: int) -> Host:
        return Host(_HEAD.name, _HEAD.cabinet, _HEAD.address, pid, [Fault()] * len(self.interfaces))

    def fault_rate(self, text: str, side: str, of_cabinet: bool = False) -> float:
        """Parses a rate ("50mbit") or a share ("50%") of the planted rate of a side ("tx", "rx"), in B/s.

        Raises UserError for anything else, and for a rate above the planted one.
        """
        rate_limit = self.rates.cabinet if of_cabinet else traffic.planted_rate(self.rates, side)
        if text.strip().endswith("%"):
            return _parse_share(text, rate_limit)
        rate = traffic.parse_rate(text)
        if rate_limit is not None and rate > rate_limit:
            raise UserError(
                f"--{side} {text} is above the planted rate",
                "give a lower rate: a fault only slows a host down",
            )
        return rate

    def _holder(self, node: str) -> int:
        """Returns the process that holds the node's namespaces open. Raises UserError if it has ended."""
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
        """Whether the node's process runs."""
        with contextlib.suppress(UserError):
            return self._holder(node) > 0
        return False

    def down(self) -> None:
        take_down(self.name)


def take_down(name: str | None = None) -> tuple[str, bool]:
    """Ends a lab, or what a crash has left of it. Returns its name, and whether there was anything to end.

    Raises UserError if processes do not end.
    """
    name = state.lab_name(name)
    tools.require_tools()
    namespaces.refuse_inside()
    existed = state.folder(name).exists()
    return name, _remove(name) > 0 or existed


def _remove(name: str) -> int:
    with _signals_blocked():
        ended = namespaces.end_processes(name)
        state.remove_folder(name)
    return ended


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Defers a second Ctrl-C until the lab is removed, which takes a limited time."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _merged_fault(old: Fault, new: Fault) -> Fault:
    return Fault(
        new.tx or old.tx,
        new.rx or old.rx,
        new.down or old.down,
        new.tx_loss or old.tx_loss,
        new.rx_loss or old.rx_loss,
        old.tx_to | new.tx_to,
    )


def _is_lossy(lab_state: state.State) -> bool:
    return any(fault.tx_loss or fault.rx_loss for host in lab_state.hosts for fault in host.faults)


def _parse_share(text: str, rate_limit: float | None) -> float:
    if rate_limit is None:
        raise UserError(
            f"{text} needs a planted rate, and there is none", "give an absolute rate, such as 50mbit"
        )
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UserError(
            f"'{text}' is not a share", "give one above 0% and up to 100%, or --down to take the link down"
        )
    return share * rate_limit
