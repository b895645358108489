"""Wrong input of every verb gives one line with the fault and the fix, and exit code 2. Nothing is started."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli import GROUPS, main
from assay.measure import session
from assay.records.run import Run
from assay.records.schema import Measurement, Summary


@pytest.fixture(autouse=True)
def fail_if_an_engine_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs each test in an empty folder. Starting an engine fails the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_LAB", "no-such-lab")

    class EngineProcess(BaseException):
        """Not an Exception: the command line would report an Exception as a defect, in one line with exit code 2."""

    def start(*_args: object, **_kwargs: object) -> None:
        raise EngineProcess

    monkeypatch.setattr(session, "run_engine", start)


NET = [
    (["--clients", "client[5-1]"], "client[5-1]"),
    (["--clients", ""], "no host"),
    (["--clients", "a"], "one host alone"),
    (["--clients", "a,b", "--servers", "b"], "b is in both --servers and --clients"),
    (["--clients-file", "missing"], "missing: cannot be read"),
    (["--clients", "a,b", "--clients-file", "x"], "both given"),
    (["--clients", "no-such-host-1,no-such-host-2"], "unknown host"),
    (["--servers", "a"], "servers but no clients"),
    (["--servers-hcas", "mlx5_0", "--clients", "a,b"], "--servers-hcas without --servers"),
    (["--servers", "a", "--clients", "b", "--servers-hcas", "mlx5_0:"], "not an adapter's name"),
    (["--servers", "a", "--clients", "b", "--servers-hcas", "m:m"], "named twice"),
    (["--servers", "a", "--clients", "b", "--schedule", "xor"], "for all to all"),
    (["--ranks", "3", "--schedule", "xor"], "power of two"),
    (["--ranks", "2", "--clients", "a,b"], "--ranks goes with no hosts"),
    (["--size", "0"], "at least 1"),
    (["--bsize", "0"], "at least 1"),
    (["--bsize", "1MiB", "--sizes", "1,2"], "both given"),
    (["--sizes", "1,0"], "at least 1"),
    (["--sizes", "1,,2"], "not a quantity"),
    (["--sizes", "900TiB"], "free memory"),
    (["--bsize", "10 parsec"], "parsec"),
    (["--repeats", "0"], "at least 1"),
    (["--niters", "0"], "at least 1"),
    (["--niters", "10", "--budget", "5s"], "contradict"),
    (["--niters", "x"], "--niters: 'x' is not a whole number"),
    (["--nflight", "100000000"], "--nflight 100000000: out of bounds"),
    (["--confidence", "500"], "--confidence: '500' is not a share between 0 and 1"),
    (["--confidence", "0"], "not a share between 0 and 1"),
    (["--confidence", "100%"], "not a share between 0 and 1"),
    (["--confidence", "nan"], "not a share between 0 and 1"),
    (["--ranks", "50000"], "50000 ranks on this machine"),
    (["--ranks", "1" * 5000], "--ranks"),
    (["--clients", "n[1-2000000000]"], "more than 100000 hosts"),
    (["--clients=-oProxyCommand=x,b"], "not the name of a host"),
    (["--clients", "a\nb,c"], "blanks between names"),
    (["--clients", "@@group"], "no group of hosts"),
    (["--budget", "0"], "--budget: '0' is not a time above zero"),
    (["--budget=-1"], "'-1' is not a time above zero"),
    (["--budget", "nan"], "'nan' is not a time above zero"),
    (["--budget", "9 parsec"], "--budget: unknown unit 'parsec'"),
    (["--budget", "5"], "'5' has no unit; fix: write 5s or 5min"),
    (["--budget", "-5s"], "'-5s' is not a time above zero"),
    (["--budget", "5parsecs"], "known are ns, us, ms, s, min, h"),
    (["--timeout", "30"], "'30' has no unit"),
    (["--size", "1e30GiB"], "a size of '1e30GiB' is not possible; fix: give less than 8 EiB"),
    (["--size", "9" * 5000], "give less than 8 EiB"),
    (["--output", ""], "no directory is named"),
    (["-o", "/proc/foo"], "name a directory with -o"),
    (["--json", "--compat-netsan"], "both given"),
    (["--budget", "5 MB"], "MB"),
    (["--timeout", "0.1s"], "--timeout under 1 s"),
    (["--op", "send,fly"], "no operation 'fly'"),
    (["--lab"], "no lab"),
    (["--launcher", "teleport"], "teleport"),
    (["--spec", "missing.toml"], "missing.toml"),
    (["--unknown"], "--unknown"),
]


@pytest.mark.parametrize(
    ("arguments", "named"), NET, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_input_of_net_is_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    expect_refusal(["net", *arguments], named, capsys)
    assert not (tmp_path / "runs").exists(), "a run directory was made"


OTHER_VERBS = [
    (["check", "--hosts", "n[3-1]"], "n[3-1]"),
    (["check", "--spec", "missing.toml"], "missing.toml"),
    (["run", "node.teapot"], "no measurement is called 'node.teapot'; fix: 'assay list' shows all"),
    (["run", "node.nose"], "did you mean 'node.noise'?"),
    (["mem", "--scale", "5000%"], "--scale 5000%: out of bounds"),
    (["mem", "--scale", "0%"], "--scale 0%: out of bounds"),
    (["udp", "send", "-w", "300.1.2.3"], "300.1.2.3: not an address"),
    (["udp", "receive", "-w", "no-such-interface"], "no-such-interface: not an address"),
    (
        ["saturate", "-w", "a,b", "--topology", "missing"],
        "missing: cannot be read: No such file or directory",
    ),
    (["io", "device", ""], "no path is named"),
    (["io", "device", "/proc/foo"], "/proc/foo: nothing can be written there"),
    (["io", "bench", "ior", "-n", "2", "--stock", "--", "-w", "-b", "512t"], "2 ranks write 1 PiB, and "),
    (["help", "dance"], "dance"),
    (["run", "node.memory", "--colour", "3"], "no parameter '--colour'"),
    (["run", "node.memory", "--budget"], "without a value"),
    (["run", "node.memory", "--budget", "-1"], "--budget -1: out of bounds"),
    (["run", "node.memory", "--repeats", "many"], "--repeats many: not a whole number"),
    (["gpu", "--size", "0"], "--size: a size of '0' is not possible; fix: give from 4 KiB to 1 TiB"),
    (["gpu", "--size", "1"], "--size 1: out of bounds; fix: give from 4 KiB to 1 TiB"),
    (["gpu", "--size", "abc"], "--size: 'abc' is not a quantity; fix: give from 4 KiB to 1 TiB"),
    (["list", "node.teapot"], "no measurement"),
    (["judge", "missing", "net"], "missing"),
    (["judge", ".", "net"], "not a run directory"),
    (["report", "missing"], "missing"),
    (["report"], "no run"),
    (["dance"], "dance"),
]


@pytest.mark.parametrize(
    ("arguments", "named"), OTHER_VERBS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_wrong_input_of_other_verbs_is_one_line(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_refusal(arguments, named, capsys)


def test_a_path_without_programs_is_one_line(tmp_path: Path) -> None:
    """The script needs dirname and readlink before it finds Python."""
    script = Path(__file__).parents[3] / "assay"
    run = subprocess.run(
        ["/bin/sh", script, "list"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 2
    assert run.stderr == f"assay: dirname and readlink are not in PATH: {tmp_path}\nfix: add /usr/bin to it\n"


def test_help_is_a_command_too_and_has_the_verbs_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [title for title in GROUPS if f"  {title}" in lines] == list(GROUPS)
    assert lines.index("  qualify") < lines.index("  node") < lines.index("  network")
    assert main(["help", "net"]) == 0
    assert "Qualify a network" in capsys.readouterr().out


def test_a_slurm_without_its_controller_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """srun is there, and says which PMI it has; the controller is down."""
    for program, text in (
        ("srun", "echo MPI plugin types are... pmix pmi2"),
        ("scontrol", "echo is DOWN; exit 1"),
    ):
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    expect_refusal(["net", "--launcher", "srun"], "Slurm's controller does not answer: is DOWN", capsys)
    monkeypatch.setenv("SLURM_JOB_ID", "1")  # srun is the default launcher
    expect_refusal(["check", "--hosts", "n1,n2"], "Slurm's controller does not answer: is DOWN", capsys)
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_judged_by_a_specification_of_other_measurements(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Run.create("mem", ["assay", "mem"], path=Path("memory"))
    run.append(
        Measurement(name="node.memory", metric="bandwidth", unit="B/s", summary=Summary(n=1, median=1e9))
    )
    run.finish("complete")
    expect_refusal(
        ["judge", "memory", "rdma"], "rdma asks for node.rdma; memory measured node.memory", capsys
    )


def test_a_closed_output_is_refused_before_anything_is_measured() -> None:
    command = f"{sys.executable} -m assay list >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output is closed; fix: send it to a file" in done.stderr


def test_a_script_without_standard_error_changes_no_exit_code(tmp_path: Path) -> None:
    """bash opens a script by the first free descriptor: standard error, or output, is then that file, to read."""
    script = tmp_path / "assay.sh"
    script.write_text(f'#!/bin/bash\nexec {sys.executable} -m assay "$@"\n')
    script.chmod(0o700)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for words, status in (("net --nonsense 2>&-", 2), ("list >&-", 2), ("--version 2>&-", 0)):
        done = subprocess.run(
            ["bash", "-c", f"{script} {words}"], env=environment, capture_output=True, timeout=120
        )
        assert done.returncode == status, words
        assert b"defect" not in done.stderr


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "no space left"), (errno.EDQUOT, "disk quota is used up")]
)
def test_a_full_disk_is_said_with_the_file(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "out/records.jsonl")

    monkeypatch.setattr(Run, "create", fail)
    assert main(["run", "node.settings"]) == 2
    assert f"assay: out/records.jsonl: {'the ' * (number == errno.EDQUOT)}{said}" in capsys.readouterr().err


def expect_refusal(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1, captured.err
    assert named in captured.err
    assert "Traceback" not in captured.err
