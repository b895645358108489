"""Runs clang-tidy on the C++ sources of engines/ that changed since they were last found clean.

    tidy.py [BUILD]      BUILD: the folder with compile_commands.json; "build" by default

The build compiles several sources at once ("unity"); here each is checked alone, with the options of its
group. A source that no target compiles is named, with exit code 2. A source counts as changed when its own
text, one of its headers, its compiler options, .clang-tidy or clang-tidy's version differ. What was clean is
remembered in BUILD/tidy. Prints the warnings of the others; exit code 1 if there are any.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIDY = Path(sys.executable).parent / "clang-tidy"
GCC_ONLY = ("-fno-tree-loop-distribute-patterns",)  # options that clang refuses
# Compiled only where its compiler's headers are found.
OPTIONAL = ("engines/profile/numa/llvm",)


def sources(build: Path) -> dict[Path, str]:
    """The compiler's options of each source under engines/, once where it is built several times."""
    commands: dict[Path, str] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["directory"], entry["file"]).resolve()
        options = compiler_options(entry["command"])
        for source in included(path) if path.parent.name == "Unity" else [path]:
            if source.is_relative_to(ROOT / "engines"):
                commands.setdefault(source, options)
    return commands


def compiler_options(command: str) -> str:
    """A compiler's command without the compiler, a launcher before it, and what it reads and writes."""
    words = shlex.split(command)
    start = next(k for k, word in enumerate(words) if word.startswith("-"))
    end = words.index("-o")
    return shlex.join(word for word in words[start:end] if word not in GCC_ONLY)


def included(unity: Path) -> list[Path]:
    """The sources that a file of CMake's, which stands for a group of them, includes."""
    lines = unity.read_text().splitlines()
    return [Path(line.split('"')[1]).resolve() for line in lines if line.startswith("#include")]


def left_out(commands: dict[Path, str]) -> list[Path]:
    """The sources of engines/ that the build does not compile, so that nothing would check them."""
    optional = [ROOT / folder for folder in OPTIONAL]
    return sorted(
        path
        for path in (ROOT / "engines").rglob("*.cpp")
        if path not in commands and not any(path.is_relative_to(folder) for folder in optional)
    )


def collect_includes(path: Path, files: set[Path]) -> None:
    """Adds to ``files`` the source and the headers of this repository that it includes, directly or not."""
    if path in files or not path.is_file():
        return
    files.add(path)
    for line in path.read_text().splitlines():
        if line.startswith('#include "'):
            name = line.split('"')[1]
            collect_includes(ROOT / "engines" / name, files)
            collect_includes(path.parent / name, files)


def fingerprint(path: Path, command: str) -> str:
    """A hash of everything that clang-tidy's answer for this source depends on."""
    files: set[Path] = set()
    collect_includes(path, files)
    digest = hashlib.sha256(version("clang-tidy").encode() + (ROOT / ".clang-tidy").read_bytes())
    digest.update(command.replace(str(ROOT), "").encode())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def run_clang_tidy(path: Path, command: str) -> str:
    """clang-tidy's warnings on one source; empty where it is clean."""
    done = subprocess.run(
        [TIDY, "--quiet", path, "--", *shlex.split(command)],
        cwd=ROOT / "build",
        capture_output=True,
        text=True,
    )
    return done.stdout or done.stderr if done.returncode else ""


def main() -> int:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    if not (build / "compile_commands.json").is_file():
        print("tidy: the engines are not configured; run packaging/setup.sh test", file=sys.stderr)
        return 2
    commands = sources(build)
    if unchecked := left_out(commands):
        print("tidy: no target compiles:", *unchecked, file=sys.stderr)
        return 2
    clean = build / "tidy"
    clean.mkdir(exist_ok=True)
    fingerprints = {path: (fingerprint(path, command), command) for path, command in commands.items()}
    changed = {path: command for path, (key, command) in fingerprints.items() if not (clean / key).exists()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        warnings_by_source = dict(
            zip(changed, pool.map(run_clang_tidy, changed, changed.values()), strict=True)
        )
    for path, warnings in warnings_by_source.items():
        if warnings:
            print(warnings)
        else:
            (clean / fingerprints[path][0]).touch()
    current = {key for key, _ in fingerprints.values()}
    for stale in clean.iterdir():
        if stale.name not in current:
            stale.unlink()
    return int(any(warnings_by_source.values()))


if __name__ == "__main__":
    sys.exit(main())
