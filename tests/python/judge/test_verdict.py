"""Verdicts: the worst record decides, and a criterion without a measurement never passes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge import judge, load_specification, overall
from assay.records.schema import AnyRecord, Failure, Finding, Measurement, Subject, Summary, Verdict


def measurement(value: float | None, **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "name": "net.a",
        "metric": "bandwidth",
        "unit": "B/s",
        "summary": None if value is None else Summary(n=3, median=value, p5=value / 2),
    }
    return Measurement(**(fields | changes))  # type: ignore[arg-type]


def verdict_on(
    tmp_path: Path, criterion: str, records: list[AnyRecord], hosts: tuple[str, ...] = ()
) -> Verdict:
    path = tmp_path / "site.toml"
    path.write_text(f"[[criterion]]\n{criterion}\n")
    (verdict,) = judge(load_specification(path), records, hosts)
    return verdict


AT_LEAST = 'metric = "net.a/bandwidth"\nmin = "8 Gbit/s"'


@pytest.mark.parametrize(
    ("value", "outcome", "margin"), [(1.5e9, "PASS", 0.5), (1e9, "PASS", 0), (0.9e9, "FAIL", -0.1)]
)
def test_a_minimum_is_compared(tmp_path: Path, value: float, outcome: str, margin: float) -> None:
    verdict = verdict_on(tmp_path, AT_LEAST, [measurement(value, id=7)])
    assert (verdict.outcome, verdict.observed, verdict.required) == (outcome, value, 1e9)
    assert verdict.margin == pytest.approx(margin)
    assert (verdict.evidence, verdict.specification, verdict.unit) == ([7], "site", "B/s")


def test_a_maximum_of_zero_is_compared(tmp_path: Path) -> None:
    criterion = 'metric = "net.a/bandwidth"\nmax = 0'
    assert verdict_on(tmp_path, criterion, [measurement(0, unit="1")]).outcome == "PASS"
    assert verdict_on(tmp_path, criterion, [measurement(1, unit="1")]).outcome == "FAIL"


def test_the_nearer_of_two_bounds_is_shown(tmp_path: Path) -> None:
    criterion = AT_LEAST + '\nmax = "2 GB/s"'
    assert verdict_on(tmp_path, criterion, [measurement(1.9e9)]).required == 2e9
    assert verdict_on(tmp_path, criterion, [measurement(1.1e9)]).required == 1e9
    assert verdict_on(tmp_path, criterion, [measurement(3e9)]).outcome == "FAIL"


@given(st.lists(st.floats(min_value=1, max_value=1e12), min_size=1, max_size=6))
def test_the_worst_record_decides(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    records: list[AnyRecord] = [measurement(value, id=i + 1) for i, value in enumerate(values)]
    verdict = verdict_on(tmp_path_factory.getbasetemp(), AT_LEAST, records)
    assert verdict.observed == pytest.approx(min(values))
    assert verdict.outcome == ("PASS" if min(values) >= 1e9 else "FAIL")


def test_conditions_match_parameters_and_subject(tmp_path: Path) -> None:
    slow = measurement(1.0, params={"op": "get", "size": 2**20}, subject=Subject(host="h3"))
    fast = measurement(9e9, params={"op": "send", "size": 2**20, "big": True}, subject=Subject(host="h4"))

    def outcome(where: str) -> str:
        return verdict_on(tmp_path, f"{AT_LEAST}\nwhere = {{{where}}}", [slow, fast]).outcome

    assert outcome('op = "send", size = "1 MiB"') == "PASS"
    assert outcome('op = "send", size = "1 MB"') == "INCONCLUSIVE"
    assert outcome('host = "h4"') == "PASS"
    assert outcome('size = "1024 KiB"') == "FAIL"
    assert outcome("big = true") == "PASS"
    assert outcome("big = 1") == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (measurement(None, status="waived", reason="no second host"), "waived, no second host"),
        (measurement(5e9, status="error", reason="timed out"), "error, timed out"),
        (measurement(None), "no value was measured"),
        (measurement(float("nan")), "it has no median"),
        (measurement(5e9, unit="s"), "is in s, the limit in B/s"),
        (measurement(5e9, metric="latency"), "nothing measured net.a/bandwidth"),
    ],
)
def test_unmeasured_values_are_inconclusive(tmp_path: Path, record: Measurement, message: str) -> None:
    verdict = verdict_on(tmp_path, AT_LEAST, [record])
    assert verdict.outcome == "INCONCLUSIVE"
    assert message in verdict.reason


def test_a_waived_record_prevents_a_pass_but_not_a_failure(tmp_path: Path) -> None:
    waived = measurement(None, status="waived", reason="no device", subject=Subject(host="h2"))
    assert verdict_on(tmp_path, AT_LEAST, [measurement(5e9), waived]).reason == "h2: waived, no device"
    assert verdict_on(tmp_path, AT_LEAST, [measurement(5e9), waived]).outcome == "INCONCLUSIVE"
    assert verdict_on(tmp_path, AT_LEAST, [measurement(5e8), waived]).outcome == "FAIL"


def test_every_host_must_have_a_node_measurement(tmp_path: Path) -> None:
    criterion = 'metric = "node.m/bandwidth"\nmin = "1 GB/s"'
    hosts = [Subject(host=host) for host in ("h0", "h1")]
    records: list[AnyRecord] = [measurement(5e9, name="node.m", subject=subject) for subject in hosts]
    assert verdict_on(tmp_path, criterion, records, ("h0", "h1")).outcome == "PASS"
    assert verdict_on(tmp_path, criterion, records, ("10.0.0.1", "10.0.0.2")).outcome == "PASS"
    missing = verdict_on(tmp_path, criterion, records, ("h0", "h1", "h2"))
    assert (missing.outcome, missing.reason) == ("INCONCLUSIVE", "h2: node.m/bandwidth was not measured")


def test_not_every_host_needs_a_network_measurement(tmp_path: Path) -> None:
    records: list[AnyRecord] = [measurement(5e9, subject=Subject(host="h0"))]
    assert verdict_on(tmp_path, AT_LEAST, records, ("h0", "h1")).outcome == "PASS"


def test_a_criterion_may_be_on_a_percentile(tmp_path: Path) -> None:
    assert verdict_on(tmp_path, AT_LEAST + '\nstatistic = "p5"', [measurement(1.9e9)]).outcome == "FAIL"
    assert (
        "it has no p99" in verdict_on(tmp_path, AT_LEAST + '\nstatistic = "p99"', [measurement(9e9)]).reason
    )


SHARE = (
    'metric = "net.a/bandwidth"\nmin = {share = "10 %", of = "mem/bandwidth", where = {operation = "copy"}}'
)


def memory(value: float, host: str | None = None, operation: str = "copy", identity: int = 0) -> Measurement:
    subject = Subject(host=host)
    return measurement(value, name="mem", params={"operation": operation}, subject=subject, id=identity)


def test_a_limit_may_be_a_share_of_another_metric(tmp_path: Path) -> None:
    records: list[AnyRecord] = [
        memory(20e9, identity=4),
        memory(90e9, operation="read"),
        measurement(2.5e9, id=5),
    ]
    verdict = verdict_on(tmp_path, SHARE, records)
    assert (verdict.outcome, verdict.required, verdict.evidence) == ("PASS", 2e9, [5, 4])
    assert "10 % of mem/bandwidth" in verdict.reason
    without = verdict_on(tmp_path, SHARE, [measurement(2.5e9)])
    assert (without.outcome, without.observed) == ("INCONCLUSIVE", None)
    assert "the limit needs mem/bandwidth operation=copy" in without.reason


def test_a_share_refers_to_the_same_host_if_possible(tmp_path: Path) -> None:
    memories = [memory(20e9, "h0"), memory(40e9, "h1")]
    on_h1 = measurement(3e9, subject=Subject(host="h1"))
    assert verdict_on(tmp_path, SHARE, [*memories, on_h1]).required == 4e9
    assert verdict_on(tmp_path, SHARE, [*memories, measurement(4e9)]).required == 3e9


def test_a_criterion_may_allow_no_findings(tmp_path: Path) -> None:
    fault = Finding(rule="slow_host", cause="h3 is slow", confidence=0.9, id=8, subject=Subject(host="h3"))
    warning = Finding(rule="port_errors", cause="h2 had errors", severity="warning")
    no_findings = 'findings = "none"'
    measured = measurement(1.0)
    verdict = verdict_on(tmp_path, no_findings, [measured, fault, warning])
    assert (verdict.outcome, verdict.reason, verdict.evidence) == ("FAIL", "h3 is slow", [8])
    assert verdict_on(tmp_path, no_findings, [measured, warning]).outcome == "PASS"
    assert verdict_on(tmp_path, no_findings + '\nrule = "wire_bypass"', [measured, fault]).outcome == "PASS"
    assert verdict_on(tmp_path, no_findings, []).reason == "nothing was measured"
    assert verdict_on(tmp_path, no_findings, [measurement(None, status="waived")]).outcome == "INCONCLUSIVE"
    cut = verdict_on(tmp_path, no_findings, [measured, Failure(problem="rank 3 on h3 died")])
    assert (cut.outcome, cut.reason) == ("INCONCLUSIVE", "the run was cut short: rank 3 on h3 died")


def test_a_slow_path_that_was_not_measured_again_leaves_the_faults_undecided(tmp_path: Path) -> None:
    paths = [Finding(rule="slow_block", cause=f"from c{i} to c0: slow", severity="warning") for i in (1, 2)]
    congestion = Finding(rule="congestion", cause="from c1 to c0", severity="warning")
    no_findings = 'findings = "none"'
    verdict = verdict_on(tmp_path, no_findings, [measurement(1.0), congestion, *paths])
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason.startswith("from c1 to c0: slow (and 1 more); this was not measured again")
    assert "--budget" in verdict.fix
    assert verdict_on(tmp_path, no_findings, [measurement(1.0), congestion]).outcome == "PASS"
    fault = Finding(rule="slow_host", cause="h3 is slow")
    assert verdict_on(tmp_path, no_findings, [measurement(1.0), fault, *paths]).outcome == "FAIL"


def test_criteria_for_another_number_of_hosts_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f'[[criterion]]\n{AT_LEAST}\nhosts = "several"\n')
    specification = load_specification(path)
    assert judge(specification, [measurement(9e9)], ["h0"]) == []
    assert [v.outcome for v in judge(specification, [measurement(9e9)], ["h0", "h1"])] == ["PASS"]
    assert len(judge(specification, [measurement(9e9, subject=Subject(host="a", peer="b"))])) == 1
    path.write_text(path.read_text().replace("several", "one"))
    assert len(judge(load_specification(path), [measurement(9e9)], ["h0", "h0"])) == 1
    assert judge(load_specification(path), [measurement(9e9)], ["h0", "h1"]) == []


def test_the_overall_outcome_is_the_worst() -> None:
    def verdicts(*outcomes: str) -> list[Verdict]:
        return [Verdict(criterion="", outcome=outcome) for outcome in outcomes]  # type: ignore[arg-type]

    assert overall(verdicts("PASS", "INCONCLUSIVE", "FAIL")) == "FAIL"
    assert overall(verdicts("PASS", "INCONCLUSIVE")) == "INCONCLUSIVE"
    assert overall(verdicts("PASS", "PASS")) == "PASS"
    assert overall([]) == "INCONCLUSIVE"
