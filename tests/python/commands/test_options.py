"""Each option has the same spelling, type and help text in every verb, and each help fits a screen."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from assay.cli import VERBS, build_parser, main
from assay.commands import options
from assay.commands.parser import Parser

SCREEN_LINES, SCREEN_COLUMNS = 40, 100
# Spellings of earlier versions and of other tools, with the option that replaces each.
FORBIDDEN = {
    "-H": "-w",
    "--host": "--hosts",
    "--from": "--peer",
    "--name": "--lab",
    "--seconds": "--budget",
    "--for": "--budget",
    "--cycles": "--repeats",
    "--iterations": "--repeats",
    "--specification": "--spec",
    "--out": "--output",
}
# Options of the Network Sanitizer, whose scripts 'assay net' accepts, and of DAQPIPE. The help does not show them.
ALIASES = {
    "--bsize": "assay net",
    "--niters": "assay net",
    "--duration": "assay eb",
    "--message-size": "assay eb",
}


def walk(parser: Parser, name: str = "assay") -> Iterator[tuple[str, Parser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, child in action.choices.items():
                yield from walk(child, f"{name} {verb}")


PARSERS = dict(walk(build_parser()))


def all_options() -> Iterator[tuple[str, str, argparse.Action]]:
    for name, parser in PARSERS.items():
        for action in parser._actions:
            for option in action.option_strings:
                yield name, option, action


def shared_properties(action: argparse.Action) -> dict[str, object]:
    """The properties of an option that must be the same in all verbs. They exclude the default, the note in brackets at
    the end of the help, and the choices of --metric, which differ between profilers."""
    text = re.sub(r" \(.*\)$", "", action.help or "")
    return {
        "spellings": tuple(action.option_strings),
        "dest": action.dest,
        "action": type(action),
        "type": action.type,
        "nargs": action.nargs,
        "metavar": action.metavar,
        "choices": None if action.choices is None or action.dest == "metric" else tuple(action.choices),
        "help": text,
    }


def test_an_option_means_the_same_in_every_verb() -> None:
    first: dict[str, tuple[str, argparse.Action]] = {}
    for name, option, action in all_options():
        other, first_action = first.setdefault(option, (name, action))
        assert shared_properties(action) == shared_properties(first_action), (
            f"{option} of '{name}' and of '{other}'"
        )


def test_shared_options_come_from_their_single_definition() -> None:
    for spellings, definition in options.SHARED.items():
        long = spellings.split()[-1]
        for name, option, action in all_options():
            if option == long:
                assert action.option_strings == spellings.split(), f"{option} of '{name}'"
                assert action.type == definition.get("type"), f"{option} of '{name}'"
                assert (action.help or "").replace("%%", "%").startswith(definition["help"])


@pytest.mark.parametrize("spelling", sorted({*FORBIDDEN, *ALIASES}))
def test_old_spellings_are_absent_or_hidden(spelling: str) -> None:
    uses = [(name, action) for name, option, action in all_options() if option == spelling]
    if spelling in ALIASES:
        assert [name for name, _ in uses] == [ALIASES[spelling]]
        assert uses[0][1].help == argparse.SUPPRESS
    else:
        assert not uses, f"{spelling} is now {FORBIDDEN[spelling]}"


def test_sizes_and_durations_have_the_shared_types() -> None:
    types = {
        "SIZE": options.size,
        "SIZES": options.sizes,
        "DURATION": options.duration,
        "SHARE": options.share,
        "N": options.count,
    }
    for name, option, action in all_options():
        if option == "--confidence":
            assert action.type == options.confidence, f"{option} of '{name}'"
        elif (
            action.metavar in types and name != "assay lab fault"
        ):  # its value is passed on to the lab's tools
            assert action.type == types[str(action.metavar)], f"{option} of '{name}'"
        assert action.metavar not in ("TIME", "NUM", "SECONDS"), f"{option} of '{name}'"


@pytest.mark.parametrize(
    ("text", "seconds"), [("20s", 20.0), ("3min", 180.0), ("500ms", 0.5), ("1h", 3600.0)]
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert options.duration(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "20", "-5s", "nan", "inf", "5 parsec", "5 MB", "soon", ""])
def test_wrong_durations_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        options.duration(text)


@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_a_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(SCREEN_COLUMNS))
    lines = PARSERS[name].format_help().splitlines()
    assert len(lines) <= SCREEN_LINES
    assert max(map(len, lines)) <= SCREEN_COLUMNS


@pytest.mark.parametrize("name", [name for name, parser in PARSERS.items() if parser._advanced])
def test_advanced_options_are_shown_by_help_all(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = PARSERS[name]
    assert parser._advanced is not None
    hidden = [action.option_strings[-1] for action in parser._advanced._group_actions]
    assert hidden and "--help-all" in parser.format_help()
    shown = parser.format_help()
    assert not [option for option in hidden if re.search(rf"^ +(-\S, )?{option}\b", shown, re.MULTILINE)]
    assert main([*name.split()[1:], "--help-all"]) == 0
    help_text = capsys.readouterr().out
    assert all(option in help_text for option in hidden)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["chekc"], "did you mean 'check'?"),
        (["lab", "statsu"], "did you mean 'status'?"),
        (["net", "--budgte", "3s"], "did you mean '--budget'?"),
        (["net", "--launcher", "opnmpi"], "did you mean 'openmpi'?"),
        (["xyzzy"], "see 'assay --help'"),
    ],
)
def test_a_typo_is_one_line_with_the_nearest_spelling(
    typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    error = capsys.readouterr().err
    assert meant in error and len(error.splitlines()) == 1 and len(error) < 100


@pytest.mark.parametrize("verb", VERBS)
def test_the_parser_of_a_single_verb_equals_that_among_all(verb: str) -> None:
    alone = {
        name: parser.format_full_help() for name, parser in walk(build_parser([verb])) if name != "assay"
    }
    assert alone and alone == {name: PARSERS[name].format_full_help() for name in alone}
    assert set(alone) == {name for name in PARSERS if f"{name} ".startswith(f"assay {verb} ")}


@pytest.mark.parametrize("name", [name for name in PARSERS if re.fullmatch(r"assay (io|fabric) \w+", name)])
def test_the_parser_of_a_single_sub_verb_equals_that_among_all(name: str) -> None:
    words = name.split()[1:]
    alone = dict(walk(build_parser(words)))
    assert alone[name].format_full_help() == PARSERS[name].format_full_help()
    assert {other for other in alone if not other.startswith(name)} == {"assay", f"assay {words[0]}"}


def test_a_verb_does_not_import_other_verbs() -> None:
    code = "import sys; from assay.cli import main; main(['numa', '--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    modules = done.stdout.splitlines()[-1].split()
    assert "assay.commands.numa" in modules
    assert not {"assay.commands.net", "assay.commands.fabric", "scipy"} & set(modules)


HEAVY = {"numpy", "scipy", "optuna", "yaml", "assay.explain", "assay.judge", "assay.measure.session"}
# Each takes a tenth of a start or more; bench/node_start.py measures it.
SLOW_TO_START = {
    "rich", "ClusterShell", "msgspec", "shtab", "dataclasses", "inspect", "uuid", "secrets", "difflib", "traceback",
    "assay.commands.options", "assay.records.run", "assay.records.schema",
}  # fmt: skip


def imported_by(arguments: list[str]) -> set[str]:
    """The modules that a command line has imported at its end."""
    code = f"import sys; from assay.cli import main; main({arguments}); print(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["nett"], ["--nett"]], ids=" ".join)
def test_without_a_verb_none_is_imported(arguments: list[str]) -> None:
    modules = imported_by(arguments)
    assert "assay.cli" in modules
    mistyped = {"difflib"} if "nett" in " ".join(arguments) else set()
    assert (HEAVY | SLOW_TO_START) & modules <= mistyped


@pytest.mark.parametrize(
    "arguments",
    [
        ["lab", "--help"], ["lab", "up", "--nodse", "3"], ["lab", "vm", "--numa", "none"], ["list", "--help"],
        ["io", "run", "--help"], ["io", "run", "--", "no-such-program"], ["io", "recover", "--help"], ["io", "stores"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_verb_that_judges_nothing_imports_little(arguments: list[str]) -> None:
    modules = imported_by(arguments)
    assert f"assay.commands.{arguments[0]}" in modules
    assert not HEAVY & modules


@pytest.mark.parametrize("verb", VERBS)
def test_the_summary_of_a_verb_begins_its_description(verb: str) -> None:
    description = " ".join(str(PARSERS[f"assay {verb}"].description).split())
    assert description.removesuffix(".").split(". ")[0] == VERBS[verb]
