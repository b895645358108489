"""Vendors' launchers that are not installed here, as planted executables: their arguments, and that ranks start by
them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from mpich_ranks import lingering

from assay.errors import UserError
from assay.launch import launchers, vendors
from assay.launch.engines import flavours, probe
from assay.launch.launchers import WHEEL_MPIEXEC, Srun
from assay.launch.placement import HERE, REMOTE, Segment
from assay.launch.vendors import Aprun, IntelMpi, Pals
from assay.measure.adapters import binding

# A planted launcher records its arguments and starts the ranks by the installed MPICH, without options that MPICH
# lacks.
PLANTED_LAUNCHER = """#!/usr/bin/env python3
import json, os, sys
open({argument_log!r}, "w").write(json.dumps(sys.argv[1:]))
arguments, options = sys.argv[1:], {options!r}
command = []
while arguments:
    argument = arguments.pop(0)
    if argument in options:
        arguments.pop(0)
    else:
        command.append(argument)
os.execv({mpiexec!r}, [{mpiexec!r}, "-launcher", "fork", *command])
"""
NO_MPICH = not Path(WHEEL_MPIEXEC).is_file() or "mpich-wheel" not in flavours()


def plant(folder: Path, name: str, options: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tool, argument_log = folder / name, folder / "seen"
    tool.write_text(
        PLANTED_LAUNCHER.format(argument_log=str(argument_log), options=options, mpiexec=WHEEL_MPIEXEC)
    )
    tool.chmod(0o755)
    return argument_log


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    plant(folder, "palstat", [])
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("I_MPI_ROOT", str(tmp_path))
    monkeypatch.setattr(vendors, "flavours", lambda: ["mpich"])
    return folder


TOOLS = [
    (IntelMpi(), "mpiexec.hydra", ["-bootstrap", "-machine"]),
    (Pals(), "mpiexec", ["--ppn", "--hosts"]),
    (Aprun(), "aprun", ["-N", "-L"]),
]


@pytest.mark.slow
@pytest.mark.skipif(NO_MPICH, reason="no MPICH to start ranks with")
@pytest.mark.parametrize(("launcher", "tool", "options"), TOOLS, ids=["intelmpi", "pals", "aprun"])
@pytest.mark.parametrize("site", [HERE, REMOTE], ids=["here", "hosts"])
def test_ranks_start_with_their_environment(
    launcher, tool: str, options: list[str], site, planted: Path
) -> None:
    argument_log = plant(planted, tool, options)
    assert launcher.unavailable() is None
    segments = [Segment(["n1"], {"BOUND": "to a"}), Segment(["n2", "n3"])]
    argv = lingering("sh", "-c", 'echo "${BOUND:-free}"')
    command = launcher.command(site, segments, argv)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert sorted(re.findall("free|to a", done.stdout)) == ["free", "free", "to a"], done.stderr
    arguments = json.loads(argument_log.read_text())
    if site is REMOTE and tool == "mpiexec.hydra":
        assert Path(arguments[arguments.index("-machine") + 1]).read_text() == "n1:1\nn2:1\nn3:1\n"
    elif site is REMOTE:
        positions = [i for i, argument in enumerate(arguments) if argument in ("--hosts", "-L")]
        assert [arguments[i + 1] for i in positions] == ["n1", "n2,n3"]


@pytest.mark.skipif(NO_MPICH, reason="no MPICH to start ranks with")
def test_the_engine_measures_under_a_planted_launcher(planted: Path) -> None:
    plant(planted, "aprun", ["-N", "-L"])
    argv = [str(probe("mpich-wheel")), "run", "network.all_to_all", "--sizes", "1024", "--repeats", "3"]
    command = Aprun().command(REMOTE, [Segment(["nid00001", "nid00002", "nid00003"])], argv)
    assert command[command.index("-L") + 1] == "1,2,3"
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert done.returncode == 0 and kinds.count("hello") == 3 and "measurement" in kinds


@pytest.mark.parametrize("hosts", [["28", "29"], ["nid00028", "nid00029"]])
def test_aprun_takes_the_numbers_of_nodes(hosts: list[str]) -> None:
    command = Aprun().command(REMOTE, [Segment(hosts)], ["probe"])
    assert command[command.index("-L") + 1] == "28,29"


def test_hosts_that_are_listed_unevenly_are_refused() -> None:
    with pytest.raises(UserError, match="as many ranks on each host"):
        Aprun().command(REMOTE, [Segment(["n1", "n1", "n2"])], ["probe"])


def test_a_missing_launcher_names_the_module_to_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("I_MPI_ROOT", raising=False)
    for launcher, word in ((IntelMpi(), "setvars.sh"), (Pals(), "cray-pals"), (Aprun(), "cray-pals")):
        assert word in str(launcher.unavailable())


def test_the_error_output_names_rank_and_host() -> None:
    stderr = "=   BAD TERMINATION\n=   RANK 2 PID 7 RUNNING AT n5\n=   KILLED BY SIGNAL: 9 (Killed)\n"
    assert IntelMpi().diagnose(stderr) == "rank 2 on n5 was ended by signal 9"
    assert (
        Pals().diagnose("nid001.local: rank 3 died from signal 11") == "rank 3 on nid001.local ended with 11"
    )


@pytest.mark.parametrize(
    ("types", "built", "expected"),
    [
        ("none\npmi2\npmix\npmix_v4", ["mpich", "openmpi"], ("pmix", "openmpi")),
        ("none\ncray_shasta\npmi2", ["mpich", "openmpi"], ("pmi2", "mpich")),
        ("pmi2\npmix", ["mpich-wheel"], ("pmi2", "mpich-wheel")),
        ("none", ["openmpi"], ("pmix", "openmpi")),
    ],
)
def test_srun_uses_a_pmi_type_that_slurm_and_an_engine_have(
    types: str, built: list[str], expected: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "srun"
    lines = "\n".join(f"\t{name}" for name in types.split())
    tool.write_text(f"#!/bin/sh\necho 'MPI plugin types are...'\nprintf '%s\\n' '{lines}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(launchers, "flavours", lambda: built)
    launchers._pmi_types.cache_clear()
    try:
        assert Srun()._start() == expected
        assert Srun().flavour == expected[1]
        assert f"--mpi={expected[0]}" in Srun().command(REMOTE, [Segment(["n1", "n2"])], ["probe"])
    finally:
        launchers._pmi_types.cache_clear()


def test_a_slurm_without_a_pmi_type_of_an_engine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "srun"
    tool.write_text("#!/bin/sh\nprintf 'MPI plugin types are...\\n\\tnone\\n\\tcray_shasta\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(launchers, "flavours", lambda: ["openmpi"])
    launchers._pmi_types.cache_clear()
    try:
        assert "starts ranks by cray_shasta" in str(Srun().unavailable())
    finally:
        launchers._pmi_types.cache_clear()


def test_ranks_are_bound_to_adapters_of_slingshot() -> None:
    assert binding("mpich", "cxi1") == {"MPICH_OFI_NIC_POLICY": "USER", "MPICH_OFI_NIC_MAPPING": "1:0-255"}
    assert binding("mpich", "hsn0")["FI_TCP_IFACE"] == "hsn0"
    assert binding("openmpi", "p1p1") == {"OMPI_MCA_btl_tcp_if_include": "p1p1"}
