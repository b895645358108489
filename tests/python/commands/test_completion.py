"""``assay completion``: the shells complete commands, options, values, files and runs; the manual has every option."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.cli import VERBS, build_parser, main
from assay.commands.completion import SHELLS
from assay.commands.manual import manual, roff

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 120
Shell = Callable[
    [str, str, Path], list[str]
]  # what it offers at the end of a line, with this script, in this folder
# What a shell must offer at the end of a line.
LINES = {
    "assay sat": ["saturate"],
    "assay fabric an": ["anonymise"],
    "assay io bench reac": ["reaction-diffusion"],
    "assay net --serv": ["--servers", "--servers-file", "--servers-hcas"],
    "assay net --launcher intel": ["intelmpi"],
    "assay comply cob": ["cobalt2"],
    "assay heap --samp": ["--sample"],  # of the sub-verb that is understood
    "assay heap show runs/fir": ["runs/first"],
}


def written(form: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", form]) == 0
    return capsys.readouterr().out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run, a folder that is none, and a file."""
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/run.json").touch()
    (tmp_path / "runs/other").mkdir()
    (tmp_path / "fabric.txt").touch()
    return tmp_path


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here; Debian: apt-get install {shell}")


def in_bash(line: str, script: str, folder: Path) -> list[str]:
    """What bash offers at the end of a line, with the function and the options of "complete"."""
    words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    call = f"""
COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}
function=$(complete -p assay | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" assay "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script + call], capture_output=True, text=True, timeout=LIMIT_S, cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_offers_all_commands_runs_and_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = written("bash", capsys)
    assert set(VERBS) <= set(in_bash("assay ", script, folder))
    assert "runs/first" in in_bash("assay report ", script, folder)
    assert "runs/other" not in in_bash("assay report ", script, folder)
    assert "fabric.txt" in in_bash("assay fabric check --fabric fab", script, folder)


def in_fish(line: str, script: str, folder: Path) -> list[str]:
    """What fish offers at the end of a line."""
    (folder / "assay.fish").write_text(script)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source assay.fish; complete -C {shlex.quote(line)}"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
    )
    assert done.stderr == ""
    return [text.split("\t")[0].rstrip("/") for text in done.stdout.splitlines()]


def in_zsh(line: str, script: str, folder: Path) -> list[str]:
    """What zsh writes at the end of a line when it inserts all matches. Its editor needs a terminal. Ends at a mark, or
    when zsh does."""
    (folder / "functions").mkdir()
    (folder / "functions/_assay").write_text(script)
    start = "PS1='> '; fpath=(functions $fpath); autoload -U compinit; compinit -u -D; stty -echo; "
    start += "zstyle ':completion:*' completer _all_matches _complete; "
    start += "zstyle ':completion:*:all-matches:*' insert true; "
    start += "finish() { print -r -- \"[$BUFFER]DONE\"; exit }; zle -N finish; bindkey '^X' finish"
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", HOME=str(folder))
        os.execvp("zsh", ["zsh", "-f", "-i"])
    os.write(terminal, f"{start}\n{line}\t\x18".encode())
    output = b"".join(read_all(terminal)).decode(errors="replace")
    os.waitpid(child, 0)
    os.close(terminal)
    buffers = re.findall(r"\[(assay[^\]]*)\]DONE", output)
    assert buffers, output
    given = line.count(" ")
    return [word.rstrip("/") for word in str(buffers[-1]).split()[given:]]


@pytest.mark.parametrize(("line", "offered"), LINES.items(), ids=LINES)
@pytest.mark.parametrize(
    ("shell", "ask"),
    [
        ("bash", in_bash),
        pytest.param("fish", in_fish, marks=pytest.mark.programs),
        pytest.param("zsh", in_zsh, marks=pytest.mark.programs),
    ],
    ids=["bash", "fish", "zsh"],
)
def test_a_shell_completes(
    shell: str, ask: Shell, line: str, offered: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(shell)
    assert set(ask(line, written(shell, capsys), folder)) == set(offered)


def read_all(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            return
        if not part:
            return
        yield part


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_that_the_help_shows_is_in_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = written(shell, capsys)
    options = {
        option
        for parser in build_parser().tree()
        for action in parser._actions
        if action.help != "==SUPPRESS=="
        for option in action.option_strings
        if option.startswith("--")
    }
    assert len(options) > 100
    assert [name for name in options if not re.search(rf"(--|-l ){re.escape(name[2:])}\b", script)] == []


@pytest.mark.programs
def test_the_manual_page_has_every_command_option_and_example(tmp_path: Path) -> None:
    """As man shows it, without a complaint of roff."""
    needs("man")
    page = tmp_path / "assay.1"
    page.write_text(manual(build_parser()))
    shown = subprocess.run(
        ["man", "--warnings", "-l", str(page)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "MANWIDTH": "400", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""},
    )
    assert shown.returncode == 0 and shown.stderr == ""
    text = " ".join(re.sub(r".\x08", "", shown.stdout).split())
    for parser in build_parser().tree():
        assert " ".join(parser.format_usage().removeprefix("usage: ").split("|")[0].split()) in text
        assert [x.command for x in parser.examples if " ".join(x.command.split()) not in text] == []
        hidden = [
            a.option_strings for a in parser._actions if a.help not in (None, "==SUPPRESS==") and a.nargs != 0
        ]
        assert [names for names in hidden if names and ", ".join(names) not in text] == []


def test_a_line_that_begins_like_a_request_of_roff_is_text() -> None:
    assert roff(".fdbs of opensm") == "\\&.fdbs of opensm"
    assert roff("'node[1-2]' \\n") == "\\&'node[1\\-2]' \\en"
