#!/usr/bin/env python3
"""How well findings of `assay net` name planted faults on 200 synthetic clusters, compared with the rules of other
programs (netrules.py) on the same measurements.

    precision, recall, F1   findings that name a planted fault, and planted faults that are named; each fault once
    healthy                 findings on the 40 healthy clusters among them
    calibration             the confidence that findings state, and the share of them that is right
    time                    processor time of the analysis of a run
    1024                    one slow side among 1,024 hosts after three rounds of one message a pair, and the retest

The thresholds of the other rules, and all constants in Assay that were tuned, are the best on 200 other clusters (seeds
from TUNING). ``--markdown`` prints the tables of docs/culprits.md, ``--few`` the last figure alone, ``--tuning`` shows
Assay's score on the tuning cases, ``--misses`` shows missed faults and wrong findings.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from ClusterShell.NodeSet import NodeSet  # noqa: E402
from figures import exit_code_of, figure  # noqa: E402
from netcases import HEALTHY, KINDS, Case, Fault, Label, cases, full_bandwidth_case  # noqa: E402
from netrules import RULES, Observed, labels_by_rule, settings  # noqa: E402

from assay.explain import explain  # noqa: E402
from assay.records.schema import Finding  # noqa: E402

TUNING, SCORING = 500_000, 20_000
MIN_SHARE_OF_GROUP = 0.75  # of a cabinet's hosts


@dataclass
class Score:
    """Counts of faults and findings, by kind of case."""

    found: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    missed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wrong: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, case: Case, labels: Sequence[Label]) -> list[bool]:
        """Counts a case; returns which labels are right."""
        right = [any(_involves(fault, label) for fault in case.faults) for label in labels]
        for fault in case.faults:
            (self.found if _is_named(fault, labels) else self.missed)[case.kind] += 1
        self.wrong[case.kind] += right.count(False)
        return right

    def figures(self, kinds: Iterable[str] = KINDS) -> tuple[float, float, float]:
        """Precision, recall and F1."""
        found, missed, wrong = (sum(c[k] for k in kinds) for c in (self.found, self.missed, self.wrong))
        precision = found / (found + wrong) if found + wrong else 1.0
        recall = found / (found + missed) if found + missed else 1.0
        return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def _involves(fault: Fault, label: Label) -> bool:
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


def _is_named(fault: Fault, labels: Sequence[Label]) -> bool:
    """A cabinet is named by a block with most of its hosts, or by most of its hosts one by one."""
    involved = [label for label in labels if _involves(fault, label)]
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


@dataclass
class AssayResults:
    """Assay's score, the (confidence, is right) of each finding, the CPU seconds of each case, and its input."""

    score: Score = field(default_factory=Score)
    stated: list[tuple[float, bool]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)

    def add_case(self, case: Case, show: bool) -> None:
        records = case.run()
        begun = time.process_time()
        findings = explain(records, case.hosts)
        self.seconds.append(time.process_time() - begun)
        named = labels_of(findings)
        labels = list(dict.fromkeys(label for label, _ in named))
        right = self.score.add(case, labels)
        is_right = dict(zip(labels, right, strict=True))
        self.stated += [(confidence, is_right[label]) for label, confidence in named]
        self.observed.append(Observed.from_records(case, records))
        if show and (not all(right) or not all(_is_named(fault, labels) for fault in case.faults)):
            _show(case, labels)


def _show(case: Case, labels: Sequence[Label]) -> None:
    fabric = case.fabric
    print(f"{case.seed} {case.kind}: {fabric.count} hosts, {fabric.cabinets} cabinets, noise {case.noise:.1%}, "
          f"both {fabric.duplex_limit:.3g}, oversubscribed {fabric.oversubscription:.2f}")  # fmt: skip
    for fault in case.faults:
        state = "named " if _is_named(fault, labels) else "MISSED"
        print(f"   {state} {fault.kind} {fault.side} {fault.hosts[:4]} {fault.peers[:6]} -{fault.loss:.0%}")
    for label in labels:
        if not any(_involves(fault, label) for fault in case.faults):
            print("   WRONG ", label[0], label[1][:4], label[2][:4])


def measure(first_seed: int, show: bool = False) -> AssayResults:
    result = AssayResults()
    for case in cases(first_seed):
        result.add_case(case, show)
    return result


def best_setting(rule: str, observed: Sequence[Observed]) -> tuple[str, float, int]:
    """The setting with the best F1."""
    chosen = settings(rule)
    scores = [Score() for _ in chosen]
    for run in observed:
        for score, labels in zip(scores, labels_by_rule(rule, run, chosen), strict=True):
            score.add(run.case, labels)
    return max(zip(chosen, scores, strict=True), key=lambda pair: pair[1].figures()[2])[0]


def score_rule(rule: str, setting: tuple[str, float, int], observed: Sequence[Observed]) -> Score:
    score = Score()
    for run in observed:
        score.add(run.case, labels_by_rule(rule, run, [setting])[0])
    return score


def named_with_few_transfers(hosts: int, seeds: range) -> tuple[float, float]:
    """One slow side among many hosts, three rounds of a sweep with a message a pair, then the retest. Returns the share
    of the runs that name it and nothing else, and the transfers for each host, at most."""
    named, most = 0, 0.0
    for seed in seeds:
        case = full_bandwidth_case(seed, hosts)
        labels = [
            label for label, _ in labels_of(explain(case.run(one_way=False, rounds=3, repeats=1), case.hosts))
        ]
        named += all(_is_named(fault, labels) for fault in case.faults) and len(labels) == len(case.faults)
        most = max(most, case.transfers / hosts)
    return named / len(seeds), most


def _wrong_on_healthy(score: Score) -> int:
    return sum(score.wrong[kind] for kind in HEALTHY)


def markdown(assay: AssayResults, others: dict[str, tuple[tuple[str, float, int], Score]]) -> None:
    rows = {"Assay": ("", assay.score)} | {
        rule: (f"{source}, {threshold:g}" + (f", {length} pairs" if length else ""), score)
        for rule, ((source, threshold, length), score) in others.items()
    }
    print(
        "| rule | best setting | precision | recall | F1 | findings on 40 healthy |\n|---|---|---|---|---|---|"
    )
    for name, (setting, score) in rows.items():
        precision, recall, f1 = score.figures()
        print(
            f"| {name} | {setting} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {_wrong_on_healthy(score)} |"
        )
    faulty = [kind for kind in KINDS if kind not in HEALTHY]
    print("\n| F1 by kind | cases | " + " | ".join(rows) + " |\n|---|---|" + "---|" * len(rows))
    for kind in faulty:
        cells = " | ".join(f"{score.figures([kind])[2]:.2f}" for _, score in rows.values())
        print(f"| {kind} | {KINDS[kind]} | {cells} |")
    print("\n| stated confidence | findings | right |\n|---|---|---|")
    for low, high in ((0.0, 0.6), (0.6, 0.8), (0.8, 0.93), (0.93, 1.01)):
        within = [(confidence, right) for confidence, right in assay.stated if low <= confidence < high]
        if within:
            mean = sum(confidence for confidence, _ in within) / len(within)
            print(f"| {mean:.2f} | {len(within)} | {sum(right for _, right in within) / len(within):.2f} |")


def main() -> None:
    if "--few" in sys.argv:
        print(named_with_few_transfers(1024, range(SCORING, SCORING + 40)))
        return
    if "--tuning" in sys.argv:
        assay = measure(TUNING, show="--misses" in sys.argv)
        print(assay.score.figures(), {k: assay.score.figures([k])[2] for k in KINDS})
        return
    tuning, assay = measure(TUNING), measure(SCORING, show="--misses" in sys.argv)
    others = {}
    for rule in RULES:
        setting = best_setting(rule, tuning.observed)
        others[rule] = (setting, score_rule(rule, setting, assay.observed))
    if "--markdown" in sys.argv:
        return markdown(assay, others)
    precision, recall, f1 = assay.score.figures()
    best = {rule: score.figures()[2] for rule, (_, score) in others.items()}
    figure("net.culprits.f1", [f1], 0.95, "higher", peer=best)
    figure("net.culprits.precision", [precision], None, "higher")
    figure("net.culprits.recall", [recall], None, "higher")
    figure("net.culprits.ahead", [f1 - max(best.values())], 0.1, "higher")
    figure("net.culprits.healthy", [_wrong_on_healthy(assay.score)], 0, "lower")
    share, transfers = named_with_few_transfers(1024, range(SCORING, SCORING + 40))
    figure("net.culprits.1024.named", [share], 0.95, "higher")
    figure("net.culprits.1024.transfers_per_host", [transfers], 4, "lower")
    figure("net.culprits.time", assay.seconds, 1, "lower", "s")
    return None


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
