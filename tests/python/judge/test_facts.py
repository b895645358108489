"""Criteria on facts, which are the settings of hosts and devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import UserError
from assay.judge import Vocabulary, judge, load_specification
from assay.records.schema import AnyRecord, Context, Scalar, Subject, Verdict

KNOWN = Vocabulary(
    metrics={},
    facts={"cpu.governor": "", "interface.mtu": "B", "interface.state": "", "net.core.rmem_max": "B"},
    parameters={"node.udp_send": {"rate": "B/s", "streams": "", "sizes": "B"}},
)
GOVERNOR = '[[criterion]]\nfact = "cpu.governor"\nis = "performance"\nfix = "cpupower"\n'
MTU = (
    '[[criterion]]\nfact = "interface.mtu"\nwhere = {device = "eth*", "interface.state" = "up"}\n'
    'min = "9000 B"\nfix = "ip link set {device} mtu 9000"\n'
)


def facts(host: str, device: str | None = None, **values: Scalar) -> Context:
    named = {key.replace("__", "."): value for key, value in values.items()}
    return Context(subject=Subject(host=host, device=device), facts=named)


def verdict_of(tmp_path: Path, text: str, records: list[AnyRecord], hosts: list[str]) -> Verdict:
    path = tmp_path / "site.toml"
    path.write_text(text)
    (single_verdict,) = judge(load_specification(path, KNOWN), records, hosts)
    return single_verdict


@pytest.mark.parametrize(
    ("governors", "outcome"),
    [
        (["performance", "performance"], "PASS"),
        (["performance", "powersave"], "FAIL"),
        (["performance", None], "INCONCLUSIVE"),
        ([None, "powersave"], "FAIL"),
        ([None, None], "INCONCLUSIVE"),
    ],
)
def test_every_host_must_have_the_required_setting(
    tmp_path: Path, governors: list[str | None], outcome: str
) -> None:
    records: list[AnyRecord] = [
        facts(f"h{k}", **({"cpu__governor": governor} if governor else {}))
        for k, governor in enumerate(governors)
    ]
    judged = verdict_of(tmp_path, GOVERNOR, records, ["h0", "h1"])
    assert judged.outcome == outcome
    if outcome == "FAIL":
        assert (judged.observed_text, judged.required_text, judged.fix) == (
            "powersave", "performance", "cpupower",
        )  # fmt: skip
        assert judged.subject.host == f"h{governors.index('powersave')}"
    if outcome == "INCONCLUSIVE":
        assert "has no cpu.governor" in judged.reason


def test_a_missing_fact_passes_only_with_absent_pass(tmp_path: Path) -> None:
    allowed = GOVERNOR + 'absent = "pass"\n'
    assert verdict_of(tmp_path, allowed, [facts("h0")], ["h0"]).outcome == "PASS"
    assert verdict_of(tmp_path, allowed, [], ["h0"]).outcome == "INCONCLUSIVE"  # no settings were read
    powersave = facts("h0", cpu__governor="powersave")
    assert verdict_of(tmp_path, allowed, [powersave], ["h0"]).outcome == "FAIL"


def test_the_worst_device_decides_and_each_has_a_fix(tmp_path: Path) -> None:
    records: list[AnyRecord] = [
        facts("h0", "eth0", interface__mtu=9000, interface__state="up"),
        facts("h0", "eth1", interface__mtu=1500, interface__state="up"),
        facts("h0", "eth2", interface__mtu=4000, interface__state="up"),
        facts("h0", "eth3", interface__mtu=1500, interface__state="down"),
        facts("h0", "br0", interface__mtu=1500, interface__state="up"),
    ]
    judged = verdict_of(tmp_path, MTU, records, ["h0"])
    assert (judged.outcome, judged.subject.device) == ("FAIL", "eth1")
    assert (judged.observed, judged.required) == (1500, 9000)
    assert judged.margin == pytest.approx(-7500 / 9000)
    assert judged.fix == "ip link set eth1 mtu 9000; ip link set eth2 mtu 9000"
    assert verdict_of(tmp_path, MTU, records[:1], ["h0"]).outcome == "PASS"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[[criterion]]\nfact = "cpu.govenor"\nis = "x"\n', 2, "unknown fact"),
        ('[[criterion]]\nfact = "cpu.governor"\n', 1, "no bound"),
        ('[[criterion]]\nfact = "cpu.governor"\nmin = "1 B"\n', 3, "text"),
        ('[[criterion]]\nfact = "net.core.rmem_max"\nis = "much"\n', 3, "does not fit"),
        ('[[criterion]]\nfact = "net.core.rmem_max"\nmin = "1 s"\n', 3, "does not fit"),
        ('[[criterion]]\nfact = "net.core.rmem_max"\nmin = "2 B"\nmax = "1 B"\n', 3, "above max"),
        ('[[criterion]]\nfact = "cpu.governor"\nis = "x"\nabsent = "maybe"\n', 4, "not known"),
        ('[[criterion]]\nfact = "cpu.governor"\nis = "x"\nmetric = "a/b"\n', 4, "unknown key"),
        (GOVERNOR + GOVERNOR, 5, "the same figure"),
        (GOVERNOR + '[parameters."node.udp_sent"]\nrate = 1\n', 5, "unknown measurement"),
        (GOVERNOR + '[parameters."node.udp_send"]\nrates = 1\n', 6, "unknown parameter"),
        (GOVERNOR + '[parameters."node.udp_send"]\nrate = "9 GB"\n', 6, "does not fit"),
    ],
)
def test_a_wrong_criterion_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        load_specification(path, KNOWN)
    assert f"site.toml:{line}:" in str(refused.value)


def test_parameters_are_read_in_base_units(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        GOVERNOR + '[parameters."node.udp_send"]\nrate = "8 Mbit/s"\nstreams = 3\nsizes = "1,2"\n'
    )
    read = load_specification(path, KNOWN).parameters
    assert read == {"node.udp_send": {"rate": 1_000_000, "streams": 3, "sizes": "1,2"}}
