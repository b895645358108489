"""Children of recorded programs: those that cannot be recorded run unchanged and are named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from heap_runs import LIMIT_S, REQUIREMENTS, run_heap

from assay.profile.profiles import Profiles

pytestmark = [*REQUIREMENTS, pytest.mark.programs]

CHILD = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
    void* volatile block = malloc(100);
    free(block);
    const char* preload = getenv("LD_PRELOAD");
    printf("%s %d %s\n", argv[1], argc, argc > 2 && preload != NULL ? preload : "");
    return 7;
}
"""

# Starts programs by every function of the C library that does. The child of a vfork shares its parent's memory.
STARTER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void report(const char* how, pid_t pid) {
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
    printf("%s: %d\n", how, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    fflush(stdout);
}

#define IN_CHILD(how, call)                                    \
    do {                                                       \
        char* argv[] = {(char*)path, (char*)how, NULL};        \
        pid_t pid = vfork();                                   \
        if (pid == 0) {                                        \
            call;                                              \
            _exit(99);                                         \
        }                                                      \
        report(how, pid);                                      \
        (void)argv;                                            \
    } while (0)

int main(int argc, char** programs) {
    const char* path = programs[1];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char command[5000];
    snprintf(command, sizeof command, "%s/", path);
    *strrchr(command, '/') = 0;
    *strrchr(command, '/') = 0;
    setenv("PATH", command, 1);
    const char* name = strrchr(path, '/') + 1;
    IN_CHILD("execve", execve(path, argv, environ));
    IN_CHILD("execv", execv(path, argv));
    IN_CHILD("execvp", execvp(name, argv));
    IN_CHILD("execvpe", execvpe(name, argv, environ));
    IN_CHILD("execl", execl(path, path, "execl", NULL));
    IN_CHILD("execlp", execlp(name, name, "execlp", NULL));
    IN_CHILD("execle", execle(path, path, "execle", NULL, environ));
    IN_CHILD("fexecve", fexecve(fd, argv, environ));
    IN_CHILD("execveat", execveat(AT_FDCWD, path, argv, environ, 0));
    IN_CHILD("none", execl("/nowhere/to/be/found", path, "none", NULL));
    for (int k = 1; k < argc; ++k) {
        char* words[] = {programs[k], "spawn", NULL};
        pid_t pid = -1;
        if (posix_spawn(&pid, programs[k], NULL, NULL, words, environ) != 0) return 1;
        report("spawn", pid);
        words[0] = strrchr(programs[k], '/') + 1;
        if (posix_spawnp(&pid, words[0], NULL, NULL, words, environ) != 0) return 1;
        report("spawnp", pid);
    }
    snprintf(command, sizeof command, "%s system", path);
    printf("system: %d\n", WEXITSTATUS(system(command)));
    // A user's own preloaded libraries stay in LD_PRELOAD.
    const char* before = getenv("LD_PRELOAD");
    snprintf(command, sizeof command, "LD_PRELOAD=%s%s/own/first.so:/own/second.so", before ? before : "",
             before ? ":" : "");
    char* words[] = {programs[2], "own", "preload", NULL};
    char* environment[] = {"A=1", command, "B=2", NULL};
    fflush(stdout);
    pid_t pid = -1;
    if (posix_spawn(&pid, programs[2], NULL, NULL, words, environment) != 0) return 1;
    report("own", pid);
    return 3;
}
"""


def compile_source(folder: Path, name: str, source: str, compiler: str = "gcc", *options: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    command = [compiler, *options, "-o", folder / name, folder / f"{name}.c"]
    subprocess.run(command, check=True, timeout=LIMIT_S)
    return folder / name


def test_children_that_cannot_be_recorded(tmp_path: Path) -> None:
    """AddressSanitizer and musl end a program into which the hooks are loaded."""
    children = {
        compile_source(
            tmp_path, "asan", CHILD, "gcc", "-fsanitize=address"
        ): "is built with AddressSanitizer",
        compile_source(tmp_path, "static", CHILD, "gcc", "-static"): "is statically linked",
    }
    if shutil.which("musl-gcc"):
        children[compile_source(tmp_path, "musl", CHILD, "musl-gcc")] = "uses the C library musl"
    if os.geteuid() == 0:
        privileged = compile_source(tmp_path, "privileged", CHILD)
        os.chown(privileged, 65534, 65534)
        privileged.chmod(0o4755)
        tmp_path.chmod(0o755)
        children[privileged] = "is setuid"
    recordable = compile_source(tmp_path, "recordable", CHILD)
    script = tmp_path / "script"
    script.write_text(f"#!{tmp_path / 'asan'} -x\n")
    script.chmod(0o755)
    programs = [*children, recordable, script]
    starter = compile_source(tmp_path, "starter", STARTER)

    bare = subprocess.run([starter, *programs], capture_output=True, text=True, timeout=LIMIT_S)
    done = run_heap(tmp_path / "run", starter, *programs)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout) == (3, bare.stdout), done.stderr
    assert bare.stdout.count(": 7\n") == 11 + 2 * len(programs) and "none: 99\n" in bare.stdout
    assert "own 3 /own/first.so:/own/second.so\n" in bare.stdout

    profiles = Profiles(tmp_path / "run")
    reasons = {path: reason for path, reason in (line.split(" ", 1) for line in profiles.unrecorded)}
    assert {path: reasons[str(path)][: len(reason)] for path, reason in children.items()} == children
    assert set(reasons) == {str(path) for path in [*children, script]}
    names = sorted(Path(profile.process.program).name for profile in profiles.processes)
    assert names == ["recordable", "recordable", "sh", "starter"]
    for line in profiles.unrecorded:
        assert f"not recorded: {line}" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_children_of_another_user(tmp_path: Path) -> None:
    """Processes of another user cannot write the buffers. They are named, after an exec and after a fork."""
    script = "import os; os.setuid(65534); os.fork() or os._exit(0); os.wait()"
    for program in (
        ["setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", "exit 7"],
        [sys.executable, "-c", script],
    ):
        run = tmp_path / f"run-{Path(program[0]).name}"
        done = run_heap(run, *program)
        assert done.returncode == (7 if program[0] == "setpriv" else 0), done.stderr
        (line,) = Profiles(run).unrecorded
        assert "runs as another user" in line and f"not recorded: {line}" in done.stderr


def test_children_without_the_environment(tmp_path: Path) -> None:
    done = run_heap(tmp_path / "run", "env", "-i", "/bin/true")
    assert done.returncode == 0
    assert "not recorded: /bin/true is started without LD_PRELOAD" in done.stderr
    assert "did not end by itself" not in done.stderr
