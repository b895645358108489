"""The manual page assay(1) in roff's man macros, with every command, made from the parser.

Its own writer, because argparse-manpage leaves out examples and what --help-all shows, and lines that begin with a dot.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from assay import __version__
from assay.commands.parser import Parser

EXIT_STATUS = {
    "0": "pass; of commands that do not judge: success",
    "1": "fail",
    "2": "inconclusive, not runnable, or bad input",
    "130": "interrupted; what was measured is kept",
}


def manual(parser: Parser) -> str:
    """The page of a parser and all its commands."""
    name, summary = parser.prog, " ".join(str(parser.description).split())
    lines = [f'.TH {name.upper()} 1 "" "{name} {__version__}" "{name.capitalize()}"']
    lines += [".SH NAME", f"{name} \\- {roff(summary[0].lower() + summary[1:].rstrip('.'))}"]
    lines += [".SH SYNOPSIS"]
    for form in parser.format_usage().removeprefix("usage: ").split("|"):
        lines += [f".B {roff(' '.join(form.split()))}", ".br"]
    lines += [".SH DESCRIPTION", *paragraph(summary), *paragraph(parser.notes), ".SH COMMANDS"]
    for command in parser.tree():
        if command is not parser:
            lines += _command(command)
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS.items():
        lines += [".TP", f".B {status}", roff(meaning)]
    return "\n".join(lines) + "\n"


def _command(command: Parser) -> Iterator[str]:
    yield f'.SS "{roff(command.format_usage().removeprefix("usage: ").strip())}"'
    yield from paragraph(str(command.description or ""))
    for group in command._action_groups:
        shown = [a for a in group._group_actions if a.help != argparse.SUPPRESS and a.dest != "help"]
        shown = [a for a in shown if not isinstance(a, argparse._SubParsersAction)]
        if shown and group.title not in ("options", "positional arguments"):
            yield from (".PP", f".I {roff(str(group.title))}")
        for action in shown:
            yield from _argument(command, action)
    yield from paragraph(command.notes)
    if command.examples:
        yield from (".PP", "Examples:", ".PP", ".nf", ".RS 4")
        for example in command.examples:
            yield roff(example.command + (f"   # {example.note}" if example.note else ""))
        yield from (".RE", ".fi")


def _argument(command: Parser, action: argparse.Action) -> Iterator[str]:
    formatter = command._get_formatter()
    yield ".TP"
    yield f".B {roff(formatter._format_action_invocation(action))}"
    yield roff(" ".join(formatter._expand_help(action).split())) if action.help else ""


def paragraph(text: str) -> list[str]:
    """Paragraphs of a text; the lines of an indented one are kept as they are."""
    lines: list[str] = []
    for part in filter(None, (part.rstrip() for part in text.split("\n\n"))):
        kept = part.lstrip("\n").startswith(" ")
        body = part.strip("\n").splitlines() if kept else [" ".join(part.split())]
        lines += [".PP", *([".nf"] if kept else []), *map(roff, body), *([".fi"] if kept else [])]
    return lines


def roff(text: str) -> str:
    """A line of text, without what roff would take for its own: escapes, hyphenation, and a request at its start."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text
