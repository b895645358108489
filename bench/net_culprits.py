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

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from figures import exit_code_of, figure  # noqa: E402
from netcases import HEALTHY, KINDS, Case, cases, full_bandwidth_case  # noqa: E402
from netrules import RULES, Observed, labels_by_rule, settings  # noqa: E402
from netscore import Score, is_named, labels_of, show_case, wrong_on_healthy  # noqa: E402

from assay.explain import explain  # noqa: E402

TUNING, SCORING = 500_000, 20_000


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
        right = self.score.add(case.kind, case.faults, labels)
        is_right = dict(zip(labels, right, strict=True))
        self.stated += [(confidence, is_right[label]) for label, confidence in named]
        self.observed.append(Observed.from_records(case, records))
        if show and (not all(right) or not all(is_named(fault, labels) for fault in case.faults)):
            show_case(case.title(), case.faults, labels)


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
            score.add(run.case.kind, run.case.faults, labels)
    return max(zip(chosen, scores, strict=True), key=lambda pair: pair[1].figures()[2])[0]


def score_rule(rule: str, setting: tuple[str, float, int], observed: Sequence[Observed]) -> Score:
    score = Score()
    for run in observed:
        score.add(run.case.kind, run.case.faults, labels_by_rule(rule, run, [setting])[0])
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
        named += all(is_named(fault, labels) for fault in case.faults) and len(labels) == len(case.faults)
        most = max(most, case.transfers / hosts)
    return named / len(seeds), most


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
            f"| {name} | {setting} | {precision:.3f} | {recall:.3f} | {f1:.3f} | {wrong_on_healthy(score)} |"
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
    figure("net.culprits.healthy", [wrong_on_healthy(assay.score)], 0, "lower")
    share, transfers = named_with_few_transfers(1024, range(SCORING, SCORING + 40))
    figure("net.culprits.1024.named", [share], 0.95, "higher")
    figure("net.culprits.1024.transfers_per_host", [transfers], 4, "lower")
    figure("net.culprits.time", assay.seconds, 1, "lower", "s")
    return None


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
