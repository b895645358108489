"""Launchers: their command lines, the diagnosis of their error output, and the reasons why one cannot be used."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch import launchers, reach
from assay.launch.engines import probe
from assay.launch.launchers import LAUNCHERS, Hydra, Local, OpenMpi, Srun, default_launcher, find_launcher
from assay.launch.placement import HERE, REMOTE, Segment


def test_the_error_output_names_rank_and_host() -> None:
    stderr = "mpirun noticed that process rank 3 with PID 0 on node h3 exited on signal 9 (Killed)."
    assert OpenMpi().diagnose(stderr) == "rank 3 on h3 was ended by signal 9"
    stderr = "=   BAD TERMINATION OF ONE OF YOUR PROCESSES\n=   PID 77 RUNNING AT n5\n=   EXIT CODE: 9\n"
    assert Hydra("mpich", []).diagnose(stderr) == "a rank on n5 ended with status 9"
    stack = (
        "Abort(70403343) on node 2: Fatal error in internal_Init_thread: Other MPI error, error stack:\n"
        "internal_Init_thread(71)..............: MPI_Init_thread(argc=0x7fff, argv=0x7fff) failed\n"
        "MPII_Init_thread(333).................: \n"
        "MPIDI_UCX_comm_addr_exchange(195).....:  ucx function failed(Destination is unreachable)\n"
        "Abort(3294479) on node 3: Fatal error\n"
    )
    cause = "ucx function failed(Destination is unreachable)"
    assert Hydra("mpich", []).diagnose(stack) == f"MPI_Init_thread failed: {cause}"
    assert Srun().diagnose("srun: error: n7: task 2: Killed\n") == "rank 2 on n7: Killed"
    for launcher in LAUNCHERS:
        assert launcher.diagnose("all is well") is None


def test_open_mpi_is_told_to_keep_domains_that_tell_hosts_apart() -> None:
    def keeps_domains(*hosts: str) -> bool:
        command = OpenMpi().command(REMOTE, [Segment([host]) for host in hosts], ["probe"])
        return "orte_keep_fqdn_hostnames" in command

    assert keeps_domains("w.1.x", "w.2.x") and keeps_domains("w", "w.2.x")
    assert not keeps_domains("a.site", "b.site", "a.site") and not keeps_domains("10.0.0.1", "10.0.0.2")


def test_settings_of_open_mpi_do_not_label_lines_nor_move_ranks() -> None:
    assert OpenMpi().environment(REMOTE)["OMPI_MCA_orte_tag_output"] == "0"
    here, there = (" ".join(OpenMpi().command(site, [Segment(["a"])], ["x"])) for site in (HERE, REMOTE))
    assert "--mca orte_default_hostfile none" in here and "default_hostfile" not in there


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_ranks_here_start_here_in_a_batch_job_of_other_hosts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        launcher = find_launcher(name)
    except UserError as error:
        pytest.skip(f"optional: {error.what}")
    job = {"JOBID": "7", "JOB_ID": "7", "NNODES": "2", "NODELIST": "other[1-2]", "TASKS_PER_NODE": "1(x2)"}
    for variable, value in {
        **job,
        "JOB_NODELIST": job["NODELIST"],
        "NODEID": "0",
        "JOB_CPUS_PER_NODE": "1(x2)",
    }.items():
        monkeypatch.setenv(f"SLURM_{variable}", value)
    # A program of MPI: Hydra 4.0 dies by SIGPIPE if its programs end before it has seen the end of its own input.
    engine = [str(probe(launcher.flavour)), "run", "events.alltoall", "--fragment", "4096", "--budget", "0.1"]
    command = launcher.command(HERE, [Segment(["here", "here"])], engine)
    environment = {**os.environ, **launcher.environment(HERE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    hosts = [line["host"] for line in lines if line["kind"] == "hello"]
    assert (done.returncode, hosts) == (0, [os.uname().nodename] * 2), done.stderr


def test_open_mpi_is_found_in_usr_where_bin_is_a_link_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix of "/" would be searched for its files."""
    monkeypatch.setattr("assay.launch.launchers.is_for_abi", lambda: False)
    for found, is_link, program in [
        ("/bin/mpirun.openmpi", True, "/usr/bin/mpirun.openmpi"),
        ("/bin/mpirun.openmpi", False, "/bin/mpirun.openmpi"),
        ("/opt/mpi/bin/mpirun.openmpi", True, "/opt/mpi/bin/mpirun.openmpi"),
    ]:
        monkeypatch.setattr("shutil.which", lambda name, found=found: found)
        with monkeypatch.context() as links:
            links.setattr("os.path.realpath", lambda path, is_link=is_link: "/usr/bin" if is_link else path)
            assert OpenMpi().program() == program


def test_a_step_of_slurm_shares_its_processors_with_the_one_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    assert "SLURM_OVERLAP" not in Srun().environment(REMOTE)
    monkeypatch.setenv("SLURM_STEP_ID", "4294967290")  # salloc's shell
    assert "SLURM_OVERLAP" not in Srun().environment(REMOTE)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert Srun().environment(REMOTE)["SLURM_OVERLAP"] == "1"


def test_srun_keeps_the_order_of_ranks_and_kills_all_if_one_fails() -> None:
    command = Srun().command(REMOTE, [Segment(["n2", "n1"])], ["probe"])
    assert "--nodelist=n2,n1" in command and "--distribution=arbitrary" in command
    assert "--kill-on-bad-exit=1" in command and command[-1] == "probe"


@pytest.mark.parametrize(
    "launcher", [pytest.param(x, id=x.name) for x in LAUNCHERS if not isinstance(x, Local)]
)
@pytest.mark.parametrize("split", [3, 1])
def test_every_launcher_gets_the_hosts_in_the_order_of_the_list(
    launcher: launchers.Launcher, split: int
) -> None:
    hosts = ["srv2", "srv3", "srv01"]
    segments = [Segment(part) for part in (hosts[:split], hosts[split:]) if part]
    command = launcher.command(REMOTE, segments, ["probe"])
    files = [Path(word).read_text() for word in command if word.startswith("/tmp/assay-")]
    assert re.findall(r"srv[0-9]+", " ".join([*command, *files])) == hosts


def test_srun_sets_the_fence_of_pmix_unless_the_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_PMIX_FENCE", raising=False)
    assert Srun().environment(REMOTE)["SLURM_PMIX_FENCE"] == "ring"
    monkeypatch.setenv("SLURM_PMIX_FENCE", "mixed")
    assert "SLURM_PMIX_FENCE" not in Srun().environment(REMOTE)


def test_srun_starts_segments_by_a_multi_prog_file() -> None:
    segments = [
        Segment(["s1"], {"UCX_NET_DEVICES": "mlx5_0:1"}),
        Segment(["s1"], {"UCX_NET_DEVICES": "mlx5_1:1"}),
        Segment(["c1", "c2"]),
    ]
    command = Srun().command(REMOTE, segments, ["/opt/probe", "run"])
    assert "--ntasks=4" in command and "--nodelist=s1,s1,c1,c2" in command
    assert Path(command[command.index("--multi-prog") + 1]).read_text().splitlines() == [
        "0 env UCX_NET_DEVICES=mlx5_0:1 /opt/probe run",
        "1 env UCX_NET_DEVICES=mlx5_1:1 /opt/probe run",
        "2-3 /opt/probe run",
    ]
    with pytest.raises(UserError, match="without spaces"):
        Srun().command(REMOTE, segments, ["/opt/my probe", "run"])


def test_a_host_name_is_never_an_option_of_ssh() -> None:
    command = Local().command(REMOTE, [Segment(["-oProxyCommand=x"])], ["probe"])
    assert command[command.index("--") + 1 :] == ["-oProxyCommand=x", "probe"]


def test_srun_needs_no_ssh_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "probe_hosts", lambda hosts: dict.fromkeys(hosts, "does not answer"))
    reach.check_hosts(REMOTE, ["n1"], "srun")
    with pytest.raises(UserError, match="n1: does not answer"):
        reach.check_hosts(REMOTE, ["n1"], "openmpi")


def test_an_unknown_launcher_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="openmpi, intelmpi, pals, aprun, mpich, mpich-wheel, srun, local"):
        find_launcher("teleport")


def test_without_an_mpi_every_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers.shutil, "which", lambda *_a, **_k: None)
    with pytest.raises(UserError) as refused:
        default_launcher()
    assert "no MPI can be used here" in str(refused.value) and "apt-get install openmpi-bin" in str(
        refused.value
    )
    monkeypatch.setattr(launchers, "flavours", lambda: [])
    with pytest.raises(UserError, match="make setup"):
        find_launcher("openmpi")


def test_in_a_slurm_allocation_srun_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers.shutil, "which", lambda name, **_k: f"/bin/{name}")
    monkeypatch.setattr(launchers, "flavours", lambda: ["openmpi", "mpich"])
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert default_launcher().name == "openmpi"
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert default_launcher().name == "srun"


def test_in_a_slurm_job_without_srun_the_other_launcher_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        launchers.shutil, "which", lambda name, **_k: None if name == "srun" else f"/bin/{name}"
    )
    monkeypatch.setattr(launchers, "flavours", lambda: ["openmpi", "mpich"])
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert default_launcher().name == "openmpi"
    assert capsys.readouterr().err.startswith("note: in a Slurm job, but no srun on PATH")
