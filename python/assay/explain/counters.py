"""Port counters of the adapters that grew during a run.

"network.counters" records hold the growth of a device's counter. Link errors are a warning by themselves (they cost
retransmissions before they cost bandwidth) and raise the confidence of a finding about the same host. Drops and
waits for credits occur in any congestion and are not a finding by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from assay.explain.evidence import Evidence
from assay.records.schema import Finding, Subject

MEASUREMENT = "network.counters"
# Counters of link errors: InfiniBand's names, then those of Linux network devices.
ERRORS = {
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "rx_errors",
    "tx_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "tx_carrier_errors",
    "carrier_changes",
}
CONGESTION = {"port_xmit_wait", "port_xmit_discards", "rx_dropped", "tx_dropped", "rx_missed_errors"}


class Growth(NamedTuple):
    """One counter that grew during the run."""

    device: str
    counter: str
    amount: float
    record: int

    def __str__(self) -> str:
        return f"{self.device} {self.counter} grew by {self.amount:.0f}"


def growth(evidence: Evidence, names: set[str]) -> dict[str, list[Growth]]:
    """Returns the counters among ``names`` that grew, by host."""
    grown: dict[str, list[Growth]] = defaultdict(list)
    for record in evidence.measurements(MEASUREMENT):
        if record.metric in names and record.summary and record.summary.median > 0:
            device = record.subject.device or "adapter"
            grown[record.subject.host or ""].append(
                Growth(device, record.metric, record.summary.median, record.id)
            )
    return grown


def port_errors(evidence: Evidence) -> list[Finding]:
    """Finds links that counted errors during the run; one finding a device."""
    findings = []
    for host, grown in growth(evidence, ERRORS).items():
        for device in dict.fromkeys(counter.device for counter in grown):
            counters = [counter for counter in grown if counter.device == device]
            findings.append(
                Finding(
                    rule="port_errors",
                    cause=f"{device} on {host} counted {', '.join(counter.counter for counter in counters)}",
                    subject=Subject(host=host, device=device),
                    side="node",
                    severity="warning",
                    confidence=0.9,
                    evidence=[counter.record for counter in counters],
                    details=[str(counter) for counter in counters],
                    fix=f"reseat or replace the cable and transceiver of {device} on {host}, then "
                    "the switch port; update firmware last",
                )
            )
    return findings
