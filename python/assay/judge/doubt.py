"""Takes back what a busy machine explains, and what was measured on a planted one.

A rate or a time that was measured beside other programs says little about the machine, so such a figure can pass but
not fail: load makes figures worse, never better. What no load changes still fails: a wrong byte, a setting, a device
that is not in order, a fault whose retest has confirmed it.

Nothing is proved of a machine that ASSAY_TOPOLOGY plants: the variable is for tests of the engines, and one that was
left over must neither pass nor fail a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.records.schema import AnyRecord, Context, Finding, Measurement, Verdict

FIX_OF_PLANTED = "unset ASSAY_TOPOLOGY, and measure again"
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
    "slow_gpu",
    "slow_network",
    "slow_node",
    "straggler",
    "udp_loss",
)


def doubt(verdicts: Sequence[Verdict], records: Iterable[AnyRecord], busy: str) -> None:
    """Makes verdicts inconclusive: failed ones whose evidence other load explains, and all of a planted machine.
    ``busy``: that load, or ""; it becomes the verdicts' reason."""
    records = list(records)
    if planted := planted_machine(records):
        for verdict in verdicts:
            verdict.outcome, verdict.reason = "INCONCLUSIVE", planted
            verdict.fix = FIX_OF_PLANTED
    if not busy:
        return
    by_id = {record.id: record for record in records}
    for verdict in verdicts:
        evidence = [by_id[number] for number in verdict.evidence if number in by_id]
        if verdict.outcome == "FAIL" and evidence and all(map(_depends_on_load, evidence)):
            verdict.outcome = "INCONCLUSIVE"
            verdict.reason = f"{busy}; {verdict.reason}" if verdict.reason else busy
            verdict.fix = "measure again when nothing else runs here"


def planted_machine(records: Iterable[AnyRecord]) -> str:
    """Which host was measured as which machine of ASSAY_TOPOLOGY; "" if none was."""
    for record in records:
        if isinstance(record, Context) and (planted := record.facts.get("topology.planted")):
            return f"{record.subject.host} was measured as the planted machine '{planted}'"
    return ""


def _depends_on_load(record: AnyRecord) -> bool:
    if isinstance(record, Finding):
        return record.rule in TIMED_RULES
    if not isinstance(record, Measurement) or record.status != "ok":
        return False
    return record.unit in TIMED_UNITS or record.metric in TIMED_SHARES.get(record.name, ())
