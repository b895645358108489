"""Compares nodes with their peers: memory, GPU copies and storage of one host against the median of the others.

Limits that a machine derives from itself do not see a slow node: with half of its memory channels empty, reading and
copying are slow alike. Hosts of one kind should reach the same figures, so the others are the limit.

A host's figure is a fault if it is below the median of its peers by ``MIN_LOSS`` and by ``MIN_Z`` scaled MADs. Median
and MAD of the peers bear outliers among them (Huber, Robust Statistics, 1981); the host itself is left out of both. The
scale has a floor, because few hosts can agree by chance, and contains the scatter of the host's own samples, because a
single disturbed measurement is no slow node. The MAD of few peers is often far too small, so up to ``FEW`` of them
twice as many scales are asked for.

How often a healthy host is accused, by 1,000,000 simulated comparisons for each number (hosts independent, equal but
for their scatter, without that of their own samples): bench/node_peers.py --table. Standard deviation of the hosts:
3 %, 5 %, 10 %.

    peers  normal               Laplace              Student's t, 3 degrees of freedom
    3      0      0      1.3e-3 0      7.2e-5 3.6e-3 1.8e-4 7.6e-4 3.9e-3
    7      0      0      1.7e-4 0      6.5e-5 1.5e-3 2.0e-4 6.8e-4 2.3e-3
    8      0      4.2e-5 4.1e-3 4.2e-5 1.4e-3 1.1e-2 7.1e-4 2.9e-3 1.0e-2
    15     0      1.8e-5 1.3e-3 3.5e-5 1.3e-3 8.2e-3 6.8e-4 2.8e-3 8.6e-3

With 5 scales (MIN_Z_OF_FEW), 3 peers would have 1.5e-4 (5 %) and 2.0e-2 (10 %) for the normal distribution. A table's 0
is at most 3e-6 at 95 %. So hosts that differ by a tenth are too unlike for this rule.

Hosts are peers if they have the same processor and the figure has the same parameters. Below ``MIN_HOSTS`` of them
nothing is compared: of three, two slow ones would be the norm.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.explain.evidence import Evidence
from assay.records.schema import Context, Finding, Measurement, Scalar, Subject
from assay.records.units import format_quantity, format_share, format_size

MIN_HOSTS = 4
MIN_LOSS = (
    0.2  # of the peers' median: nodes of one order differ by a few percent, by ten in the placement of pages
)
MIN_Z, MIN_Z_OF_FEW, FEW = 5.0, 10.0, 7
SCALE_FLOOR = 0.03  # of the peers' median
TO_SIGMA = 1.4826  # of the MAD of a normal distribution
MIN_LOST = 0.05  # of a core, above the peers' median: other programs run there
UNCOMPARED = ("line_reads", "round", "path")  # parameters that tell how a figure was taken
MAX_DETAILS = 6

# What the figures of a measurement are called, and where to look when they are slow.
COMPARED = {
    "node.memory": (
        "memory bandwidth",
        "compare its memory with a peer's: dmidecode -t memory (an empty channel, a slower module), "
        "'dmesg | grep -i -e edac -e mce', and its clock: cpupower frequency-info",
    ),
    "node.memory_paced": (
        "paced memory rate",
        "compare its memory and clock with a peer's: dmidecode -t memory, cpupower frequency-info",
    ),
    "node.gpu_copy": (
        "GPU copies",
        "compare its GPUs and their PCIe links with a peer's: nvidia-smi -q, lspci -vv",
    ),
    "storage.device": (
        "storage",
        "compare its device with a peer's: smartctl -a, how full it is (df), and what else uses it (iostat)",
    ),
}


class _Slow(NamedTuple):
    """A figure of a host that is slower than its peers'."""

    record: Measurement
    peers: list[float]

    @property
    def effect(self) -> float:
        return self.record.median / statistics.median(self.peers) - 1


def slow_node(evidence: Evidence) -> list[Finding]:
    """A finding for each host and measurement whose figures are below those of its peers. It is a warning where a busy
    loop lost its core too: then other programs explain it. So is a host that only loses its cores."""
    lost = _lost(evidence)
    findings: list[Finding] = []
    for name in COMPARED:
        slow: dict[str, list[_Slow]] = defaultdict(list)
        for records in _groups(evidence, name):
            for figure in _slow(records):
                slow[figure.record.subject.host or ""].append(figure)
        findings += [_finding(name, host, figures, lost.get(host)) for host, figures in slow.items()]
    named = {finding.subject.host for finding in findings}
    return findings + [_busy(record) for host, record in lost.items() if host not in named]


def _groups(evidence: Evidence, name: str) -> Iterable[list[Measurement]]:
    """The comparable records of a measurement: a rate of each host, with equal parameters and processors."""
    processors = {
        record.subject.host: record.facts["cpu.model"]
        for record in evidence.records
        if isinstance(record, Context) and not record.subject.device and "cpu.model" in record.facts
    }
    groups: dict[object, list[Measurement]] = defaultdict(list)
    for record in evidence.measurements(name):
        if record.subject.host and record.better == "higher" and record.unit in ("B/s", "1/s"):
            subject = (record.subject.numa, record.subject.device, processors.get(record.subject.host))
            groups[record.metric, subject, *sorted(_params(record).items())].append(record)
    return groups.values()


def _params(record: Measurement) -> dict[str, Scalar]:
    return {key: value for key, value in record.params.items() if key not in UNCOMPARED}


def _slow(records: Sequence[Measurement]) -> list[_Slow]:
    """The records of hosts that are slower than the others. A host that was measured several times counts once."""
    by_host: dict[str | None, list[Measurement]] = defaultdict(list)
    for record in records:
        by_host[record.subject.host].append(record)
    if len(by_host) < MIN_HOSTS:
        return []
    middle = {
        host: sorted(own, key=lambda record: record.median)[len(own) // 2] for host, own in by_host.items()
    }
    slow = []
    for host, record in middle.items():
        peers = [other.median for other_host, other in middle.items() if other_host != host]
        if is_slow(record.median, record.mad, peers):
            slow.append(_Slow(record, peers))
    return slow


def is_slow(rate: float | NDArray[np.float64], own_mad: float, peers: ArrayLike) -> NDArray[np.bool_]:
    """Whether a host's rate is far below its peers', which are the last axis of ``peers``. ``own_mad``: of the samples
    of the host. Several comparisons at once: ``rate`` [...], ``peers`` [..., peers]."""
    others = np.asarray(peers, np.float64)
    median = np.median(others, axis=-1)
    mad = np.median(np.abs(others - median[..., None]), axis=-1)
    scale = np.maximum(TO_SIGMA * np.maximum(mad, own_mad), SCALE_FLOOR * median)
    min_z = MIN_Z if others.shape[-1] > FEW else MIN_Z_OF_FEW
    return np.asarray(median - rate > np.maximum(MIN_LOSS * median, min_z * scale))


def _lost(evidence: Evidence) -> dict[str, Measurement]:
    """The share that a busy loop loses of its core, of hosts where it is far above that of their peers."""
    lost = {r.subject.host: r for r in evidence.measurements("node.noise", "lost") if r.subject.host}
    if len(lost) < MIN_HOSTS:
        return {}
    usual = statistics.median(record.median for record in lost.values())
    return {host: record for host, record in lost.items() if record.median - usual > MIN_LOST}


def _busy(lost: Measurement) -> Finding:
    host = lost.subject.host
    return Finding(
        rule="slow_node",
        cause=f"{host}: other programs took {format_share(lost.median)} of its cores, far more than of its peers'",
        subject=Subject(host=host),
        side="node",
        severity="warning",
        evidence=[lost.id],
        fix=f"look what else runs on {host}, and measure again without it",
    )


def _finding(name: str, host: str, figures: list[_Slow], lost: Measurement | None) -> Finding:
    figures.sort(key=lambda figure: figure.effect)
    worst = figures[0]
    title, fix = COMPARED[name]
    rate = format_quantity(worst.record.median, worst.record.unit)
    share = format_share(1 + worst.effect)
    usual = format_quantity(statistics.median(worst.peers), worst.record.unit)
    cause = f"{host}: {title} is {share} of its peers' ({rate}, median of {len(worst.peers)} others {usual})"
    if lost is not None:
        cause += f"; other programs took {format_share(lost.median)} of its cores"
        fix = f"look what else runs on {host}, and measure again without it"
    nodes = {figure.record.subject.numa for figure in figures}
    return Finding(
        rule="slow_node",
        cause=cause,
        subject=Subject(host=host, numa=nodes.pop() if len(nodes) == 1 else None),
        side="node",
        severity="fault" if lost is None else "warning",
        effect=worst.effect,
        confidence=0.9 if lost is None else None,
        evidence=[figure.record.id for figure in figures],
        details=[_detail(figure) for figure in figures[:MAX_DETAILS]],
        fix=fix,
    )


def _detail(figure: _Slow) -> str:
    record = figure.record
    shown = [
        format_size(int(value)) if key in ("size", "transfer") else f"{key.replace('_', ' ')} {value}"
        for key, value in _params(record).items()
    ]
    low, median, high = min(figure.peers), statistics.median(figure.peers), max(figure.peers)
    rates = [format_quantity(value, record.unit) for value in (record.median, median, low, high)]
    return f"{', '.join(shown)}: {rates[0]}, peers {rates[1]} (from {rates[2]} to {rates[3]})"
