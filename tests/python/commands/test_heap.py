"""``assay heap`` on planted programs: known totals to the byte, and the program none the worse for it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from assay.cli import main
from assay.launch.engines import engines_folder
from assay.profile.heap import HeapProfile, Node, load_dumps, load_profiles
from assay.records.run import Run
from assay.records.schema import Finding

ROOT = Path(__file__).parents[3]
ASSAY = ROOT / "assay"
LIMIT_S = 120

pytestmark = [
    pytest.mark.skipif(not (engines_folder() / "assay-heap").is_file(), reason="the engines are not built"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for the planted programs"),
]


def built(where: Path, *options: str) -> Path:
    source = ROOT / "tests/fixtures/heap/planted.cpp"
    subprocess.run(
        ["g++", "-std=c++17", "-O2", "-g", "-pthread", *options, source, "-o", where],
        check=True,
        timeout=LIMIT_S,
    )
    return where


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("planted") / "planted")


def heap(where: Path, *program: str | Path, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [ASSAY, "heap", "-o", where, *options, "--", *program],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def profiles(where: Path) -> list[HeapProfile]:
    return load_profiles(where)


def profile(where: Path) -> HeapProfile:
    (one,) = profiles(where)
    assert one.trace.lost_events == one.trace.damaged_bytes == one.trace.unreadable_chunks == 0
    return one


def functions(one: HeapProfile, node: int) -> set[str]:
    return {one.places[one.nodes[at].place].function.partition("(")[0] for at in one.stack(node)}


def of(one: HeapProfile, function: str) -> Node:
    """The figures of all blocks that a function has asked for."""
    nodes = [
        n
        for k, n in enumerate(one.nodes)
        if one.asker(k).function.startswith(function) and (n.count or n.reallocated)
    ]
    assert nodes, function
    total = nodes[0]
    for other in nodes[1:]:
        for field in ("count", "bytes", "leaked", "leaked_count", "temporary", "reallocated", "at_peak"):
            setattr(total, field, getattr(total, field) + getattr(other, field))
    return total


def advice(where: Path) -> list[str]:
    return [r.cause for r in Run.load(where).records if isinstance(r, Finding)]


def test_output_and_exit_status_are_the_programs_own(planted: Path, tmp_path: Path) -> None:
    done = heap(tmp_path / "run", planted, "clean")
    assert (done.returncode, done.stdout) == (7, "done\n")
    assert done.stderr.startswith("said\n")
    assert "allocated" in done.stderr and "peak" in done.stderr


def test_a_clean_program_gets_no_advice(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "clean")
    assert advice(tmp_path / "run") == []
    one = profile(tmp_path / "run")
    assert one.process.complete
    assert of(one, "main").bytes >= 400_000


def test_a_leak(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "leak")
    node = of(profile(tmp_path / "run"), "leak")
    assert (node.count, node.bytes, node.leaked, node.leaked_count) == (10, 1_000_000, 1_000_000, 10)
    (cause,) = advice(tmp_path / "run")
    assert "leak" in cause and "planted.cpp:" in cause and "1 MB" in cause


def test_short_lives(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "churn")
    node = of(profile(tmp_path / "run"), "churn")
    assert (node.count, node.bytes, node.temporary, node.leaked) == (50_000, 5_000_000, 50_000, 0)
    (cause,) = advice(tmp_path / "run")
    assert "50000 blocks that are freed before the next" in cause


def test_reallocation_in_a_loop(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "grow")
    node = of(profile(tmp_path / "run"), "grow")
    assert (node.count, node.bytes, node.reallocated) == (5000, 10 * 5000 * 5001 // 2, 4999)
    (cause,) = advice(tmp_path / "run")
    assert "reallocates 4999 times" in cause


def test_single_bytes(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "tiny")
    (cause,) = advice(tmp_path / "run")
    assert "5000 times for 1 byte" in cause


def test_every_way_to_ask(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "ways")
    one = profile(tmp_path / "run")
    nodes = [n for k, n in enumerate(one.nodes) if "every_way" in functions(one, k)]
    # Twelve, and the text that is duplicated; libstdc++ rounds an aligned one up to its alignment.
    assert sum(n.count for n in nodes if n.least == n.most == 1000) == 12
    assert sum(n.count for n in nodes if n.least == n.most == 1024) == 1
    assert sum(n.leaked_count for n in nodes) == 0
    assert one.totals.unknown_frees == 0


def test_what_is_asked_of_the_system_itself(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "bare", planted, "clean")
    heap(tmp_path / "run", planted, "maps")
    bare, one = profile(tmp_path / "bare"), profile(tmp_path / "run")
    more = {
        kind: one.threads[0].calls[kind].count
        - (bare.threads[0].calls[kind].count if kind in bare.threads[0].calls else 0)
        for kind in ("map", "unmap", "brk")
    }
    assert more == {"map": 2, "unmap": 2, "brk": 2}  # to move one is to give it up and to ask anew
    assert one.totals.mapped_bytes - bare.totals.mapped_bytes == (1 << 20) + (3 << 20)


def test_threads(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "threads")
    one = profile(tmp_path / "run")
    node = of(one, "churn")
    assert (node.count, node.bytes, node.temporary) == (80_000, 8_000_000, 80_000)
    assert sorted(t.calls["malloc"].count for t in one.threads)[-8:] == [10_000] * 8
    assert len(one.threads) == 9


def test_blocks_that_another_thread_frees(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "handover")
    one = profile(tmp_path / "run")
    assert one.totals.unknown_frees == 0
    assert max(t.foreign_frees for t in one.threads) >= 1000


def test_what_is_never_there_at_once_does_not_add_up(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "halves")
    one = profile(tmp_path / "run")
    peaks = {p.function.partition("(")[0].rpartition("::")[2]: p for p in one.places}
    assert peaks["both_halves"].function_peak_total == 3_000_000
    assert peaks["first_half"].function_peak_total == 1_000_000
    assert peaks["leak"].function_peak_own == 3_000_000
    callers = [n for n in one.nodes if one.places[n.place].function.startswith("both_halves")]
    assert sorted(n.total_peak for n in callers) == [1_000_000, 3_000_000]  # a line each


def test_pages_that_a_few_blocks_keep(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "fragments")
    one = profile(tmp_path / "run")
    assert one.fragments is not None
    assert 19_000 < one.fragments.pages < 22_000
    assert one.fragments.empty > 0.9 * one.fragments.pages * one.fragments.page_bytes
    worst = one.fragments.pins[0]
    assert "interleave" in one.asker(worst.node).function
    assert worst.blocks == 20_000
    (cause,) = advice(tmp_path / "run")
    assert "interleave" in cause and "nearly empty pages" in cause


def test_how_deep_the_stack_went(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "deep")
    (thread,) = profile(tmp_path / "run").threads
    assert 1_000_000 < thread.stack.deepest < 1_200_000
    assert thread.stack.deepest <= thread.stack.resident < thread.stack.deepest + 200_000
    one = profile(tmp_path / "run")
    assert "leak" in functions(one, thread.stack.node)
    assert max(thread.stack.depth) == thread.stack.deepest


def test_copies_that_were_not_meant(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "copies")
    causes = advice(tmp_path / "run")
    assert any("by_value" in cause and "copies" in cause for cause in causes), causes


def faults_can_be_watched() -> bool:
    return os.geteuid() == 0 or int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) <= 2


@pytest.mark.skipif(not faults_can_be_watched(), reason="page faults cannot be watched here")
def test_who_touches_first(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "touch")
    one = profile(tmp_path / "run")
    assert one.touches is not None
    pages = (100 << 20) // 4096
    (line,) = [t for t in one.touches.lines if t.function.startswith("touch")]
    assert abs(line.pages - pages) <= 2
    stack = max(one.touches.stacks, key=lambda t: t.pages)
    assert "ask_large" in one.asker(stack.node).function
    assert abs(stack.pages - pages) <= 2
    # 49 huge pages lie wholly inside of it, or 50; what is left at its ends goes on by small ones.
    assert 49 <= stack.with_huge <= 50 + 2 * 512
    assert abs(dict(one.touches.threads)[1] - pages) <= 50
    (cause,) = advice(tmp_path / "run")
    assert "ask_large" in cause and "with huge pages it would be" in cause


@pytest.mark.skipif(not faults_can_be_watched(), reason="page faults cannot be watched here")
def test_memory_that_is_touched_anew(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "cycle")
    (cause,) = advice(tmp_path / "run")
    assert "ask_large" in cause and "8 times their peak" in cause
    heap(tmp_path / "without", planted, "cycle", options=["--no-faults"])
    assert profile(tmp_path / "without").touches is None
    assert advice(tmp_path / "without") == []


def test_variables(tmp_path: Path) -> None:
    program = tmp_path / "globals"
    source = ROOT / "tests/fixtures/heap/globals.cpp"
    subprocess.run(["g++", "-std=c++17", "-O1", "-g", source, "-o", program], check=True, timeout=LIMIT_S)
    heap(tmp_path / "run", program)
    found = {v.name: v for v in profile(tmp_path / "run").globals.variables}
    zeroed, each = found["planted::zeroed"], found["of_each_thread"]
    assert (zeroed.bytes, zeroed.per_thread, zeroed.line) == (8 << 20, False, 8)
    assert zeroed.resident is not None and abs(zeroed.resident - (4 << 20)) <= 8192
    assert (each.bytes, each.per_thread) == (64 << 10, True)
    assert found["planted::initialised"].bytes == 1_000_000
    objects = {o.path: o for o in profile(tmp_path / "run").globals.objects}
    own = objects[str(program)]
    assert own.data >= 1_000_000 and own.zeroed >= 8 << 20 and own.per_thread >= 64 << 10
    assert any("planted::zeroed" in cause and "8.39 MB" in cause for cause in advice(tmp_path / "run"))


@pytest.mark.parametrize("what", ["throw", "longjmp"])
def test_leaving_frames_in_other_ways(planted: Path, tmp_path: Path, what: str) -> None:
    done = heap(tmp_path / "run", planted, what)
    assert (done.returncode, done.stdout) == (7, "done\n")
    name, blocks = (
        ("throwing", 21 + 1) if what == "throw" else ("jumping", 21)
    )  # the exception's text is one more
    assert of(profile(tmp_path / "run"), name).count == 100 * blocks


def test_signals_in_the_middle(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "signals")
    assert of(profile(tmp_path / "run"), "churn").count == 300_000


def test_a_coroutine_has_a_stack_of_its_own(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "coroutine")
    one = profile(tmp_path / "run")
    assert (of(one, "leak").count, of(one, "leak").leaked) == (500, 500_000)
    (asking,) = (k for k in range(len(one.nodes)) if one.nodes[k].leaked == 500_000)
    callers = [one.places[one.nodes[node].place].function for node in one.stack(asking)]
    assert any(function.startswith("yielding") for function in callers), callers


def test_a_fork_is_a_process_of_its_own(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "fork")
    found = {(p.process.parent, of(p, "leak").bytes) for p in profiles(tmp_path / "run")}
    assert {size for _, size in found} == {1000, 2000}
    parent = next(p for p in profiles(tmp_path / "run") if of(p, "leak").bytes == 1000)
    assert any(ancestor == parent.process.pid and size == 2000 for ancestor, size in found)


def test_a_program_that_becomes_another(planted: Path, tmp_path: Path) -> None:
    done = heap(tmp_path / "run", planted, "exec")
    assert done.returncode == 7
    before, after = sorted(profiles(tmp_path / "run"), key=lambda p: p.totals.count)
    assert before.process.pid == after.process.pid
    assert of(before, "leak").leaked == 3000
    assert of(after, "churn").count == 50_000


def test_killed_without_a_word(planted: Path, tmp_path: Path) -> None:
    done = heap(tmp_path / "run", planted, "killed")
    assert done.returncode == 128 + signal.SIGKILL
    one = profile(tmp_path / "run")
    assert not one.process.complete
    assert of(one, "leak").leaked == 50_000
    assert of(one, "churn").count == 20_000


def test_ctrl_c_ends_the_program_and_keeps_the_profile(planted: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", planted, "slow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert of(profile(tmp_path / "run"), "leak").leaked == 12_345


def test_nothing_is_left_behind(planted: Path, tmp_path: Path) -> None:
    before = set(Path("/dev/shm").glob("assay-heap-*"))
    heap(tmp_path / "run", planted, "fork")
    assert set(Path("/dev/shm").glob("assay-heap-*")) <= before
    assert not list((tmp_path / "run/heap").glob("*.part"))


SCRIPT = """
import json, threading
threads = [threading.Thread(target=str) for _ in range(4)]
print(len(json.dumps(list(range(20000)))), [t.start() for t in threads])
"""


@pytest.mark.parametrize(
    "words",
    [
        ["/usr/bin/python3", "-c", SCRIPT],
        ["g++", "-fsyntax-only", "-x", "c++", str(ROOT / "tests/fixtures/heap/planted.cpp")],
        ["sh", "-c", "seq 1000 | sort -R --random-source=/dev/zero | md5sum"],
        ["git", "-C", str(ROOT), "log", "--oneline", "-3"],
    ],
    ids=["python", "g++", "sh", "git"],
)
def test_real_programs_say_what_they_always_say(words: list[str], tmp_path: Path) -> None:
    bare = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    done = heap(tmp_path / "run", *words)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout)
    assert all(p.totals.count > 0 and p.trace.lost_events == 0 for p in profiles(tmp_path / "run"))


# ---- not everything


def test_blocks_of_a_size_and_more(planted: Path, tmp_path: Path) -> None:
    done = heap(tmp_path / "run", planted, "grow", options=["--at-least", "40kB"])
    node = of(profile(tmp_path / "run"), "grow")
    # Of sizes 10, 20 ... 50,000 those from 40,000 on; one or two below it have that room in fact.
    assert 1001 <= node.count <= 1004
    assert "blocks under 40 kB were left out" in done.stderr


@pytest.mark.parametrize("what", ["churn", "grow"])
def test_a_sample_estimates_the_whole(planted: Path, tmp_path: Path, what: str) -> None:
    done = heap(tmp_path / "run", planted, what, options=["--sample", "4KiB"])
    one = profile(tmp_path / "run")
    node = of(one, what)
    whole = 5_000_000 if what == "churn" else 10 * 5000 * 5001 // 2
    assert node.bytes == pytest.approx(whole, rel=0.25)
    assert one.trace.events < 20_000
    assert "figures are estimates" in done.stderr


RANKED = 'if test "$OMPI_COMM_WORLD_RANK" = 2; then "$0" leak; else "$0" tiny; fi; exit 0'


@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="no Open MPI")
def test_ranks_are_added_up_and_the_odd_one_is_named(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
    program = [*mpirun, "sh", "-c", RANKED, str(planted)]
    done = heap(tmp_path / "run", *program)
    assert "4 ranks" in done.stderr and "unlike the others: 1" in done.stderr
    assert "rank 2 (pid" in done.stderr
    alone = tmp_path / "alone"
    heap(alone, *program, options=["--ranks", "2"])
    (only,) = [one for one in load_profiles(alone) if one.process.rank and "planted" in one.process.program]
    assert only.process.rank == "2"
    assert of(only, "leak").leaked == 1_000_000


def test_a_profile_on_the_way(planted: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [ASSAY, "heap", "-o", tmp_path / "run", "--", planted, "waits"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    until = time.monotonic() + 30
    while not list((tmp_path / "run/heap").glob("*.dump1.json")):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.communicate("go on\n", timeout=30)
    assert process.returncode == 7
    (dump,) = load_dumps(tmp_path / "run")
    whole = profile(tmp_path / "run")
    assert not dump.process.complete and whole.process.complete
    assert 0 < of(dump, "churn").count <= of(whole, "churn").count == 50_000


def test_a_profile_when_much_is_in_memory(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "fragments", options=["--dump-at", "40MB"])
    dumps = load_dumps(tmp_path / "run")
    assert dumps and all("interleave" in str(one.places) for one in dumps)


# ---- shown again, for other tools


def test_what_has_changed(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heap(tmp_path / "a", planted, "clean")
    heap(tmp_path / "b", planted, "leak")
    words = ["heap", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert main([*words, "--metric", "leaked"]) == 0
    assert "+1 MB" in capsys.readouterr().out
    assert main([*words, "--metric", "leaked", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    leak = next(one for one in said["functions"] if "leak" in one["function"])
    assert (leak["before"], leak["after"]) == (0, 1_000_000)
    assert main(["heap", "compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 0
    assert "no function differs" in capsys.readouterr().out


def test_as_json(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heap(tmp_path / "run", planted, "leak")
    assert main(["heap", str(tmp_path / "run"), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert said["totals"]["leaked"] >= 1_000_000
    assert said["functions"]["leaked"][0]["own"] == 1_000_000


@pytest.mark.skipif(shutil.which("callgrind_annotate") is None, reason="no valgrind")
def test_callgrind_reads_it(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "leak")
    text = subprocess.run(
        [ASSAY, "heap", tmp_path / "run", "--export", "callgrind"], capture_output=True, check=True
    )
    (tmp_path / "callgrind.out.1").write_bytes(text.stdout)
    said = subprocess.run(
        ["callgrind_annotate", "--threshold=100", "--show=leaked", "--inclusive=yes", tmp_path / "callgrind.out.1"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (line,) = [line for line in said.splitlines() if ":leak [" in line]
    assert "1,000,000" in line


def test_pprof_reads_it(planted: Path, tmp_path: Path) -> None:
    """Its fields, by their numbers, as profile.proto gives them."""
    heap(tmp_path / "run", planted, "leak")
    said = subprocess.run(
        [ASSAY, "heap", tmp_path / "run", "--export", "pprof"], capture_output=True, check=True
    )
    fields = list(messages(gzip.decompress(said.stdout)))
    strings = [str(value, "utf-8") for field, value in fields if field == 6 and isinstance(value, bytes)]
    assert strings[0] == ""
    types = [dict(messages(value)) for field, value in fields if field == 1 and isinstance(value, bytes)]
    leaked = [strings[int(one[1])] for one in types].index("never freed")
    functions = {
        int(one[1]): strings[int(one[2])]
        for one in (
            dict(messages(value)) for field, value in fields if field == 5 and isinstance(value, bytes)
        )
    }
    total = 0
    for field, value in fields:
        if field != 2 or not isinstance(value, bytes):
            continue
        sample = dict(messages(value))
        if any(functions[location] == "leak" for location in varints(sample[1])):
            total += varints(sample[2])[leaked]
    assert total == 1_000_000


def messages(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protocol buffer that has numbers and parts only."""
    at = 0

    def number() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            size = number()
            yield key >> 3, data[at : at + size]
            at += size


def varints(data: int | bytes) -> list[int]:
    assert isinstance(data, bytes)
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value)
            value, shift = 0, 0
    return found


def test_shown_again_and_exported(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heap(tmp_path / "run", planted, "leak")
    assert main(["heap", str(tmp_path / "run")]) == 0
    assert "never freed" in capsys.readouterr().out
    assert main(["heap", str(tmp_path / "run"), "--export", "collapsed", "--metric", "leaked"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines if "leak" in line.split(";")[-1]) == 1_000_000
    assert main(["heap", str(tmp_path / "run"), "--export", "speedscope"]) == 0
    scope = json.loads(capsys.readouterr().out)
    leaked = next(p for p in scope["profiles"] if p["name"] == "never freed")
    assert leaked["endValue"] == sum(leaked["weights"]) >= 1_000_000
    assert all(
        0 <= frame < len(scope["shared"]["frames"]) for sample in leaked["samples"] for frame in sample
    )


@pytest.mark.skipif(shutil.which("heaptrack") is None, reason="no heaptrack")
def test_a_file_of_heaptracks(planted: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["heaptrack", "-o", tmp_path / "peer", planted, "leak"], capture_output=True, timeout=LIMIT_S
    )
    (file,) = tmp_path.glob("peer*.zst")
    done = subprocess.run(
        [ASSAY, "heap", "import", file, "-o", tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "a file of heaptrack's" in done.stdout
    one = profile(tmp_path / "run")
    nodes = [n for k, n in enumerate(one.nodes) if n.count and "leak" in one.asker(k).function]
    assert [(n.count, n.bytes, n.leaked) for n in nodes] == [(10, 1_000_000, 1_000_000)]
    assert (tmp_path / "run/report.html").is_file()
    cut = tmp_path / "cut.zst"
    cut.write_bytes(file.read_bytes()[:3000])
    done = subprocess.run(
        [ASSAY, "heap", "import", cut, "-o", tmp_path / "cut"], capture_output=True, text=True
    )
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr


def test_what_cannot_be_imported(tmp_path: Path) -> None:
    other = tmp_path / "other.zst"
    other.write_text("hello")
    assert "is no file of heaptrack's" in refused("import", other, cwd=tmp_path)
    assert "there is no such file" in refused("import", tmp_path / "none", cwd=tmp_path)


def test_a_truncated_trace_shows_what_it_holds(planted: Path, tmp_path: Path) -> None:
    heap(tmp_path / "run", planted, "churn")
    (trace,) = (tmp_path / "run/heap").glob("*.heap")
    trace.with_suffix(".json").unlink()
    trace.write_bytes(trace.read_bytes()[:-200])
    done = subprocess.run([ASSAY, "heap", tmp_path / "run"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0
    assert "the trace is damaged" in done.stdout or "did not end by itself" in done.stdout


@pytest.mark.parametrize("what", ["ways", "grow", "handover", "threads"])
def test_packing_loses_nothing(planted: Path, tmp_path: Path, what: str) -> None:
    """The same figures from a trace as it was recorded and from the packed one, which is much smaller; and a third
    time from that, packed again."""
    tool = engines_folder() / "assay-heap"
    subprocess.run([tool, "record", tmp_path, "--", planted, what], capture_output=True, timeout=LIMIT_S)
    (trace,) = tmp_path.glob("*.heap")
    found, sizes = [], []
    for _ in range(3):
        said = subprocess.run([tool, "analyse", trace], capture_output=True, check=True, timeout=LIMIT_S)
        one = json.loads(said.stdout)
        del one["trace"]
        del one["fragments"], one["touches"]  # of addresses, which a packed trace has no more
        found.append(one)
        sizes.append(trace.stat().st_size)
        subprocess.run([tool, "pack", trace], check=True, timeout=LIMIT_S)
    assert found[0] == found[1] == found[2]
    assert sizes[1] < sizes[0]
    if what == "threads":
        assert sizes[1] < sizes[0] / 10


# ---- what cannot be recorded


def refused(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([ASSAY, "heap", *words], capture_output=True, text=True, timeout=LIMIT_S, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    said = refused("--", "no-such-program", cwd=tmp_path)
    assert said.startswith("assay: cannot run no-such-program; is it on PATH, and executable?")
    assert said.count("\n") == 1


def test_a_static_program(tmp_path: Path) -> None:
    static = built(tmp_path / "static", "-static")
    done = heap(tmp_path / "run", static, "leak")
    assert done.stdout == "done\n"
    assert "nothing was recorded" in done.stderr and "statically linked" in done.stderr


def test_a_setuid_program(planted: Path, tmp_path: Path) -> None:
    """The loader takes nothing from the environment of one who becomes somebody else."""
    if os.geteuid() != 0:
        pytest.skip("making one needs root")
    other = tmp_path / "setuid"
    shutil.copy(planted, other)
    os.chown(other, 65534, 65534)
    other.chmod(0o4755)
    done = heap(tmp_path / "run", other, "leak")
    assert done.stdout == "done\n"
    assert "nothing was recorded" in done.stderr and "as another user" in done.stderr


def test_runs_that_are_none(tmp_path: Path) -> None:
    if shutil.which("compare") is None:
        assert "two runs of 'assay heap' are compared" in refused("compare", "a", "b", cwd=tmp_path)
    assert "never negative" in refused("--at-least", "-5", "--", "true", cwd=tmp_path)


def test_a_limit_on_a_programs_memory(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heap(tmp_path / "run", planted, "leak")
    spec = tmp_path / "memory.toml"
    limit = '[[criterion]]\nmetric = "profile.heap/leaked"\nmax = "{}"\n'
    for most, status in (("2 MB", 0), ("500 kB", 1)):
        spec.write_text(limit.format(most))
        assert main(["judge", str(tmp_path / "run"), str(spec)]) == status, capsys.readouterr().out


def test_no_program(tmp_path: Path) -> None:
    assert "no program given" in refused(cwd=tmp_path)


def test_a_run_without_a_trace(tmp_path: Path) -> None:
    Run.create("net", ["assay", "net"], path=tmp_path / "run")
    assert "no heap trace" in refused("run", cwd=tmp_path)


def test_a_full_disk(planted: Path, tmp_path: Path) -> None:
    """The program goes on and ends as it would; what was written until then is kept."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", small], check=True, timeout=10)
    try:
        folder = small / "heap"
        folder.mkdir()
        done = subprocess.run(
            [engines_folder() / "assay-heap", "record", folder, "--", planted, "signals"],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (7, "done\n")
        assert "No space left on device" in done.stderr and "goes on unrecorded" in done.stderr
    finally:
        time.sleep(0.1)
        subprocess.run(["umount", small], check=True, timeout=10)
