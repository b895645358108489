"""``assay rdma``: RDMA bandwidth, measured as perftest's ib_write_bw does, with a verdict and a report."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

from assay.commands.options import add_option, add_output
from assay.commands.parser import Example, Parser
from assay.commands.run import read_parameters
from assay.commands.session import open_session
from assay.commands.specifications import specifications
from assay.errors import UserError
from assay.launch.engines import MeasurementDescription, describe, probe
from assay.launch.hosts import host_list
from assay.launch.launchers import Local
from assay.launch.placement import HERE, REMOTE, Segment
from assay.launch.reach import check_hosts
from assay.measure.node import measure_node
from assay.measure.rdma import (
    MEASUREMENT,
    SILENCE_MARGIN_S,
    TIMEOUT_S,
    Endpoint,
    measure_rdma,
    plan_ports,
    ports_of,
    why_no_pair,
)
from assay.measure.session import Session
from assay.records.schema import Scalar

WAIT_S = 60.0  # how long the listening side waits for the sender: the engine's default
SET_HERE = ("device", "peer", "mute")  # parameters of the engine that this verb sets


class Rdma:
    """RDMA bandwidth between two devices or hosts. It measures as perftest's ib_write_bw, ib_read_bw and ib_send_bw
    do. Without -d and --peer, each active port of this machine sends to another card of it. Other options are the
    measurement's, see 'assay list node.rdma': --op write,read,send, --sizes, --iterations, --depth, --qps,
    --bidirectional, --gid-index, --mtu, --listen, --port, --port-number, --wait, --token, --realtime."""

    name = "rdma"
    examples = [
        Example("assay rdma", "every port of this machine as sender, to another card"),
        Example("assay rdma -d mlx5_1 --peer-device mlx5_0", "one pair", "RDMA devices"),
        Example("assay rdma -d mlx5_1 --peer node2", "node2 listens: assay rdma -d mlx5_0", "another host"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument(
            "-d", "--device", metavar="DEVICE", help="RDMA device, such as mlx5_0 or mlx5_0:1"
        )
        add_option(parser, "--peer", "without it and --peer-device this side listens")
        parser.add_argument(
            "--peer-device", metavar="DEVICE", help="device of the other side, which is then started too"
        )
        add_output(parser)
        parser.set_defaults(takes_unknown=True)

    def run(self, args: argparse.Namespace) -> int:
        described = describe(probe()).find(MEASUREMENT)
        params, host = read_options(described, args)
        described.check_bounds(params)
        if args.peer_device and not args.device:
            raise UserError("--peer-device without -d", "name the sending device too: -d mlx5_0")
        if host and not args.device:
            raise UserError(f"--peer {host} without -d", "name the device to send from: -d mlx5_0")
        if host and args.peer_device:
            check_hosts(REMOTE, [host])
        specs = specifications(args, "rdma")
        _check_device(described, args.device)
        this_host = socket.gethostname()
        session = open_session(
            "rdma",
            args,
            [this_host],
            {"device": args.device, "peer_device": args.peer_device, "host": host, **params},
        )
        with session.interruptible():
            _measure_pairs_or_side(session, described, args, this_host, host, params)
        return session.conclude(specs)


def _check_device(described: MeasurementDescription, device: str | None) -> None:
    """Raises UserError for a named device that this machine does not have."""
    if device and described.waived is not None:
        raise UserError(
            f"-d {device}: {described.waived}", "see 'ibv_devices'; 'assay doctor' names what is missing"
        )
    folder = Path(os.environ.get("ASSAY_ROOT", "/"), "sys/class/infiniband")
    known = sorted(path.name for path in folder.glob("*"))
    if device and known and device.partition(":")[0] not in known:
        raise UserError(f"-d {device}: this machine has no such device", f"it has {', '.join(known)}")


def read_options(
    described: MeasurementDescription, args: argparse.Namespace
) -> tuple[dict[str, Scalar], str]:
    """The measurement's parameters, and the host of the other side; "" for none."""
    parameters = [parameter for parameter in described.parameters if parameter.name not in SET_HERE]
    hosts = host_list(args.peer, None, "--peer")
    if len(hosts) > 1:
        raise UserError(f"--peer names {len(hosts)} hosts", "name the one to connect to")
    return read_parameters(described.name, parameters, args.unknown), hosts[0] if hosts else ""


def _measure_pairs_or_side(
    session: Session,
    described: MeasurementDescription,
    args: argparse.Namespace,
    this_host: str,
    host: str,
    params: dict[str, Scalar],
) -> None:
    if described.waived is not None:
        session.waive(MEASUREMENT, this_host, described.waived)
    elif args.peer_device:
        peer = (
            Endpoint(REMOTE, host, args.peer_device) if host else Endpoint(HERE, this_host, args.peer_device)
        )
        session.err.print(f"{this_host} {args.device} sends to {peer.host} {peer.device}")
        measure_rdma(session, Endpoint(HERE, this_host, args.device), peer, params)
    elif args.device:
        _measure_this_side(session, args.device, this_host, host, params)
    else:
        measure_node(session, "node.settings", HERE, [this_host], None, {})
        _measure_each_port(session, this_host, params)


def _measure_this_side(
    session: Session, device: str, this_host: str, host: str, params: dict[str, Scalar]
) -> None:
    """Measures from this side alone; the user starts the other side by hand."""
    silence = float(params.get("timeout", TIMEOUT_S)) + SILENCE_MARGIN_S
    chosen: dict[str, Scalar] = {**params, "device": device}
    if host:
        chosen["peer"] = host
        session.err.print(f"{this_host} {device} sends to the side that listens on {host}")
    else:
        wait = float(params.get("wait", WAIT_S))
        silence += wait
        address_hint = params.get("listen") or f"the address of {device}'s interface"
        session.err.print(
            f"{this_host} waits {wait:g} s for: assay rdma -d DEVICE --peer ADDRESS ({address_hint})"
        )
    session.measure(MEASUREMENT, Local(), HERE, [Segment([this_host])], chosen, silence, flavour="")


def _measure_each_port(session: Session, this_host: str, params: dict[str, Scalar]) -> None:
    ports = ports_of(session.run.records, this_host)
    pairs = plan_ports(ports)
    left_out = [p.device for p in ports if p.active and p.device not in {pair.sender for pair in pairs}]
    for device in left_out:
        session.err.print(f"{device} has no other active port of its link layer on this machine: left out")
    if not pairs:
        session.waive(MEASUREMENT, this_host, why_no_pair(ports))
        return
    for pair in pairs:
        session.err.print(f"{pair.sender} sends to {pair.receiver}")
        if pair.same_card:
            session.err.print("warning: both are on one card; a test between cards needs two distinct ones")
        ends = Endpoint(HERE, this_host, pair.sender), Endpoint(HERE, this_host, pair.receiver)
        measure_rdma(session, *ends, params, more_follow=pair is not pairs[-1])
