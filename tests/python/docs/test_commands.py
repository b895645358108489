"""Each command in the documents is parsed, and run if it needs no more than this machine.

Documents whose commands neither measure nor start programs are run in the gate, all others in the acceptance tests.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import documents
import pytest
from documents import ROOT, Block
from small_cache import link_engines

from assay.cli import build_parser, parse
from assay.errors import UserError

LIMIT_S = 300
# A python3 of pyenv would be a script of eighty processes, each of which "assay heap" and "assay numa" record.
INTERPRETER = Path(sys.executable).resolve().parent
BUDGET = {"check": "2s", "net": "3s"}  # added where the text gives none
LAB_SIZES = {"net": ["--sizes", "64KiB,1MiB"]}  # in the lab, where the text gives none
# Verbs that neither measure this machine nor record a program.
QUICK_VERBS = {"completion", "doctor", "expect", "fabric", "list", "--help"}
QUICK_SUBCOMMANDS = {("io", "doctor"), ("io", "stores")}
LONG = {"docs/fabric-remedies.md"}  # fabrics of 500 nodes are repaired
OTHER_COMMANDS = {"cat", "cc", "python3", "mkdir", "cd", "ls"}  # allowed in blocks that are run
BLOCKS = documents.blocks()
SHOWN = [block for block in BLOCKS if block.language in documents.SHELL]
RUN = [block for block in SHOWN if block.is_run]
LAB = [block for block in SHOWN if block.needs == {"lab"}]
COMMANDS = r"^\s*(\$ )?(\./)?assay [a-z]"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language not in documents.SHELL], ids=str)
def test_commands_are_in_blocks_of_sh_or_console(block: Block) -> None:
    assert block.language, "a fence says what it holds: sh, console, text, toml, ..."
    assert not re.search(COMMANDS, block.commands, re.M), (
        "commands of Assay belong into a block of sh or console"
    )


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_commands_in_blocks_have_known_options(block: Block) -> None:
    for line in block.lines():
        for command in documents.simple_commands(line):
            if documents.is_assay(command):
                parse_only(command)
            elif command[0] == "make":
                assert_target(command[1])
            else:
                assert block.needs or command[0] in OTHER_COMMANDS, (
                    f"what is '{command[0]}'? Mark the block: needs: ..."
                )


@pytest.mark.parametrize("path", documents.documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_sentences_have_known_options(path: Path) -> None:
    text = documents.FENCE.sub("", path.read_text())
    for span in re.findall(r"`(assay [a-z][^`]*)`", text):
        command = shlex.split(span.replace("\n", " "))
        if any(word in ("COMMAND", "RUN", "DIR", "SPEC") or word.endswith("...") for word in command):
            continue
        try:
            parse_only(command)
        except UserError as error:
            if "required" not in str(error):  # a verb that is named without its arguments
                raise


PARSER = build_parser()


def parse_only(command: list[str]) -> None:
    arguments = [word for word in command[1:] if word != "--help"]
    if command[0].endswith("run_netsan.sh"):
        arguments.insert(0, "net")
    parse(PARSER, arguments)  # raises UserError with the reason


def assert_target(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{re.escape(target)}:", makefile, re.M), f"no target {target} in the Makefile"


class Shell:
    """A folder in which the commands of a document are run, with ``assay`` on PATH. A repeated command is run once."""

    def __init__(self, folder: Path, lab: str = "") -> None:
        self.folder = folder
        self.lab = lab
        (folder / "bin").mkdir()
        (folder / "bin/assay").symlink_to(ROOT / "assay")
        self.small_cache = link_engines(folder / "engines")
        self.done: set[str] = set()

    def run(self, block: Block) -> None:
        for line in block.lines():
            if self.lab or line not in self.done:
                self.run_line(line, block)
            self.done.add(line)

    def run_line(self, line: str, block: Block) -> None:
        command = documents.simple_commands(line)[0]
        verb = command[1] if documents.is_assay(command) and len(command) > 1 else ""
        typed = line.replace("./assay", "assay")
        if verb in BUDGET and "--budget" not in command:
            typed += f" --budget {BUDGET[verb]}"
        if self.lab and verb in LAB_SIZES and LAB_SIZES[verb][0] not in command:
            typed += " " + shlex.join(LAB_SIZES[verb])
        done = subprocess.run(
            ["bash", "-c", typed],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": f"{self.folder}/bin:{INTERPRETER}:{os.environ['PATH']}",
                **({"ASSAY_LAB": self.lab} if self.lab else {}),
                **(self.small_cache if verb in ("check", "mem") or "node.memory" in command else {}),
            },
        )
        allowed = block.exits or ({0, 1} if verb in documents.JUDGING else {0})
        assert done.returncode in allowed, f"{typed}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr


def is_quick(block: Block) -> bool:
    commands = [command for line in block.lines() for command in documents.simple_commands(line)]
    return all(
        command[1] in QUICK_VERBS or tuple(command[1:3]) in QUICK_SUBCOMMANDS
        if documents.is_assay(command)
        else command[0] in ("cat", "ls", "mkdir", "cd")
        for command in commands
    )


def documents_to_run() -> list[object]:
    """The documents with blocks that one machine can run."""
    takes_long = pytest.mark.acceptance("cli")
    names = sorted({block.document for block in RUN})
    slow = {block.document for block in RUN if not is_quick(block)}
    return [pytest.param(name, marks=takes_long if name in slow | LONG else ()) for name in names]


@pytest.mark.programs
@pytest.mark.slow
@pytest.mark.parametrize("document", documents_to_run())
def test_commands_of_a_document_run(document: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for block in RUN:
        if block.document == document:
            shell.run(block)


@pytest.fixture
def lab_shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose commands use a lab with a unique name. The lab is taken down also after a failure."""
    if os.geteuid() != 0:
        pytest.skip("labs need root")
    name = f"docs-{os.getpid()}"
    yield Shell(tmp_path, name)
    subprocess.run([ROOT / "assay", "lab", "down", "--lab", name], capture_output=True, timeout=LIMIT_S)


@pytest.mark.acceptance("cli")
@pytest.mark.lab
def test_commands_run_in_the_lab(lab_shell: Shell) -> None:
    assert LAB
    for block in LAB:
        lab_shell.run(block)


@pytest.mark.parametrize("path", documents.documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_documents_name_exist(path: Path) -> None:
    text = path.read_text()
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    files = re.findall(r"`((?:engines|python|tests|bench|specs|docs|web|packaging)/[\w/.-]+\.\w+)`", text)
    missing = [name for name in links if not (path.parent / name).exists()]
    missing += [name for name in files if not (ROOT / name).exists()]
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    for folder in (ROOT / "docs", ROOT / "docs/design"):
        index = (folder / "README.md").read_text()
        pages = [page.name for page in folder.glob("*.md") if page.name != "README.md"]
        assert [page for page in pages if f"({page})" not in index] == []
