"""Limits of hosts from planted counters: each is named with its host, and findings about the host say that it is not
the network. What all hosts have alike is no limit of one."""

from __future__ import annotations

from assay.explain import explain
from assay.explain.evidence import Evidence
from assay.explain.host_limits import name_limits
from assay.records.schema import Context, Finding, Subject

HOSTS = ["h0", "h1", "h2", "h3"]


def counted(host: str, **facts: float) -> Context:
    """Facts with "__" for "."."""
    return Context(
        id=7, subject=Subject(host=host), facts={k.replace("__", "."): v for k, v in facts.items()}
    )


def quota(host: str, throttled: int) -> Context:
    return counted(host, grown__cpu__throttled_periods=throttled, grown__cpu__periods=100, cpu__quota=0.2)


def shaper(host: str, rate: float) -> Context:
    return counted(
        host,
        grown__queue__eth0__tbf__overlimits=8000,
        grown__queue__eth0__tbf__dropped=5,
        queue__eth0__tbf__rate=rate,
    )


def causes(*records: Context) -> list[str]:
    return [f.cause for f in explain(records, HOSTS) if f.rule == "host_limit"]


def test_a_quota_is_named_once_for_all_ranks_of_a_host() -> None:
    (cause,) = causes(quota("h2", 80), quota("h2", 90), quota("h1", 5))
    assert cause == "h2 was held back by its quota of 0.2 processors in 90 % of the time slices"


def test_a_shaper_slower_than_the_other_hosts_is_named() -> None:
    (cause,) = causes(shaper("h1", 1.25e7), shaper("h0", 2.5e7), shaper("h2", 2.5e7), shaper("h3", 2.5e7))
    assert cause.startswith("h1 sends through a shaper of 12.5 MB/s on its own interface (eth0.tbf)")
    assert "8000 times and dropped 5" in cause
    (cause,) = causes(shaper("h3", 1.25e7))
    assert cause.startswith("h3 ")


def test_the_same_shaper_on_all_hosts_is_the_rate_of_the_network() -> None:
    assert causes(*(shaper(host, 2.5e7) for host in HOSTS)) == []


def test_full_buffers_and_missing_fragments_are_named_from_one_percent_on() -> None:
    def dropped(count: int) -> Context:
        return counted("h0", grown__udp__receive_buffer_errors=count, grown__udp__in_datagrams=10_000)

    (cause,) = causes(dropped(500))
    assert "h0 dropped 500 datagrams (4.76 %) in its own full receive buffers" in cause
    assert causes(dropped(20)) == []
    (cause,) = causes(counted("h1", grown__ip__reassembly_failures=300, grown__ip__reassembled=700))
    assert "h1 could not put 300 datagrams together from their fragments (30 %)" in cause


def test_findings_about_the_host_name_its_limit() -> None:
    evidence = Evidence([quota("h2", 90)], HOSTS)
    slow = [Finding(rule="slow_host", cause="slow", subject=Subject(host=host)) for host in ("h2", "h3")]
    name_limits(evidence, slow)
    assert slow[0].details == [
        "not the network: h2 was held back by its quota of 0.2 processors in 90 % of the time slices"
    ]
    assert slow[1].details == []
