"""Findings about copies to and from GPUs, on planted rates."""

from __future__ import annotations

from assay.explain import explain
from assay.records.schema import AnyRecord, Finding, Measurement, Subject, Summary

ALONE = 200e6  # B/s


def planted_copies(
    together: dict[tuple[str, str], float], devices: tuple[str, ...] = ("gpu0", "gpu1")
) -> list[AnyRecord]:
    """GPUs that copy at ALONE by themselves. ``together``: the rates of those that are slower while both copy, by
    device and direction."""
    records: list[AnyRecord] = []
    for device in devices:
        for direction in ("h2d", "d2h"):
            for gpus in ("one", "all"):
                rate = ALONE if gpus == "one" else together.get((device, direction), ALONE)
                record = Measurement(
                    id=len(records) + 1,
                    name="node.gpu_copy",
                    metric="bandwidth",
                    unit="B/s",
                    subject=Subject(host="a", device=device),
                    params={"direction": direction, "gpus": gpus},
                    summary=Summary(n=3, median=rate),
                )
                records.append(record)
    return records


def findings(together: dict[tuple[str, str], float]) -> list[Finding]:
    return [finding for finding in explain(planted_copies(together), ["a"]) if finding.rule == "gpu_copies"]


def test_gpus_that_share_a_link_to_them_are_named() -> None:
    (finding,) = findings({("gpu0", "h2d"): 0.5 * ALONE, ("gpu1", "h2d"): 0.52 * ALONE})
    assert "gpu0, gpu1 on a copy at 50" in finding.cause and "share a link" in finding.cause
    assert len(finding.details) == 2 and all("to it" in detail for detail in finding.details)
    assert finding.effect == -0.5 and len(finding.evidence) == 4


def test_gpus_that_keep_their_rate_share_nothing() -> None:
    assert findings({}) == []
    assert findings({("gpu0", "h2d"): 0.97 * ALONE}) == []


def test_the_only_gpu_shares_its_link_with_no_other() -> None:
    records = planted_copies({("gpu0", "d2h"): 0.8 * ALONE}, devices=("gpu0",))
    assert [finding for finding in explain(records, ["a"]) if finding.rule == "gpu_copies"] == []
