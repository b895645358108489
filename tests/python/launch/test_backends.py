"""Places for a store as /proc/mounts and /sys list them: names with blanks, names that are not UTF-8, folders of the
system, persistent memory that the system uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.launch.backends import NOT_FOR_DATA, backends


def planted(root: Path, monkeypatch: pytest.MonkeyPatch, mounts: bytes) -> dict[str, str]:
    """The hindrances by path, of a machine with these mounts."""
    (root / "proc").mkdir()
    (root / "proc/mounts").write_bytes(mounts)
    monkeypatch.setenv("ASSAY_ROOT", str(root))
    return {backend.path: backend.hindrance for backend in backends()}


def test_a_mount_point_with_a_blank_is_a_place_for_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel writes a blank as "\\040"."""
    place = tmp_path / "local scratch"
    place.mkdir()
    line = f"tmpfs {str(place).replace(' ', chr(92) + '040')} tmpfs rw 0 0\n"
    assert planted(tmp_path, monkeypatch, line.encode()) == {str(place): ""}


def test_a_mount_point_that_is_not_utf8_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = os.fsencode(tmp_path) + b"/gr\xf6\xdfe"
    os.mkdir(place)
    assert planted(tmp_path, monkeypatch, b"tmpfs %s tmpfs rw 0 0\n" % place) == {
        f"{tmp_path}/gr\ufffd\ufffde": "its name is not UTF-8"
    }


def test_a_name_that_begins_like_a_folder_of_the_system_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, own = tmp_path / "run", tmp_path / "runs"
    (system / "user").mkdir(parents=True)
    own.mkdir()
    monkeypatch.setattr("assay.launch.backends.NOT_FOR_DATA", (*NOT_FOR_DATA, str(system)))
    lines = "".join(f"tmpfs {path} tmpfs rw 0 0\n" for path in (system, system / "user", own))
    assert planted(tmp_path, monkeypatch, lines.encode()) == {str(own): ""}


def test_a_line_that_is_cut_short_is_no_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planted(tmp_path, monkeypatch, b"tmpfs /dev/shm\n") == {}


def test_the_folder_of_devices_is_no_place_for_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = b"tmpfs /dev tmpfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n"
    assert planted(tmp_path, monkeypatch, mounts) == {"/dev/shm": ""}


@pytest.mark.parametrize(
    ("driver", "reason"), [("kmem", "the system's memory"), ("device_dax", "no such device")]
)
def test_persistent_memory_that_the_system_uses_is_named(
    driver: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "sys/bus/dax/devices/dax1.4"
    device.mkdir(parents=True)
    (tmp_path / "sys/bus/dax/drivers" / driver).mkdir(parents=True)
    (device / "driver").symlink_to(f"../../drivers/{driver}")
    (device / "size").write_text("1073741824\n")
    (hindrance,) = planted(tmp_path, monkeypatch, b"").values()
    assert hindrance.startswith(reason)
