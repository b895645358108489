"""One GPU that is slower than the others of its host is named, on planted rates; healthy GPUs are not."""

from __future__ import annotations

import random

import pytest

from assay.explain import explain
from assay.records.schema import AnyRecord, Context, Finding, Measurement, Subject, Summary

RATE = 55e9  # B/s
DIRECTIONS = ("h2d", "d2h", "both")


def planted(shares: list[float], slow: tuple[str, ...] = DIRECTIONS, host: str = "n1", model: str = "H100",
            models: dict[int, str] | None = None, links: dict[int, float] | None = None, spread: float = 0.002,
            ) -> list[AnyRecord]:  # fmt: skip
    """GPUs of one host. ``shares``: of RATE, by GPU, in the directions ``slow``; all others have 1."""
    records: list[AnyRecord] = []
    for k, share in enumerate(shares):
        params = {"name": (models or {}).get(k, model), "pci": f"0000:{k + 1:02x}:00.0", "size": 64 << 20}
        subject = Subject(host=host, device=f"gpu{k}")
        for direction in DIRECTIONS:
            for gpus in ("one", "all"):
                rate = RATE * (share if direction in slow else 1.0)
                summary = Summary(n=9, median=rate, mad=spread * rate)
                records.append(
                    Measurement(name="node.gpu_copy", metric="bandwidth", unit="B/s", subject=subject, summary=summary,
                                params={**params, "direction": direction, "gpus": gpus})
                )  # fmt: skip
        records.append(
            Measurement(name="node.gpu_copy", metric="link", unit="B/s", subject=subject,
                        params={**params, "direction": "h2d"}, summary=Summary(n=1, median=(links or {}).get(k, 63e9)))
        )  # fmt: skip
    for number, record in enumerate(records, 1):
        record.id = number
    return records


def findings(records: list[AnyRecord]) -> list[Finding]:
    return [finding for finding in explain(records, ["n1"]) if finding.rule == "slow_gpu"]


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("culprit", [0, 2])
def test_one_gpu_at_a_quarter_of_its_peers_is_named(count: int, culprit: int) -> None:
    records = planted([0.25 if k == culprit else 1.0 for k in range(count)])
    (finding,) = findings(records)
    assert (finding.subject.host, finding.subject.device) == ("n1", f"gpu{culprit}")
    assert (finding.severity, finding.side) == ("fault", "node")
    assert f"gpu{culprit} (0000:0{culprit + 1}:00.0) on n1" in finding.cause and "25 %" in finding.cause
    assert "13.8 GB/s" in finding.cause and f"median of {count - 1}" in finding.cause
    assert finding.effect == pytest.approx(-0.75) and len(finding.evidence) == 3


@pytest.mark.parametrize(
    ("slow", "equal"), [(("both",), "copies to it, copies from it"), (("h2d",), "both ways")]
)
def test_the_directions_that_are_not_slow_are_told(slow: tuple[str, ...], equal: str) -> None:
    (finding,) = findings(planted([1, 1, 0.1, 1], slow))
    (detail,) = [detail for detail in finding.details if detail.startswith("not slower: ")]
    assert equal in detail and len(finding.evidence) == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_healthy_gpus_have_no_finding(count: int, seed: int) -> None:
    chance = random.Random(seed)
    assert findings(planted([chance.gauss(1, 0.03) for _ in range(count)])) == []
    assert findings(planted([chance.uniform(0.85, 1) for _ in range(count)])) == []


def test_a_gpu_whose_own_samples_scatter_is_not_accused() -> None:
    assert findings(planted([0.6, 1, 1, 1], spread=0.1)) == []


def test_another_model_and_another_link_are_no_peers() -> None:
    assert findings(planted([0.25, 1, 1, 1], models={0: "T4"})) == []
    assert findings(planted([0.25, 1, 1, 1], links={0: 15.8e9})) == []


def test_gpus_of_other_hosts_are_no_peers() -> None:
    assert findings(planted([0.25], host="n1") + planted([1, 1, 1, 1], host="n2")) == []


@pytest.mark.parametrize("shares", [[0.25, 1], [1, 0.25, 1]])
def test_with_few_peers_it_is_a_warning_that_says_so(shares: list[float]) -> None:
    (finding,) = findings(planted(shares))
    assert finding.severity == "warning" and f"with {len(shares) - 1} to compare with" in finding.cause
    assert finding.subject.device == f"gpu{shares.index(0.25)}"


def test_the_link_is_told_beside_card_and_slot() -> None:
    facts = {"pcie.speed": 32e9, "pcie.width": 16, "pcie.speed_max": 32e9, "pcie.width_max": 16,
             "pcie.slot_speed_max": 64e9, "pcie.slot_width_max": 16}  # fmt: skip
    context = Context(id=99, subject=Subject(host="n1", device="0000:01:00.0"), facts=facts)
    (finding,) = findings([*planted([0.25, 1, 1, 1]), context])
    assert "its link: x16 at 32 GT/s; the card: x16 at 32 GT/s; its slot: x16 at 64 GT/s" in finding.details


def test_the_only_gpu_has_no_peers() -> None:
    assert findings(planted([0.1])) == []


@pytest.mark.parametrize(
    ("peers", "share", "is_named"), [(3, 0.75, False), (3, 0.65, True), (7, 0.75, False), (8, 0.75, True)]
)
def test_few_peers_show_only_a_larger_loss(peers: int, share: float, is_named: bool) -> None:
    assert bool(findings(planted([share] + [1.0] * peers))) == is_named
