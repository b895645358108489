"""Programs of Debian under the recorders: same output, same exit status, and something is counted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.launch.engines import engines_folder
from assay.measure.numa import NumaRecording, record_program
from assay.numa.recording import read_recording

LIMIT_S = 300  # against hangs
# Commands in a folder with the file "lines", and their exit statuses.
PROGRAMS = {
    "ls": (["ls", "-1", "lines", "absent"], 2),
    "grep": (["grep", "-c", "no such line", "lines"], 1),
    "sort": (["sort", "-n", "-r", "lines"], 0),
    "gzip": (["gzip", "-n", "-c", "lines"], 0),
    "tar": (["tar", "-c", "--mtime=@0", "--owner=0", "--group=0", "-f", "-", "lines"], 0),
    "python3": (["/usr/bin/python3", "-S", "-c", "import sys; print(sum(range(99))); sys.exit(5)"], 5),
    "perl": (["perl", "-e", 'print join(",", map { $_ * $_ } 1 .. 99); exit 6'], 6),
    "awk": (["awk", "{ n += $1 } END { print n; exit 7 }", "lines"], 7),
    "sed": (["sed", "-n", "-e", "s/7/seven/gp", "-e", "$q8", "lines"], 8),
    "find": (["find", ".", "-name", "lin*", "-size", "-9k"], 0),
}
ENGINES = ("touch", "qemu")

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not (engines_folder() / "assay-numa").is_file(), reason="the engines are not built"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs")
    (path / "lines").write_text("".join(f"{k * 7919 % 1000}\n" for k in range(1000)))
    return path


@pytest.mark.parametrize("mode", ENGINES)
@pytest.mark.parametrize(
    "name",
    [
        name if name == "grep" else pytest.param(name, marks=pytest.mark.acceptance("numa"))
        for name in PROGRAMS
    ],
)
def test_a_program_does_the_same_when_it_is_recorded(
    name: str,
    mode: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    command, status = PROGRAMS[name]
    executable = shutil.which(command[0])
    if executable is None:
        pytest.skip(f"optional: no {name}")
    if mode == "qemu" and shutil.which("qemu-x86_64") is None:
        pytest.skip("optional: no qemu-x86_64")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LC_ALL", "C")
    program = [executable, *command[1:]]
    alone = subprocess.run(program, capture_output=True, timeout=LIMIT_S)
    assert alone.returncode == status, alone.stderr
    assert record_program(tmp_path / "run", program, NumaRecording(emulator=mode == "qemu")) == status
    shown = capfdbinary.readouterr()
    assert (shown.out, shown.err) == (alone.stdout, alone.stderr)
    [path] = (tmp_path / "run").glob("*.numa")
    recording = read_recording(path)
    assert recording.process.mode == mode and recording.end is not None
    assert (
        sum(row.reads + row.writes for row in recording.accesses)
        + sum(row.pages for row in recording.touches)
        > 0
    )
