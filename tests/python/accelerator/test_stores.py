"""``assay io stores`` lists all stores of a node. Stores that it cannot read are listed with the reason."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from background import STORE_TOOL
from durability import assay, check_passed, needs_root, run_case, single_store
from mpi_programs import LIMIT_S, memory_folder

from assay.commands.io import recover
from assay.errors import UserError

pytestmark = pytest.mark.programs

NOBODY = 65534
VERSION_OFFSET = 8  # bytes, of the version in the superblock


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kept store."""
    for folder in memory_folder():
        files = tmp_path_factory.mktemp("kept")
        settings = {"ASSAY_IO_KEEP": "checkpoint", "ASSAY_IO_DIRECT": "0"}
        check_passed(run_case("mpich", "closed", files, folder, **settings), "closed")
        yield single_store(folder)


def copy(store: Path, target: Path, version: int | None = None) -> Path:
    subprocess.run(["cp", "--sparse=always", store, target], check=True, timeout=LIMIT_S)
    if version is not None:
        with target.open("r+b") as data:
            data.seek(VERSION_OFFSET)
            data.write(version.to_bytes(4, "little"))
    return target


def listing(folder: Path) -> dict[str, dict[str, Any]]:
    """The listed stores by name. The exit code must be 0."""
    result = assay("io", "stores", "--json", str(folder))
    assert result.returncode == 0 and not result.stderr, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {Path(store["store"]).name: store for store in found}


def test_a_store_of_another_version_is_listed_beside_the_others(kept: Path, shm: Path) -> None:
    copy(kept, shm / "assay-io-a", version=4)
    copy(kept, shm / "assay-io-b")
    listed = listing(shm)
    assert listed["assay-io-b"]["state"] == "kept"
    old = listed["assay-io-a"]
    assert old["state"] == "unreadable" and "has version 4, this Assay reads" in old["reason"]
    assert "bytes" not in old  # it is not known
    shown = assay("io", "stores", str(shm))
    assert shown.returncode == 0 and "assay-io-a: unreadable" in shown.stdout, shown.stdout + shown.stderr


def test_only_discard_removes_a_store_of_another_version(kept: Path, shm: Path) -> None:
    """Whether its data are in the file system is unknown."""
    old = copy(kept, shm / "assay-io-a", version=4)
    for verb in ("recover", "drain", "drop"):
        refused = assay("io", verb, str(old))
        assert refused.returncode == 2 and old.exists() and "version 4" in refused.stderr, refused.stderr
    with old.open() as used:
        subprocess.run(["flock", "--shared", str(used.fileno())], pass_fds=[used.fileno()], check=True)
        refused = assay("io", "drop", "--discard", str(old))
        assert refused.returncode == 2 and "in use" in refused.stderr and old.exists(), refused.stderr
    assert assay("io", "drop", "--discard", str(old)).returncode == 0 and not old.exists()


def test_a_damaged_store_is_an_error_and_the_others_are_listed(kept: Path, shm: Path) -> None:
    (shm / "assay-io-a").write_bytes(os.urandom(1 << 16))
    copy(kept, shm / "assay-io-b")
    result = assay("io", "stores", str(shm))
    assert result.returncode == 2 and "assay-io-a is not a store" in result.stderr, result.stderr
    assert "assay-io-b: kept as checkpoint" in result.stdout


@pytest.mark.parametrize("size", [0, 64 << 20])
def test_a_store_that_a_job_creates_is_listed(kept: Path, shm: Path, size: int) -> None:
    """The file is empty at first, then it has its size and reads as zero."""
    (shm / "assay-io-a").touch()
    os.truncate(shm / "assay-io-a", size)
    copy(kept, shm / "assay-io-b")
    listed = listing(shm)
    assert listed["assay-io-b"]["state"] == "kept"
    assert listed["assay-io-a"]["state"] == "unreadable"
    assert listed["assay-io-a"]["reason"].startswith("a job creates it")


def test_a_store_that_is_removed_after_the_search_is_left_out(
    shm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(shm / "assay-io-a")
    monkeypatch.setattr(recover, "find_stores", lambda paths: list(paths) or [store])

    def act(path: str) -> int:
        raise UserError(f"{path} cannot be opened")

    assert recover.for_each_store([], act) == 0 and not capsys.readouterr().err
    assert recover.for_each_store([store], act) == 2 and store in capsys.readouterr().err


@needs_root
def test_a_store_of_another_user_is_listed(kept: Path, shm: Path) -> None:
    os.chown(copy(kept, shm / "assay-io-a"), NOBODY, NOBODY)
    copy(kept, shm / "assay-io-b")
    listed = listing(shm)
    assert listed["assay-io-b"]["state"] == "kept"
    assert listed["assay-io-a"]["state"] == "unreadable"
    assert listed["assay-io-a"]["reason"] == "only nobody can read it"


@needs_root
def test_a_link_of_another_user_is_not_followed(kept: Path, shm: Path) -> None:
    """The link may lead to a device on which opening has an effect."""
    link = shm / "assay-io-at-a"
    link.symlink_to(kept)
    assert list(listing(shm)) == [link.name]
    os.lchown(link, NOBODY, NOBODY)
    assert listing_is_empty(shm)


def listing_is_empty(folder: Path) -> bool:
    result = assay("io", "stores", str(folder))
    return result.returncode == 0 and result.stderr.strip() == "no stores found" and not result.stdout


def test_a_device_that_is_not_dax_is_not_opened() -> None:
    """Without a terminal, to open /dev/tty is an error of its own."""
    command = [STORE_TOOL, "list", "/dev/tty"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True)
    assert result.returncode == 2 and "is not a store of Assay" in result.stderr, result.stderr


@pytest.mark.parametrize("verb", ["stores", "recover", "drain", "drop"])
def test_a_strangers_name_does_not_act_on_the_terminal(verb: str, shm: Path) -> None:
    """Who may write into the folder of stores chooses the names there."""
    (shm / "assay-io-\x1b]0;t\x07\n\x9b2Jx").write_bytes(b"other data")
    path = shm if verb != "drop" else next(shm.iterdir())
    result = assay("io", verb, str(path))
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr
    assert "]0;t" in result.stderr and not set("\x1b\x07\x9b") & set(result.stdout + result.stderr)


def test_a_strangers_name_is_listed_on_one_line(shm: Path) -> None:
    (shm / "assay-io-\x1b]0;t\x07\n\x9b2Jx").touch()
    shown = assay("io", "stores", str(shm))
    assert shown.returncode == 0 and shown.stdout.count("\n") == 1, shown.stdout + shown.stderr
    assert r"assay-io-\x1b]0;t\x07\n\x9b2Jx: unreadable" in shown.stdout
    as_json = assay("io", "stores", "--json", str(shm)).stdout
    assert json.loads(as_json)["store"].endswith("assay-io-\x1b]0;t\x07\n\x9b2Jx")
    assert "\x9b" not in as_json


def test_the_tool_of_stores_does_not_act_on_the_terminal(shm: Path) -> None:
    name = shm / "assay-io-\x1b]0;t\x07\x9b2Jx"
    command = [STORE_TOOL, "list", name]
    name.write_bytes(b"other data")
    failed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    name.write_bytes(b"")
    listed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert (failed.returncode, listed.returncode) == (2, 0)
    assert not set("\x1b\x07\x9b") & set(failed.stderr + listed.stdout)


def test_a_store_that_is_incomplete_is_dropped(shm: Path) -> None:
    (shm / "assay-io-a").touch()
    (shm / "results").touch()
    refused = assay("io", "drop", str(shm / "results"))
    assert refused.returncode == 2 and "is not a store" in refused.stderr
    assert assay("io", "drop", str(shm / "assay-io-a")).returncode == 0
    assert [path.name for path in shm.iterdir()] == ["results"]
