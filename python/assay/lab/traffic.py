"""The network of a lab: a switch made of bridges, and token buckets where a real network has limits.

::

      eth0 of h0 ...... port h0 |            |
      eth0 of h1 ...... port h1 | bridge c0  | up0 ...... down0 |
                                |            |                  | bridge core | port head ...... eth0 of head
      eth0 of h2 ...... port h2 | bridge c1  | up1 ...... down1 |

Dots are veth pairs; everything between the eth0s is in the namespace of the node "switch". A token bucket on a
host's eth0 limits its transmit rate, one on its port the receive rate, and one on each end of an uplink the rate
of the cabinet. The duplex limit needs both directions in one bucket, so an ifb device carries the port's traffic
of both directions.

Further adapters of a host are eth1, eth2, ... on the same bridge, with ports h0.1, h0.2, ... Each has addresses of its
own. What leaves with the address of an adapter leaves through it, and an adapter answers for its own address alone
(policy routes), as sites set up hosts with several rails.

Packet loss is planted in the switch, so neither host's counters see it, as with a bad cable. Packets are dropped
independently. While any loss is planted, the hosts send packets of the MTU instead of 64 kB segments.

The network is set up by text for ``ip -batch``, ``tc -batch`` and ``nft -f``: one process for the whole switch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from assay.errors import UserError
from assay.lab import tools
from assay.lab.state import Fault, Host, Rates
from assay.records.units import parse_in

INTERFACE = "eth0"  # of the first adapter
MAX_ADAPTERS = 8
SWITCH = "switch"
HEAD = "head"
ADDRESS_PREFIX = 16  # of an adapter's network
ALL_ADDRESSES = "10.64.0.0/10"  # of all adapters
FIRST_TABLE = 100  # of the routes of the first adapter
# A host answers for an address on its own adapter alone, and asks with the address of the adapter that it asks through.
ONE_ANSWERS = {"arp_ignore": 1, "arp_announce": 2}
# A bucket lets a burst pass at once, so a single message exceeds the rate by the burst: at a low rate the burst is
# small. It must hold the segments that hosts send, or the kernel splits them, which on a fast link costs more than the
# link itself: segments are 64 kB on a fast link and small on a slow one.
FAST_RATE = 125e6  # B/s, from which a link counts as fast
# A slow link's burst: bytes at least, and its length at the link's rate.
MIN_BURST, BURST_S = 16 * 1024, 0.5e-3
MIN_FAST_BURST, FAST_BURST_S = 128 * 1024, 1e-3  # the same for a fast link
SLOW_SEGMENT = 8 * 1024  # bytes of the largest segment that a host sends if any link is slow
# The queue's length in bursts: some milliseconds. In a longer one the acknowledgements of one direction wait behind the
# data of the other, and TCP leaves a fifth of a slow link unused.
QUEUE_BURSTS = 4
# A lossless lab holds all that senders may have under way: no full queue drops a packet, as with credits of InfiniBand
# or pauses of Ethernet. A connection may have little under way, so queues stay short: bytes, on slow and fast links.
# With half of it, where eight hosts all send to each other, those whose bytes wait before a busy receiver leave their
# links idle for 2 % of the time.
LOSSLESS_QUEUE = 64 << 20  # bytes
WINDOW, FAST_WINDOW = 64 * 1024, 256 * 1024
# There only its window holds a connection back, as credits do. Reno slows down for a lost packet alone, BBR and CUBIC
# also for the delay of a queue.
LOSSLESS_CONTROL = "reno"
LOSS_PARTS = 1_000_000_000  # resolution of the planted loss
MAX_SEGMENTS = 65535  # the kernel's default of gso_max_segs
MAX_SEGMENT = 64 * 1024  # bytes, of a host whose links are fast
LEAST_RATE = 1e3  # B/s
UNLIMITED = 12.5e9  # B/s, of a bucket that must have a rate


def parse_rate(text: str) -> float:
    """Parses a rate as tc writes it ("100mbit") or as Assay does ("100 Mbit/s", "12.5 MB/s"), in B/s.

    Raises UserError outside 8 kbit/s to 800 Gbit/s.
    """
    match = re.fullmatch(r"\s*(\S*?)\s*([kmgt]?)bit(?:/s)?\s*", text, re.IGNORECASE)
    if match:  # tc ignores letter case: "m" is mega
        prefix = match[2].lower() if match[2] in "kK" else match[2].upper()
        text = f"{match[1]} {prefix}bit/s"
    rate = parse_in(text, "B/s")
    if not 1e3 <= rate <= 1e11:
        raise UserError(
            f"a rate of '{text}' cannot be planted", "give one from 8kbit to 800gbit, e.g. 100mbit"
        )
    return rate


def parse_loss(text: str) -> float:
    """Parses the share of packets to lose: "1%", "0.001". Raises UserError."""
    share = parse_in(text, "1")
    if not 1 / LOSS_PARTS <= share < 1:
        raise UserError(
            f"a loss of '{text}' cannot be planted",
            "give a share above 0% and under 100%, e.g. 1%, or --down to take the link down",
        )
    return share


def parse_mtu(text: str) -> int:
    """Parses the MTU of the lab's links, in bytes. Raises UserError outside 576 to 65535."""
    if not text.isascii() or not text.isdigit() or not 576 <= int(text) <= 65535:
        raise UserError(f"an MTU of '{text}' is not possible", "give bytes from 576 to 65535, such as 9000")
    return int(text)


def planted_rate(rates: Rates, side: str) -> float | None:
    """Returns the highest rate (B/s) at which a host can send ("tx") or receive ("rx"); None without a limit."""
    limits = [rate for rate in (rates.up if side == "tx" else rates.down, rates.duplex) if rate is not None]
    return min(limits, default=None)


def _burst(rate: float) -> int:
    """The bytes that a bucket of ``rate`` (B/s) lets pass at once."""
    min_burst, seconds = (MIN_BURST, BURST_S) if rate < FAST_RATE else (MIN_FAST_BURST, FAST_BURST_S)
    return max(min_burst, int(rate * seconds))


def _limit_command(device: str, rate: float | None, lossless: bool) -> str:
    """Returns the tc command that limits what ``device`` sends to ``rate`` (B/s)."""
    if rate is None:
        return f"qdisc replace dev {device} root noqueue"
    burst = _burst(rate)
    queue = LOSSLESS_QUEUE if lossless else QUEUE_BURSTS * burst
    bucket = f"rate {rate * 8:.0f}bit burst {burst} limit {queue}"
    return f"qdisc replace dev {device} root tbf {bucket}"


def interface_of(adapter: int) -> str:
    return f"eth{adapter}"


def _port(host: Host, adapter: int) -> str:
    """The device of the switch at the other end of an adapter's cable."""
    return f"{host.name}.{adapter}" if adapter else host.name


def _transmit_commands(
    device: str, rate: float | None, rates_to: Mapping[str, float], lossless: bool
) -> Iterator[str]:
    """Yields the tc commands that limit what a host sends: in all to ``rate``, to the addresses of ``rates_to`` to a
    rate of their own (B/s). Those have buckets below that of the host."""
    if not rates_to:
        yield _limit_command(device, rate, lossless)
        return
    yield f"qdisc replace dev {device} root pfifo"  # an htb cannot be changed, only replaced
    yield f"qdisc replace dev {device} root handle 1: htb default 2"
    buckets = [rate or UNLIMITED, rate or UNLIMITED, *rates_to.values()]
    for number, limit in enumerate(buckets, 1):
        parent, burst = "1:" if number == 1 else "1:1", _burst(limit)
        own = (
            limit if number == 1 else LEAST_RATE
        )  # a bucket may always send at its own rate; the rest it borrows
        yield (
            f"class add dev {device} parent {parent} classid 1:{number:x} "
            f"htb rate {own * 8:.0f}bit ceil {limit * 8:.0f}bit burst {burst} cburst {burst} quantum {SLOW_SEGMENT}"
        )
        if number > 1:
            queue = LOSSLESS_QUEUE if lossless else QUEUE_BURSTS * max(burst, MAX_SEGMENT)
            yield f"qdisc add dev {device} parent 1:{number:x} bfifo limit {queue}"
    for number, address in enumerate(rates_to, 3):
        yield f"filter add dev {device} parent 1: protocol ip u32 match ip dst {address} flowid 1:{number:x}"


def _duplex_commands(port: str, rate: float, lossless: bool) -> Iterator[str]:
    """Yields the tc commands that send both directions of ``port`` through the token bucket of its ifb device."""
    yield _limit_command(f"{port}-duplex", rate, lossless)
    yield f"qdisc add dev {port} clsact"
    for direction in ("ingress", "egress"):
        yield (
            f"filter add dev {port} {direction} protocol all u32 match u32 0 0 "
            f"action mirred egress redirect dev {port}-duplex"
        )


def build(hosts: Sequence[Host], head: Host, rates: Rates, switch_pid: int, mtu: int) -> None:
    """Creates the links between the nodes and plants the limits. ``switch_pid`` is the process of the switch node."""
    links, limits = [f"link add name core mtu {mtu} type bridge", "link set core up"], []
    for number, cabinet in enumerate(dict.fromkeys(host.cabinet for host in hosts)):
        up, down = f"up{number}", f"down{number}"
        links += [f"link add name {cabinet} mtu {mtu} type bridge", f"link set {cabinet} up"]
        links += [f"link add name {up} mtu {mtu} type veth peer name {down} mtu {mtu}"]
        links += [f"link set {up} master {cabinet} up", f"link set {down} master core up"]
        if rates.cabinet is not None:
            limits += [_limit_command(end, rates.cabinet, rates.lossless) for end in (up, down)]
    for host, adapter in _adapters((*hosts, head)):
        port, cable = _port(host, adapter), f"type veth peer name {interface_of(adapter)} mtu {mtu}"
        links += [f"link add name {port} mtu {mtu} {cable} netns {host.pid}"]
        links += [f"link set {port} master {host.cabinet} up"]
    for host, adapter in _adapters(hosts):
        port = _port(host, adapter)
        if rates.down is not None:
            limits.append(_limit_command(port, rates.down, rates.lossless))
        if rates.duplex is not None:
            links += [f"link add name {port}-duplex mtu {mtu} type ifb", f"link set {port}-duplex up"]
            limits += _duplex_commands(port, rates.duplex, rates.lossless)
    _batch(switch_pid, "ip", links)
    _batch(switch_pid, "tc", limits)
    slow = any(
        rate is not None and rate < FAST_RATE for rate in (rates.up, rates.down, rates.duplex, rates.cabinet)
    )
    segment_option = f" gso_max_size {SLOW_SEGMENT}" if slow else ""
    window = WINDOW if slow else FAST_WINDOW
    lossless = {f"tcp_{way}mem": f"4096 {window} {window}" for way in "rw"}
    lossless["tcp_congestion_control"] = LOSSLESS_CONTROL
    for host in (*hosts, head):
        _batch(host.pid, "ip", list(_address_commands(host, segment_option)))
        answers = {f"conf/all/{name}": value for name, value in ONE_ANSWERS.items()}
        settings = (lossless if rates.lossless else {}) | (answers if len(host.faults) > 1 else {})
        if settings:
            lines = [f"echo '{value}' > /proc/sys/net/ipv4/{name}" for name, value in settings.items()]
            _run_in_namespace(host.pid, ["sh", "-e"], lines, "setting up the network of hosts")
    if rates.up is not None:
        for host, adapter in _adapters(hosts):
            _batch(host.pid, "tc", [_limit_command(interface_of(adapter), rates.up, rates.lossless)])


def _adapters(hosts: Sequence[Host]) -> Iterator[tuple[Host, int]]:
    return ((host, adapter) for host in hosts for adapter in range(len(host.faults)))


def _address_commands(host: Host, segment_option: str) -> Iterator[str]:
    """Yields the ip commands that give a host its addresses and, if it has several adapters, its policy routes."""
    for _, adapter in _adapters([host]):
        interface, address = interface_of(adapter), host.address_of(adapter)
        yield f"addr add {address}/{ADDRESS_PREFIX} dev {interface}"
        yield f"link set {interface}{segment_option} up"
        if len(host.faults) > 1:
            table = FIRST_TABLE + adapter
            yield f"route add {ALL_ADDRESSES} dev {interface} table {table}"
            yield f"rule add from {address} table {table}"


def apply_fault(host: Host, adapter: int, rates: Rates, peers: Mapping[str, Host], switch_pid: int) -> None:
    """Plants the fault of an adapter of ``host`` in place of an earlier one; ``peers`` are all hosts."""
    fault, port = host.faults[adapter], _port(host, adapter)
    rates_to = {peers[peer].address_of(adapter): rate for peer, rate in fault.tx_to.items()}
    commands = _transmit_commands(interface_of(adapter), fault.tx or rates.up, rates_to, rates.lossless)
    _batch(host.pid, "tc", list(commands))
    _batch(switch_pid, "tc", [_limit_command(port, fault.rx or rates.down, rates.lossless)])
    # The port goes down, not the interface: the host then loses its carrier and keeps its routes.
    _batch(switch_pid, "ip", [f"link set {port} {'down' if fault.down else 'up'}"])


def apply_cabinet_fault(number: int, fault: Fault, rates: Rates, switch_pid: int) -> None:
    """Replaces the fault of the uplink of a cabinet, which has this number; ``Fault()`` makes it healthy."""
    limits = ((f"up{number}", fault.tx), (f"down{number}", fault.rx))
    commands = [_limit_command(device, rate or rates.cabinet, rates.lossless) for device, rate in limits]
    _batch(switch_pid, "tc", commands)


def plant_loss(hosts: Sequence[Host], head: Host, switch_pid: int) -> None:
    """Plants the packet loss of each host's faults, in place of any earlier loss."""
    rules: dict[str, list[str]] = {"prerouting": [], "postrouting": []}
    for host, adapter in _adapters(hosts):
        fault = host.faults[adapter]
        for hook, match, share in (
            ("prerouting", "iifname", fault.tx_loss),
            ("postrouting", "oifname", fault.rx_loss),
        ):
            if share is not None:
                chance = f"numgen random mod {LOSS_PARTS} < {round(share * LOSS_PARTS)}"
                rules[hook].append(f'{match} "{_port(host, adapter)}" {chance} drop')
    # Declaring the table first lets the deletion succeed if there was none.
    table = ["table bridge loss", "delete table bridge loss"]
    lossy = any(rules.values())
    if lossy:
        chains = (
            f"chain {hook} {{ type filter hook {hook} priority 0; {'; '.join(rules[hook])}; }}"
            for hook in rules
        )
        table.append("table bridge loss {\n" + "\n".join(chains) + "\n}")
    nft = [tools.find("nft", "nftables"), "-f", "-"]
    _run_in_namespace(switch_pid, nft, table, "planting loss")
    segments = 1 if lossy else MAX_SEGMENTS
    for host, adapter in _adapters((*hosts, head)):
        _batch(host.pid, "ip", [f"link set {interface_of(adapter)} gso_max_segs {segments}"])


def _batch(pid: int, tool: str, commands: Sequence[str]) -> None:
    """Runs the commands of ``ip`` or ``tc`` in the network namespace of a process."""
    if commands:
        argv = [tools.find(tool, "iproute2"), "-batch", "-"]
        _run_in_namespace(pid, argv, commands, f"setting up the lab's network with {tool}")


def _run_in_namespace(pid: int, argv: Sequence[str], lines: Sequence[str], activity: str) -> None:
    nsenter = [tools.find("nsenter", "util-linux"), "-t", str(pid), "-n", "--"]
    tools.run([*nsenter, *argv], stdin="\n".join(lines) + "\n", activity=activity)
