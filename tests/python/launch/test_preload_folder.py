"""Libraries in a folder whose path LD_PRELOAD cannot hold are loaded through a link of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch import preload_folder as module
from assay.launch.accelerator import library
from assay.launch.engines import engines_folder
from assay.launch.preload_folder import preload_folder
from assay.measure import heap_recorder
from assay.records.run import Run

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for links. Those in /tmp are made below it too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "TEMPORARY", tmp_path / "tmp")
    return tmp_path


def engines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir(exist_ok=True)
    for file in ("assay-heap", "libassay-io-mpich.so"):
        (folder / file).touch()
    monkeypatch.setenv("ASSAY_ENGINES", str(folder))
    return folder


def test_a_path_that_ld_preload_holds_needs_no_link(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = engines(home / "plain", monkeypatch)
    assert preload_folder(is_launched=True) == folder
    assert not (home / "cache").exists()


@pytest.mark.parametrize("name", ["two words", "a:colon", "a\ttab", "$ORIGIN"])
def test_another_path_is_reached_through_one_link_of_the_user(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engines(home / name, monkeypatch)
    link = preload_folder(is_launched=False)
    assert link.parent == home / "cache/assay/preload" and link.resolve() == folder
    assert not module.SEPARATORS.search(str(link))
    assert link.parent.stat().st_mode & 0o777 == 0o700
    assert preload_folder(is_launched=False) == link and list(link.parent.iterdir()) == [link]
    assert library("mpich") == link / "libassay-io-mpich.so"


def test_each_installation_has_a_link_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(home / "first one", monkeypatch)
    first = preload_folder(is_launched=False)
    second = engines(home / "second one", monkeypatch)
    assert preload_folder(is_launched=False) != first
    assert preload_folder(is_launched=False).resolve() == second
    assert first.is_symlink()  # a process of an earlier run may start others through it


def test_ranks_on_other_hosts_are_told_which_link_they_need(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engines(home / "two words", monkeypatch)
    link = preload_folder(is_launched=False)
    assert capsys.readouterr().err == ""
    preload_folder(is_launched=True)
    assert f"ranks on other hosts need the link {link} too" in capsys.readouterr().err


def spaced(place: Path, folder: Path) -> None:
    os.environ["XDG_CACHE_HOME"] = str(folder / "my cache")


def writable(place: Path, folder: Path) -> None:
    place.mkdir(parents=True)
    place.chmod(0o777)


def linked(place: Path, folder: Path) -> None:
    (folder / "of another").mkdir()
    place.parent.mkdir(parents=True)
    place.symlink_to(folder / "of another")


def occupied(place: Path, folder: Path) -> None:
    place.parent.mkdir(parents=True)
    place.touch()


@pytest.mark.parametrize("spoil", [spaced, writable, linked, occupied])
def test_a_place_that_is_not_the_users_alone_is_passed_over(
    spoil, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = engines(home / "two words", monkeypatch)
    spoil(home / "cache/assay/preload", home)
    link = preload_folder(is_launched=False)
    assert link.parent == home / "tmp" / f"assay-preload-{os.geteuid()}" and link.resolve() == folder
    assert not (home / "of another").exists() or not list((home / "of another").iterdir())


def test_a_link_that_points_elsewhere_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(home / "two words", monkeypatch)
    link = preload_folder(is_launched=False)
    link.unlink()
    link.symlink_to(home)
    assert preload_folder(is_launched=False).parent != link.parent


def test_without_a_place_for_the_link_it_is_refused_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines(home / "two words", monkeypatch)
    (home / "cache").touch()
    (home / "tmp").touch()
    for use in (
        lambda: heap_recorder.record_program(home / "run", ["ls"]),
        lambda: library("mpich"),
    ):
        with pytest.raises(UserError, match="LD_PRELOAD takes no path with") as refused:
            use()
        assert "\n" not in str(refused.value) and "set XDG_CACHE_HOME" in refused.value.fix
    assert not (home / "run").exists()


@pytest.mark.programs
@pytest.mark.parametrize("name", ["two words", "a:colon"])
@pytest.mark.parametrize("verb", ["heap", "numa"])
def test_a_program_is_recorded_and_its_child_outlives_the_run(verb: str, name: str, tmp_path: Path) -> None:
    """The child starts a program after the run has ended; the loader finds nothing to complain about."""
    if not (engines_folder() / f"assay-{verb}").is_file():
        pytest.skip("the engines are not built")
    folder = tmp_path / name
    folder.mkdir()
    for file in (f"assay-{verb}", f"libassay-{verb}.so"):
        shutil.copy(engines_folder() / file, folder)
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "said")
    child = f"read line <{tmp_path}/go; /bin/ls {tmp_path}/go >{tmp_path}/said 2>&1"
    script = f"({child}) >/dev/null 2>&1 & /bin/true"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "ASSAY_ENGINES": str(folder),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "assay", verb, "-o", tmp_path / "run", "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0 and "ld.so" not in done.stderr, done.stderr
    assert Run.load(tmp_path / "run").records
    (tmp_path / "go").write_text("on\n")
    assert (tmp_path / "said").read_text() == f"{tmp_path}/go\n"
