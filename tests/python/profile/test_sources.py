"""Which source files a report embeds: debug information may name any file of the machine."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from heap_runs import LIMIT_S, REQUIREMENTS, ROOT, load_profile, run_heap

from assay.errors import UserError
from assay.profile import sources as module
from assay.profile.sources import Refused, Sources, collect_sources, load_sources, read_source, save_sources
from assay.profile.tree import CallTree, Location
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


def test_source_files_of_the_system_are_read() -> None:
    text, _ = read_source(Path("/usr/include/stdio.h"), LIMIT)
    assert "printf" in text


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


def test_the_notices_of_sources_are_one_line_each() -> None:
    assert Sources().notices() == []
    left_out = {"/etc/shadow": "not readable by everybody", "/dev/zero": "not a regular file"}
    kept = {"/a.c": Source("", True), "/b.c": Source("", False)}
    assert Sources(kept, left_out).notices() == [
        "not in the report: /etc/shadow (not readable by everybody), and 1 more file; fix: see the file itself",
        "changed source: /a.c (newer than the recorded program: figures may stand at other lines); "
        "fix: compile and record again",
    ]


def planted_trees(*places: tuple[str, str]) -> list[CallTree]:
    """A call tree of which each line has a figure. ``places``: the file and the object of each."""
    figures = [
        SimpleNamespace(location=Location("f", file, 1, module, False, False)) for file, module in places
    ]
    metrics = {"bytes": SimpleNamespace(key="bytes", listed=True)}
    return cast(list[CallTree], [SimpleNamespace(metrics=metrics, by=lambda metric, group: figures)])


def test_every_source_that_is_not_shown_is_named_with_its_reason(secret: Path, tmp_path: Path) -> None:
    now = datetime.now(UTC).timestamp()
    program, older, newer = (tmp_path / name for name in ("program", "older.c", "newer.c"))
    for path, age in ((program, 200), (older, 300), (newer, 100)):
        path.write_text("int a;")
        os.utime(path, (now - age, now - age))
    missing, relative, climbing = f"{tmp_path}/gone.c", "src/a.c", f"{tmp_path}/src/../id_rsa"
    (tmp_path / "src").mkdir()
    (tmp_path / "link.c").symlink_to(secret)
    files = [str(older), str(newer), missing, relative, climbing, str(tmp_path / "link.c"), "<string>"]
    # The recording began after all files were made: "newer.c" is newer than the program alone.
    sources = collect_sources(planted_trees(*((name, str(program)) for name in files)), now)
    assert {name: source.changed for name, source in sources.files.items()} == {
        str(older): False,
        str(newer): True,
    }
    assert sources.left_out == {
        missing: "no such file on this machine",
        relative: "a relative name, and the debug information has no directory for it",
        climbing: "private, and not named like a source file",
        str(tmp_path / "link.c"): "private, and not named like a source file",
    }
    assert [row.file for row in sources.problems()] == [*sources.left_out, str(newer)]
    assert all(row.fix for row in sources.problems())
    # The C library's debug information may be installed without its source.
    system = collect_sources(
        planted_trees(("../csu/libc-start.c", "/usr/lib/x86_64-linux-gnu/libc.so.6")), now
    )
    assert system.left_out == {"../csu/libc-start.c": module.OF_SYSTEM} and system.notices() == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "src/../../../etc/passwd"])
def test_a_relative_name_opens_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that climb out of the folder in which the report is made."""
    deep = tmp_path / "a" / "b"
    (deep / "src").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("root:")
    monkeypatch.chdir(deep)
    monkeypatch.setattr(module, "read_source", None)
    assert collect_sources(planted_trees((name, "/bin/a")), 0).left_out == {name: module.RELATIVE}


def test_notes_of_etc_are_refused_as_sources(tmp_path: Path) -> None:
    """A recording that names a file of the system which is no source, directly or through a link."""
    link = tmp_path / "solver.c"
    link.symlink_to("/etc/passwd")
    climbing = tmp_path.joinpath(*[".." for _ in tmp_path.parts[1:]], "etc/passwd")
    for path in (Path("/etc/passwd"), climbing, link):
        with pytest.raises(Refused, match="not named like a source file"):
            read_source(path, LIMIT)


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


HAS_ENGINES = not [mark for mark in REQUIREMENTS if mark.args[0]]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ENGINES, reason="needs the engines and a compiler")
@pytest.mark.parametrize("option", ["-gdwarf-4", "-gdwarf-5"])
def test_relative_names_are_resolved_against_the_compilation_directory(option: str, tmp_path: Path) -> None:
    """As in most Makefiles: the compiler is given a relative name."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/own.h").write_text("static void* make(void) { return malloc(5000); }\n")
    (tmp_path / "src/own.c").write_text(
        '#include <stdlib.h>\n#include "own.h"\nvoid* volatile kept;\nint main(void) { kept = make(); return 0; }\n'
    )
    subprocess.run(
        ["gcc", option, "-O2", "src/own.c", "-o", "own"], cwd=tmp_path, check=True, timeout=LIMIT_S
    )
    (tmp_path / "src/own.h").unlink()
    done = run_heap(tmp_path / "run", tmp_path / "own")
    assert done.returncode == 0, done.stderr
    sources = load_sources(tmp_path / "run")
    assert str(tmp_path / "src/own.c") in sources.files
    assert sources.left_out[str(tmp_path / "src/own.h")] == module.MISSING
    assert f"{tmp_path}/src/own.h ({module.MISSING})" in done.stderr
    shown = subprocess.run(
        [ROOT / "assay", "heap", "show", tmp_path / "run", "--json"],
        check=True, capture_output=True, timeout=LIMIT_S,
    )  # fmt: skip
    [process] = json.loads(shown.stdout)
    assert {"file": f"{tmp_path}/src/own.h", "problem": module.MISSING} in [
        {key: row[key] for key in ("file", "problem")} for row in process["source_problems"]
    ]


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
