"""Numbers and options of the original benchmarks mean here what they mean there."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from assay.commands.io.h5bench import h5bench, h5bench_file
from assay.commands.io.mdtest import mdtest
from assay.commands.io.original import integer
from assay.commands.io.originals import ior
from assay.errors import UserError


@pytest.mark.parametrize(
    "text, number",
    [
        ("8", 8),
        ("4k", 4096),
        ("4K", 4096),
        ("10MB", 10 << 20),
        ("1MiB", 1 << 20),
        ("1m", 1 << 20),
        ("2g", 2 << 30),
        ("1t", 1 << 40),
        ("1T", 1 << 40),
        ("1p", 1 << 50),
        ("10B", 10),
        (" 32 k ", 32768),
        ("-7", -7),
        ("47008", 47008),
    ],
)
def test_numbers_are_those_of_ior(text: str, number: int) -> None:
    assert integer(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5g", "10x", "1e6", "٣", "99999999999p"])
def test_a_number_that_ior_would_misread_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        integer(text)


def test_an_ior_command_line_of_a_script_keeps_its_sizes() -> None:
    command = "./install/bin/ior -a MPIIO -b 10MB -t 1MB -vvv -H -q -F -wr -k -s=2 -i3 -o out"
    params = ior(command.split()).params
    assert (params["block"], params["transfer"]) == (10_485_760, 1_048_576)
    assert (params["segments"], params["repetitions"]) == (2, 3)
    assert params["write"] and params["read"] and params["keep"] and params["file_per_process"]
    assert ior(["-O", "blockSize=1t,transferSize=1g,showHints=1"]).params["block"] == 1 << 40


@pytest.mark.parametrize("api, notes", [("", 1), ("-a MPIIO", 0), ("-O api=mpiio", 0)])
def test_a_command_line_of_ior_without_an_interface_is_told(
    api: str, notes: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("assay.records.notes._told", set())
    ior(f"/opt/ior -w {api}".split())
    ior(["-w"])  # Assay's own
    assert capsys.readouterr().err.count("without -a IOR would use POSIX; MPI-IO is measured") == notes


@pytest.mark.parametrize(
    "words, problem",
    [
        ("-m", "-m is not supported: a file for each repetition"),
        ("-U hints", "-U is not supported: a file of MPI hints"),
        ("-w -u", "-u is not supported: a folder for each file"),
        ("-f script", "-f is not supported: a script of IOR"),
        ("mpirun -np 4 ior -w", "'mpirun': Assay starts the ranks itself"),
        ("runjob -n 8 -p 4 : ./ior -w", "'runjob': Assay starts the ranks itself"),
        ("numactl -N 0 /opt/bin/ior -w", "'numactl': Assay starts the ranks itself"),
        ("write -t 1m", "'write': neither ior nor an option of it"),
        ("-w -zz", "-z twice is not supported: random offsets that may overlap"),
        ("-C -C -w", "-C twice is not supported: a shift by several ranks"),
        ("-b 1.5g", "'1.5g' is no number of IOR"),
        ("-t 0", "a size of '0' is not possible"),
    ],
)
def test_an_option_of_ior_without_a_counterpart_is_named(words: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        ior(words.split())
    assert problem in str(refused.value)


def test_long_names_of_options_of_ior_are_the_short_ones() -> None:
    long = ior(["--collective", "--dataPacketType=random", "-t", "1m"])
    assert long.params == ior(["-c", "-l", "r", "-t", "1m"]).params
    assert (long.params["collective"], long.params["packet"]) == (True, "random")


def test_mdtest_has_the_numbers_of_ior() -> None:
    assert mdtest(["/opt/bin/mdtest", "-n", "1k", "-w", "4kB", "-i", "2"]).params == {
        "items": 1024,
        "bytes": 4096,
        "iterations": 2,
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("-n 10 -C", "-C is not supported: create alone"),
        ("-n 10 -z 2 -b 3 -I 5", "-z is not supported: a tree of directories (depth)"),
        ("-n 10 -I 5", "-I 5 with -n 10: mdtest makes several directories"),
        ("-n 10 -x=status", "-x is not supported: a status file of the stonewall"),
        ("-n 10 -P -x status", "-x is not supported: a status file of the stonewall"),
        ("-n 10 -d a@b", "-d a@b: mdtest uses several directories"),
        ("-n 10 --gpuDirect", "unrecognized arguments: --gpuDirect"),
    ],
)
def test_an_option_of_mdtest_without_a_counterpart_is_named(words: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        mdtest(words.split())
    assert problem in str(refused.value)


def test_options_of_the_text_of_mdtest_change_nothing() -> None:
    assert mdtest(["-n", "10", "-v", "-v", "-P", "-Z", "-V=2"]).params == {"items": 10}


@pytest.mark.parametrize(
    "words", ["-z 0 -b 1 -I 10", "-n=10 -b 7", "-I=10", "-n 10 -I 10 -z=0", "-n 10 -I 0", "-n 0 -I 10"]
)
def test_one_directory_of_mdtest_is_no_tree(words: str) -> None:
    assert mdtest(words.split()).params == {"items": 10}


def entry(kind: str, **settings: str) -> dict[str, object]:
    values = {"TIMESTEPS": "2", "DIM_1": "4 K", "MODE": "SYNC", "COLLECTIVE_DATA": "YES", **settings}
    return {"benchmark": kind, "file": "x.h5", "configuration": values}


def write_json(folder: Path, *entries: dict[str, object]) -> Path:
    path = folder / "configuration.json"
    path.write_text(json.dumps({"mpi": {"command": "mpirun"}, "vol": {}, "benchmarks": entries}))
    return path


def test_the_json_of_h5bench_is_read(tmp_path: Path) -> None:
    path = write_json(tmp_path, entry("write"), entry("read", READ_OPTION="FULL"))
    params = h5bench(h5bench_file(path)).params
    assert params == {"timesteps": 2, "dim_1": 4096, "collective_data": True, "read_option": "FULL"}
    assert h5bench(h5bench_file(write_json(tmp_path, entry("write")))).params["write"] is True


def test_of_a_json_whose_parts_differ_each_command_takes_its_own(tmp_path: Path) -> None:
    path = write_json(tmp_path, entry("write"), entry("read", DIM_1="2 K", COLLECTIVE_DATA="NO"))
    file = {"file": "x.h5", "keep": True, "timesteps": 2}
    written = h5bench(["h5bench_write", str(path), "x.h5"]).params
    assert written == {**file, "dim_1": 4096, "collective_data": True, "write": True}
    assert h5bench(["h5bench_read", str(path), "x.h5"]).params == {**file, "dim_1": 2048, "read": True}
    with pytest.raises(UserError, match="differ") as refused:
        h5bench_file(path)
    assert f"h5bench_write {path} FILE, then -- h5bench_read {path} FILE" in refused.value.fix
    with pytest.raises(UserError, match="no benchmark 'read'"):
        h5bench(["h5bench_read", str(write_json(tmp_path, entry("write"))), "x.h5"])


def test_the_mode_of_older_versions_of_h5bench_is_known() -> None:
    assert h5bench(["DIM_1=4 K", "ASYNC_MODE=NON"]).params == {"dim_1": 4096}
    with pytest.raises(UserError, match="ASYNC_MODE=EXP is not supported") as refused:
        h5bench(["DIM_1=4 K", "ASYNC_MODE=EXP"])
    assert refused.value.fix == "ASYNC_MODE=NON"


@pytest.mark.parametrize("program", [["h5bench"], ["./install/bin/h5bench", "--debug", "-a"]])
def test_the_command_line_of_the_script_of_h5bench_is_read(tmp_path: Path, program: list[str]) -> None:
    path = str(write_json(tmp_path, entry("write"), entry("read")))
    expected = {"timesteps": 2, "dim_1": 4096, "collective_data": True}
    assert h5bench([*program, path]).params == expected
    assert h5bench([*program, path, "TIMESTEPS=3"]).params == {**expected, "timesteps": 3}


@pytest.mark.parametrize(
    "command, problem, fix",
    [
        (["{}"], "is not a setting", "write --config {}"),
        (["h5bench", "-f", "write", "{}"], "h5bench -f: not supported", "h5bench FILE.json"),
        (["h5bench"], "not a command line of h5bench", "h5bench FILE.json"),
        (["h5bench", "{}", "{}"], "not a command line of h5bench", "h5bench FILE.json"),
    ],
)
def test_the_command_line_to_write_for_a_file_of_h5bench_is_given(
    tmp_path: Path, command: list[str], problem: str, fix: str
) -> None:
    path = str(write_json(tmp_path, entry("write")))
    with pytest.raises(UserError, match=problem) as refused:
        h5bench([word.format(path) for word in command])
    assert fix.format(path) in refused.value.fix


@pytest.mark.parametrize(
    "entries, problem",
    [
        ([entry("amrex")], "the benchmark 'amrex'"),
        ([entry("write"), entry("read"), entry("read")], "3 benchmarks"),
        ([entry("write"), entry("read", DIM_1="8 K")], "DIM_1 of write and of read differ"),
        ([entry("write", MODE="ASYNC")], "MODE=ASYNC is not supported"),
    ],
)
def test_a_json_that_assay_cannot_measure_is_refused(
    tmp_path: Path, entries: list[dict[str, object]], problem: str
) -> None:
    with pytest.raises(UserError) as refused:
        h5bench(h5bench_file(write_json(tmp_path, *entries)))
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "params"),
    [
        ("NUM_PARTICLES=16 M", {}),
        ("IO_OPERATION=WRITE", {"write": True}),
        ("COLLECTIVE_DATA=Y", {"collective_data": True}),
        ("COLLECTIVE_METADATA=n", {}),
        ("FILE_PER_PROC=NO", {}),
        ("SUBFILING=N", {}),
        ("ALIGN=no", {}),
        ("MODE=sync", {}),
        ("ASYNC_MODE=NON", {}),
        ("IO_MEM_LIMIT=5000 K", {}),
        ("EMULATED_COMPUTE_TIME_PER_TIMESTEP=4s", {"compute_time": 4.0}),
        ("EMULATED_COMPUTE_TIME_PER_TIMESTEP=2", {"compute_time": 2.0}),
        ("EMULATED_COMPUTE_TIME_PER_TIMESTEP=500 ms", {"compute_time": 0.5}),
        ("EMULATED_COMPUTE_TIME_PER_TIMESTEP=2 min", {"compute_time": 120.0}),
    ],
)
def test_a_setting_of_h5bench_means_what_it_means_there(setting: str, params: dict[str, object]) -> None:
    assert h5bench(["DIM_1=8", setting]).params == {"dim_1": 8, **params}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["NUM_PARTICLES=16 M"],
            "NUM_PARTICLES without DIM_1 is one particle in h5bench; fix: write the number",
        ),
        (["IO_OPERATION=READ", "BENCHMARK_TYPE=write"], "one setting says write, another read"),
        (["IO_OPERATION=APPEND"], "IO_OPERATION=APPEND is not supported; fix: IO_OPERATION=write or read"),
        (["MODE=ASYNC"], "MODE=ASYNC is not supported; fix: MODE=SYNC"),
        (["ASYNC_MODE=EXP"], "ASYNC_MODE=EXP is not supported; fix: ASYNC_MODE=NON"),
        (["IO_MEM_LIMIT=much"], "IO_MEM_LIMIT=much is not a number"),
        (["SUBFILING=YES"], "SUBFILING=YES is not supported; fix: SUBFILING=NO"),
        (["EMULATED_COMPUTE_TIME_PER_TIMESTEP=500ms"], "is not a time; fix: e.g. '1 s' or '500 ms'"),
        (["EMULATED_COMPUTE_TIME_PER_TIMESTEP=0,5 s"], "is not a time"),
        (["EMULATED_COMPUTE_TIME_PER_TIMESTEP=-1 s"], "is not a time"),
        (["EMULATED_COMPUTE_TIME_PER_TIMESTEP=nan"], "is not a time"),
    ],
)
def test_a_setting_of_h5bench_that_nobody_can_mean_is_refused(settings: list[str], problem: str) -> None:
    with pytest.raises(UserError) as refused:
        h5bench(settings)
    assert problem in str(refused.value)
