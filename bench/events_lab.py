#!/usr/bin/env python3
"""Event building on labs with planted rates: sustained verified payload, both directions at once, of every transport.

    of_planted   payload that each host received, over the planted rate of its link: the mean of the seconds after the
                 first two, in which all messages of the start arrive at once, until no more events are assigned.
                 A message counts in the second in which it is complete: a short run may exceed what is possible
    of_headers   the same over what headers leave of that rate
    of_alltoall  the same over the payload of MPI_Alltoall, in the same turn

A lab's shaper counts the bytes of a packet with its 14 bytes of Ethernet, so headers leave (MTU - 52) / (MTU + 14) of
the rate over TCP, Open MPI's and libfabric's included (20 bytes of IP, 32 of TCP with its time stamp), and
(MTU - 60) / (MTU + 14) over UDP (20 of IP, 8 of UDP, 32 of Assay's own). Acknowledgements are not taken off.

of_headers has a limit: 97 % over TCP and MPI, 95 % over UDP and libfabric. A run that fails, or in which a rank is
taken for dead, has carried nothing.

Each turn runs everything once, so that the load of other programs affects all alike. ``peer`` has what iperf3 reaches
between two of the hosts in both directions at once, MPI_Alltoall's share, and the machine's load. It needs root.

The lab is lossless, as InfiniBand is and Ethernet with flow control: with --lossy, short queues drop packets where
several hosts send to one, and TCP waits for what was lost.

The bench has eight hosts, frames of 1500 bytes and one turn of 20 s, about four minutes, so that the area ends in its
ten. --long has two and eight hosts, both sizes of frames and three turns of 60 s: two hours.

    .venv/bin/python bench/events_lab.py --hosts 8 --mtu 1500 --transports tcp,udp --turns 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, figure, waived  # noqa: E402
from peers import listening  # noqa: E402

from assay.errors import UserError  # noqa: E402
from assay.events.figures import buildings  # noqa: E402
from assay.lab import Lab, Rates, take_down  # noqa: E402
from assay.lab.traffic import parse_rate  # noqa: E402
from assay.launch.engines import check_transport_here, probe  # noqa: E402
from assay.launch.launchers import default_launcher, launcher_on  # noqa: E402
from assay.launch.placement import lab_site  # noqa: E402
from assay.measure.events import EventRequest  # noqa: E402
from assay.records.run import Run  # noqa: E402
from assay.records.units import parse_size  # noqa: E402

RATE = "60mbit"  # eight hosts of it leave most of two processors free
HOSTS, LONG_HOSTS = (8,), (2, 8)
MTUS, LONG_MTUS = (1500,), (1500, 9000)
TURNS, LONG_TURNS = 1, 3
SECONDS, LONG_SECONDS = 20, 60  # after about eight, hosts have drifted apart
WARM_UP_S = 2
SIZE = "512KiB"  # of a message, as in DAQPIPE
TRANSPORTS = ("tcp", "mpi", "udp", "ofi:tcp")
PROTOCOLS = ("push", "pull")
# The least share of what headers leave of the planted rate.
LIMITS = {"tcp": 0.97, "mpi": 0.97, "udp": 0.95, "ofi": 0.95}
ETHERNET, TCP_IP, UDP_IP, ASSAY_UDP = 14, 52, 28, 32
LIMIT_S = 180
PORT = "5291"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


def header_share(transport: str, mtu: int) -> float:
    """What headers leave of a planted rate."""
    inside = UDP_IP + ASSAY_UDP if transport == "udp" else TCP_IP
    return (mtu - inside) / (mtu + ETHERNET)


@dataclass(frozen=True)
class Place:
    """A lab of ``hosts`` hosts, whose links carry ``rate`` B/s."""

    lab: Lab
    hosts: int
    mtu: int
    rate: float

    def share(self, payload: float) -> float:
        """Of B/s that all hosts received together."""
        return payload / self.hosts / self.rate


def run_builder(place: Place, transport: str, protocol: str, seconds: float, size: str) -> float:
    """The payload's share of the planted rate; NaN where the run failed."""
    with tempfile.TemporaryDirectory(prefix="assay-events-") as folder:
        path = Path(folder) / "run"
        command = [sys.executable, "-m", "assay", "eb", "--lab", place.lab.name, "--alone", "-o", str(path)]
        command += [
            "--transport",
            transport,
            "--protocol",
            protocol,
            "--budget",
            f"{seconds}s",
            "--size",
            size,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, timeout=LIMIT_S, check=False
        )
        if done.returncode not in (0, 1):
            print(
                f"bench: {' '.join(command[3:])}: {done.stdout[-500:]}{done.stderr[-500:]}", file=sys.stderr
            )
            return math.nan
        for building in buildings(Run.load(path).records):
            if building.lost:
                lost = ", ".join(building.lost)
                print(f"bench: {' '.join(command[3:])}: {lost} taken for dead", file=sys.stderr)
                return math.nan
            record = building.totals.get("network_throughput")
            # A sample a second: after the start, and while events are assigned.
            samples = (record.samples or [])[WARM_UP_S : int(seconds)] if record else []
            if samples:
                return place.share(statistics.mean(samples))
        return math.nan


def run_alltoall(place: Place, seconds: float, size: str) -> float:
    """MPI_Alltoall's share of the planted rate; NaN where there is no MPI."""
    site = lab_site(place.lab)
    try:
        launcher = launcher_on(None, site)
        engine = [str(probe(launcher.flavour)), "run", "events.alltoall", "--fragment", size]
    except UserError as error:
        print(f"bench: no MPI_Alltoall: {error}", file=sys.stderr)
        return math.nan
    engine += ["--budget", str(seconds), "--yield-us", "0"]
    hosts = [f"h{number}" for number in range(place.hosts)]
    request = EventRequest(launcher, site, hosts, {"fragment": parse_size(size)})
    done = subprocess.run(
        launcher.command(site, request.segments(launcher), engine),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
        env={**ENVIRONMENT, **launcher.environment(site)},
        check=False,
    )
    for line in done.stdout.splitlines():
        record = json.loads(line) if line.startswith("{") else {}
        params = record.get("params", {})
        if record.get("metric") == "bandwidth" and params.get("operation") == "MPI_Alltoall":
            return place.share(float(record["summary"]["median"]))
    print(f"bench: no MPI_Alltoall: {done.stderr[-500:]}", file=sys.stderr)
    return math.nan


def run_stream(place: Place, seconds: float) -> float:
    """What iperf3 carries between two hosts in both directions, as a share of the planted rate; NaN without it."""
    lab = place.lab
    if shutil.which("iperf3") is None:
        return math.nan
    with listening(lab.enter("h0", ["iperf3", "-s", "-1", "--forceflush", "-p", PORT])):
        client = ["iperf3", "-c", lab.address("h0"), "-p", PORT, "-t", str(seconds), "--bidir", "--json"]
        done = subprocess.run(
            lab.enter("h1", client), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        with contextlib.suppress(ValueError, KeyError):
            totals = json.loads(done.stdout)["end"]
            received = (totals[name] for name in ("sum_received", "sum_received_bidir_reverse"))
            return sum(float(part["bits_per_second"]) for part in received) / 8 / 2 / place.rate
        return math.nan


def unusable(transport: str) -> str | None:
    """Why this machine cannot use a transport; None if it can."""
    try:
        if transport.startswith("ofi"):
            check_transport_here(transport)
        elif transport == "mpi":
            default_launcher()
    except UserError as error:
        return str(error)
    return None


def measure(place: Place, transports: list[str], turns: int, seconds: float, size: str) -> None:
    runs = [(transport, protocol) for transport in transports for protocol in PROTOCOLS]
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    alltoalls, streams, loads = [], [], []
    for _ in range(turns):
        alltoalls.append(run_alltoall(place, seconds, size))
        streams.append(run_stream(place, seconds))
        for transport, protocol in runs:
            shares[transport, protocol].append(run_builder(place, transport, protocol, seconds, size))
            loads.append(os.getloadavg()[0])
    for transport, protocol in runs:
        values = shares[transport, protocol]
        headers = header_share(transport, place.mtu)
        name = f"events.lab.{transport}_{protocol}.hosts_{place.hosts}.mtu_{place.mtu}"
        peer = {
            "headers_leave": round(headers, 4),
            "alltoall": rounded(alltoalls),
            "iperf3": rounded(streams),
            "load": round(statistics.median(loads), 1),
            "turns": len(values),
        }
        carried = [0.0 if math.isnan(value) else value for value in values]
        limit = LIMITS[transport.partition(":")[0]]
        figure(f"{name}.of_planted", carried, None, "higher", peer=peer)
        figure(f"{name}.of_headers", [value / headers for value in carried], limit, "higher", peer=peer)
        ratios = [a / b for a, b in zip(values, alltoalls, strict=True) if not math.isnan(a / b)]
        if ratios:
            figure(f"{name}.of_alltoall", ratios, None, "higher", peer=peer)


def rounded(values: list[float]) -> float | None:
    kept = [value for value in values if not math.isnan(value)]
    return round(statistics.median(kept), 4) if kept else None


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default=RATE, help="of each link and direction (default: %(default)s)")
    parser.add_argument("--hosts", type=numbers, default=None, metavar="N,N")
    parser.add_argument("--mtu", type=numbers, default=None, metavar="N,N")
    parser.add_argument("--transports", default=",".join(TRANSPORTS), metavar="NAME,NAME")
    parser.add_argument("--turns", type=int)
    parser.add_argument(
        "--seconds", type=float, help=f"of each run (default: {SECONDS}, with --long {LONG_SECONDS})"
    )
    parser.add_argument("--size", default=SIZE, help="of a message (default: %(default)s)")
    parser.add_argument("--lossy", action="store_true", help="a lab whose short queues drop packets")
    parser.add_argument("--long", action="store_true", help="all hosts, frames and turns (see above)")
    args = parser.parse_args()
    if os.geteuid() != 0:
        waived("events.lab.", "a lab needs root")
        return 0
    rate, transports = parse_rate(args.rate), []
    for transport in args.transports.split(","):
        if reason := unusable(transport):
            waived(f"events.lab.{transport}_", reason)
        else:
            transports.append(transport)
    args.seconds = args.seconds or (LONG_SECONDS if args.long else SECONDS)
    turns = args.turns or (LONG_TURNS if args.long else TURNS)
    for mtu in args.mtu or (LONG_MTUS if args.long else MTUS):
        for hosts in args.hosts or (LONG_HOSTS if args.long else HOSTS):
            name = f"bench-{os.getpid()}-{hosts}-{mtu}"
            lab = Lab.up(hosts, 1, Rates(rate, rate, lossless=not args.lossy), name=name, mtu=mtu)
            try:
                measure(Place(lab, hosts, mtu, rate), transports, turns, args.seconds, args.size)
            finally:
                take_down(name)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
