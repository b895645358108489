"""The table of verdicts: how much better or worse than required a value is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from assay.records.schema import Verdict
from assay.report.terminal import show_verdicts


@pytest.mark.parametrize(
    "margin, text", [(-0.5, "-50.0%"), (7.199, "+719.9%"), (9.999, "+999.9%"), (999_999.0, "> +1000%")]
)
def test_a_margin_is_a_share_of_the_required_value(margin: float, text: str) -> None:
    out = io.StringIO()
    verdict = Verdict(criterion="c", specification="s", outcome="PASS", margin=margin)
    show_verdicts(Console(file=out, width=120), [verdict])
    assert out.getvalue().splitlines()[1].split(maxsplit=2)[2].strip() == text
