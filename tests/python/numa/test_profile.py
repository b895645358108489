"""From planted recordings to a profile: call tree, objects, advice, ranks."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from planted_numa import PAGES, USES_PER_NUMBER, planted_profile

from assay.errors import UserError
from assay.explain import explain_evidence
from assay.explain.evidence import Evidence
from assay.measure.numa import FOLDER, NO_COUNTS, analyse_recordings
from assay.numa.advice import advise, applicable
from assay.numa.analysis import analyse, format_processors, processes
from assay.numa.profile import Location
from assay.numa.recording import Access, Object, Part, Sampling, Slice
from assay.profile import numa
from assay.profile.export import callgrind, collapsed, speedscope
from assay.profile.numa import NumaProfile
from assay.profile.numa_ranks import merge_ranks
from assay.profile.profiles import NUMA_FOLDER, Profiles

NUMBERS = PAGES * 512  # in the array


def reloaded(profile: object, folder: Path, name: str = "1.json") -> NumaProfile:
    (folder / NUMA_FOLDER).mkdir(parents=True, exist_ok=True)
    path = folder / NUMA_FOLDER / name
    path.write_bytes(msgspec.json.encode(profile))
    return numa.load_profile(path)


def test_a_profile_has_the_planted_figures(tmp_path: Path) -> None:
    profile = reloaded(analyse([planted_profile(threads=4)]), tmp_path)
    assert numa.total(profile.matrix) == NUMBERS * (USES_PER_NUMBER + 1)
    assert numa.remote_share(profile.matrix) == pytest.approx(USES_PER_NUMBER / 2 / (USES_PER_NUMBER + 1))
    [array] = profile.objects
    assert array.name == "make (/src/a.c:3)" and array.bytes == PAGES * 4096
    assert numa.total(array.touched) == PAGES * 4096
    # Workers 2 and 3 run on node 1 and use the second half.
    assert array.parts[1] == [0] * 8 + [USES_PER_NUMBER * NUMBERS // 16] * 8
    lines = {figures.location.function: figures for figures in profile.by("accesses", "line")}
    assert lines["use"].exclusive == USES_PER_NUMBER * NUMBERS and lines["init"].exclusive == NUMBERS
    assert (lines["main"].exclusive, lines["main"].inclusive) == (0, (USES_PER_NUMBER + 1) * NUMBERS)
    sites = {figures.location.function: figures for figures in profile.by("used_remote", "line")}
    assert sites["make"].exclusive == USES_PER_NUMBER * NUMBERS // 2
    assert all(thread.pinned for thread in profile.threads)
    assert profile.first_touches.bytes == [PAGES * 4096]


@pytest.mark.parametrize(("reads", "is_advised"), [(100, True), (5, True), (4, False)])
def test_copies_are_advised_where_all_nodes_read_everything(reads: int, is_advised: bool) -> None:
    planted = planted_profile(threads=2)
    rows, writes = planted.recording, 1600
    rows.parts.clear()
    rows.accesses.clear()
    # The main thread on node 0 writes each number once; a thread of each node reads all of them.
    for part in range(16):
        rows.parts.append(Part(0, part, 0, 0, 0, writes // 16))
        rows.parts += [Part(0, part, node + 1, node, 0, reads * writes // 16) for node in (0, 1)]
    rows.accesses.append(Access(0, 2, 0, 0, 0, 0, writes))
    rows.accesses += [Access(0, 3, node + 1, node, 0, reads * writes, 0) for node in (0, 1)]
    suggestions = advise(planted)
    assert [advice.action for advice in suggestions] == (["replicate"] if is_advised else [])
    for advice in suggestions:
        assert advice.nodes == (0, 1) and advice.before == pytest.approx(reads / (2 * reads + 1))
        assert advice.predicted == pytest.approx(1 / (2 * reads + 2))  # each number is written twice
    assert applicable(suggestions) == []


@pytest.mark.parametrize(("loads", "is_advised"), [(4000, True), (90, False)])
def test_samples_are_attributed_and_few_of_them_give_no_advice(loads: int, is_advised: bool) -> None:
    planted = planted_profile(threads=2, mode="sample")
    rows = planted.recording
    rows.parts.clear()
    rows.accesses.clear()
    # A thread of node 1 reads an array on node 0; as many samples hit memory outside of all objects.
    rows.objects[1] = Object(1, "other", "other anonymous memory", 0, 0, 0)
    for number in (0, 1):
        rows.accesses.append(Access(number, 3, 2, 1, 0, loads, 0))
        rows.parts.append(Part(number, 0, 2, 1, 0, loads))
    rows.accesses.append(Access(-1, 3, 2, 1, -1, 5, 0))  # without an address
    rows.sampling = Sampling("cpu/mem-loads/", 1000, 2, [loads, 0, 0, loads, 5])
    rows.slices += [Slice(0, 500, 0, loads, 0), Slice(500, 500, 0, loads, 5)]
    profile = analyse([planted])
    sampling, slices = profile.sampling, profile.timeline.slices
    assert sampling is not None and (sampling.samples, sampling.attributed) == (2 * loads + 5, loads)
    assert slices.width == pytest.approx(5e-7)
    assert (slices.remote, slices.unknown) == ([loads, loads], [0, 5])
    assert any("held samples back 2 times" in text for text in profile.problems)
    # Reads alone say nothing about copies: stores are sampled apart.
    assert [advice.action for advice in profile.advice] == (["bind"] if is_advised else [])
    assert [row.view for row in profile.absent] == []


def test_recordings_of_one_process_are_one_profile() -> None:
    exact, touch = planted_profile(threads=2), planted_profile(threads=2, mode="touch")
    other = planted_profile(threads=2, mode="touch", is_serial=False)
    other.recording.process.pid = 7
    assert processes([touch, exact, other]) == [[exact, touch], [other]]
    profile = analyse([exact, touch])
    assert len(profile.objects) == 1 and len(profile.threads) == 3
    assert numa.total(profile.touched) == PAGES * 4096


def test_advice_is_a_finding_of_explain(tmp_path: Path) -> None:
    reloaded(analyse([planted_profile(threads=4)]), tmp_path)
    [finding] = explain_evidence(Evidence([], ["h"], profiles=Profiles(tmp_path)))
    assert finding.rule == "numa_placement" and "47.6 %" in finding.cause
    assert any("init (a.c:9)" in detail for detail in finding.details)


def test_good_placement_has_no_finding(tmp_path: Path) -> None:
    reloaded(analyse([planted_profile(threads=4, is_serial=False)]), tmp_path)
    assert explain_evidence(Evidence([], ["h"], profiles=Profiles(tmp_path))) == []


def test_a_thread_that_moves_between_nodes_is_a_finding(tmp_path: Path) -> None:
    moving = planted_profile(threads=2)
    for binding in moving.recording.bindings:
        binding.processors = [0, 1]
    for row in moving.recording.accesses[:4]:
        row.thread_node = 1 - row.thread_node
    reloaded(analyse([moving]), tmp_path)
    findings = explain_evidence(Evidence([], ["h"], profiles=Profiles(tmp_path)))
    [threads] = [finding for finding in findings if finding.rule == "numa_threads"]
    assert "bind threads" in threads.fix and threads.details


def test_ranks_are_added_up(tmp_path: Path) -> None:
    for rank in range(3):
        reloaded(analyse([planted_profile(threads=4, rank=str(rank))]), tmp_path, f"{rank}.json")
    profiles = Profiles(tmp_path)
    assert [profile.process.rank for profile in profiles.numa_ranks] == ["0", "1", "2"]
    merged = profiles.numa_main
    assert merged is not None and merged.title == "./a, 3 ranks"
    single = profiles.numa[0]
    assert numa.total(merged.matrix) == 3 * numa.total(single.matrix)
    assert numa.remote_share(merged.matrix) == numa.remote_share(single.matrix)
    [array] = merged.objects
    assert array.bytes == 3 * PAGES * 4096 and array.parts[1][15] == 3 * USES_PER_NUMBER * NUMBERS // 16
    assert merged.calls.of_stacks("accesses").sum() == 3 * numa.total(single.matrix)
    assert "Over time" in [row.view for row in merged.absent]
    assert len(merged.threads) == 15 and merged.threads[14].name.startswith("rank 2: 4")
    assert merged.advice[0].gain == 3 * single.advice[0].gain and len(merged.advice) == 1
    numa.check(merged)


def write_recording(path: Path, pid: int, rank: str, mode: str) -> None:
    """A process with one object, which it accesses once if ``mode`` counts accesses."""
    process = ["process", 1, mode, pid, 1, 4096, 2, "./a\0", rank]
    rows: list[list[object]] = [process, ["node", 0, [0], 0, []], ["thread", 0, pid, "a"]]
    rows += [["stack", 1, [10]], ["object", 0, "heap", "", 1, 4096, 1]]
    rows += [["access", 0, 1, 0, 0, 0, 1, 1]] if mode == "gcc" else []
    rows.append(["end", 1000, 0, 0])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", ["100.qemu.numa", "100.0.numa", "101.exact0.numa"])
def test_an_empty_recording_is_no_profile(name: str, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / name).touch()
    write_recording(folder / "100.1.numa", 100, "", "touch")
    with pytest.raises(UserError, match=f"{name} is empty"):
        analyse_recordings(tmp_path)


def test_a_process_without_counts_says_so(tmp_path: Path) -> None:
    """It was killed while it wrote them: there is an empty file and what the recorder saw."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "100.exact0.numa").touch()
    write_recording(folder / "100.0.numa", 100, "", "touch")
    write_recording(folder / "101.0.numa", 101, "", "touch")
    analyse_recordings(tmp_path)
    says_so = {profile.process.pid: NO_COUNTS in profile.problems for profile in Profiles(tmp_path).numa}
    assert says_so == {100: True, 101: False}


def test_a_rank_without_counts_is_named(tmp_path: Path) -> None:
    """Of a rank that was killed while it wrote its counts, there is an empty file and what the recorder saw."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "101.exact0.numa").touch()
    for rank, mode in enumerate(["gcc", "touch"]):
        write_recording(folder / f"{100 + rank}.0.numa", 100 + rank, str(rank), mode)
    analyse_recordings(tmp_path)
    main = Profiles(tmp_path).numa_main
    assert main is not None and main.process.rank == "0"
    assert "no counts of accesses from rank 1: a process that is killed writes none" in main.problems


def test_ranks_with_different_nodes_are_reported() -> None:
    ranks = [planted_profile(threads=4, nodes=nodes, rank=str(nodes)) for nodes in (2, 4)]
    profiles = [msgspec.convert(msgspec.to_builtins(analyse([rank])), NumaProfile) for rank in ranks]
    merged = merge_ranks(profiles)
    assert "the ranks have different nodes" in " ".join(merged.problems)
    assert [node.id for node in merged.nodes] == [0, 1, 2, 3]
    numa.check(merged)


def test_exports_hold_the_planted_counts(tmp_path: Path) -> None:
    profile = reloaded(analyse([planted_profile(threads=4)]), tmp_path)
    remote = USES_PER_NUMBER * NUMBERS // 2
    assert collapsed(profile, "remote") == f"main (a.c:20);use (a.c:14) {remote}\n"
    shown = json.loads(speedscope(profile))
    assert {row["name"]: row["endValue"] for row in shown["profiles"]}["remote accesses"] == remote
    text = callgrind(profile)
    assert "events: remote accesses" in text and "summary: " in text


def test_a_recursive_function_counts_once() -> None:
    planted = planted_profile(threads=2)
    planted.stacks = {1: [0, 3], 2: [1, 3], 3: [2, 3, 2, 3]}
    profile = msgspec.convert(msgspec.to_builtins(analyse([planted])), NumaProfile)
    figures = {row.location.function: row for row in profile.by("accesses", "function")}
    assert figures["use"].inclusive == USES_PER_NUMBER * NUMBERS
    assert figures["main"].inclusive == (USES_PER_NUMBER + 1) * NUMBERS


def test_the_recorders_own_memory_is_left_out() -> None:
    planted = planted_profile(threads=2)
    planted.locations[1] = Location("report", "", 0, "/x/libassay-numa-exact.so")
    planted.locations[3] = Location("start", "", 0, "/x/libassay-numa-exact.so")
    profile = analyse([planted])
    assert profile.touched.count == [] and any("recorder itself" in text for text in profile.problems)


@pytest.mark.parametrize(
    ("processors", "text"), [([0, 1, 2, 8], "0-2,8"), ([], ""), ([5], "5"), ([3, 1], "1,3")]
)
def test_processors_are_written_as_the_kernel_lists_them(processors: list[int], text: str) -> None:
    assert format_processors(processors) == text


def test_a_damaged_profile_is_one_line(tmp_path: Path) -> None:
    profile = analyse([planted_profile(threads=2)])
    profile.first_touches.thread[0] = 99
    with pytest.raises(UserError, match="a thread that does not exist; fix: delete it"):
        reloaded(profile, tmp_path)
