"""``assay completion``: what a shell needs to complete Assay's commands, options and files, and the manual page.

Both are made from the parser, so they know what this version knows. shtab writes the completions; they are static,
so that a completion starts no Python. Packages install what this prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shtab

from assay.commands.manual import manual
from assay.commands.parser import Example, Parser
from assay.errors import EXIT_PASS
from assay.launch.engines import describe_if_built
from assay.records.toml import built_in_names

SHELLS = ("bash", "zsh", "fish")
# Metavars of files and folders whose type is text.
FILES, FOLDERS = ("FILE", "FILE|DIR", "TEXT|FILE", "PATH", "PROGRAM", "STORE"), ("DIR",)
# A run directory is completed at once where it lies in runs/ or here, and step by step elsewhere.
RUN: Any = {
    "bash": "_assay_runs",
    "zsh": "_files -/",
    "fish": "(__fish_complete_directories)",
    "preamble": {
        "bash": """\
_assay_runs() {
  local run
  for run in runs/*/ "$1"*/; do
    run=${run%/}
    [[ -e $run/run.json && $run == "$1"* ]] && printf '%s\\n' "$run"
  done
  compgen -d -- "$1"
}"""
    },
}


class Completion:
    """Write the completion of a shell, or the manual page. It goes to standard output, to be stored where the shell
    looks for it."""

    name = "completion"
    examples = [
        Example("assay completion bash", "for ~/.local/share/bash-completion/completions/assay"),
        Example("assay completion zsh", "for _assay in a folder of $fpath"),
        Example("assay completion man", "for assay.1 in ~/.local/share/man/man1"),
    ]

    def prepare_parser(self, parser: Parser) -> None:
        parser.add_argument("form", metavar="SHELL", choices=(*SHELLS, "man"), help="bash, zsh, fish, or man")

    def run(self, args: argparse.Namespace) -> int:
        parser: Parser = args.build_parser()
        print(manual(parser) if args.form == "man" else completion(parser, args.form), end="")
        return EXIT_PASS


def completion(parser: Parser, shell: str) -> str:
    """The script that completes the command lines of a parser in bash, zsh or fish. The parser is changed: its
    arguments get what completes them, and a verb the options of its default sub-verb."""
    described = describe_if_built()
    measurements = [m.name for m in described.measurements] if described else []
    for command in parser.tree():
        for action in command.default_verb._get_optional_actions() if command.default_verb else ():
            if action.dest != "help":
                command._add_action(action)
        for action in command._actions:
            if (kind := _kind(action, measurements)) is not None:
                action.complete = kind  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell=shell)).rstrip() + "\n"


def _kind(action: argparse.Action, measurements: Sequence[str]) -> Any:
    """What completes the values of an argument, in shtab's terms; None if nothing or its own choices do."""
    if action.choices is not None or action.nargs == 0:
        return None
    metavar = str(action.metavar)
    if metavar == "RUN":
        return RUN
    if metavar in FOLDERS:
        return shtab.DIRECTORY
    if metavar == "SPEC":
        return _names_or_files(built_in_names("specs"))
    if action.dest in ("measurement", "name") and metavar == "NAME" and not action.option_strings:
        return _names(measurements)
    return shtab.FILE if metavar in FILES or action.type is Path else None


def _names(names: Sequence[str]) -> dict[str, Any]:
    words = " ".join(names)
    return {
        "bash": "_assay_measurements",
        "zsh": f"({words})",
        "fish": words,
        "preamble": {"bash": f'_assay_measurements() {{\n  compgen -W "{words}" -- "$1"\n}}'},
    }


def _names_or_files(names: Sequence[str]) -> dict[str, Any]:
    words = " ".join(names)
    return {
        "bash": "_assay_specifications",
        "zsh": f"{{_values specification {words}; _files -g '*.toml'}}",
        "fish": f"{words} (__fish_complete_path (commandline -ct))",
        "preamble": {
            "bash": f'_assay_specifications() {{\n  compgen -W "{words}" -- "$1"\n  compgen -f -- "$1"\n}}'
        },
    }
