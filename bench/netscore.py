"""Compares the findings of ``assay net`` with the planted faults of a case."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ClusterShell.NodeSet import NodeSet
from figures import figure
from netcases import HEALTHY, Fault, Label

from assay.records.schema import Finding

MIN_SHARE_OF_GROUP = 0.75  # of a cabinet's hosts


class Planted(Protocol):
    """A case: its kind and what was planted."""

    kind: str
    faults: list[Fault]

    def title(self) -> str: ...


@dataclass
class Score:
    """Counts of faults and findings, by kind of case."""

    found: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    missed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wrong: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, kind: str, faults: Sequence[Fault], labels: Sequence[Label]) -> list[bool]:
        """Counts a case; returns which labels are right."""
        right = [any(involves(fault, label) for fault in faults) for label in labels]
        for fault in faults:
            (self.found if is_named(fault, labels) else self.missed)[kind] += 1
        self.wrong[kind] += right.count(False)
        return right

    def markdown(self, cases: Mapping[str, int]) -> str:
        """A table of the kinds, with ``cases`` of each."""
        rows = [(kind, cases[kind], self.figures([kind])) for kind in cases]
        rows.append(("all", sum(cases.values()), self.figures()))
        lines = ["| kind | cases | precision | recall | F1 |", "|---|---|---|---|---|"]
        for kind, count, figures in rows:
            lines.append(f"| {kind} | {count} | " + " | ".join(f"{value:.2f}" for value in figures) + " |")
        return "\n".join(lines)

    def figures(self, kinds: Sequence[str] | None = None) -> tuple[float, float, float]:
        """Precision, recall and F1 of these kinds of cases, or of all."""
        found, missed, wrong = (
            sum(n for kind, n in counts.items() if kinds is None or kind in kinds)
            for counts in (self.found, self.missed, self.wrong)
        )
        precision = found / (found + wrong) if found + wrong else 1.0
        recall = found / (found + missed) if found + missed else 1.0
        return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def wrong_on_healthy(score: Score) -> int:
    return sum(score.wrong[kind] for kind in HEALTHY)


def involves(fault: Fault, label: Label) -> bool:
    """Whether a label names the fault or a part of it."""
    side, hosts, peers = label
    if fault.kind == "host":
        return side == fault.side and hosts == fault.hosts
    if fault.kind in ("pair", "link"):
        return bool(peers) and set(hosts) <= set(fault.hosts) and set(peers) <= set(fault.peers)
    inside, outside = (hosts, peers) if fault.side == "transmit" else (peers, hosts)
    if side in ("transmit", "receive"):
        return side == fault.side and set(hosts) <= set(fault.hosts)
    return set(inside) <= set(fault.hosts) and not set(outside) & set(fault.hosts)


def is_named(fault: Fault, labels: Sequence[Label]) -> bool:
    """A cabinet is named by a block with most of its hosts, or by most of its hosts one by one."""
    involved = [label for label in labels if involves(fault, label)]
    if fault.kind != "cabinet":
        return bool(involved)
    named: set[str] = set()
    for side, hosts, peers in involved:
        if side != "pair":
            named |= set(hosts if side == fault.side or fault.side == "transmit" else peers)
    return len(named) >= MIN_SHARE_OF_GROUP * len(fault.hosts)


def labels_of(findings: Iterable[Finding]) -> list[tuple[Label, float]]:
    """The label and the confidence of each of Assay's findings. Congestion is left out: it is not a fault."""
    labels: list[tuple[Label, float]] = []
    for finding in findings:
        host, peer = finding.subject.host or "", finding.subject.peer or ""
        if finding.rule == "congestion":
            continue
        if finding.rule in ("slow_host", "packet_loss"):
            host += f":{finding.subject.device}" if finding.subject.device else ""
            sides = ("transmit", "receive") if finding.side == "both" else (str(finding.side),)
            labels += [((side, (host,), ()), finding.confidence) for side in sides]
        elif finding.rule == "slow_pair":
            labels.append((("pair", (host,), (peer,)), finding.confidence))
        elif match := re.match(r"from (\S+) to (\S+):", finding.cause):
            ends = tuple(tuple(NodeSet(match[i])) for i in (1, 2))
            labels.append((("block", ends[0], ends[1]), finding.confidence))
        else:
            labels.append((("other", (finding.rule,), ()), finding.confidence))
    return list(dict.fromkeys(labels))


def judge_case(score: Score, case: Planted, found: Iterable[Finding], show: bool) -> None:
    """Counts the findings of a case. ``show``: prints the case if one is missing or wrong."""
    labels = list(dict.fromkeys(label for label, _ in labels_of(found)))
    right = score.add(case.kind, case.faults, labels)
    if show and not (all(right) and all(is_named(fault, labels) for fault in case.faults)):
        show_case(case.title(), case.faults, labels)


def print_figures(area: str, score: Score, limit: float, seconds: Sequence[float]) -> None:
    """The five figures of an area: F1 with its limit, precision, recall, findings on healthy clusters, s a case."""
    precision, recall, f1 = score.figures()
    figure(f"{area}.f1", [f1], limit, "higher")
    figure(f"{area}.precision", [precision], None, "higher")
    figure(f"{area}.recall", [recall], None, "higher")
    figure(f"{area}.healthy", [wrong_on_healthy(score)], 0, "lower")
    figure(f"{area}.time", seconds, None, "lower", "s")


def show_case(title: str, faults: Sequence[Fault], labels: Sequence[Label]) -> None:
    """Prints a case that went wrong: which faults were named, and what was named wrongly."""
    print(title)
    for fault in faults:
        state = "named " if is_named(fault, labels) else "MISSED"
        print(f"   {state} {fault.kind} {fault.side} {fault.hosts[:4]} {fault.peers[:6]} -{fault.loss:.0%}")
    for label in labels:
        if not any(involves(fault, label) for fault in faults):
            print("   WRONG ", label[0], label[1][:4], label[2][:4], flush=True)
