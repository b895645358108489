"""Reads the code blocks of the documents: their marks, and the commands of Assay in them.

A command block is a fence of ``sh`` or ``console``. In ``console``, lines that begin with "$ " are commands. A comment
on the line before the fence marks the block:

    <!-- needs: cluster -->   lab, gpu, rdma, pmu, guest, program (of the user), setup: parsed; lab is run as root
    <!-- slow -->             minutes: parsed, not run
    <!-- exit: 0 1 -->        the exit codes of its commands; without it 0, and 1 of commands that judge

Unmarked blocks are run.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
NEEDS = {"cluster", "lab", "gpu", "rdma", "pmu", "guest", "program", "setup", "slow"}
SHELL = {"sh", "console"}
JUDGING = {
    "check",
    "comply",
    "net",
    "saturate",
    "eb",
    "judge",
    "model",
}  # 1 is a verdict, and no fault of the document
OPERATORS = {"|", "&&", "||", ";", "&"}
FENCE = re.compile(
    r"^(?:<!-- *(?P<mark>[^>]*?) *-->\n)?```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    document: str
    line: int
    language: str
    needs: frozenset[str]
    exits: frozenset[int] | None
    commands: str  # a shell script

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def is_run(self) -> bool:
        return not self.needs

    def lines(self) -> list[str]:
        """The commands without comments. A here-document belongs to its command."""
        lines: list[str] = []
        end = None
        for line in self.commands.replace("\\\n", " ").splitlines():
            if end is not None:
                lines[-1] += f"\n{line}"
                end = None if line == end else end
                continue
            if line.strip() and not line.lstrip().startswith("#"):
                lines.append(line)
                heredoc = re.search(r"<<-?'?(\w+)'?", line)
                end = heredoc[1] if heredoc else None
        return lines


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "ARCHITECTURE.md",
        *sorted(ROOT.glob("docs/**/*.md")),
    ]


def blocks() -> list[Block]:
    return [block for path in documents() for block in blocks_of(path)]


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text()
    blocks = []
    for fence in FENCE.finditer(text):
        language, *marks = fence["info"].split() or [""]
        needs, exits = read_marks(" ".join([*marks, fence["mark"] or ""]), path)
        commands = fence["text"]
        if language == "console":
            commands = "".join(f"{line[2:]}\n" for line in commands.splitlines() if line.startswith("$ "))
        line = text.count("\n", 0, fence.start()) + 1
        blocks.append(Block(str(path.relative_to(ROOT)), line, language, needs, exits, commands))
    return blocks


def read_marks(mark: str, path: Path) -> tuple[frozenset[str], frozenset[int] | None]:
    """The needs and the exit codes of marks such as "needs: lab slow", "exit: 0 1", "slow", or several of these."""
    marks = mark.replace("needs:", "").split()
    exits = None
    if "exit:" in marks:
        start = marks.index("exit:")
        exits = frozenset(int(token) for token in marks[start + 1 :] if token.isdigit())
        marks = [token for token in marks if token != "exit:" and not token.isdigit()]
    unknown = set(marks) - NEEDS
    assert not unknown, (
        f"{path.name}: unknown mark {', '.join(sorted(unknown))}; known: {', '.join(sorted(NEEDS))}"
    )
    return frozenset(marks), exits


def simple_commands(line: str) -> list[list[str]]:
    """The simple commands of a line, without redirections, assignments, sudo and exec."""
    lexer = shlex.shlex(line.partition("\n")[0], posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    tokens = iter(lexer)
    for token in tokens:
        if token in OPERATORS:
            commands.append([])
        elif token.startswith((">", "<")):
            next(tokens, None)  # the file
        elif commands[-1] or not (re.match(r"[A-Za-z_]\w*=", token) or token in ("sudo", "exec")):
            commands[-1].append(token)
    return [command for command in commands if command]


def is_assay(command: list[str]) -> bool:
    return command[0] in ("assay", "./assay", "./run_netsan.sh")
