"""The settings of computing and of collective operations in a platform file."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_network import PlantedNetwork, cluster, linear_time
from test_calls import write_planted

from assay.cli import main
from assay.errors import UserError
from assay.launch import simulator
from assay.launch.platforms import computing
from assay.model.fit import fit
from assay.model.platform import build
from assay.records.schema import AnyRecord, Context, Subject

ALL_TO_ALL = """
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char** argv) {
    enum { bytes_per_rank = 1000000 };
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char* sent = calloc(ranks, bytes_per_rank);
    char* received = calloc(ranks, bytes_per_rank);
    MPI_Alltoall(sent, bytes_per_rank, MPI_CHAR, received, bytes_per_rank, MPI_CHAR, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"""


def configuration(*more: AnyRecord) -> dict[str, str]:
    planted = PlantedNetwork(cluster(2, 5), linear_time(20e-6), linear_time(26e-6))
    study = planted.study()
    root = build(fit([*planted.records, *more], study.cabinets), "a run")
    return {str(prop.get("id")): str(prop.get("value")) for prop in root.iter("prop")}


@pytest.mark.parametrize(
    ("library", "selector"),
    [
        ("Open MPI v4.1.4, package: Debian", "ompi"),
        ("MPICH Version: 4.0.2", "mpich"),
        ("MVAPICH2 Version: 2.3.7", "mvapich2"),
        ("Intel(R) MPI Library 2021.12", "impi"),
    ],
)
def test_collectives_are_those_of_the_measured_mpi(library: str, selector: str) -> None:
    measured = Context(subject=Subject(host="n0"), facts={"mpi.library": library})
    assert configuration(measured)["smpi/coll-selector"] == selector


@pytest.mark.slow
@pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))
@pytest.mark.parametrize("library", ["Open MPI v4.1.4", "MPICH Version: 4.0.2"])
def test_a_long_all_to_all_on_an_odd_number_of_ranks_is_simulated(library: str, tmp_path: Path) -> None:
    """There are five ranks. With SimGrid's own choice of algorithms the simulation fails."""
    measured = Context(subject=Subject(host="n0"), facts={"mpi.library": library})
    settings = configuration(measured)
    collectives = {key: settings[key] for key in ("smpi/coll-selector", "smpi/alltoall")}
    platform = write_planted(tmp_path / "p.xml", collectives)
    source = tmp_path / "all_to_all.c"
    source.write_text(ALL_TO_ALL)
    assert main(["simulate", platform, "--compute", "no", "--", str(source)]) == 0


@pytest.mark.slow
@pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))
def test_a_folder_of_temporary_files_with_a_blank_and_a_comma_is_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SimGrid's script for ranks has files of its own there, and divides their names at blanks."""
    folder = tmp_path / "a b,c"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)  # it is read once
    source = tmp_path / "all_to_all.c"
    source.write_text(ALL_TO_ALL)
    platform = write_planted(tmp_path / "p.xml", {})
    assert main(["simulate", platform, "--nodes", "2", "--compute", "no", "--", str(source)]) == 0


def test_an_unknown_mpi_sets_no_collectives() -> None:
    settings = configuration(Context(subject=Subject(host="n0"), facts={"mpi.library": "null"}))
    assert "smpi/coll-selector" not in settings and "smpi/coll-selector" not in configuration()


def test_computing_takes_as_long_as_on_this_machine() -> None:
    settings = configuration()
    assert settings["smpi/simulate-computation"] == "yes" and settings["smpi/host-speed"] == "1Gf"


@pytest.mark.parametrize(
    ("speed", "faster", "host_speed"),
    [("1Gf", 1, 1e9), ("1Gf", 4, 2.5e8), ("2.5e9f", 1, 2.5e9), ("100Mf,50Mf", 0.5, 2e8), ("3e9", 3, 1e9)],
)
def test_a_compute_factor_is_relative_to_the_first_host(
    speed: str, faster: float, host_speed: float, tmp_path: Path
) -> None:
    path = tmp_path / "p.xml"
    path.write_text(
        f'<platform version="4.1"><host id="a" speed="{speed}"/><host id="b" speed="9Gf"/></platform>'
    )
    (simulated, calibrated) = computing(path, faster)
    assert simulated == "--cfg=smpi/simulate-computation:yes"
    assert float(calibrated.removeprefix("--cfg=smpi/host-speed:").removesuffix("f")) == host_speed


@pytest.mark.parametrize("speed", ["fast", "0f", "", "1Qf"])
def test_a_bad_host_speed_is_one_line(speed: str, tmp_path: Path) -> None:
    path = tmp_path / "p.xml"
    path.write_text(f'<platform version="4.1"><host id="a" speed="{speed or "f"}"/></platform>')
    with pytest.raises(UserError, match="the speed"):
        computing(path, 1.0)
    assert computing(path, 0.0) == ["--cfg=smpi/simulate-computation:no"]
