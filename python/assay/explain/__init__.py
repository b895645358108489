"""Explains a run: rules over its records, each of which finds one kind of cause.

A rule is a function from ``Evidence`` to findings. ``RULES`` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from assay.explain.alloc import alloc
from assay.explain.corruption import corruption
from assay.explain.counters import port_errors
from assay.explain.culprit import suspects
from assay.explain.evidence import Evidence, Options
from assay.explain.gpu import gpu_copies
from assay.explain.hca import hca_binding
from assay.explain.matrix import PairMatrix
from assay.explain.retest import plan_retest
from assay.explain.slow import congestion, slow_block, slow_host, slow_pair
from assay.explain.storage import straggler, wrong_data
from assay.explain.turns import taking_turns
from assay.explain.udp import udp_loss
from assay.explain.wire import wire_bypass
from assay.records.schema import AnyRecord, Finding

Rule = Callable[[Evidence], list[Finding]]

RULES: dict[str, Rule] = {
    "corruption": corruption,
    "wire_bypass": wire_bypass,
    "slow_host": slow_host,
    "slow_pair": slow_pair,
    "slow_block": slow_block,
    "congestion": congestion,
    "hca_binding": hca_binding,
    "port_errors": port_errors,
    "gpu_copies": gpu_copies,
    "udp_loss": udp_loss,
    "wrong_data": wrong_data,
    "straggler": straggler,
    "taking_turns": taking_turns,
    "alloc": alloc,
}


def explain(
    records: Iterable[AnyRecord], hosts: Sequence[str] = (), options: Options | None = None
) -> list[Finding]:
    """Returns all findings about a run: faults, then warnings, then advice.

    ``hosts`` are in rank order. Findings among the records are ignored.
    """
    evidence = Evidence(records, hosts, options)
    findings = [finding for rule in RULES.values() for finding in rule(evidence)]
    return sorted(findings, key=lambda finding: ("fault", "warning", "advice").index(finding.severity))


__all__ = ["RULES", "Evidence", "PairMatrix", "explain", "plan_retest", "suspects"]
