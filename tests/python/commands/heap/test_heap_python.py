"""Python functions in heap profiles: known totals of known lines, at the right place on the stack."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from heap_runs import stack_metrics

from assay.launch.engines import engines_folder
from assay.profile.export import collapsed
from assay.profile.heap import HeapProfile
from assay.profile.profiles import Profiles, load_profiles
from assay.profile.sources import load_sources
from assay.report.heap import UNKNOWN_CODE, problems
from assay.report.heap_page import heap_pages

ROOT = Path(__file__).parents[4]
PLANTED = ROOT / "tests/fixtures/heap/planted.py"
EMBEDDED = ROOT / "tests/fixtures/heap/embedded.c"
LIMIT_S = 300  # against hangs
HEAD = 33  # overhead of a bytes object, in bytes
LARGE = 40_000  # bytes: planted blocks are larger than all others of their lines
READ_PYTHONS = ("3.11", "3.12", "3.13")
SYSTEM = "/usr/bin/python3"
SEARCHED = 5000  # rows that each call of `search` generates

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not (engines_folder() / "assay-heap").is_file(), reason="the engines are not built"),
]


def version_of(python: str | Path) -> str:
    done = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    return done.stdout.strip()


@functools.cache
def interpreters() -> dict[str, str]:
    """Interpreters by version: the system's, this one, those on PATH, and pyenv's."""
    named = (shutil.which(f"python{version}") for version in READ_PYTHONS)
    places = [SYSTEM, sys.executable, *named, *Path.home().glob(".pyenv/versions/3.*/bin/python3")]
    by_version: dict[str, str] = {}
    for place in map(str, filter(None, places)):
        if Path(place).is_file() and (version := version_of(place)):
            by_version.setdefault(version, place)
    return by_version


def interpreter(version: str) -> str:
    if version not in interpreters():
        pytest.skip(f"optional: no Python {version} here")
    return interpreters()[version]


# The gate reads the frames of the system's version, the acceptance suite those of all others too.
IN_GATE = os.path.realpath(SYSTEM).rpartition("python")[2]
VERSIONS = [
    version if version == IN_GATE else pytest.param(version, marks=pytest.mark.acceptance("profile"))
    for version in READ_PYTHONS
]
SCENARIOS = ("calls", "recursion", "callbacks", "generators", "coroutines", "objects", "exceptions", "threads",
        "dynamic_code", "libraries", "traced")  # fmt: skip


@pytest.fixture(scope="module", params=VERSIONS)
def profile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HeapProfile:
    """The profile of a run of all scenarios, by each version of Python."""
    return record_planted(tmp_path_factory.mktemp("planted"), interpreter(request.param), *SCENARIOS)


def record_program(
    run: Path, *command: str | Path, malloc: str = "malloc", status: int = 0, options: Sequence[str] = ()
) -> list[HeapProfile]:
    """Records a program. Returns the profiles of its processes, in descending order of allocation."""
    tool, folder = engines_folder() / "assay-heap", run / "heap"
    folder.mkdir(parents=True)
    environment = os.environ | {"PYTHONMALLOC": malloc}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [tool, "record", *options, folder, "--", *command],
        env=environment,
        timeout=LIMIT_S,
        capture_output=True,
    )
    assert done.returncode == status, done.stderr.decode()
    for trace in folder.glob("*.heap"):
        with (folder / f"{trace.stem}.json").open("wb") as into:
            subprocess.run([tool, "analyse", trace], stdout=into, check=True, timeout=LIMIT_S)
    profiles = load_profiles(run)
    assert all(profile.trace.lost_events == profile.trace.damaged_bytes == 0 for profile in profiles)
    return profiles


def record_planted(run: Path, python: str, *scenarios: str, malloc: str = "malloc") -> HeapProfile:
    (profile,) = record_program(run, python, "-S", PLANTED, *scenarios, malloc=malloc)
    return profile


def line(name: str) -> int:
    """The number of the line that planted.py marks with this name."""
    (number,) = (
        k for k, text in enumerate(PLANTED.read_text().splitlines(), 1) if text.endswith(f"# line: {name}")
    )
    return number


def frames(profile: HeapProfile, node: int) -> list[str]:
    """The Python functions and lines on a stack, outermost first."""
    places = profile.calls.callers(node)
    return [f"{place.function}:{place.line}" for place in reversed(places) if place.is_python]


def large(profile: HeapProfile, scenario: str) -> Iterator[SimpleNamespace]:
    """Stacks of large blocks that were allocated below this function of the planted program."""
    for stack in stack_metrics(profile):
        if stack.count == 0 or stack.min_size < LARGE:
            continue
        places = [place for place in profile.calls.callers(stack.node) if place.is_python]
        if any(p.function == scenario for p in places) and not places[0].file.startswith(("/usr", "<frozen")):
            yield stack


def stacks(profile: HeapProfile, scenario: str) -> dict[tuple[str, ...], int]:
    """Bytes of large blocks by the Python functions and lines on their stacks."""
    sizes: Counter[tuple[str, ...]] = Counter()
    for stack in large(profile, scenario):
        sizes[tuple(frames(profile, stack.node))] += stack.bytes
    return dict(sizes)


def lines(profile: HeapProfile, scenario: str) -> dict[tuple[str, int], int]:
    """Bytes of large blocks by allocation site."""
    sizes: Counter[tuple[str, int]] = Counter()
    for stack in large(profile, scenario):
        sizes[stack.site.function, stack.site.line] += stack.bytes
    return dict(sizes)


def stack_of(*frames: str) -> tuple[str, ...]:
    """Functions with the line numbers of the named lines, from ("outer@outer calls", ...)."""
    return tuple(
        f"{function}:{line(name)}" for function, _, name in (frame.partition("@") for frame in frames)
    )


MAIN = "<module>@main"


def test_functions_and_lines_are_recorded(profile: HeapProfile) -> None:
    assert lines(profile, "calls") == {
        ("inner", line("inner")): 2 * (1_000_000 + HEAD),
        ("outer", line("outer")): 2_000_000 + HEAD,
    }
    assert stacks(profile, "calls") == {
        stack_of(MAIN, "calls@calls inner", "inner@inner"): 1_000_000 + HEAD,
        stack_of(MAIN, "calls@calls outer", "outer@outer calls", "inner@inner"): 1_000_000 + HEAD,
        stack_of(MAIN, "calls@calls outer", "outer@outer"): 2_000_000 + HEAD,
    }


def test_a_stack_has_c_and_python_frames_in_order(profile: HeapProfile) -> None:
    """A stack holds the C frames before the interpreter, the Python functions, and the C functions that these call."""
    for stack in large(profile, "calls"):
        places = profile.calls.callers(stack.node)[::-1]
        kinds, names = [place.is_python for place in places], [place.function for place in places]
        first, last = kinds.index(True), len(kinds) - 1 - kinds[::-1].index(True)
        assert all(kinds[first : last + 1])  # consecutive, without frames of the interpreter between them
        assert names[first - 1].startswith("_PyEval_EvalFrameDefault")
        assert "_PyEval_EvalFrameDefault" not in names[last:]
        assert "Py_RunMain" in names[:first] and last < len(kinds) - 1


def test_recursion_counts_a_function_once(profile: HeapProfile) -> None:
    sizes = stacks(profile, "recursion")
    assert sorted(stack.count(f"descend:{line('recursion')}") for stack in sizes) == [0, 7]
    assert lines(profile, "recursion") == {("descend", line("bottom")): 2 * (3_000_000 + HEAD)}
    (figures,) = (f for f in profile.by("bytes", "function") if f.location.function == "descend")
    assert 6_000_000 <= figures.inclusive < 6_000_000 + LARGE  # a recursive function counts once


def test_callbacks_from_c_to_python(profile: HeapProfile) -> None:
    called = "callbacks.<locals>.<lambda>"
    assert stacks(profile, "callbacks") == {
        stack_of(MAIN, "callbacks@sorted", "key@key"): 3 * (100_000 + HEAD),
        stack_of(MAIN, "callbacks@reduce", f"{called}@reduce", "key@key"): 3 * (100_000 + HEAD),
        stack_of(MAIN, "callbacks@qsort", f"{called}@compare", "key@key"): 100_000 + HEAD,
    }
    paths = []
    for stack in large(profile, "callbacks"):
        names = [place.function for place in profile.calls.callers(stack.node)][::-1]
        paths.append(names[names.index("callbacks") : names.index("key")])
    assert all(any(name.startswith("_PyEval_EvalFrameDefault") for name in path) for path in paths)
    (through_qsort,) = (path for path in paths if any("qsort" in name for name in path))
    assert [n for n in range(len(through_qsort)) if "qsort" in through_qsort[n]] < [
        through_qsort.index(called)
    ]


def test_stacks_of_generators(profile: HeapProfile) -> None:
    sizes = stacks(profile, "generators")
    assert sorted(sizes.values()) == [2 * (200_000 + HEAD), 3 * (200_000 + HEAD)]
    assert sizes[stack_of(MAIN, "generators@for", "yielding@yield")] == 2 * (200_000 + HEAD)
    (through_delegating,) = (stack for stack in sizes if len(stack) == 4)
    assert through_delegating[2:] == stack_of("delegating@yield from", "yielding@yield")


def test_stacks_of_coroutines(profile: HeapProfile) -> None:
    ((stack, size),) = stacks(profile, "coroutines").items()
    assert stack[-2:] == stack_of("awaiting@awaiting", "awaited@await") and size == 2 * (250_000 + HEAD)


def test_qualified_names(profile: HeapProfile) -> None:
    """Methods, properties, closures, names in Unicode; __init__ without the interpreter's frame around it."""
    sizes = lines(profile, "objects")
    comprehension = {function for function, where in sizes if where == line("comprehension")}
    assert comprehension in (
        {"objects"},
        {"objects.<locals>.<listcomp>"},
    )  # inlined from 3.12 on
    assert sizes == {
        ("Owner.__init__", line("init")): 300_000 + HEAD,
        ("Owner.copied", line("property")): 300_001 + HEAD,
        (comprehension.pop(), line("comprehension")): 2 * (400_000 + HEAD),
        ("objects.<locals>.größe", line("closure")): 500_000 + HEAD,
    }
    assert stack_of(MAIN, "objects@owner", "Owner.__init__@init") in stacks(profile, "objects")
    assert stacks(profile, "Owner.__del__") == {stack_of(MAIN, "Owner.__del__@del"): 350_000 + HEAD}


def test_stacks_while_an_exception_is_raised(profile: HeapProfile) -> None:
    assert lines(profile, "exceptions") == {
        ("PlantedError.__init__", line("raised")): 3 * (600_000 + HEAD),
        ("raise_from_depth", line("finally")): 3 * 6 * (50_000 + HEAD),
        ("exceptions", line("caught")): 3 * (700_000 + HEAD),
    }
    depths = [
        len(stack)
        for stack in stacks(profile, "exceptions")
        if stack[-1] == f"raise_from_depth:{line('finally')}"
    ]
    assert sorted(depths) == [3, 4, 5, 6, 7, 8]


def test_stacks_of_threads(profile: HeapProfile) -> None:
    assert lines(profile, "work") == {("work", line("work")): 10 * (150_000 + HEAD)}
    (stack,) = stacks(profile, "work")
    names = ["Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run", "work"]
    assert [frame.partition(":")[0] for frame in stack] == names


def check_dynamic_code(profile: HeapProfile) -> None:
    sizes: Counter[tuple[str, str]] = Counter()
    for stack in large(profile, "dynamic_code"):
        sizes[stack.site.function, stack.site.file] += stack.bytes
    functions = {
        (f"made_{name}", "<string>"): 3 * n * (800_000 + HEAD) for name, n in (("a", 2), ("b", 2), ("c", 1))
    }
    assert sizes == functions | {("<module>", f"module_{name}.py"): 3 * (900_000 + HEAD) for name in "xyz"}


def test_code_objects_in_reused_memory_are_told_apart(profile: HeapProfile) -> None:
    check_dynamic_code(profile)


def test_a_library_without_the_gil_is_attributed_to_its_caller(profile: HeapProfile) -> None:
    """Allocations in a library that has released the GIL belong to the line that called it."""
    waiting = f"search:{line('search')}"
    of_library = [
        (frames(profile, stack.node), stack.count)
        for stack in stack_metrics(profile)
        if stack.count and "libsqlite3" in stack.site.module
    ]
    assert not [stack for stack, count in of_library if count > 1000 and waiting not in stack]
    in_threads = sum(count for stack, count in of_library if stack[0].startswith("Thread._bootstrap"))
    in_main = sum(count for stack, count in of_library if stack[0] == stack_of(MAIN)[0])
    assert in_main > SEARCHED and in_threads > 3 * SEARCHED


def test_a_trace_function_is_on_the_stack(profile: HeapProfile) -> None:
    sizes = stacks(profile, "traced")
    assert sizes == {
        stack_of(MAIN, "traced@traced", "inner@inner"): 1_000_000 + HEAD,
        stack_of(MAIN, "traced@traced", "inner@inner", "traced.<locals>.trace@trace"): 550_000 + HEAD,
    }


def test_exports_and_figures_have_python_functions(profile: HeapProfile) -> None:
    stacks = [
        text for text in collapsed(profile, "bytes").splitlines() if ";calls" in text and ";outer" in text
    ]
    assert (
        sum(int(text.rpartition(" ")[2]) for text in stacks if text.rpartition(" ")[0].count(";inner"))
        >= 1_000_000
    )
    assert all("_PyEval_EvalFrameDefault" in text.partition(";calls")[0] for text in stacks)
    exclusive = {
        f.location.function: f.exclusive for f in profile.by("bytes", "function") if f.location.is_python
    }
    assert 2_000_000 + HEAD <= exclusive["outer"] < 2_000_000 + LARGE


def test_large_blocks_of_pymalloc_are_recorded(tmp_path: Path) -> None:
    """Large blocks are always recorded; code objects are freed and reused unseen."""
    profile = record_planted(tmp_path, SYSTEM, "calls", "dynamic_code", malloc="pymalloc")
    assert sum(stacks(profile, "calls").values()) == 4_000_000 + 3 * HEAD
    check_dynamic_code(profile)


def test_stacks_deeper_than_the_limit_are_cut(tmp_path: Path) -> None:
    profile = record_planted(tmp_path, SYSTEM, "deep")
    assert lines(profile, "descend") == {("descend", line("bottom")): 3_000_000 + HEAD}
    assert [len(stack) for stack in stacks(profile, "descend")] == [4096]
    assert stacks(profile, "inner") == {stack_of(MAIN, "deep@deep", "inner@inner"): 1_000_000 + HEAD}


def test_a_forked_interpreter_has_its_own_profile(tmp_path: Path) -> None:
    parent, child = record_program(tmp_path, SYSTEM, "-S", PLANTED, "forks")
    assert stacks(parent, "forks") == {stack_of(MAIN, "forks@forks inner", "inner@inner"): 1_000_000 + HEAD}
    assert stacks(child, "forks") == {
        stack_of(MAIN, "forks@forks outer", "outer@outer calls", "inner@inner"): 1_000_000 + HEAD,
        stack_of(MAIN, "forks@forks outer", "outer@outer"): 2_000_000 + HEAD,
    }


def test_functions_at_exit_are_recorded(tmp_path: Path) -> None:
    """Threads are still running when the interpreter ends, some of them without the GIL."""
    profile = record_planted(tmp_path, SYSTEM, "ends")
    assert lines(profile, "leave") == {("leave", line("leave")): 450_000 + HEAD}


@pytest.mark.acceptance("profile")  # where the threads are at the end is chance
@pytest.mark.parametrize("version", READ_PYTHONS)
def test_recording_does_not_change_how_an_interpreter_ends(version: str, tmp_path: Path) -> None:
    arguments = [interpreter(version), "-S", PLANTED, "ends"]
    for k in range(5):
        (tmp_path / str(k)).mkdir()
        done = subprocess.run(
            [engines_folder() / "assay-heap", "record", tmp_path / str(k), "--", *arguments],
            capture_output=True,
            timeout=LIMIT_S,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_packing_loses_nothing(tmp_path: Path) -> None:
    tool = engines_folder() / "assay-heap"
    record_program(tmp_path, SYSTEM, "-S", PLANTED, "calls", "callbacks")
    (trace,) = (tmp_path / "heap").glob("*.heap")
    trees = []
    for _ in range(2):
        analysis = subprocess.run([tool, "analyse", trace], capture_output=True, check=True, timeout=LIMIT_S)
        trees.append(json.loads(analysis.stdout)["tree"])
        subprocess.run([tool, "pack", trace], check=True, timeout=LIMIT_S)
    assert trees[0] == trees[1]


def test_an_unknown_version_of_python_is_reported(tmp_path: Path) -> None:
    """The functions of that Python are not recorded, and the report says so."""
    source = tmp_path / "planted.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "const unsigned long Py_Version = 0x030f00f0;\n"
        "int main(void) { free(malloc(1000)); return 0; }\n"
    )
    subprocess.run(["gcc", "-rdynamic", source, "-o", tmp_path / "planted"], check=True, timeout=LIMIT_S)
    (profile,) = record_program(tmp_path / "run", tmp_path / "planted")
    assert profile.trace.unsupported_python == "3.15"
    (problem,) = (text for text in problems(profile) if "Python" in text)
    assert "3.15" in problem and "3.11" in problem


def test_an_older_version_of_python_is_reported(tmp_path: Path) -> None:
    (profile,) = record_program(tmp_path, interpreter("3.10"), "-c", "print(list(range(1000)))")
    assert profile.trace.unsupported_python == "3.10 or older"
    assert not any(place.is_python for place in profile.calls.locations)


def test_an_interpreter_embedded_in_a_program(tmp_path: Path) -> None:
    """An interpreter loaded late, started and finalized twice, and entered by another thread."""
    library = next(Path("/usr/lib").glob("*/libpython3.1[123].so.1.0"), None)
    if library is None:
        pytest.skip("optional: no interpreter as a library (libpython)")
    subprocess.run(
        ["gcc", "-g", "-pthread", EMBEDDED, "-ldl", "-o", tmp_path / "embedded"], check=True, timeout=LIMIT_S
    )
    (profile,) = record_program(tmp_path / "run", tmp_path / "embedded", library)
    sizes: Counter[str] = Counter()
    for stack in stack_metrics(profile):
        if stack.count and stack.min_size >= LARGE and stack.site.function.startswith("embedded_"):
            sizes[stack.site.function] += stack.bytes
            names = [place.function for place in profile.calls.callers(stack.node)]
            assert "run" in names and "<module>" in names
    assert sizes == {"embedded_main": 2 * (1_000_000 + HEAD), "embedded_thread": 2 * (2_000_000 + HEAD)}


def test_the_report_has_python_functions_and_their_source(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "assay", "heap", "-o", tmp_path / "run", "--", SYSTEM, "-S", PLANTED, "calls"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"PYTHONMALLOC": "malloc"},
    )
    assert done.returncode == 0, done.stderr
    assert "outer" in done.stderr and done.stdout == ""
    assert "Py_RunMain" not in done.stderr.partition("Findings")[2]  # no Python line can change it
    (page,) = heap_pages(Profiles(tmp_path / "run"), load_sources(tmp_path / "run"))
    assert "# line: outer" in page.sources[str(PLANTED)].text


def test_no_python_leaves_out_python_functions(tmp_path: Path) -> None:
    (profile,) = record_program(tmp_path, SYSTEM, "-S", PLANTED, "calls", options=["--no-python"])
    assert not any(place.is_python for place in profile.calls.locations)
    assert any(place.function == "_PyEval_EvalFrameDefault" for place in profile.calls.locations)


ALLOCATING = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def allocate(): libc.malloc(ctypes.c_size_t(50_000))
for _ in range(100): allocate()
"""


def allocated_by(profile: HeapProfile, function: str) -> tuple[int, int]:
    """Blocks and bytes of at least the planted size from this function; all its callers are known."""
    stacks = []
    for stack in stack_metrics(profile):
        names = [place.function for place in profile.calls.callers(stack.node)]
        if stack.max_size >= 50_000 and function in names:
            assert UNKNOWN_CODE not in names, names
            stacks.append(stack)
    return sum(stack.count for stack in stacks), sum(stack.bytes for stack in stacks)


@pytest.mark.parametrize("options", [[], ["--at-least", "10000"]], ids=["all", "large"])
def test_allocations_of_a_library_loaded_by_python(options: list[str], tmp_path: Path) -> None:
    (profile,) = record_program(tmp_path, SYSTEM, "-c", ALLOCATING, options=options)
    assert allocated_by(profile, "allocate") == (100, 5_000_000)


def test_python_functions_have_sampled_blocks(tmp_path: Path) -> None:
    (profile,) = record_program(tmp_path, SYSTEM, "-c", ALLOCATING, options=["--sample", "5000"])
    assert allocated_by(profile, "allocate")[1] > 0


@pytest.mark.acceptance("profile")
@pytest.mark.statistical("1 in 15,000: beyond four standard deviations of a sample")
def test_python_functions_in_a_sample(tmp_path: Path) -> None:
    """About 50 of the 100 blocks, within four standard deviations."""
    (profile,) = record_program(tmp_path, SYSTEM, "-c", ALLOCATING, options=["--sample", "100000"])
    assert allocated_by(profile, "allocate")[1] == pytest.approx(5_000_000, rel=0.57)


@pytest.mark.acceptance("profile")  # starts MPI jobs
@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no Open MPI")
def test_python_functions_in_mpi_ranks(tmp_path: Path) -> None:
    mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    ranks = [
        profile
        for profile in record_program(tmp_path, *mpirun, SYSTEM, "-c", ALLOCATING)
        if profile.process.rank
    ]
    assert [allocated_by(profile, "allocate") for profile in ranks] == [(100, 5_000_000)] * 2
