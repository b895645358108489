"""Runs whose folder another user has prepared: no file outside is written, reading does not hang, and no command of the
other user is executed."""

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

pytestmark = pytest.mark.slow

RECORD = Measurement(name="node.memory", metric="bandwidth", unit="B/s")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    partial_run = Run.create("net", ["assay", "list"], path=tmp_path / "run")
    partial_run.append(RECORD)
    partial_run.finish("partial", "killed")
    return partial_run


@pytest.fixture
def outside_file(tmp_path: Path) -> Path:
    """A file outside of the run, to which its links lead."""
    path = tmp_path / "mine"
    path.write_text("mine")
    return path


def test_links_in_a_run_are_replaced_and_not_followed(run: Run, outside_file: Path) -> None:
    """The names include temporary names, under which files are written before they are renamed."""
    names = [
        ".run.json",
        ".records.jsonl",
        f".run.json.{os.getpid()}.part",
        f".records.jsonl.{os.getpid()}.part",
    ]
    for name in names:
        (run.path / name).symlink_to(outside_file)
    reopened = Run.reopen(run.path)
    reopened.append(RECORD)
    reopened.finish("partial")
    for name in ("sources.json", "applied.json"):
        (run.path / name).symlink_to(outside_file)
    save_sources(run.path, Sources())
    save_applied(run.path, None, [])  # type: ignore[arg-type]
    assert outside_file.read_text() == "mine"
    assert len(Run.load(run.path).records) == 1  # a reopened run measures the node again


def test_a_link_in_place_of_the_records_is_not_appended_to(run: Run, outside_file: Path) -> None:
    for make_link in (os.symlink, os.link):
        (run.path / "records.jsonl").unlink()
        make_link(outside_file, run.path / "records.jsonl")
        with pytest.raises(OSError, match=r"link|symbolic"):
            Run(run.path, run.info, []).append(RECORD)
    assert outside_file.read_text() == "mine"


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


def test_a_run_that_others_can_write_is_not_resumed(
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


def test_links_are_read_but_not_written(tmp_path: Path, outside_file: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(outside_file)
    with open_regular(link) as file:
        assert file.read() == b"mine"
    with pytest.raises(OSError, match="symbolic"):
        open_appended(link)
    with open_new(link, 0o600) as file:
        file.write(b"new")
    assert (outside_file.read_text(), link.read_text()) == ("mine", "new")
    assert link.stat().st_mode & 0o777 == 0o600
    replace_file(link, b"newer")
    assert link.read_text() == "newer"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "mine"]
