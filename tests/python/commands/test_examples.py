"""Every example that a help shows is valid; those that one machine can run are run, as they stand."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cli import build_parser, parse
from assay.commands.parser import Example, Parser
from assay.errors import UserError
from assay.launch.engines import storage_bench
from assay.launch.launchers import default_launcher

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0


def verbs(parser: Parser, name: str = "") -> Iterator[tuple[str, Parser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, child in action.choices.items():
                yield f"{name} {verb}".strip(), child
                yield from verbs(child, f"{name} {verb}".strip())


VERBS = dict(verbs(build_parser()))
EXAMPLES = [(verb, example) for verb, parser in VERBS.items() for example in parser.examples]
RUNNABLE = [verb for verb, parser in VERBS.items() if any(x.needs in ("", "an MPI") for x in parser.examples)]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_three_examples(verb: str) -> None:
    groups = {"udp", "io bench"}  # their sub-verbs have them
    assert len(VERBS[verb].examples) == 3 or verb in groups


@pytest.mark.parametrize(("verb", "example"), EXAMPLES, ids=lambda x: getattr(x, "command", ""))
def test_an_example_is_a_valid_command_line(verb: str, example: Example) -> None:
    commands = [part for part in split(example.command) if part and part[0] == "assay"]
    assert commands, "an example without assay"
    for command in commands:
        if "--resume" not in command:  # which reads that run
            parse(build_parser(), command[1:])
    assert any(command[1] == verb.split()[0] for command in commands)


def split(line: str) -> list[list[str]]:
    """The commands of a shell line, each without the variables and the launcher that come before assay."""
    found = []
    for part in line.split(" && "):
        words = shlex.split(part)
        found.append(words[words.index("assay") :] if "assay" in words else [])
    return found


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.parametrize("verb", RUNNABLE)
def test_the_examples_run(verb: str, tmp_path: Path) -> None:
    """In their order and in one folder: a later one may show what an earlier one has recorded."""
    environment = {**os.environ, "PATH": f"{ROOT}:{os.environ['PATH']}"}
    for example in VERBS[verb].examples:
        if example.needs not in ("", "an MPI") or (example.needs and not has_mpi(verb)):
            continue
        done = subprocess.run(
            ["bash", "-c", example.command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        said = done.stdout + done.stderr
        assert "Traceback" not in said
        # A figure may miss its limit here, and a device may not be there, which is said with the reason.
        fit = done.returncode in (0, 1) or (
            done.returncode == 2 and ("INCONCLUSIVE" in said or "waived" in said)
        )
        assert fit, f"{example.command}: exit code {done.returncode}\n{said}"


def has_mpi(verb: str) -> bool:
    """And the engines of the verb are built for it."""
    try:
        launcher = default_launcher()
        if verb.startswith("io bench"):
            storage_bench(launcher.flavour)
    except UserError:
        return False
    return True
