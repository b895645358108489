"""Foreign names (of hosts, causes, files) with markup and control characters are shown inert in every table."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from assay.measure.show_progress import shown_progress
from assay.records.schema import (
    AnyRecord,
    Context,
    Failure,
    Finding,
    Measurement,
    Progress,
    Subject,
    Summary,
    Verdict,
)
from assay.report.console import console
from assay.report.terminal import show_outcome, show_run, show_verdicts

HOSTILE = [
    "[/x]",
    "[red]n1[/red]",
    "[link=http://x]n[/link]",
    ":smile:",
    "\x1b[2J\x1b]0;t\x07",
    "a\rb",
    "\u202en1",
]
FORBIDDEN = "\x1b\x07\r\u202e"


def printed(show) -> str:  # type: ignore[no-untyped-def]
    out = console()
    file = io.StringIO()
    out.file = file
    show(out)
    return file.getvalue()


def records(name: str) -> list[AnyRecord]:
    subject = Subject(host=name, peer=name, device=name)
    summary = Summary(n=1, median=1.0)
    return [
        Context(subject=subject, facts={"os.kernel": name}),
        Measurement(name="node.noise", metric="lost", unit="1", subject=subject, summary=summary, params={name: name}),
        Measurement(name="node.gpu_copy", metric="x", unit="1", subject=subject, status="waived", reason=name),
        Failure(problem=name, fix=name),
        Finding(rule="planted", severity="fault", cause=name, details=[name], fix=name),
    ]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_foreign_names_in_records_are_inert(name: str) -> None:
    text = printed(lambda out: show_run(out, records(name)))
    assert not set(text) & set(FORBIDDEN)
    if name.isprintable():
        assert text.count(name) >= 6
    verdict = Verdict(criterion=name, specification=name, outcome="FAIL", reason=name, fix=name)
    text = printed(lambda out: show_verdicts(out, [verdict]))
    assert not set(text) & set(FORBIDDEN)
    assert not name.isprintable() or text.count(name) == 3


def test_a_failure_and_its_outcome_are_a_line_each() -> None:
    """Launchers and simulators write several lines; none of these may look like a verdict."""
    what = "SimGrid failed:\n  Parse error\r\nPASS\n" + 20 * "long line "
    text = printed(lambda out: show_run(out, [Failure(problem=what, fix=what)]))
    assert len(text.splitlines()) == 2
    text = printed(lambda out: show_outcome(out, "INCONCLUSIVE", what))
    assert text.startswith("INCONCLUSIVE  SimGrid failed:; Parse error; PASS; long") and text.count("\n") == 1


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_foreign_name_in_progress_is_inert(
    name: str, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = console()
    out.file = io.StringIO()
    monkeypatch.setattr(Console, "is_terminal", terminal)
    with shown_progress(out, name) as update:
        update(Progress(done=0.5, label=name))
    text = out.file.getvalue()
    assert not set(text) & set("\x07\u202e")
    assert "]0;t" not in text.replace("\\x1b]0;t", "")


PRINTS = r"""
import sys
from rich.text import Text
from assay.report.console import console
from assay.report.streams import prepare_output
prepare_output()
name = "\x1b]0;t\x07\x9b2J\u202e"
print(name)
sys.stderr.write(name)
console().print(Text(name, "bold"))
"""


def test_nothing_that_any_verb_prints_acts_on_the_terminal() -> None:
    """Only the styles of tables do."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "python"), "FORCE_COLOR": "1"}
    env.pop("NO_COLOR", None)
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, timeout=60, env=env | {"TERM": "xterm"}
    )
    shown = rb"\x1b]0;t\x07\x9b2J\u202e"
    assert done.returncode == 0 and done.stderr == shown, done.stderr
    styled = b"\x1b[1m" + shown.replace(rb"\x07", b"") + b"\x1b[0m"  # rich drops the bell
    assert done.stdout == shown + b"\n" + styled + b"\n"
