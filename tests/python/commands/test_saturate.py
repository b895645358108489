"""``assay saturate``, ``simulate`` and ``model``: wrong input is one line, and interrupted studies are kept and
resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli import main
from assay.launch import simulator
from assay.launch.simulator import Simulator
from assay.records.run import Run
from assay.records.schema import Capacity, Finding, Flows, Measurement, Pairs

simulated = pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))

PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><config id="General"><prop id="network/model" value="SMPI"/>
<prop id="network/crosstraffic" value="0"/><prop id="smpi/bw-factor" value="0:1"/>
<prop id="smpi/lat-factor" value="0:1"/><prop id="network/TCP-gamma" value="0"/></config>
<zone id="all" routing="Full"><cluster id="c" prefix="n" suffix="" radical="0-5" speed="1Gf" bw="100MBps"
 lat="10us" sharing_policy="SPLITDUPLEX" limiter_link="150MBps" loopback_bw="6GBps" loopback_lat="1us"/></zone>
</platform>
"""


@pytest.fixture
def platform(tmp_path: Path) -> str:
    path = tmp_path / "platform.xml"
    path.write_text(PLATFORM)
    return str(path)


def error_line(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    stderr = capsys.readouterr().err
    assert "Traceback" not in stderr
    return next(line for line in stderr.splitlines() if line.startswith("assay: "))


@pytest.mark.parametrize(
    "arguments, fault",
    [
        (["saturate"], "no hosts to saturate"),
        (["saturate", "-w", "n1"], "one host alone"),
        (["saturate", "-w", "n[1-2]", "--topology", "a"], "cannot be read"),
        (["saturate", "--topology", "a=n1", "a=n2"], "there twice"),
        (["saturate", "--topology", "a=n[1-3]", "b=n3"], "in two cabinets"),
        (["saturate", "-w", "n[1-4]", "--topology", "a=n[1-3]"], "not in both"),
        (["saturate", "-w", "n[1-4]", "--confidence", "0"], "not a share"),
        (["saturate", "-w", "n[1-4]", "--budget", "0"], "not a time"),
        (["saturate", "-w", "no-such-host-[1-2].invalid"], "unknown host"),
        (["model", "/no/such/run"], "not a run directory"),
        (["model", "--limit", "0"], "not a positive share"),
    ],
)
def test_wrong_input_is_one_line(capsys, arguments: list[str], fault: str):
    assert fault in error_line(capsys, *arguments)


@simulated
@pytest.mark.parametrize(
    "arguments, fault",
    [
        (["simulate", "/no/such.xml", "--", "saturate"], "cannot be read"),
        (["simulate", "{bad}", "--", "saturate"], "not XML"),
        (["simulate", "{other}", "--", "saturate"], "not a platform"),
        (["simulate", "{platform}"], "what is to be simulated"),
        (["simulate", "{platform}", "--nodes", "1", "--", "saturate"], "one host alone"),
        (["simulate", "{platform}", "--", "./no-such-program"], "no such program"),
        (["simulate", "{platform}", "--", "/bin/true"], "not compiled for SimGrid"),
        (["simulate", "{platform}", "--set", "c.colour=red", "--", "saturate"], "has no 'colour'"),
        (["simulate", "{platform}", "--set", "d.bw=1Bps", "--", "saturate"], "has no 'd'"),
        (["simulate", "{platform}", "--", "saturate", "--lab"], "the platform file says where"),
        (["simulate", "{platform}", "--", "saturate", "--nonsense"], "unrecognized"),
    ],
)
def test_wrong_input_of_simulate_is_one_line(
    capsys, tmp_path: Path, platform: str, arguments: list[str], fault: str
):
    (tmp_path / "bad.xml").write_text("<platform")
    (tmp_path / "other.xml").write_text("<html/>")
    names = {"bad": tmp_path / "bad.xml", "other": tmp_path / "other.xml", "platform": platform}
    assert fault in error_line(capsys, *[argument.format(**names) for argument in arguments])


@simulated
def test_a_platform_that_simgrid_refuses_leaves_a_partial_run(capsys, tmp_path: Path, platform: str):
    wrong = tmp_path / "wrong.xml"
    wrong.write_text(PLATFORM.replace("100MBps", "fast"))
    status = main(["simulate", str(wrong), "--", "saturate", "-o", str(tmp_path / "run")])
    assert status == 2
    run = Run.load(tmp_path / "run")
    assert run.info.state == "partial" and run.info.reason
    assert not [r for r in run.records if isinstance(r, Capacity) and r.value is not None]


@simulated
@pytest.mark.parametrize("what", ["net", "saturate", "eb", "{program}"])
def test_settings_that_simgrid_does_not_have_are_named_and_nothing_starts(
    capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    foreign = tmp_path / "foreign.xml"
    settings = '<config><prop id="smpi/async-small-thres" value="1"/><prop id="a b" value="$(false)"/>'
    foreign.write_text(PLATFORM.replace('<config id="General">', settings))
    program = tmp_path / "p.c"
    program.write_text("int main() { return 0; }\n")
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", str(foreign), "--", what.format(program=program)]) == 2
    error = capsys.readouterr().err
    assert error == (
        f"assay: {foreign}: SimGrid has no setting smpi/async-small-thres, a b (<config>); "
        "fix: remove each such <prop>, or rename it: smpi/async-small-thresh\n"
    )
    assert not (tmp_path / "runs").exists()


def test_former_names_of_settings_which_simgrid_takes_but_does_not_list_are_known(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answers = {"no/such": "Bad config key: no/such\n  network/model: (string)SMPI\n"}
    monkeypatch.setattr(Simulator, "_refusal", lambda self, key: answers.get(key, ""))
    Simulator(Path(platform), tmp_path).require_known_settings(Path(platform))


def test_a_changed_platform_finds_the_traces_beside_the_original(tmp_path: Path) -> None:
    home, folder = tmp_path / "my platforms", tmp_path / "changed"
    home.mkdir(), folder.mkdir()
    (home / "a.trace").write_text("0.0 1.0\n")
    command = Simulator(folder / "p.xml", folder, home / "p.xml").smpirun(["a"], ["x"], [])
    (option,) = (word for word in command if word.startswith("--cfg=path:"))
    assert (Path(option.partition(":")[2]) / "a.trace").is_file() and folder.name in option
    assert "--cfg=path" not in " ".join(
        Simulator(home / "p.xml", folder, home / "p.xml").smpirun(["a"], ["x"], [])
    )


@simulated
def test_simulate_fails_with_its_program(tmp_path: Path, platform: str):
    source = tmp_path / "fails.c"
    source.write_text(
        "#include <mpi.h>\nint main(int c, char** v) { MPI_Init(&c, &v); MPI_Finalize(); return 3; }\n"
    )
    assert main(["simulate", platform, "--nodes", "2", "--", str(source)]) != 0
    source.write_text("this is no C\n")
    assert main(["simulate", platform, "--nodes", "2", "--", str(source)]) == 2


@pytest.mark.slow
@simulated
def test_resume_measures_only_the_missing_rounds(tmp_path: Path, platform: str):
    """Two thirds of the records are removed. The remaining rounds are not measured again, and the result is the
    same."""
    run_path = tmp_path / "whole"
    assert main(["simulate", platform, "--", "saturate", "-o", str(run_path)]) == 0
    lines = (run_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    kept = lines[: len(lines) // 3]
    (run_path / "records.jsonl").write_bytes(b"".join(kept))
    info = json.loads((run_path / "run.json").read_bytes())
    info.update(state="partial", completed=[])
    (run_path / "run.json").write_text(json.dumps(info))
    assert main(["run", "--resume", str(run_path)]) == 0
    run = Run.load(run_path)
    assert run.info.state == "complete"
    rounds = [r.params["round"] for r in run.records if isinstance(r, Flows)]
    assert len(rounds) == len(set(rounds))
    up = next(r for r in run.records if isinstance(r, Capacity) and (r.level, r.direction) == ("host", "up"))
    assert up.value == pytest.approx(1e8, rel=0.01)


@pytest.mark.slow
@simulated
def test_small_messages_have_the_rate_of_the_latency_and_a_bounded_number(tmp_path: Path):
    """A flow has 64 messages in flight, and the links a latency of 200 us."""
    platform, run = tmp_path / "platform.xml", tmp_path / "run"
    platform.write_text(PLATFORM.replace("10us", "100us"))
    options = ["--nodes", "2", "--", "net", "--sizes", "1", "--no-retest"]
    assert main(["simulate", str(platform), *options, "-o", str(run)]) == 0
    records = [r for r in Run.load(run).records if isinstance(r, Measurement)]
    (bandwidth,) = (r for r in records if r.metric == "bandwidth")
    assert bandwidth.summary is not None
    planted = 2 * 64 / 200e-6
    assert 0.9 * planted < bandwidth.summary.median <= planted
    assert int(bandwidth.params["iterations"]) <= 5 * 128 * 64  # six bursts of 50 ms have twice as many


@simulated
def test_nodes_extends_the_platform_with_hosts_and_says_which(tmp_path: Path, platform: str, capfd):
    assert main(["simulate", platform, "--nodes", "9", "--", "saturate", "-o", str(tmp_path / "run")]) == 0
    run = Run.load(tmp_path / "run")
    assert run.info.hosts == [f"n{i}" for i in range(9)]
    (finding,) = (r for r in run.records if isinstance(r, Finding) and r.rule == "enlarged")
    assert finding.cause == run.info.options["enlarged"] == ENLARGED
    shown = " ".join(capfd.readouterr().out.split())
    assert shown.count(ENLARGED) == 1


ZONE = (
    '<zone id="c" routing="Cluster"><cabinet id="n" prefix="n" suffix="" radical="0-5" speed="1Gf" bw="100MBps"'
    ' lat="10us"/><backbone id="backbone" bandwidth="1GBps" latency="1us"/></zone>'
)


@simulated
@pytest.mark.parametrize("spelling", ["c.bb_bw", "backbone.bandwidth"])
def test_a_backbone_that_is_set_is_the_one_that_is_simulated(tmp_path: Path, spelling: str) -> None:
    """As an attribute of a <cluster>, and as an element of its own."""
    start, end = PLATFORM.index("<cluster"), PLATFORM.index("</zone>")
    cluster = PLATFORM[start:end].replace("limiter_link", 'bb_bw="1GBps" bb_lat="1us" limiter_link')
    path = tmp_path / "p.xml"
    path.write_text(PLATFORM[:start] + (cluster if spelling == "c.bb_bw" else ZONE) + PLATFORM[end:])
    medians = {}
    for rate in ("1GBps", "10MBps"):
        options = [
            "--set",
            f"{spelling}={rate}",
            "--",
            "net",
            "-w",
            "n[0-1]",
            "--size",
            "1MiB",
            "--no-retest",
        ]
        assert main(["simulate", str(path), *options, "-o", str(tmp_path / rate)]) == 0
        records = Run.load(tmp_path / rate).records
        (found,) = (r for r in records if isinstance(r, Measurement) and r.metric == "bandwidth")
        assert found.summary is not None
        medians[rate] = found.summary.median
    assert 0.9e7 < medians["10MBps"] <= 1.01e7 < 9e7 < medians["1GBps"]


ENLARGED = "3 of 9 hosts are made up: platform.xml has 6, and --nodes added n[6-8] to its clusters in turn"


@simulated
@pytest.mark.parametrize("from_file", [False, True])
def test_records_have_the_hosts_in_the_order_of_the_list(tmp_path: Path, platform: str, from_file: bool):
    order = ["n4", "n1", "n3"]
    (tmp_path / "hosts").write_text("\n".join(order) + "\n")
    listed = ["--hosts-file", str(tmp_path / "hosts")] if from_file else ["-w", ",".join(order)]
    options = ["--", "net", *listed, "--size", "64KiB", "--repeats", "1", "--no-retest"]
    assert main(["simulate", platform, *options, "-o", str(tmp_path / "run")]) == 0
    run = Run.load(tmp_path / "run")
    assert run.info.hosts == run.info.options["clients"] == order
    rows = [r for r in run.records if isinstance(r, Pairs)]
    assert [row.subject.host for row in rows] == order
    assert [row.peers for row in rows] == [[peer for peer in order if peer != host] for host in order]


@simulated
@pytest.mark.parametrize("nodes", ["2", "6"])
def test_hosts_of_the_platform_are_not_called_made_up(tmp_path: Path, platform: str, nodes: str):
    options = ["--nodes", nodes, "--", "net", "--size", "64KiB", "--repeats", "1", "--no-retest"]
    assert main(["simulate", platform, *options, "-o", str(tmp_path / "run")]) == 0
    run = Run.load(tmp_path / "run")
    assert "enlarged" not in run.info.options
    assert not [r for r in run.records if isinstance(r, Finding) and r.rule == "enlarged"]


@simulated
def test_a_program_on_made_up_hosts_says_so(tmp_path: Path, platform: str, capfd):
    source = tmp_path / "p.c"
    source.write_text(
        "#include <mpi.h>\nint main(int c, char** v) { MPI_Init(&c, &v); MPI_Finalize(); return 0; }\n"
    )
    assert main(["simulate", platform, "--nodes", "9", "--", str(source)]) == 0
    assert ENLARGED in capfd.readouterr().err.splitlines()


@simulated
def test_without_simgrid_the_platform_is_written_and_inconclusive(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    assert main(["simulate", platform, "--", "saturate", "-o", str(run)]) == 0
    monkeypatch.setattr(simulator, "unavailable", lambda: "no smpirun of SimGrid on PATH")
    assert main(["model", str(run)]) == 2
    assert "not simulated: no smpirun" in capsys.readouterr().err
    assert (run / "platform.xml").is_file()
    assert error_line(capsys, "simulate", platform, "--", "saturate").startswith(
        "assay: nothing can be simulated here"
    )


@simulated
def test_unmeasured_hosts_are_left_out_of_the_platform_and_marked(tmp_path: Path, platform: str):
    run = tmp_path / "run"
    assert main(["simulate", platform, "--", "saturate", "-o", str(run)]) == 0
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"centres":"n2' not in line and ",n2" not in line]
    assert len(kept) < len(lines)
    (run / "records.jsonl").write_text("".join(kept))
    assert main(["model", str(run), "--no-simulation"]) == 0
    written = (run / "platform.xml").read_text()
    assert "n[2,5] left out: capacities unknown, not measured" in written  # n5 took part in the same rounds
    capacities = [r for r in Run.load(run).records if isinstance(r, Capacity) and r.resource == "n2"]
    assert capacities and all(c.state == "unknown" and c.value is None for c in capacities)
