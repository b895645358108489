"""Run directories are append-only, keep whole lines after a kill, and are refused when they are something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import UserError
from assay.records.run import Run, newest_run
from assay.records.schema import Finding, Measurement, Pairs, Subject


def measured(value: float) -> Measurement:
    return Measurement(name="node.memory", metric="bandwidth", unit="B/s", samples=[value])


def test_what_is_appended_is_read_back_with_ids(tmp_path: Path) -> None:
    run = Run.create("net", ["assay", "net"], parent=tmp_path)
    run.append(measured(1.0))
    run.append(
        Pairs(name="n", metric="bandwidth", unit="B/s", subject=Subject(host="a"), peers=["b"], values=[2.0])
    )
    run.info.hosts = ["a", "b"]
    run.finish("complete")
    reloaded = Run.load(run.path)
    assert [r.id for r in reloaded.records] == [1, 2]
    assert reloaded.info.state == "complete" and reloaded.info.hosts == ["a", "b"]
    assert isinstance(reloaded.records[1], Pairs) and reloaded.records[1].values == [2.0]
    assert newest_run(tmp_path) == run.path


def test_a_killed_run_keeps_its_whole_lines_and_says_that_it_is_partial(tmp_path: Path) -> None:
    run = Run.create("net", [], parent=tmp_path)
    for value in range(5):
        run.append(measured(float(value)))
    with open(run.path / "records.jsonl", "ab") as file:  # killed in the middle of a line
        file.write(b'{"kind":"measurement","na')
    reloaded = Run.load(run.path)
    assert len(reloaded.records) == 5
    assert reloaded.info.state == "partial" and "killed" in reloaded.info.reason


@pytest.mark.parametrize("damage", ["missing", "empty", "cut in a line", "cut between lines"])
def test_a_complete_run_without_all_of_its_records_is_refused(tmp_path: Path, damage: str) -> None:
    run = Run.create("net", [], parent=tmp_path)
    run.append(measured(1.0))
    run.append(measured(2.0))
    run.finish("complete")
    file = run.path / "records.jsonl"
    content = file.read_bytes()
    left = {"empty": b"", "cut in a line": content[:-5], "cut between lines": content.splitlines(True)[0]}
    file.unlink()
    if damage in left:
        file.write_bytes(left[damage])
    with pytest.raises(UserError, match=r"records.jsonl: records are missing, and the run is complete"):
        Run.load(run.path)
    file.write_bytes(content)
    assert len(Run.load(run.path).records) == 2


def test_a_complete_run_may_have_no_record(tmp_path: Path) -> None:
    run = Run.create("numa", [], parent=tmp_path)
    run.info.completed = ["numa"]
    run.finish("complete")
    assert Run.load(run.path).records == []


def test_a_complete_run_without_its_old_conclusions_is_whole(tmp_path: Path) -> None:
    run = Run.create("net", [], parent=tmp_path)
    run.append(measured(1.0))
    run.append(Finding(rule="slow_host", cause="n1 is slow", severity="warning", confidence=0.9))
    run.finish("complete")
    run.withdraw(lambda record: True)
    assert len(Run.load(run.path).records) == 1
    (run.path / "records.jsonl").write_bytes(b"")
    with pytest.raises(UserError, match="records are missing"):
        Run.load(run.path)


def test_records_that_are_another_file_are_named(tmp_path: Path) -> None:
    run = Run.create("net", [], parent=tmp_path)
    (run.path / "records.jsonl").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00ff\nsize 12\n"
    )
    with pytest.raises(UserError, match=r"records.jsonl \(a pointer of Git LFS\) is no file of records"):
        Run.load(run.path)


def test_a_removed_current_directory_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(UserError, match="the current directory has been removed"):
        Run.create("net", [])
    assert Run.create("net", [], path=tmp_path / "run").path.is_dir()


def test_a_full_disk_is_named_by_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.create("net", [], parent=tmp_path)
    (run.path / "records.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr("assay.records.run.open_appended", lambda path: path.open("ab"))
    with pytest.raises(OSError) as refused:
        run.append(measured(1.0))
    assert refused.value.filename == str(run.path / "records.jsonl")


def test_a_reloaded_run_continues_its_ids(tmp_path: Path) -> None:
    run = Run.create("net", [], parent=tmp_path)
    run.append(measured(1.0))
    run.finish("partial", "interrupted")
    reloaded = Run.load(run.path)
    reloaded.append(measured(2.0))
    reloaded.finish("complete")
    assert [r.id for r in Run.load(run.path).records] == [1, 2]


def test_refusals_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        Run.load(tmp_path)
    run = Run.create("net", [], parent=tmp_path)
    with pytest.raises(UserError, match="already holds a run"):
        Run.create("net", [], path=run.path)
    (run.path / "records.jsonl").write_text("nonsense\n")
    with pytest.raises(UserError, match=r"records.jsonl:1: not a record"):
        Run.load(run.path)
    (run.path / "run.json").write_text('{"id":"x","command":[],"assay":"0","started":"","schema":99}')
    with pytest.raises(UserError, match="record schema 99"):
        Run.load(run.path)
    (run.path / "run.json").write_text("{")
    with pytest.raises(UserError, match="cannot read"):
        Run.load(run.path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the run directory"):
        Run.create("net", [], parent=tmp_path / "file")
