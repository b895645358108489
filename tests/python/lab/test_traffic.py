"""Planted rates and losses of a lab: the limits that the kernel has, and the goodput of TCP through them."""

from __future__ import annotations

import errno
import json
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic_meter import IDEAL, Ends, connect, goodput, network_of

from assay.errors import UserError
from assay.lab import Fault, Lab, Rates
from assay.lab.traffic import parse_rate, planted_rate

MBIT = 1e6 / 8
TOLERANCE = 0.08
LIMIT_S = 240  # against hangs
in_acceptance = pytest.mark.acceptance("lab")
near_the_rate = pytest.mark.statistical(
    "1 in 200, assumed: on an idle machine TCP is within 1 % of the planted rate, and 8 % are allowed"
)


@pytest.fixture(scope="module")
def fabric(make_lab) -> Lab:
    return make_lab(8, 2, host_rate="100mbit", duplex_rate="160mbit", cabinet_rate="300mbit")


def limit_of(lab: Lab, node: str, device: str) -> float | None:
    """The rate in B/s to which the kernel limits what a device of a node sends."""
    with network_of(lab, node):
        command = ["tc", "-j", "qdisc", "show", "dev", device]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    (root,) = [qdisc for qdisc in json.loads(shown.stdout) if qdisc.get("root")]
    return float(root["options"]["rate"]) if root["kind"] == "tbf" else None


def rules_of_loss(lab: Lab) -> set[tuple[str, str]]:
    """The planted losses of a lab: the side of the port, as nftables writes it, and the chance."""
    with network_of(lab, "switch"):
        command = ["nft", "list", "table", "bridge", "loss"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    return set(re.findall(r'(\wifname "[\w.]+") numgen random mod 1000000000 < (\d+) drop', shown.stdout))


def test_limits_are_planted_on_both_sides_of_a_cable_and_on_uplinks(fabric):
    assert {limit_of(fabric, host, "eth0") for host in fabric.hosts} == {100 * MBIT}
    assert {limit_of(fabric, "switch", host) for host in fabric.hosts} == {100 * MBIT}
    assert {limit_of(fabric, "switch", f"{host}-duplex") for host in fabric.hosts} == {160 * MBIT}
    assert {limit_of(fabric, "switch", end) for end in ("up0", "down0", "up1", "down1")} == {300 * MBIT}
    assert limit_of(fabric, "head", "eth0") is limit_of(fabric, "switch", "head") is None


def test_no_queue_of_a_lossless_lab_drops_packets(make_lab) -> None:
    """Three hosts send to a fourth at once, through twelve connections. Other labs drop packets here."""
    lab = make_lab(4, 2, host_rate="100mbit", cabinet_rate="150mbit", lossless=True)
    goodput(lab, [(sender, "h0") for sender in ("h1", "h2", "h3") for _ in range(4)])
    for node, device in [("switch", "h0"), ("switch", "up1"), ("h3", "eth0")]:
        with network_of(lab, node):
            command = ["tc", "-s", "-j", "qdisc", "show", "dev", device]
            shown = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_S)
        (queue,) = json.loads(shown.stdout)
        assert queue["packets"] > 0 and queue["drops"] == 0, (node, device, queue)


def test_only_lost_packets_slow_hosts_of_a_lossless_lab(make_lab) -> None:
    lab = make_lab(2, 1, host_rate="100mbit", lossless=True)
    for host in lab.hosts:
        with network_of(lab, host):
            assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == "reno\n"


def test_a_fault_lowers_the_limit_of_its_side_until_it_is_cleared(fabric):
    fabric.fault(["h5"], Fault(tx=50 * MBIT))
    fabric.fault(["h6"], Fault(rx=20 * MBIT))
    try:
        assert (limit_of(fabric, "h5", "eth0"), limit_of(fabric, "switch", "h5")) == (50 * MBIT, 100 * MBIT)
        assert (limit_of(fabric, "h6", "eth0"), limit_of(fabric, "switch", "h6")) == (100 * MBIT, 20 * MBIT)
        assert limit_of(fabric, "h4", "eth0") == 100 * MBIT
    finally:
        fabric.fault(["h5", "h6"], None)
    assert (limit_of(fabric, "h5", "eth0"), limit_of(fabric, "switch", "h6")) == (100 * MBIT, 100 * MBIT)


def limits_to(lab: Lab, host: str) -> dict[str, float]:
    """The rates in B/s to which the kernel limits what a host sends to single hosts."""
    with network_of(lab, host):
        classes, filters = (
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
            for command in (["tc", "class", "show", "dev", "eth0"], ["tc", "filter", "show", "dev", "eth0"])
        )
    rates = dict(re.findall(r"class htb (\S+) .*?ceil (\d+)Mbit", classes))
    names = {
        "".join(f"{int(part):02x}" for part in node.address.split(".")): node.name
        for node in lab.nodes.values()
    }
    matches = re.findall(r"flowid (\S+).*?\n\s+match (\w{8})/ffffffff", filters)
    return {names[address]: float(rates[flow]) * MBIT for flow, address in matches}


def test_a_fault_can_slow_the_path_to_single_hosts(fabric):
    fabric.fault(["h1"], Fault(tx_to={"h3": 30 * MBIT}))
    fabric.fault(["h1"], Fault(tx_to={"h6": 60 * MBIT}))
    try:
        assert limits_to(fabric, "h1") == {"h3": 30 * MBIT, "h6": 60 * MBIT}
    finally:
        fabric.fault(["h1"], None)
    assert limit_of(fabric, "h1", "eth0") == 100 * MBIT and limits_to(fabric, "h1") == {}


def test_a_fault_lowers_the_limit_of_a_direction_of_an_uplink(fabric):
    fabric.fault(["c0"], Fault(tx=200 * MBIT))
    fabric.fault(["c1"], Fault(rx=90 * MBIT))
    try:
        limits = [limit_of(fabric, "switch", end) for end in ("up0", "down0", "up1", "down1")]
        assert limits == [200 * MBIT, 300 * MBIT, 300 * MBIT, 90 * MBIT]
    finally:
        fabric.fault(["c0", "c1"], None)
    assert {limit_of(fabric, "switch", end) for end in ("up0", "down0", "up1", "down1")} == {300 * MBIT}


@pytest.fixture(scope="module")
def two_adapters(make_lab) -> Lab:
    return make_lab(4, 2, host_rate="100mbit", adapters=2)


def test_each_adapter_of_a_host_has_its_limits_and_faults(two_adapters):
    lab = two_adapters
    lab.fault(["h1"], Fault(tx=50 * MBIT, rx_loss=0.05), "eth1")
    lab.fault(["h2"], Fault(rx=20 * MBIT))
    try:
        limits = {
            (host, adapter): limit_of(lab, host, adapter) for host in lab.hosts for adapter in lab.interfaces
        }
        assert limits.pop(("h1", "eth1")) == 50 * MBIT and set(limits.values()) == {100 * MBIT}
        ports = [limit_of(lab, "switch", port) for port in ("h1", "h1.1", "h2", "h2.1")]
        assert ports == [100 * MBIT, 100 * MBIT, 20 * MBIT, 20 * MBIT]
        assert rules_of_loss(lab) == {('oifname "h1.1"', "50000000")}
    finally:
        lab.fault(["h1", "h2"], None)
    assert limit_of(lab, "h1", "eth1") == limit_of(lab, "switch", "h2.1") == 100 * MBIT
    with pytest.raises(UserError, match="have no eth2; fix: name one of eth0, eth1"):
        lab.fault(["h1"], Fault(tx=1e6), "eth2")


def sent_bytes(lab: Lab, host: str) -> list[int]:
    with network_of(lab, host):
        shown = subprocess.run(
            ["ip", "-j", "-s", "link"], capture_output=True, text=True, check=True, timeout=LIMIT_S
        )
    sent = {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in json.loads(shown.stdout)}
    return [sent[interface] for interface in lab.interfaces]


@pytest.mark.parametrize(("source", "target"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_bytes_leave_and_arrive_by_the_adapters_of_their_addresses(two_adapters, source, target):
    lab, size = two_adapters, 50_000  # within what a receiver takes unread
    before = {host: sent_bytes(lab, host) for host in ("h0", "h3")}
    with network_of(lab, "h3"):
        listener = socket.create_server((lab.nodes["h3"].address_of(target), 0))
    with listener, network_of(lab, "h0"):
        sender = socket.create_connection(
            listener.getsockname(), timeout=LIMIT_S, source_address=(lab.nodes["h0"].address_of(source), 0)
        )
        with sender, listener.accept()[0] as receiver:
            sender.sendall(bytes(size))
            sender.shutdown(socket.SHUT_WR)
            while receiver.recv(1 << 16):
                pass
            receiver.sendall(bytes(size))
            receiver.shutdown(socket.SHUT_WR)
            while sender.recv(1 << 16):
                pass
    for host, adapter in (("h0", source), ("h3", target)):
        grown = [after - old for after, old in zip(sent_bytes(lab, host), before[host], strict=True)]
        assert grown[adapter] > size > 20 * grown[1 - adapter]


def test_a_cabinet_loses_no_packets(fabric):
    with pytest.raises(UserError, match="c0 is a cabinet, which can only be slow"):
        fabric.fault(["c0"], Fault(tx_loss=0.1))
    assert rules_of_loss(fabric) == set() and Lab.load(fabric.name).cabinet_faults == fabric.cabinet_faults


def test_loss_is_planted_on_its_side_of_a_port_until_it_is_cleared(fabric):
    fabric.fault(["h1"], Fault(rx_loss=0.05))
    fabric.fault(["h2"], Fault(tx_loss=0.20))
    try:
        assert rules_of_loss(fabric) == {('oifname "h1"', "50000000"), ('iifname "h2"', "200000000")}
    finally:
        fabric.fault(["h1", "h2"], None)
    assert rules_of_loss(fabric) == set()


@in_acceptance
@near_the_rate
@pytest.mark.parametrize(
    "flows, limit",
    [
        pytest.param([("h0", "h1")], 100, id="one"),
        pytest.param([("h0", "h1"), ("h1", "h0")], 160, id="both-ways-share-the-duplex-limit"),
        pytest.param([("h0", "h3"), ("h1", "h3"), ("h2", "h3")], 100, id="fan-in"),
        pytest.param([(f"h{i}", f"h{i + 4}") for i in range(4)], 300, id="across-the-uplink"),
        pytest.param([("head", "h0"), ("head", "h4")], 200, id="the-head-is-not-limited"),
    ],
)
def test_goodput_matches_the_planted_rate(fabric, flows, limit):
    assert goodput(fabric, flows) == pytest.approx(IDEAL * limit * MBIT, rel=TOLERANCE)


@in_acceptance
@near_the_rate
def test_sending_and_receiving_can_differ(make_lab):
    lab = make_lab(3, up_rate="50mbit", down_rate="80mbit")
    assert goodput(lab, [("h0", "h1")]) == pytest.approx(IDEAL * 50 * MBIT, rel=TOLERANCE)
    assert goodput(lab, [("h0", "h1"), ("h2", "h1")]) == pytest.approx(IDEAL * 80 * MBIT, rel=TOLERANCE)


@in_acceptance
@near_the_rate
@pytest.mark.parametrize("side, sent, received", [("tx", 50, 100), ("rx", 100, 50)])
def test_a_fault_slows_one_side_only(fabric, side, sent, received):
    fabric.fault(["h5"], Fault(**{side: fabric.fault_rate("50%", side)}))
    try:
        assert goodput(fabric, [("h5", "h6")]) == pytest.approx(IDEAL * sent * MBIT, rel=TOLERANCE)
        assert goodput(fabric, [("h6", "h5")]) == pytest.approx(IDEAL * received * MBIT, rel=TOLERANCE)
    finally:
        fabric.fault(["h5"], None)
    assert goodput(fabric, [("h5", "h6")]) == pytest.approx(IDEAL * 100 * MBIT, rel=TOLERANCE)


def test_a_pulled_cable_cuts_a_host_off_until_cleared(fabric):
    fabric.fault(["h2"], Fault(down=True))
    try:
        with pytest.raises(OSError):
            connect(fabric, "h1", "h2", limit_s=0.5)
    finally:
        fabric.fault(["h2"], None)
    for end in connect_patiently(fabric, "h1", "h2"):
        end.close()


def connect_patiently(lab: Lab, *ends: str) -> Ends:
    """Connects also while the kernel still looks for the address of a node that was cut off."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return connect(lab, *ends)
        except OSError as error:
            if error.errno != errno.EHOSTUNREACH or time.monotonic() > deadline:
                raise


@in_acceptance
@near_the_rate
def test_a_fault_is_possible_without_planted_rates(make_lab):
    lab = make_lab(2)
    lab.fault(["h0"], Fault(tx=parse_rate("40mbit")))
    assert goodput(lab, [("h0", "h1")]) == pytest.approx(IDEAL * 40 * MBIT, rel=TOLERANCE)
    lab.fault(["h0"], None)
    assert goodput(lab, [("h0", "h1")]) > 10 * 40 * MBIT  # far above the fault's rate: no limit is left


@pytest.mark.parametrize(
    "text, bits",
    [("100mbit", 100e6), ("1.5gbit", 1.5e9), ("64Kbit", 64e3), ("100 Mbit/s", 100e6), ("12.5 MB/s", 100e6)],
)
def test_rates_are_read_as_tc_and_as_assay_write_them(text, bits):
    assert parse_rate(text) == pytest.approx(bits / 8)


@settings(deadline=None, derandomize=True)
@given(st.floats(min_value=8e3, max_value=8e11))
def test_any_possible_rate_is_read_exactly(bits):
    assert parse_rate(f"{bits!r}bit") == pytest.approx(bits / 8)


@pytest.mark.parametrize("text", ["fast", "", "mbit", "-5mbit", "0mbit", "100", "100 MB", "1e30bit", "5 s"])
def test_wrong_rates_are_refused(text):
    with pytest.raises(UserError):
        parse_rate(text)


def test_the_planted_rate_is_the_smallest_limit():
    assert planted_rate(Rates(up=100, duplex=60), "tx") == 60
    assert planted_rate(Rates(up=50, down=70, duplex=60), "tx") == 50
    assert planted_rate(Rates(up=50), "rx") is None
