"""Limits of hosts from planted counters: each is named with its host. What all hosts have alike is no limit of one. How
much of a loss a limit explains: ``test_limit_share.py``."""

from __future__ import annotations

from assay.explain import explain
from assay.records.schema import Context, Subject

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
    assert cause == "h2 was held back by its quota of 0.2 processors for 90 % of the time at most"


def test_a_quota_that_takes_effect_for_moments_only_is_no_limit() -> None:
    # 80 of 100 slices of 0.1 s, but 0.4 s of 10 s in all
    short = quota("h2", 80)
    short.facts["grown.cpu.throttled_us"] = 400_000
    assert causes(short) == []
    short.facts["cpu.period"] = 0.01  # 0.4 s of 1 s
    (cause,) = causes(short)
    assert "for 40 % of the time at most" in cause


def test_each_kind_of_counter_is_from_the_record_where_it_grew_most() -> None:
    """Bytes, times and packets are never added up: the many harmless datagrams of one rank do not hide the quota that
    another has seen, nor do the periods of one go with the throttled ones of the other."""
    busy = counted(
        "h2", grown__udp__in_datagrams=10**9, grown__cpu__throttled_periods=2, grown__cpu__periods=1000
    )
    busy.id = 3
    (finding,) = [f for f in explain([quota("h2", 60), busy], HOSTS) if f.rule == "host_limit"]
    assert "for 60 % of the time" in finding.cause
    assert finding.evidence == [7]
    assert "udp.in_datagrams grew by 1000000000" in finding.details


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
