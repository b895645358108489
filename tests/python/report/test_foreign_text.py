"""What strangers name: hosts, causes and files with markup and control characters, in every table of a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from assay.measure.session import Session
from assay.records.run import Run
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
from assay.report.terminal import console, show_run, show_verdicts

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


def printed(monkeypatch: pytest.MonkeyPatch, show) -> str:  # type: ignore[no-untyped-def]
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
        Failure(what=name, fix=name),
        Finding(rule="planted", severity="fault", cause=name, details=[name], fix=name),
    ]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_records(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, lambda out: show_run(out, records(name)))
    assert not set(text) & set(FORBIDDEN)
    if name.isprintable():
        assert text.count(name) >= 6
    verdict = Verdict(criterion=name, specification=name, outcome="FAIL", reason=name, fix=name)
    text = printed(monkeypatch, lambda out: show_verdicts(out, [verdict]))
    assert not set(text) & set(FORBIDDEN)
    assert not name.isprintable() or text.count(name) == 3


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("terminal", [True, False])
def test_progress(name: str, terminal: bool, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    session = Session(Run.create("net", ["assay"], path=tmp_path / "run"))
    session.err.file = io.StringIO()
    monkeypatch.setattr(Console, "is_terminal", terminal)
    with session._progress(name) as update:
        update(Progress(done=0.5, label=name))
    assert not set(session.err.file.getvalue()) & set("\x07\u202e")
    assert "]0;t" not in session.err.file.getvalue().replace("\\x1b]0;t", "")
