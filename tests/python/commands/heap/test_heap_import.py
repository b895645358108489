"""Files of heaptrack: both versions of the format, each compression, raw ones, and those that lack their end."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest
from heap_runs import ASSAY, LIMIT_S, REQUIREMENTS, load_profile, usage_error

pytestmark = REQUIREMENTS
V2 = """v 10000 2
X ./solver
I 1000 1000
s /opt/lib/libsolver.so
s grow(std::vector<double, std::allocator<double> >&)
s operator new(unsigned long)
i 401000 1 2
t 1 0
i 402000 1 3
t 2 1
a 2000 2
+ 0
c 5
+ 0
- 0
c a
"""
END = "# strings: 3\n# ips: 2\n"
V3 = V2.replace("v 10000 2", "v 10500 3").replace("s /opt", "s 15 /opt").replace("s grow", "s 33 grow")
V3 = V3.replace("s operator", "s 1b operator")


def import_file(folder: Path, content: bytes) -> subprocess.CompletedProcess[str]:
    file = folder / "heaptrack.solver.1.gz"
    file.write_bytes(content)
    return subprocess.run(
        [ASSAY, "heap", "import", file, "-o", folder / "run"], capture_output=True, text=True, timeout=LIMIT_S
    )


@pytest.mark.parametrize("text", [V2, V3])
@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_names_of_both_versions_are_whole(tmp_path: Path, text: str, pack: type[bytes]) -> None:
    done = import_file(tmp_path, pack((text + END).encode()))
    assert done.returncode == 0, done.stderr
    profile = load_profile(tmp_path / "run")
    assert (profile.totals.count, profile.totals.bytes, profile.totals.leaked) == (2, 16384, 8192)
    locations = {location.function: location.module for location in profile.calls.locations}
    for name in ("grow(std::vector<double, std::allocator<double> >&)", "operator new(unsigned long)"):
        assert locations[name] == "/opt/lib/libsolver.so"
    assert "never freed" in done.stdout and not profile.trace.cut_off


@pytest.mark.parametrize("cut", ["frame", "lines", "line"])
def test_nothing_is_a_leak_in_a_file_that_lacks_its_end(tmp_path: Path, cut: str) -> None:
    more = "".join(f"c {stamp:x}\n" for stamp in range(16, 4000))  # incompressible enough to be cut
    content = {
        "frame": gzip.compress((V2 + more + END).encode())[:-2000],
        "lines": gzip.compress(V2.encode()),
        "line": (V2 + "c 1").encode(),
    }[cut]
    done = import_file(tmp_path, content)
    assert done.returncode == 2
    assert "INCONCLUSIVE" in done.stdout and "lacks its end" in done.stdout
    assert "never freed" not in done.stdout
    profile = load_profile(tmp_path / "run")
    assert profile.trace.cut_off and not profile.process.complete and profile.totals.count == 2


def test_a_file_without_an_allocation_does_not_pass(tmp_path: Path) -> None:
    """heaptrack_interpret writes such a file where it understands no module of the program."""
    done = import_file(tmp_path, b"v 10300 3\nX 2 ls\nI 1000 3e8\nc 1\nR 100\n# strings: 0\n# ips: 0\n")
    assert done.returncode == 2
    assert "INCONCLUSIVE" in done.stdout and "has no allocation in it" in done.stdout


@pytest.mark.parametrize(
    "text, problem",
    [
        ("v 10500 3\nx 6 ./prog\nX ./prog\nm 1 x 5d7ea53f9000 0 848\n", "raw file of heaptrack"),
        (
            "v 10500 3\nx 6 ./prog\nX ./prog\nm 1 x 5d7ea53f9000 0 848\n",
            "fix: interpret it where it was recorded: zstdcat RAW | heaptrack_interpret > FILE",
        ),
        (V2.replace("2", "4", 1), "version 4"),
        ("v 10200\nX ./prog\n", "version 1"),
        (V2 + END + V2 + END, "several files of heaptrack behind each other; fix: give each alone"),
        ("", "not a heaptrack file"),
        ("v", "ends before its first line"),
        ("<!DOCTYPE html><html>", "a page of HTML, not a heaptrack file"),
        ("\x7fELF", "an ELF program or library, not a heaptrack file; fix: give heaptrack.PROGRAM.PID.zst"),
        ("main;solve 3\n", "folded stacks (flamegraph.pl), not a heaptrack file"),
    ],
)
def test_what_cannot_be_imported_is_named(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    assert problem in usage_error("import", file, cwd=tmp_path)


@pytest.mark.parametrize("text", ["hello", "v 10500 3\nx 6 ./prog\nX ./prog\nm 1 x 5d7ea53f9000 0 848\n"])
def test_nothing_is_left_of_an_import_that_is_refused(tmp_path: Path, text: str) -> None:
    done = import_file(tmp_path, text.encode())
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
