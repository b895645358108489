"""Touch mode on programs whose first touches are known, on emulated nodes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.measure.numa import FOLDER, load_profiles
from assay.numa.advice import advise
from assay.numa.profile import Profile, by_object, first_touches, resident
from assay.profile.numa import total
from assay.profile.profiles import Profiles

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
ARRAY_PAGES = (8 << 20) // 4096
two_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has one node")


def numa(
    run: Path, *command: object, options: tuple[str, ...] = (), **more: object
) -> subprocess.CompletedProcess[str]:
    """Runs ``assay numa -o RUN OPTIONS -- COMMAND``."""
    arguments = [sys.executable, "-m", "assay", "numa", "-o", str(run), *options, "--", *map(str, command)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        **more,  # type: ignore[call-overload]
    )


def array_of(profile: Profile) -> int:
    """The number of the object that is the array."""
    return next(n for n in by_object(profile) if profile.name(n).startswith("allocate "))


def check_placement(profile: Profile, is_parallel: bool, nodes: int = 2) -> None:
    """``nodes``: the number of nodes that threads run on."""
    number = array_of(profile)
    touched = by_object(profile)[number].by_thread_node()
    by_line = [
        (location, c.total) for (obj, location, _), c in first_touches(profile).items() if obj == number
    ]
    initialised = sum(pages for location, pages in by_line if location.function == "initialise")
    assert ARRAY_PAGES - 4 <= initialised <= ARRAY_PAGES + 1
    assert all(location.file.endswith("placed.c") for location, _ in by_line)
    pages = resident(profile)[number]
    if is_parallel:
        for node in range(nodes):
            assert abs(touched[node] - ARRAY_PAGES / nodes) <= 4
            assert abs(pages[node] - ARRAY_PAGES / nodes) <= 4
        assert [a for a in advise(profile) if a.object == number] == []
    else:
        assert set(touched) == {0} and pages[0] >= ARRAY_PAGES - 1 and sum(pages.values()) - pages[0] == 0
        [advice] = [a for a in advise(profile) if a.object == number]
        assert advice.toucher is not None and advice.toucher.function == "initialise"
        assert advice.action == "spread" and advice.before == 1 - 1 / nodes


@two_processors
@pytest.mark.parametrize("initialisation", ["serial", "parallel"])
def test_first_touches_on_emulated_nodes_are_recorded(
    initialisation: str, placed: Path, tmp_path: Path
) -> None:
    done = numa(tmp_path / "run", placed, initialisation, 2, options=("--emulate", "2"))
    assert (done.returncode, done.stdout) == (7, "10\n")
    assert "2 emulated" in done.stderr and "nodes are emulated" in done.stderr
    profile = load_profiles(tmp_path / "run" / FOLDER)[0]
    assert profile.recording.process.emulated == 2
    # Threads 0 and 2 run on processor 0, the others on 1: emulated node 0 and 1.
    check_placement(profile, initialisation == "parallel")
    timeline = Profiles(tmp_path / "run").numa[0].timeline.slices
    assert sum(timeline.local) + sum(timeline.remote) + sum(timeline.unknown) >= ARRAY_PAGES - 1
    assert sum(timeline.local) >= 0.9 * ARRAY_PAGES  # the default policy places pages locally
    assert timeline.seconds[0] == 0 and len(timeline.seconds) <= 256


@pytest.mark.acceptance("numa")  # starts MPI jobs
@two_processors
@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no Open MPI")
@pytest.mark.parametrize("mode", ["touch", "gcc"])
def test_the_ranks_of_an_mpi_program_are_added_up(mode: str, placed: Path, tmp_path: Path) -> None:
    program = placed
    if mode == "gcc":
        program = tmp_path / "placed"
        cc = [sys.executable, "-m", "assay", "numa", "cc"]
        source = [str(ROOT / "tests/fixtures/numa/placed.c"), "-g", "-O1", "-pthread", "-o", str(program)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "CC": "gcc"}
        subprocess.run([*cc, *source], check=True, timeout=300, env=environment)
    mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    # mpirun ends all ranks as soon as one ends with another status than 0.
    done = numa(tmp_path / "run", *mpirun, program, "serial", 2, 0, options=("--emulate", "2"))
    assert done.stdout == "10\n10\n", done.stderr
    profiles = Profiles(tmp_path / "run")
    ranks = profiles.numa_ranks
    assert [rank.process.rank for rank in ranks] == ["0", "1"]
    merged = profiles.numa_main
    assert merged is not None and merged.process.program.endswith(", 2 ranks")
    assert total(merged.matrix) == sum(total(rank.matrix) for rank in ranks) > 2 * ARRAY_PAGES


TRUNCATES = r"""
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Calls `handle` with the path of each file in the folder of the rings. Returns how many there are.
static int for_each_ring(int (*handle)(const char*)) {
    const char* folder = getenv("ASSAY_NUMA_RINGS");
    int count = 0;
    DIR* open_folder = opendir(folder);
    for (struct dirent* file; open_folder && (file = readdir(open_folder));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        if (strstr(file->d_name, ".ring")) {
            handle(path);
            ++count;
        }
    }
    if (open_folder) closedir(open_folder);
    return count;
}
static int count_only(const char* path) { return path == NULL; }
static int cut(const char* path) { return truncate(path, 0); }

int main(void) {
    // The recorder removes the name as soon as it has mapped the file.
    for (int waited = 0; waited < 300000 && for_each_ring(count_only) > 0; ++waited) usleep(1000);
    for_each_ring(cut);
    for (int k = 0; k < 100000; ++k) free(malloc(8192));
    puts("done");
    return 5;
}
"""
ALLOCATES = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    for (int k = 0; k < 100000; ++k) free(malloc(8192));
    puts("done");
    return 5;
}
"""


def compiled(folder: Path, source: str) -> Path:
    (folder / "program.c").write_text(source)
    subprocess.run(["gcc", "-g", folder / "program.c", "-o", folder / "program"], check=True, timeout=300)
    return folder / "program"


def test_nobody_can_truncate_a_ring_that_is_in_use(tmp_path: Path) -> None:
    done = numa(tmp_path / "run", compiled(tmp_path, TRUNCATES))
    assert (done.returncode, done.stdout) == (5, "done\n"), done.stderr
    profile = load_profiles(tmp_path / "run" / FOLDER)[0]
    assert sum(row.count for row in profile.recording.objects.values()) >= 100_000


@pytest.mark.parametrize("end", ["KILL", "STOP"])
def test_a_recorder_that_is_gone_or_stopped_does_not_hold_the_program(end: str, tmp_path: Path) -> None:
    """The program fills its ring of 65,536 events, which nobody empties. It waits at most once for a recorder that is
    stopped, and what found no room is counted."""
    script = (
        'echo "$ASSAY_NUMA_RINGS" >rings; '
        f'kill -{end} $PPID; "$0"; status=$?; kill -CONT $PPID 2>/dev/null; echo $status >status'
    )
    program = compiled(tmp_path, ALLOCATES)
    done = numa(tmp_path / "run", "sh", "-c", script, program, cwd=tmp_path)
    await_file(tmp_path / "status")
    assert (tmp_path / "status").read_text() == "5\n", done.stderr
    shutil.rmtree(
        (tmp_path / "rings").read_text().strip(), ignore_errors=True
    )  # of a recorder that was killed
    if end == "STOP":
        assert done.returncode == 0
        ends = [profile.recording.end for profile in load_profiles(tmp_path / "run" / FOLDER)]
        lost = max(end.lost for end in ends if end is not None)
        assert 2 * 100_000 - 65_536 <= lost <= 2 * 100_000


def await_file(path: Path) -> None:
    deadline = time.monotonic() + 300
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a /dev/shm needs root")
@pytest.mark.parametrize("room", ["8k", pytest.param("1m", marks=pytest.mark.acceptance("numa"))])
def test_a_full_file_system_of_the_rings_costs_events(room: str, tmp_path: Path) -> None:
    """With room for half of a ring, a fast recorder may miss none; what it misses it says."""
    program = compiled(tmp_path, ALLOCATES)
    script = f'mount -t tmpfs -o size={room} none /dev/shm && exec "$@"'
    assay = [sys.executable, "-m", "assay", "numa", "-o", tmp_path / "run", "--", program]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *assay],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert (done.returncode, done.stdout) == (5, "done\n"), done.stderr
    if room == "1m" and "events could not be recorded" not in done.stderr:
        profile = load_profiles(tmp_path / "run" / FOLDER)[0]
        assert sum(row.count for row in profile.recording.objects.values()) >= 100_000


def test_a_limit_of_file_sizes_does_not_end_the_program(tmp_path: Path) -> None:
    program = compiled(tmp_path, ALLOCATES)
    done = numa(tmp_path / "run", "sh", "-c", f"ulimit -f 1000; exec {program}")
    assert (done.returncode, done.stdout) == (5, "done\n"), done.stderr


def test_without_page_faults_pages_are_looked_up(placed: Path, tmp_path: Path) -> None:
    done = numa(tmp_path / "run", placed, "serial", 2, options=("--pages-only",))
    assert (done.returncode, done.stdout) == (7, "10\n")
    assert "page faults were not watched" in done.stderr
    profile = load_profiles(tmp_path / "run" / FOLDER)[0]
    sizes = {profile.name(n): sum(pages.values()) for n, pages in resident(profile).items()}
    assert max(size for name, size in sizes.items() if name.startswith("allocate ")) >= ARRAY_PAGES - 1


@pytest.mark.parametrize(
    ("script", "status", "output"),
    [
        ("echo out; exit 3", 3, "out\n"),
        ("kill -KILL $$", 137, ""),
        ("(exit 4); echo $?; exec sh -c 'echo in; exit 5'", 5, "4\nin\n"),
        ('for k in 3 4 5 6 7 8 9; do eval "exec $k>&-"; done; echo out', 0, "out\n"),
    ],
)
def test_output_and_status_are_those_of_the_program(
    script: str, status: int, output: str, tmp_path: Path
) -> None:
    done = numa(tmp_path / "run", "bash", "-c", script)
    assert (done.returncode, done.stdout) == (status, output), done.stderr
    assert load_profiles(tmp_path / "run" / FOLDER)


def test_a_crash_is_the_programs_own(tmp_path: Path) -> None:
    done = numa(tmp_path / "run", sys.executable, "-c", "import os; os.kill(os.getpid(), 11)")
    assert done.returncode == 128 + signal.SIGSEGV
    assert load_profiles(tmp_path / "run" / FOLDER)


def test_a_static_program_has_touches_but_no_allocations(tmp_path: Path) -> None:
    source = tmp_path / "static.c"
    source.write_text("#include <stdlib.h>\n#include <string.h>\nint main(void) { char *p = malloc(1 << 20);\n"
                      "memset(p, 1, 1 << 20); return p[5]; }\n")  # fmt: skip
    program = tmp_path / "static"
    subprocess.run(["gcc", "-g", "-static", str(source), "-o", str(program)], check=True, timeout=300)
    done = numa(tmp_path / "run", program)
    assert done.returncode == 1
    assert "allocations are not known" in done.stderr
    profile = load_profiles(tmp_path / "run" / FOLDER)[0]
    lines = first_touches(profile).items()
    assert sum(counts.total for (_, line, _), counts in lines if line.function == "main") >= 255


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no program given"),
        (["--", "no-such-program"], "cannot run no-such-program"),
        (["--emulate", "65", "--", "true"], "too many nodes"),
        (["--emulate", "0", "--", "true"], "whole number of at least 1"),
        (["--apply", "/nowhere", "--", "true"], "holds no NUMA profile"),
        (["show", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assay", "numa", *arguments],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )  # fmt: skip
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
