"""Recording harms no program: programs with their own malloc, many threads, a full /dev/shm, static programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from heap_runs import (
    ASSAY,
    LIMIT_S,
    REQUIREMENTS,
    ROOT,
    load_profile,
    run_heap,
    stack_metrics,
    total_of_function,
)

pytestmark = [*REQUIREMENTS, pytest.mark.programs]

# An allocator inside the executable, as in rustc and chromium. It maps memory while it holds its lock, so the first
# hook that a thread calls is that of mmap.
OWN_MALLOC = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *free_begin, *free_end;

void* malloc(size_t size) {
    pthread_mutex_lock(&lock);
    size_t bytes = (size + 31) & ~(size_t)15;
    if (free_begin == NULL || (size_t)(free_end - free_begin) < bytes) {
        size_t room = bytes > (1 << 20) ? bytes : 1 << 20;
        free_begin = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        free_end = free_begin + room;
    }
    *(size_t*)free_begin = size;
    void* block = free_begin + 16;
    free_begin += bytes;
    pthread_mutex_unlock(&lock);
    return block;
}
void free(void* block) { (void)block; }
void* calloc(size_t count, size_t size) { return memset(malloc(count * size), 0, count * size); }
void* realloc(void* old, size_t size) {
    void* block = malloc(size);
    if (old != NULL) {
        size_t before = ((size_t*)old)[-2];
        memcpy(block, old, before < size ? before : size);
    }
    return block;
}
size_t malloc_usable_size(void* block) { return block == NULL ? 0 : ((size_t*)block)[-2]; }

static void* work(void* unused) {
    char* text = malloc(1 << 20);
    memset(text, 'x', 1 << 20);
    return unused;
}

int main(void) {
    pthread_t threads[8];
    for (int k = 0; k < 8; ++k) pthread_create(&threads[k], NULL, work, NULL);
    for (int k = 0; k < 8; ++k) pthread_join(threads[k], NULL);
    for (int k = 0; k < 1000; ++k)
        if (strdup("a copy by the C library") == NULL) return 1;
    puts("done");
    return 5;
}
"""

THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static pthread_barrier_t all;
static void* work(void* unused) {
    void* block = malloc(77);
    pthread_barrier_wait(&all);
    free(block);
    return unused;
}
int main(int argc, char** argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t* threads = malloc(sizeof *threads * count);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&all, NULL, count);
    for (int k = 0; k < count; ++k)
        if (pthread_create(&threads[k], &small, work, NULL) != 0) return 1;
    for (int k = 0; k < count; ++k) pthread_join(threads[k], NULL);
    free(threads);
    puts("done");
    return 6;
}
"""

CHURN = r"""
#include <stdlib.h>
static void* deep(int depth) {
    void* block = depth == 0 ? malloc(16) : deep(depth - 1);
    __asm__ volatile("");
    return block;
}
int main(void) {
    for (int k = 0; k < 100000; ++k) {
        void* volatile block = malloc(32);
        free(block);
    }
    for (int k = 0; k < 20000; ++k) deep(k % 400);
    return 4;
}
"""


def build(folder: Path, source: str, *options: str) -> Path:
    (folder / "program.c").write_text(source)
    subprocess.run(
        ["gcc", "-g", "-O0", *options, "-o", folder / "program", folder / "program.c", "-pthread"],
        check=True,
        timeout=LIMIT_S,
    )
    return folder / "program"


def test_an_executable_with_its_own_malloc_runs_unchanged(tmp_path: Path) -> None:
    program = build(tmp_path, OWN_MALLOC, "-fno-builtin", "-rdynamic")
    done = run_heap(tmp_path / "run", program)
    assert (done.returncode, done.stdout) == (5, "done\n")
    assert "the executable has a malloc of its own" in done.stderr
    # strdup ends in a jump to malloc, so the copies are counted at the line in main that calls strdup.
    assert total_of_function(load_profile(tmp_path / "run"), "main").count == 1000


STATIC_ALLOCATORS = {"jemalloc": "libjemalloc.a", "tcmalloc": "libtcmalloc_minimal.a"}


@pytest.mark.acceptance("profile")
@pytest.mark.parametrize("allocator", STATIC_ALLOCATORS)
def test_a_statically_linked_allocator_is_named(allocator: str, tmp_path: Path) -> None:
    archive = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu" / STATIC_ALLOCATORS[allocator]
    if not archive.is_file():
        pytest.skip(f"optional: no {archive.name} here")
    program = tmp_path / "program"
    subprocess.run(
        [
            *("g++", "-g", "-pthread", ROOT / "tests/fixtures/heap/operators.cpp", "-o", program),
            *("-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-ldl", "-lm"),
        ],
        check=True,
        timeout=LIMIT_S,
    )
    done = run_heap(tmp_path / "run", program)
    assert (done.returncode, done.stdout) == (9, "done\n")
    assert done.stderr.count("the executable has a malloc of its own") == 1
    # What the C library allocates for the program is recorded: the buffer of its standard output.
    assert total_of_function(load_profile(tmp_path / "run"), "__GI__IO_file_doallocate").count == 1


OTHER_NAME = r"""
#include <stdio.h>
#include <stdlib.h>
void* mi_malloc(size_t size) { return aligned_alloc(16, (size + 15) & ~(size_t)15); }
int main(void) { return puts(mi_malloc(32) != NULL ? "done" : "none") < 0; }
"""


def test_an_allocator_with_functions_of_other_names_is_warned_of(tmp_path: Path) -> None:
    """The warning appears if the executable defines such a function, and not if a library does."""
    done = run_heap(tmp_path / "run", build(tmp_path, OTHER_NAME))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "has an allocator of its own under another name (mi_malloc)" in done.stderr

    library, caller = tmp_path / "library.so", tmp_path / "caller.c"
    build(tmp_path, OTHER_NAME, "-shared", "-fPIC").rename(library)
    caller.write_text(f"void* mi_malloc(unsigned long);{OTHER_NAME[OTHER_NAME.index('int main') :]}")
    command = ["gcc", "-include", "stdio.h", "-o", tmp_path / "caller", caller, library]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    done = run_heap(tmp_path / "second", tmp_path / "caller")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "under another name" not in done.stderr


def test_simultaneous_threads_are_recorded(tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", build(tmp_path, THREADS), "50")
    assert (done.returncode, done.stdout) == (6, "done\n"), done.stderr
    assert total_of_function(load_profile(tmp_path / "run"), "work").count == 50


@pytest.mark.acceptance("profile")
def test_two_thousand_simultaneous_threads_are_recorded(tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", build(tmp_path, THREADS), "2000")
    assert (done.returncode, done.stdout) == (6, "done\n"), done.stderr
    assert total_of_function(load_profile(tmp_path / "run"), "work").count == 2000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a /dev/shm needs root")
@pytest.mark.parametrize("room", ["64k", pytest.param("64m", marks=pytest.mark.acceptance("profile"))])
def test_a_full_shm_moves_the_buffers_to_the_run(tmp_path: Path, room: str) -> None:
    """Where /dev/shm has no room, the buffers are in the run's folder."""
    program = build(tmp_path, CHURN)
    script = f'mount -t tmpfs -o size={room} none /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", ASSAY, "heap", "-o", tmp_path / "run", "--", program],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 4, done.stderr
    assert sum(stack.count for stack in stack_metrics(load_profile(tmp_path / "run"))) >= 120_000


@pytest.mark.acceptance("profile")  # 6,000 threads
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_lost_events_are_counted_when_the_file_system_fills(tmp_path: Path) -> None:
    """The file system fills while the program runs: events are lost, counted and named; the program goes on."""
    program = build(tmp_path, THREADS)
    script = 'mount -t tmpfs -o size=34m none /dev/shm && exec "$@"'
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            ASSAY,
            "heap",
            "-o",
            tmp_path / "run",
            "--",
            program,
            "6000",
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 6, done.stderr
    assert "events were not recorded: the file system of the buffers" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["-static"], "is statically linked"), (["-fsanitize=address"], "is built with AddressSanitizer")],
    ids=["static", "asan"],
)
def test_programs_that_cannot_be_recorded_run_unchanged(
    tmp_path: Path, options: list[str], reason: str
) -> None:
    done = run_heap(tmp_path / "run", build(tmp_path, THREADS, *options), "3")
    assert (done.returncode, done.stdout) == (6, "done\n")
    assert f"{reason}" in done.stderr and "it runs unrecorded" in done.stderr
