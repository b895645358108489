"""Runs whose folder another user has prepared: nothing outside them is written, none hangs, no command is theirs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.cli import main
from assay.errors import UserError
from assay.fabric import schedules
from assay.numa.applied import save_applied
from assay.numa.recording import read_recording
from assay.profile import heap, numa
from assay.profile.sources import Sources, save_sources
from assay.records.files import open_appended, open_new, open_regular, replace_file
from assay.records.run import Run
from assay.records.schema import Measurement

RECORD = Measurement(name="node.memory", metric="bandwidth", unit="B/s")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run.create("net", ["assay", "list"], path=tmp_path / "run")
    made.append(RECORD)
    made.finish("partial", "killed")
    return made


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file outside of the run, to which its links lead."""
    path = tmp_path / "mine"
    path.write_text("mine")
    return path


def test_links_in_a_run_are_replaced_and_not_followed(run: Run, mine: Path) -> None:
    """Also the names under which a file was once written before it was renamed."""
    names = [
        ".run.json",
        ".records.jsonl",
        f".run.json.{os.getpid()}.part",
        f".records.jsonl.{os.getpid()}.part",
    ]
    for name in names:
        (run.path / name).symlink_to(mine)
    reopened = Run.reopen(run.path)
    reopened.append(RECORD)
    reopened.finish("partial")
    for name in ("sources.json", "applied.json"):
        (run.path / name).symlink_to(mine)
    save_sources(run.path, Sources())
    save_applied(run.path, None, [])  # type: ignore[arg-type]
    assert mine.read_text() == "mine"
    assert len(Run.load(run.path).records) == 1  # a node is measured anew


def test_a_link_in_place_of_the_records_is_not_appended_to(run: Run, mine: Path) -> None:
    for put in (os.symlink, os.link):
        (run.path / "records.jsonl").unlink()
        put(mine, run.path / "records.jsonl")
        with pytest.raises(OSError, match=r"link|symbolic"):
            Run(run.path, run.info, []).append(RECORD)
    assert mine.read_text() == "mine"


def test_a_pipe_in_place_of_a_file_is_refused(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for read in (heap.load_profile, numa.load_profile, read_recording, lambda path: schedules.read(path, 4)):
        with pytest.raises(UserError, match="pipe"):
            read(pipe)
    for name in ("records.jsonl", "run.json"):
        (run.path / name).unlink()
        os.mkfifo(run.path / name)
        with pytest.raises((UserError, OSError), match="pipe"):
            Run.load(run.path)


def test_a_command_that_another_could_have_written_is_not_resumed(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.path / "run.json").chmod(0o666)
    assert main(["run", "--resume", str(run.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "can be written by all" in line
    (run.path / "run.json").chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert main(["run", "--resume", str(run.path)]) == 2
    assert "belongs to another user" in capsys.readouterr().err


def test_files(tmp_path: Path, mine: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(mine)
    with open_regular(link) as file:
        assert file.read() == b"mine"
    with pytest.raises(OSError, match="symbolic"):
        open_appended(link)
    with open_new(link, 0o600) as file:
        file.write(b"new")
    assert (mine.read_text(), link.read_text()) == ("mine", "new")
    assert link.stat().st_mode & 0o777 == 0o600
    replace_file(link, b"newer")
    assert link.read_text() == "newer"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "mine"]
