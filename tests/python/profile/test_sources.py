"""Which source files a report embeds: debug information may name any file of the machine."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from heap_runs import LIMIT_S, REQUIREMENTS, ROOT, load_profile, run_heap

from assay.errors import UserError
from assay.profile import sources as module
from assay.profile.sources import Refused, Sources, collect_sources, load_sources, read_source, save_sources
from assay.records.profile import Source

LIMIT = 1 << 20
SECRET = "planted secret"
OTHER_UID = 12345  # of no user that runs this test


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "id_rsa"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def test_own_source_files_are_read(tmp_path: Path) -> None:
    source = tmp_path / "solver.cpp"
    source.write_text("int main() {}\n")
    os.utime(source, (1e9, 1e9))
    for mode in (0o600, 0o644):
        source.chmod(mode)
        assert read_source(source, LIMIT) == ("int main() {}\n", 1e9)


def test_files_of_the_system_are_read(tmp_path: Path) -> None:
    text, _ = read_source(Path("/etc/passwd"), LIMIT)
    assert "root:" in text


def test_a_private_file_with_another_name_is_refused(secret: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="private"):
        read_source(secret, LIMIT)
    disguised = tmp_path / "disguised.cpp"
    disguised.symlink_to(secret)
    with pytest.raises(Refused, match="private"):
        read_source(disguised, LIMIT)


@pytest.mark.parametrize("name", ["/proc/self/environ", "/proc/self/maps", "/sys/kernel/uevent_seqnum"])
def test_files_of_the_kernel_are_refused(name: str, tmp_path: Path) -> None:
    if not os.path.exists(name):
        pytest.skip(f"optional: no {name}")
    link = tmp_path / "environment.c"
    link.symlink_to(name)
    for path in (Path(name), link):
        with pytest.raises(Refused, match="of the kernel"):
            read_source(path, LIMIT)


def test_special_files_are_refused_at_once(tmp_path: Path) -> None:
    """Opening a FIFO for reading would wait for its writer; opening some devices acts on them."""
    os.mkfifo(tmp_path / "pipe.c")
    (tmp_path / "zero.c").symlink_to("/dev/zero")
    (tmp_path / "to_pipe.c").symlink_to(tmp_path / "pipe.c")
    (tmp_path / "folder.c").mkdir()
    for name in ("pipe.c", "zero.c", "to_pipe.c", "folder.c"):
        with pytest.raises(Refused, match="not a regular file"):
            read_source(tmp_path / name, LIMIT)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "theirs.cpp"
    source.write_text("x")
    if os.geteuid() == 0:
        os.chown(source, OTHER_UID, OTHER_UID)
        monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    else:
        monkeypatch.setattr(module.os, "geteuid", lambda: OTHER_UID)
    with pytest.raises(Refused, match="another user"):
        read_source(source, LIMIT)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own a file as root")
def test_a_file_of_root_must_be_readable_by_everybody(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "geteuid", lambda: OTHER_UID)  # as with a capability that reads all
    with pytest.raises(Refused, match="readable by everybody"):
        read_source(secret, LIMIT)


def test_files_that_are_too_large_or_binary_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "big.c"
    source.write_bytes(b"x" * 1001)
    with pytest.raises(Refused, match="1001 bytes"):
        read_source(source, 1000)
    source.write_bytes(b"x" * 1000)
    assert len(read_source(source, 1000)[0]) == 1000
    source.write_bytes(b"ELF\0binary")
    with pytest.raises(Refused, match="not a text"):
        read_source(source, LIMIT)
    source.write_bytes(b"// \xff\n")
    assert read_source(source, LIMIT)[0] == "// \ufffd\n"


def test_kept_sources_come_back_and_damaged_ones_are_one_line(tmp_path: Path) -> None:
    assert load_sources(tmp_path) == Sources()
    kept = Sources({"/a.c": Source("int a;", True)}, {"/etc/shadow": "not readable by everybody"})
    save_sources(tmp_path, kept)
    assert load_sources(tmp_path) == kept
    for damage in (b"{", b'{"files": 3}', b'{"files": {"\xff": 1}}'):
        (tmp_path / module.SOURCES_NAME).write_bytes(damage)
        with pytest.raises(UserError, match="holds no source files"):
            load_sources(tmp_path)


def test_the_notice_of_sources_is_one_line() -> None:
    assert Sources().notice() == ""
    left_out = {"/etc/shadow": "not readable by everybody", "/dev/zero": "not a regular file"}
    notice = Sources(left_out=left_out).notice()
    assert notice == "not in the report: /etc/shadow (not readable by everybody), and 1 more file"


HOSTILE = """
#include <cstdlib>
volatile void* kept;
#line 1 "{secret}"
__attribute__((noinline)) void secret() {{ kept = std::malloc(10001); }}
#line 1 "/proc/self/environ"
__attribute__((noinline)) void environment() {{ kept = std::malloc(10002); }}
#line 1 "{fifo}"
__attribute__((noinline)) void waits() {{ kept = std::malloc(10003); }}
#line 1 "/dev/zero"
__attribute__((noinline)) void endless() {{ kept = std::malloc(10004); }}
#line 1 "{own}"
int main() {{ secret(); environment(); waits(); endless(); kept = std::malloc(10005); }}
"""


@pytest.mark.programs
@pytest.mark.skipif(bool([mark for mark in REQUIREMENTS if mark.args[0]]), reason="needs the engines and g++")
def test_a_program_that_names_secrets_gets_none_of_them(secret: Path, tmp_path: Path) -> None:
    fifo, own, hostile = tmp_path / "fifo.c", tmp_path / "own.cpp", tmp_path / "hostile.cpp"
    os.mkfifo(fifo)
    own.write_text("// the program's own source\n")
    hostile.write_text(HOSTILE.format(secret=secret, fifo=fifo, own=own))
    subprocess.run(["g++", "-g", hostile, "-o", tmp_path / "hostile"], check=True, timeout=LIMIT_S)
    done = run_heap(tmp_path / "run", tmp_path / "hostile")
    assert done.returncode == 0, done.stderr
    named = {place.file for place in load_profile(tmp_path / "run").calls.locations}
    assert {str(secret), "/proc/self/environ", str(fifo), "/dev/zero", str(own)} <= named
    kept = load_sources(tmp_path / "run")
    assert str(own) in kept.files
    assert {str(secret), "/proc/self/environ", str(fifo), "/dev/zero"} <= set(kept.left_out)
    assert SECRET not in (tmp_path / "run" / module.SOURCES_NAME).read_text()
    private = [
        "heap",
        module.SOURCES_NAME,
        "report.html",
        *(f"heap/{x.name}" for x in (tmp_path / "run/heap").glob("*.heap")),
    ]
    assert len(private) == 4
    for name in private:
        assert (tmp_path / "run" / name).stat().st_mode & 0o077 == 0, name
    (notice,) = [line for line in done.stderr.splitlines() if line.startswith("not in the report: ")]
    assert "and 3 more files" in notice

    # A run from elsewhere names files of this machine: none is read unless it is asked for.
    (tmp_path / "run" / module.SOURCES_NAME).unlink()
    subprocess.run(
        [ROOT / "assay", "heap", "show", tmp_path / "run"], check=True, capture_output=True, timeout=LIMIT_S
    )
    assert load_sources(tmp_path / "run") == Sources()
    show = [ROOT / "assay", "heap", "show", tmp_path / "run", "--sources"]
    subprocess.run(show, check=True, capture_output=True, timeout=LIMIT_S)
    assert str(own) in load_sources(tmp_path / "run").files

    profile = load_profile(tmp_path / "run")
    before = collect_sources([profile.calls], datetime.now(UTC).timestamp() - 3600)
    assert before.files[str(own)].changed
