"""The parser of every verb: help that fits a screen, errors of one line, and examples that a test runs.

Rarely used options go into the group ``advanced``: ``--help`` leaves them out and ``--help-all`` shows them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from assay.errors import UserError

WIDTH = 100  # columns at most; narrower terminals get narrower help
INDENT = 32  # where the texts of the options begin at most
ALIGNED = 55  # the notes of examples whose commands are at most this long begin in the same column


class Example(NamedTuple):
    """A command line as a user types it. ``needs``: what it needs beyond a single machine, or how long it takes.
    Tests run examples without ``needs`` and parse the others."""

    command: str
    note: str = ""
    needs: str = ""


class Parser(argparse.ArgumentParser):
    """argparse with the help and the errors of Assay. Abbreviations of options are refused."""

    def __init__(
        self, *, examples: Sequence[Example] = (), notes: str = "", description: str = "", **options: Any
    ) -> None:
        super().__init__(
            formatter_class=_Formatter,
            allow_abbrev=False,
            description=textwrap.fill(" ".join(description.split()), _width()),
            **options,
        )
        self._negative_number_matcher = re.compile(r"-\.?\d")  # "-5s" is a value: its type says what is wrong
        self.set_defaults(parser=self)  # args.parser is then the parser of the innermost sub-verb
        self.examples = list(examples)
        self.notes = notes
        self.default_verb: Parser | None = None  # that is understood where no sub-verb is typed
        self.line: Sequence[str] = ()  # what the command line has after the verb, where it is known
        self._advanced: argparse._ArgumentGroup | None = None

    @property
    def advanced(self) -> argparse._ArgumentGroup:
        """The group of the options that only --help-all shows."""
        if self._advanced is None:
            self.add_argument("--help-all", action=_HelpAll, help="show the advanced options too")
            self._advanced = self.add_argument_group("advanced")
        return self._advanced

    def tree(self) -> Iterator[Parser]:
        """Yields this parser and those of its sub-verbs at any depth, in the order of the help."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in dict.fromkeys(action.choices.values()):
                    yield from parser.tree()

    def format_usage(self) -> str:
        return f"usage: {self._synopsis()}\n"

    def format_help(self) -> str:
        """The help without the advanced options."""
        actions = self._advanced._group_actions if self._advanced else []
        texts = [action.help for action in actions]
        for action in actions:
            action.help = argparse.SUPPRESS
        try:
            return self.format_full_help()
        finally:
            for action, text in zip(actions, texts, strict=True):
                action.help = text

    def format_full_help(self) -> str:
        usage, self.usage = self.usage, self._synopsis().replace("%", "%%")
        self.epilog = "\n\n".join(part for part in (self.notes.strip(), self._shown_examples()) if part)
        try:
            return super().format_help()
        finally:
            self.usage = usage

    def _synopsis(self) -> str:
        """The usage in one line. The options are listed below it in the help."""
        if self.usage:
            return self.usage % {"prog": self.prog}
        positionals = [
            _argument_name(a) for a in self._get_positional_actions() if a.help is not argparse.SUPPRESS
        ]
        return " ".join([self.prog, "[options]", *positionals])

    def _shown_examples(self) -> str:
        if not self.examples:
            return ""
        aligned = max((len(x.command) for x in self.examples if len(x.command) <= ALIGNED), default=0)
        lines = []
        for example in self.examples:
            line = f"  {example.command:{aligned}}   {example.note}".rstrip()
            lines.append(line if len(line) <= WIDTH else f"  {example.command}\n      {example.note}")
        return "\n".join(["examples:", *lines])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reports an unknown verb or choice with the nearest known one. If none is near, it lists all choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        is_verb = isinstance(action, argparse._SubParsersAction)
        name = "/".join(action.option_strings) or _argument_name(action)
        problem = f"unknown command '{value}'" if is_verb else f"{name}: no '{value}'"
        others = "" if is_verb else f"; fix: choose one of {', '.join(choices)}"
        self.error(problem + (nearest(str(value), choices) or others))

    def error(self, message: str) -> NoReturn:
        """``message`` may end with a fix ("...; fix: ..."). Without one, a reference to --help is added, unless the
        message ends with a suggestion ("did you mean 'check'?")."""
        problem, _, fix = message.partition("; fix: ")
        if not fix and not problem.endswith("?"):
            fix = f"see '{self.prog} --help'"
        verb = self.prog.removeprefix("assay").strip()  # "assay:" comes before every error
        raise UserError(f"{verb}: {problem}" if verb else problem, fix)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=INDENT, width=_width())

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Formats ``-o, --output DIR``: the value once, where argparse repeats it after each spelling."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _format_action(self, action: argparse.Action) -> str:
        """Formats verbs under the titles of their groups, where the action has groups."""
        groups: dict[str, Sequence[str]] = getattr(action, "groups", {})
        if not groups:
            return super()._format_action(action)
        shown = {verb.dest: verb for verb in action._get_subactions()}  # type: ignore[attr-defined]
        text = ""
        for title, names in groups.items():
            text += f"{'':{self._current_indent}}{title}\n"
            self._indent()
            for name in names:
                text += super()._format_action(shown[name])
            self._dedent()
        return text


class _HelpAll(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **{**options, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        assert isinstance(parser, Parser)
        print(parser.format_full_help(), end="")
        parser.exit()


def nearest(word: str, candidates: Sequence[str]) -> str:
    """The suggestion for a mistyped word: ": did you mean 'check'?" for "chekc"; "" where no candidate is similar."""
    import difflib  # only mistakes need it

    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return f": did you mean '{close[0]}'?" if close else ""


def _argument_name(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    if action.nargs == argparse.REMAINDER:
        return f"[{name}]"
    return {"?": f"[{name}]", "*": f"[{name} ...]"}.get(str(action.nargs), name)


def _width() -> int:
    return max(40, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
