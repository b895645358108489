"""The rules of event building: each finds its planted cause, and a healthy run has no finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_events import RATE, PlantedEventRun, network_records

from assay.explain import explain
from assay.explain.events import UNBALANCED
from assay.judge import integrity, judge, load_specification, overall
from assay.judge.specification import find_specification
from assay.records.schema import AnyRecord, Failure, Finding, Measurement, Subject

ROOT = Path(__file__).resolve().parents[3]
HOSTS = [f"h{k}" for k in range(8)]
RULES = ("event_ledger", "event_death", "event_dip", "event_backpressure", "event_resends", "event_share")


def findings_of(records: list[AnyRecord], rule: str = "", **options: object) -> list[Finding]:
    findings = explain(records, HOSTS, options)  # type: ignore[arg-type]
    return [finding for finding in findings if rule in ("", finding.rule)]


def test_a_healthy_building_has_no_finding() -> None:
    records = PlantedEventRun().records() + network_records(HOSTS, RATE, 7 * RATE)
    assert findings_of(records) == []


@pytest.mark.parametrize("seed", range(10))
def test_noise_is_not_a_dip(seed: int) -> None:
    assert findings_of(PlantedEventRun(noise=0.03, seed=seed, seconds=300).records()) == []


def test_the_start_is_no_dip_unless_it_lasts() -> None:
    begins = [(range(0, 1), 0.2, "h3")]
    assert findings_of(PlantedEventRun(dips=begins).records(), "event_dip") == []
    (finding,) = findings_of(PlantedEventRun(dips=[(range(0, 2), 0.2, "h3")]).records(), "event_dip")
    assert "from 0 s to 2 s" in finding.cause
    (finding,) = findings_of(PlantedEventRun(dips=[(range(1, 2), 0.2, "h3")]).records(), "event_dip")
    assert "from 1 s to 2 s" in finding.cause


def test_a_dip_is_named_with_its_node_and_its_time() -> None:
    dips = [(range(20, 24), 0.4, "h3")]
    (finding,) = findings_of(PlantedEventRun(dips=dips).records(), "event_dip")
    assert finding.subject.host == "h3"
    assert "from 20 s to 24 s" in finding.cause
    assert finding.effect == pytest.approx(-0.6, abs=0.05)
    assert finding.evidence


def test_a_dip_of_all_nodes_names_no_node() -> None:
    (finding,) = findings_of(PlantedEventRun(dips=[(range(30, 33), 0.5, "")]).records(), "event_dip")
    assert finding.subject.host is None and "all nodes were slow alike" in finding.cause


def test_slices_after_the_last_assignment_are_no_dip() -> None:
    late = PlantedEventRun(dips=[(range(50, 60), 0.1, "")])
    assert findings_of(late.records(), "event_dip", duration=50.0) == []
    (finding,) = findings_of(late.records(), "event_dip", duration=60.0)
    assert "from 50 s to 60 s" in finding.cause
    assert findings_of(late.records(), "event_dip", duration=0)  # --events


def test_slices_without_a_lost_rank_are_no_slowness_of_all() -> None:
    def dips(*low: int, **planted: object) -> list[str | None]:
        run = PlantedEventRun(seconds_to_resume={2: 0.8}, resumed_after={2: 41}, **planted)  # type: ignore[arg-type]
        run.dips.append((range(*low), 0.75, ""))
        return [finding.subject.host for finding in findings_of(run.records(), "event_dip")]

    assert dips(40, 60) == []  # three of four work on
    assert dips(30, 33) == [None]  # before the loss
    assert dips(39, 41) == [None]  # the slice before it, and that of the loss
    assert dips(50, 53, dips=[(range(45, 48), 0.3, "h3")]) == ["h3"]
    back: dict[str, object] = {"seconds_to_return": {2: 5.0}, "returned_after": {2: 45}}
    assert dips(41, 46, **back) == []
    assert dips(50, 53, **back) == [None]


def test_a_rank_whose_time_of_loss_is_unknown_makes_no_slowness_of_all() -> None:
    run = PlantedEventRun(lost_at_end=(4,), dips=[(range(30, 33), 0.5, "")])
    assert findings_of(run.records(), "event_dip") == []


def test_two_dips_are_two_findings() -> None:
    dips = [(range(10, 12), 0.5, "h1"), (range(40, 45), 0.7, "h6")]
    findings = findings_of(PlantedEventRun(dips=dips).records(), "event_dip")
    assert sorted(str(finding.subject.host) for finding in findings) == ["h1", "h6"]


def test_a_run_too_short_for_a_typical_rate_has_no_dip() -> None:
    assert (
        findings_of(PlantedEventRun(seconds=3, dips=[(range(1, 2), 0.1, "h1")]).records(), "event_dip") == []
    )


@pytest.mark.parametrize("metric", ["fragments_corrupt", "fragments_duplicate", "fragments_unaccounted"])
def test_a_corrupt_duplicate_or_unaccounted_fragment_fails(metric: str) -> None:
    records = PlantedEventRun(ledger={metric: 1.0}).records()
    (finding,) = findings_of(records, "event_ledger")
    assert finding.severity == "fault"
    verdicts = integrity([*records, finding], [])
    assert verdicts and overall(verdicts) == "FAIL"


def test_an_unbalanced_ledger_fails() -> None:
    text = (ROOT / "engines" / "events" / "results.cpp").read_text()
    assert UNBALANCED in text
    failure = Failure(id=9, problem=f"h0: {UNBALANCED}: 80 fragments assigned, 79 accounted for")
    (finding,) = findings_of([failure], "event_ledger")
    assert overall(integrity([failure, finding], [])) == "FAIL"


def test_loss_is_a_fault_without_a_death_and_a_warning_with_one() -> None:
    lost = {"fragments_lost": 14.0, "events_incomplete": 2.0}
    (finding,) = findings_of(PlantedEventRun(ledger=lost).records(), "event_ledger")
    assert finding.severity == "fault" and "14 fragments" in finding.cause and "no node died" in finding.cause
    died = PlantedEventRun(ledger=lost, seconds_to_resume={3: 0.13}).records()
    (loss,) = findings_of(died, "event_ledger")
    (death,) = findings_of(died, "event_death")
    assert loss.severity == "warning" and "2 incomplete events: rank 3 on h3 died" in loss.cause
    assert death.severity == "fault" and death.subject.host == "h3" and "130 ms" in death.cause


def test_a_rank_that_came_back_is_told_with_its_loss() -> None:
    planted = PlantedEventRun(seconds_to_resume={3: 0.13, 5: 0.2}, seconds_to_return={3: 2.5})
    back, gone = findings_of(planted.records(), "event_death")
    assert "took part again 2.5 s after its loss" in back.cause and len(back.evidence) == 2
    assert back.severity == "fault" and "took part again" not in gone.cause


def test_a_lost_rank_of_several_on_a_host_is_named_by_its_host() -> None:
    hosts = [f"h{k // 2}:{k % 2}" for k in range(8)]
    (death,) = findings_of(PlantedEventRun(hosts, seconds_to_resume={5: 0.1}).records(), "event_death")
    assert (death.subject.host, death.subject.rank) == ("h2", 5)
    assert death.cause.startswith("rank 5 on h2 was lost; ")


def test_a_rank_that_reported_nothing_is_named_by_its_label() -> None:
    hosts = [f"h{k // 2}:{k % 2}" for k in range(8)]
    records = [
        record
        for record in PlantedEventRun(hosts, seconds_to_resume={5: 0.1}).records()
        if getattr(record, "subject", Subject()).host != "h2:1"
    ]
    (death,) = findings_of(records, "event_death")
    assert death.cause.startswith("h2:1 was lost; ") and death.subject.host == "h2"


def test_a_rank_that_was_lost_at_the_end_is_named() -> None:
    run = PlantedEventRun(ledger={"fragments_lost": 3.0}, lost_at_end=(4,))
    (death,) = findings_of(run.records(), "event_death")
    assert death.severity == "fault" and death.cause.startswith("rank 4 on h4 was lost; ")
    (loss,) = findings_of(run.records(), "event_ledger")
    assert loss.severity == "warning" and "rank 4 on h4 died" in loss.cause


def test_a_rank_with_far_more_backpressure_than_others_is_named() -> None:
    (finding,) = findings_of(PlantedEventRun(backpressure_s={"h5": 20.0}).records(), "event_backpressure")
    assert finding.subject.host == "h5" and "33.3 %" in finding.cause and "--credits" in finding.fix


def test_equal_backpressure_is_no_finding() -> None:
    backpressure_s = {host: 20.0 + k for k, host in enumerate(HOSTS)}
    assert findings_of(PlantedEventRun(backpressure_s=backpressure_s).records(), "event_backpressure") == []


def test_filter_units_that_all_wait_for_are_the_limit() -> None:
    def waits(seconds: float, waiting_for: str) -> list[Finding]:
        run = PlantedEventRun(backpressure_s={host: seconds + k for k, host in enumerate(HOSTS)})
        records = run.records()
        for record in records:
            if getattr(record, "metric", "") == "backpressure":
                record.params["waiting_for"] = waiting_for
        return findings_of(records, "event_backpressure")

    (finding,) = waits(45.0, "filter")
    assert "filter units are the limit" in finding.cause and "--filter-rate" in finding.fix
    assert waits(20.0, "filter") == waits(45.0, "credits") == []


def test_packets_that_were_sent_again_are_told_with_the_hosts_that_sent_most() -> None:
    resent = {"h2": 9000.0, "h5": 7000.0}
    (finding,) = findings_of(PlantedEventRun(packets_resent=resent).records(), "event_resends")
    assert finding.severity == "warning" and finding.subject.host is None
    assert finding.cause.startswith("16,000 of 800,000 packets were sent again (2 %)")
    assert finding.details[:2] == ["h2: 9,000 of 100,000 (9 %)", "h5: 7,000 of 100,000 (7 %)"]


@pytest.mark.parametrize(("resent", "hosts"), [(7900.0, HOSTS), (16_000.0, ["h0"] * 8)])
def test_few_packets_sent_again_or_packets_of_one_host_are_no_finding(
    resent: float, hosts: list[str]
) -> None:
    records = PlantedEventRun(packets_resent={"h2": resent}).records()
    assert not [finding for finding in explain(records, hosts) if finding.rule == "event_resends"]


def test_building_below_the_networks_rate_is_advice() -> None:
    records = PlantedEventRun().records() + network_records(HOSTS, 2 * RATE, 7 * RATE)
    (finding,) = findings_of(records, "event_share")
    assert finding.severity == "advice" and "pairs of hosts carry" in finding.cause
    assert any("43.8 %" in detail for detail in finding.details)
    records = PlantedEventRun().records() + network_records(HOSTS, RATE, 14 * RATE)
    assert "MPI_Alltoall carries" in findings_of(records, "event_share")[0].cause


@pytest.mark.parametrize(
    ("transport", "verified", "is_below"),
    [("tcp", 14 * RATE, False), ("mpi", 14 * RATE, True), ("mpi", 7 * RATE, False)],
)
def test_on_one_host_mpis_exchange_with_verification_is_the_reference(
    transport: str, verified: float, is_below: bool
) -> None:
    """What pairs or MPI_Alltoall carry without looking at a byte is no reference, nor shared memory for TCP."""
    records = PlantedEventRun().records() + network_records(HOSTS, 3 * RATE, 30 * RATE, verified)
    findings = explain(records, ["here"] * len(HOSTS), {"transport": transport})
    assert any(finding.rule == "event_share" for finding in findings) == is_below


def test_paced_sources_are_not_compared_with_the_network() -> None:
    records = PlantedEventRun(params={"rate": 5e6}).records() + network_records(HOSTS, 10 * RATE, 70 * RATE)
    assert findings_of(records, "event_share") == []


def outcome_of_specification(records: list[AnyRecord]) -> str:
    specification = load_specification(find_specification("events"))
    return overall(judge(specification, records, HOSTS))


def test_the_built_in_specification_passes_only_healthy_building() -> None:
    assert outcome_of_specification(PlantedEventRun().records()) == "PASS"
    assert outcome_of_specification(PlantedEventRun(ledger={"fragments_lost": 1.0}).records()) == "FAIL"
    assert outcome_of_specification(PlantedEventRun(ledger={"events_built": 0.0}).records()) == "FAIL"
    assert outcome_of_specification([]) == "INCONCLUSIVE"


@pytest.mark.parametrize("metric", ["fragments_corrupt", "fragments_duplicate", "events_built"])
def test_a_missing_count_is_inconclusive(metric: str) -> None:
    records = [
        r for r in PlantedEventRun().records() if not (isinstance(r, Measurement) and r.metric == metric)
    ]
    assert outcome_of_specification(records) == "INCONCLUSIVE"


SHARE = """
title = "events at 80 % of what the network carries"

[[criterion]]
metric = "events.build/network_throughput"
min = {share = "80 %", of = "events.alltoall/bandwidth", where = {operation = "MPI_Alltoall"}}
"""


@pytest.mark.parametrize(
    ("alltoall", "outcome"), [(7 * RATE, "PASS"), (14 * RATE, "FAIL"), (None, "INCONCLUSIVE")]
)
def test_a_specification_may_require_a_share_of_the_networks_rate(
    alltoall: float | None, outcome: str, tmp_path: Path
) -> None:
    path = tmp_path / "site.toml"
    path.write_text(SHARE)
    records = PlantedEventRun().records() + (network_records(HOSTS, RATE, alltoall) if alltoall else [])
    assert overall(judge(load_specification(path), records, HOSTS)) == outcome
