"""Takes back the failures that a busy machine explains.

A rate or a time that was measured beside other programs says little about the machine, so such a figure can pass but
not fail: load makes figures worse, never better. What no load changes still fails: a wrong byte, a setting, a device
that is not in order, a fault whose retest has confirmed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.records.schema import AnyRecord, Finding, Measurement, Verdict

TIMED_UNITS = ("B/s", "1/s", "s")
# Shares of processor time, of a paced rate or of packets that a process without its core does not take in time.
TIMED_SHARES = {
    "node.noise": ("lost",),
    "node.memory_paced": ("achieved", "late", "step_achieved", "step_late"),
    "node.udp_receive": ("loss", "lost_socket", "lost_softnet", "lost_unattributed"),
    "node.udp_send": ("offered", "delivered", "dropped"),
}
# Rules on rates and times without a retest that would tell a fault from load.
TIMED_RULES = (
    "below_expected",
    "event_backpressure",
    "event_dip",
    "event_share",
    "slow_network",
    "slow_node",
    "straggler",
    "udp_loss",
)


def doubt(verdicts: Sequence[Verdict], records: Iterable[AnyRecord], busy: str) -> None:
    """Makes failed verdicts inconclusive whose evidence other load explains. ``busy``: that load, or ""; it becomes
    the verdicts' reason."""
    if not busy:
        return
    by_id = {record.id: record for record in records}
    for verdict in verdicts:
        evidence = [by_id[number] for number in verdict.evidence if number in by_id]
        if verdict.outcome == "FAIL" and evidence and all(map(_depends_on_load, evidence)):
            verdict.outcome = "INCONCLUSIVE"
            verdict.reason = f"{busy}; {verdict.reason}" if verdict.reason else busy
            verdict.fix = "measure again when nothing else runs here"


def _depends_on_load(record: AnyRecord) -> bool:
    if isinstance(record, Finding):
        return record.rule in TIMED_RULES
    if not isinstance(record, Measurement) or record.status != "ok":
        return False
    return record.unit in TIMED_UNITS or record.metric in TIMED_SHARES.get(record.name, ())
