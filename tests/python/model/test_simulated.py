"""End to end in SimGrid: the study of a hidden platform, the platform that it writes, and its validation."""

from __future__ import annotations

import json
from pathlib import Path

import hidden_platforms
import pytest

from assay.cli import main
from assay.launch import simulator
from assay.measure.saturation import read_cabinets
from assay.records.run import Run
from assay.records.schema import Capacity, Comparison, Finding, Pairs, Verdict

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable())),
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((11, False), id="alike"),
        pytest.param((12, True), id="different", marks=pytest.mark.acceptance("model")),
    ],
)
def studied(request, tmp_path_factory):
    seed, heterogeneous = request.param
    folder = tmp_path_factory.mktemp("hidden")
    hidden = next(
        h
        for s in range(seed, 1000)
        if (h := hidden_platforms.draw_platform(s, (3, 3), (4, 7))).heterogeneous == heterogeneous
    )
    platform = hidden_platforms.write_platform(hidden, folder / "hidden.xml")
    assert main(["simulate", str(platform), "--", "saturate", "-o", str(folder / "run")]) == 0
    return hidden, folder


def test_cabinets_and_capacities_are_recovered(studied):
    hidden, folder = studied
    run = Run.load(folder / "run")
    cabinets = read_cabinets(run.info.options["cabinets"])
    names = {frozenset(hosts): name for name, hosts in cabinets.items()}
    assert set(names) == {frozenset(hosts) for hosts in hidden.cabinets.values()}
    values = {(c.level, c.resource, c.direction): c for c in run.records if isinstance(c, Capacity)}
    for level, resource, direction in hidden.capacity:
        measured_name = names[frozenset(hidden.cabinets[resource])] if level == "cabinet" else resource
        capacity = values[level, measured_name, direction]
        assert capacity.value == pytest.approx(
            hidden.visible_capacity((level, resource, direction)), rel=0.01
        ), (
            level,
            resource,
            direction,
        )


def test_cabinets_are_found_by_contention_where_latencies_are_equal(tmp_path: Path, capfd):
    hidden = hidden_platforms.draw_platform(1, (3, 3), (4, 7))
    hidden.cabinet_latency = 0.0
    platform = hidden_platforms.write_platform(hidden, tmp_path / "hidden.xml")
    assert main(["simulate", str(platform), "--", "saturate", "-o", str(tmp_path / "run")]) == 0
    assert "3 cabinets, found by contention" in capfd.readouterr().err
    cabinets = read_cabinets(Run.load(tmp_path / "run").info.options["cabinets"])
    assert {frozenset(hosts) for hosts in cabinets.values()} == {
        frozenset(hosts) for hosts in hidden.cabinets.values()
    }


def test_the_written_platform_reproduces_every_point(studied, capsys):
    _, folder = studied
    target = folder / "platform.xml"
    assert main(["model", str(folder / "run"), "--platform", str(target), "--limit", "2%"]) == 0
    assert "PASS" in capsys.readouterr().out
    records = Run.load(folder / "run").records
    points = [r for r in records if isinstance(r, Comparison)]
    assert len(points) > 40
    assert any(point.curve.startswith("all to all") for point in points)
    assert all(point.error is not None and abs(point.error) < 0.01 for point in points)
    (verdict,) = [r for r in records if isinstance(r, Verdict)]
    assert verdict.outcome == "PASS" and verdict.specification == "model"


def test_a_platform_with_a_wrong_link_fails_its_validation(studied, capsys):
    """The recorded rates of single pairs, which no capacity is fitted to, are raised by half."""
    _, folder = studied
    run = Run.load(folder / "run")
    lines = (run.path / "records.jsonl").read_bytes().splitlines(keepends=True)
    changed = []
    for line in lines:
        record = json.loads(line)
        pattern = record.get("params", {}).get("shape")  # which hosts send to which, "send": one to one
        if record["kind"] == "flows" and pattern == "send" and record["params"]["count"] == 1:
            rates_by_slice = [[rate * 1.5 for rate in rates] for rates in record["slices"]]
            record["slices"] = rates_by_slice
            line = json.dumps(record).encode() + b"\n"
        changed.append(line)
    spoilt = folder / "spoilt"
    spoilt.mkdir()
    (spoilt / "records.jsonl").write_bytes(b"".join(changed))
    (spoilt / "run.json").write_bytes((run.path / "run.json").read_bytes())
    assert main(["model", str(spoilt), "--platform", str(folder / "spoilt.xml")]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_a_program_runs_on_the_platform_with_more_and_faster_links(studied, capfd, tmp_path: Path):
    hidden, folder = studied
    source = tmp_path / "transfer.c"
    source.write_text(TRANSFER_SOURCE)
    platform = str(folder / "hidden.xml")
    host, other = hidden.hosts[:2]

    def seconds(*options: str) -> float:
        command = ["simulate", platform, "--nodes", "2", "--compute", "no", *options]
        assert main([*command, "--", str(source), "1000000"]) == 0
        return float(capfd.readouterr().out.split()[-1])

    def with_links(names: list[str], bandwidth: str) -> list[str]:
        return [word for name in names for word in ("--set", f"{name}.bandwidth={bandwidth}")]

    up = hidden.capacity["host", host, "up"]
    before = seconds()
    assert before == pytest.approx(1e6 / up, rel=0.5)
    # A tenth of the sender's rate, so it alone is the limit; and next to no limit on the whole path, so that what is
    # left are latencies.
    slower = seconds(*with_links([f"{host}-out"], f"{up / 10:.0f}Bps"))
    assert slower == pytest.approx(1e6 / (up / 10), rel=0.2)
    platform_xml = (folder / "hidden.xml").read_text()
    route = [f"{host}-out", f"{host}-both", f"{other}-both", f"{other}-in"]
    faster = seconds(*with_links([link for link in route if f'id="{link}"' in platform_xml], "1000TBps"))
    assert faster < before / 2


def test_the_sweep_of_assay_net_runs_in_the_simulator(studied, tmp_path: Path):
    hidden, folder = studied
    sweep = ["--sizes", "1KiB,64KiB", "--repeats", "4", "--rounds", "2", "--no-retest"]
    arguments = ["--nodes", "4", "--", "net", *sweep, "-o", str(tmp_path / "net")]
    assert main(["simulate", str(folder / "hidden.xml"), *arguments]) == 0
    run = Run.load(tmp_path / "net")
    assert run.info.state == "complete"
    assert [r for r in run.records if isinstance(r, Finding)] == []  # no host is slow
    rows = [r for r in run.records if isinstance(r, Pairs) and r.params["size"] == 64 << 10]
    rates = {(r.subject.host, peer): rate for r in rows for peer, rate in zip(r.peers, r.values, strict=True)}
    assert len(rates) == 4 * 2  # two rounds, a partner each
    for (host, peer), rate in rates.items():
        planted = min(hidden.capacity["host", str(host), "up"], hidden.capacity["host", peer, "down"])
        assert 0.3 * planted < rate <= 1.01 * planted


@pytest.mark.acceptance("model")
@pytest.mark.statistical(
    "1 in 1000, estimated: the processor time of a loop would have to change by half between two runs of it"
)
def test_a_programs_own_computing_takes_time(tmp_path: Path, capfd):
    """The same loop, on processors as fast as here, four times as fast, and infinitely fast. Its time is the
    processor's, so a busy machine hardly changes it."""
    hidden = hidden_platforms.draw_platform(1, (2, 2), (4, 4))
    platform = str(hidden_platforms.write_platform(hidden, tmp_path / "p.xml"))
    source = tmp_path / "compute.c"
    source.write_text(COMPUTE_SOURCE)

    def seconds(*options: str) -> tuple[float, str]:
        assert main(["simulate", platform, "--nodes", "2", *options, "--", str(source)]) == 0
        shown = capfd.readouterr()
        return float(shown.out.split()[-1]), shown.err

    native, message = seconds()
    assert native > 0.02 and "takes as long as here" in message
    faster, message = seconds("--compute", "4")
    assert faster / native == pytest.approx(0.25, rel=0.5) and "is 4 times as fast" in message
    without, message = seconds("--compute", "no")
    assert without < 0.05 * native and "takes no time" in message
    without, _ = seconds("--cfg", "smpi/simulate-computation:no")
    assert without < 0.05 * native


def test_computing_takes_no_time_if_it_is_left_out(tmp_path: Path, capfd):
    hidden = hidden_platforms.draw_platform(1, (2, 2), (4, 4))
    platform = str(hidden_platforms.write_platform(hidden, tmp_path / "p.xml"))
    source = tmp_path / "compute.c"
    source.write_text(COMPUTE_SOURCE)
    for options in (["--compute", "no"], ["--cfg", "smpi/simulate-computation:no"]):
        assert main(["simulate", platform, "--nodes", "2", *options, "--", str(source)]) == 0
        shown = capfd.readouterr()
        assert float(shown.out.split()[-1]) < 1e-3  # a barrier
        assert ("takes no time" in shown.err) == (options[0] == "--compute")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--compute", "fast"], "'fast': expected a factor"),
        (["--compute", "-1"], "'-1': expected a factor"),
        (["--cfg", "smpi"], "--cfg smpi: not KEY:VALUE"),
    ],
)
def test_bad_options_of_computing_are_one_line(options: list[str], what: str, tmp_path: Path, capfd):
    hidden = hidden_platforms.draw_platform(1, (2, 2), (4, 4))
    platform = str(hidden_platforms.write_platform(hidden, tmp_path / "p.xml"))
    try:
        assert main(["simulate", platform, *options, "--", str(tmp_path / "p.xml")]) == 2
    except SystemExit as ended:
        assert ended.code == 2
    err = capfd.readouterr().err
    assert what in err and "Traceback" not in err


COMPUTE_SOURCE = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
    int rank;
    volatile double sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double begin = MPI_Wtime();
    for (long i = 1; i < 60000000; ++i) sum += 1.0 / i;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%.9f\\n", MPI_Wtime() - begin);
    MPI_Finalize();
    return 0;
}
"""

TRANSFER_SOURCE = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
    int rank, bytes = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char* data = malloc(bytes);
    double begin = MPI_Wtime();
    if (rank == 0) MPI_Send(data, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(data, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) printf("%.9f\\n", MPI_Wtime() - begin);
    free(data);
    MPI_Finalize();
    return 0;
}
"""
