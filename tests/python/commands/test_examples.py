"""Every example in a help text is a valid command line. Examples that one machine can run are run. They are unchanged,
except that a shorter time is set where they use a long default. Each ends with the exit code that belongs to it: that
of the outcome in its run, or 0."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_cache import link_engines

from assay.cli import build_parser, parse
from assay.commands.parser import Example, Parser
from assay.errors import UserError
from assay.launch.engines import storage_bench
from assay.launch.launchers import default_launcher
from assay.measure.session import EXIT_OF

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0  # for an example
SHORT = {"assay check": " --budget 3s", "assay mem": " --budget 3s"}  # instead of 20 s and more
# Subcommands whose examples measure this machine, or run jobs of MPI.
MEASURING = {
    *("check", "net", "eb", "mem", "run", "alloc", "io device"),
    *("io bench ior", "io bench reaction-diffusion", "io bench hdf5", "io bench metadata"),
}
# What may follow from this machine, besides PASS: it may miss a limit, or lack a device.
OUTCOMES = {
    "check": ("FAIL",),
    "net": ("FAIL",),
    "gpu": ("FAIL", "INCONCLUSIVE"),
    "rdma": ("INCONCLUSIVE",),
}
# The exit codes of examples that judge and record no run; others end with 0.
EXITS = {"assay fabric check --fat-tree radix=8,rate=4xHDR,dead=leaf0:5 --routing up/down": 1}


def subcommands(parser: Parser, name: str = "") -> Iterator[tuple[str, Parser]]:
    """Yields each subcommand at any depth, by its name as typed ("io bench"), and its parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand, child in action.choices.items():
                yield f"{name} {subcommand}".strip(), child
                yield from subcommands(child, f"{name} {subcommand}".strip())


SUBCOMMANDS = dict(subcommands(build_parser()))
EXAMPLES = [
    (subcommand, example) for subcommand, parser in SUBCOMMANDS.items() for example in parser.examples
]


def is_runnable(example: Example) -> bool:
    return example.needs in ("", "an MPI")


def runnable_examples(subcommand: str) -> list[Example]:
    """The examples of a subcommand that one machine can run. An example that "io" shares with "io doctor" belongs to
    the latter."""
    of_subcommands = {
        x.command for name, x in EXAMPLES if name.startswith(f"{subcommand} ") and is_runnable(x)
    }
    return [x for x in SUBCOMMANDS[subcommand].examples if is_runnable(x) and x.command not in of_subcommands]


RUNNABLE = [subcommand for subcommand in SUBCOMMANDS if runnable_examples(subcommand)]


def test_no_example_is_left_out() -> None:
    run = {example.command for subcommand in RUNNABLE for example in runnable_examples(subcommand)}
    assert run == {example.command for _, example in EXAMPLES if is_runnable(example)}


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_a_subcommand_has_three_examples(subcommand: str) -> None:
    groups = {"udp", "io bench"}  # their subcommands have examples
    assert len(SUBCOMMANDS[subcommand].examples) == 3 or subcommand in groups


@pytest.mark.parametrize(("subcommand", "example"), EXAMPLES, ids=lambda x: getattr(x, "command", ""))
def test_an_example_is_a_valid_command_line(subcommand: str, example: Example) -> None:
    commands = [part for part in split(example.command) if part and part[0] == "assay"]
    assert commands, "the example does not call assay"
    for command in commands:
        if "--resume" not in command:  # --resume reads the options from a run, which does not exist here
            parse(build_parser(), command[1:])
    assert any(command[1] == subcommand.split()[0] for command in commands)


def split(line: str) -> list[list[str]]:
    """The commands of a shell line, each from "assay" on, without variables and launcher; empty for other commands."""
    commands = []
    for part in line.split(" && "):
        argv = shlex.split(part)
        commands.append(argv[argv.index("assay") :] if "assay" in argv else [])
    return commands


def ways_to_run() -> list[object]:
    """Each subcommand with examples that one machine can run. Those that measure belong to the acceptance tests."""
    measure = pytest.mark.acceptance("cli")
    return [pytest.param(name, marks=measure if name in MEASURING else ()) for name in RUNNABLE]


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.parametrize("subcommand", ways_to_run())
def test_the_examples_run(subcommand: str, tmp_path: Path) -> None:
    """They run in their order and in one folder, because an example may read what an earlier one recorded."""
    # A python3 of pyenv would be a script of eighty processes, each of which "assay heap" and "assay numa" record.
    interpreter = Path(sys.executable).resolve().parent
    environment = {**os.environ, "PATH": f"{ROOT}:{interpreter}:{os.environ['PATH']}"}
    if subcommand in ("check", "mem", "run"):
        environment |= link_engines(tmp_path / "engines")
    for example in runnable_examples(subcommand):
        if example.needs and not has_mpi(subcommand):
            continue
        before = set(tmp_path.rglob("run.json"))
        done = subprocess.run(
            ["bash", "-c", example.command + SHORT.get(example.command, "")],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        output = f"{example.command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in output
        outcome = outcome_of(set(tmp_path.rglob("run.json")) - before)
        if outcome not in (None, "PASS"):
            assert outcome in OUTCOMES.get(subcommand, ()), output
        expected = EXITS.get(example.command, 0) if outcome is None else EXIT_OF[outcome]
        assert done.returncode == expected, output


def outcome_of(runs: set[Path]) -> str | None:
    """The outcome of the run that an example has recorded; None if it records or judges nothing."""
    assert len(runs) <= 1
    return next((json.loads(path.read_text()).get("outcome") for path in runs), None)


def has_mpi(subcommand: str) -> bool:
    """Whether this machine has an MPI for which the engines of the subcommand are built."""
    try:
        launcher = default_launcher()
        if subcommand.startswith("io bench"):
            storage_bench(launcher.flavour)
    except UserError:
        return False
    return True
