"""Labs: their hosts and isolation, entering hosts, faults, and that ``down`` removes everything, also after a crash."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.lab import Fault, Lab, state, take_down
from assay.lab.cluster import lay_out
from assay.lab.namespaces import find_processes

REPOSITORY = Path(__file__).parents[3]
LIMIT_S = 240  # against hangs
lab_only = pytest.mark.usefixtures(
    "make_lab"
)  # marks a test that needs a lab, and skips it where labs are not available


@pytest.fixture(scope="module")
def fabric(make_lab) -> Lab:
    return make_lab(3, 2)


def run_inside(lab: Lab, host: str, *argv: str, **options) -> str:
    done = subprocess.run(lab.enter(host, argv), capture_output=True, text=True, timeout=LIMIT_S, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def cli(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python"), **options.pop("env", {})}
    argv = [sys.executable, "-m", "assay", "lab", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, env=environment, **options)


def start_resident(lab: Lab, host: str, *wrapper: str) -> subprocess.Popen[str]:
    """Starts a process in a host of the lab, and returns when it runs there."""
    argv = lab.enter(host, [*wrapper, "sh", "-c", "echo arrived; exec sleep 1000"])
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "arrived\n"
    return child


def leftovers(name: str) -> list[str]:
    """The processes, folders and mounts that are left of a lab on this machine."""
    found = [f"process {pid}" for pid in find_processes(name)]
    found += [f"folder {state.folder(name)}"] if state.folder(name).exists() else []
    mounts = Path("/proc/self/mountinfo").read_text()
    found += ["a mount"] if f"assay/lab/{name}" in mounts else []
    return found


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 250), st.data())
def test_hosts_are_in_cabinet_order_and_spread_evenly(count, data):
    cabinets = data.draw(st.integers(1, count))
    hosts = lay_out(count, cabinets)
    assert [host.name for host in hosts] == [f"h{i}" for i in range(count)]
    order = [int(host.cabinet[1:]) for host in hosts]
    assert order == sorted(order)
    sizes = [order.count(c) for c in range(cabinets)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1
    addresses = {host.address for host in hosts}
    assert len(addresses) == count
    assert all(0 < int(part) < 255 for address in addresses for part in address.split(".")[3:])


def test_a_lab_is_loaded_by_its_name(fabric):
    assert fabric.hosts == ["h0", "h1", "h2"]
    assert fabric.cabinets == {"c0": ["h0", "h1"], "c1": ["h2"]}
    loaded = Lab.load(fabric.name)
    assert (loaded.hosts, loaded.cabinets, loaded.agent) == (fabric.hosts, fabric.cabinets, fabric.agent)


@pytest.mark.parametrize("node", ["h0", "h2", "head"])
def test_a_node_has_its_own_name_network_and_folders(fabric, node):
    assert run_inside(fabric, node, "hostname") == node
    assert fabric.address(node) in run_inside(
        fabric, node, "ip", "-brief", "address", "show", fabric.interface
    )
    assert sorted(run_inside(fabric, node, "ls", "/sys/class/net").split()) == [fabric.interface, "lo"]
    assert run_inside(fabric, node, "getent", "hosts", "h1").split() == [fabric.address("h1"), "h1"]
    run_inside(fabric, node, "touch", "/tmp/assay-private", "/dev/shm/assay-private")
    assert not Path("/tmp/assay-private").exists() and not Path("/dev/shm/assay-private").exists()
    run_inside(fabric, "h1", "sh", "-c", "[ ! -e /tmp/assay-private ] && [ ! -e /dev/shm/assay-private ]")


def test_folder_environment_and_exit_code_are_kept(fabric, tmp_path):
    (tmp_path / "file").write_text("seen")
    environment = {**os.environ, "ASSAY_TEST": "kept"}
    script = "echo $PWD $ASSAY_TEST $(cat file); echo made > by-host"
    assert (
        run_inside(fabric, "h0", "sh", "-c", script, cwd=tmp_path, env=environment) == f"{tmp_path} kept seen"
    )
    assert (tmp_path / "by-host").read_text() == "made\n"
    assert subprocess.run(fabric.enter("h0", ["sh", "-c", "exit 7"]), timeout=LIMIT_S).returncode == 7


def test_a_working_folder_below_tmp_appears_on_all_hosts(fabric, tmp_path):
    """Slurm starts tasks on other hosts than the one that was entered."""
    run_inside(fabric, "head", "true", cwd=tmp_path)
    run_inside(fabric, "h2", "test", "-d", str(tmp_path), cwd="/")


def test_the_agent_accepts_the_arguments_of_rsh(fabric, tmp_path):
    command = [fabric.agent, "-x", "-l", "root", "root@h1", "echo", "$(hostname);", "echo", "'a  b'"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "h1\na  b\n")


def test_the_agent_enters_a_node_from_the_head(fabric):
    """Launchers call the agent within the head."""
    assert run_inside(fabric, "head", fabric.agent, "h2", "hostname") == "h2"


def test_two_labs_are_isolated(fabric, make_lab):
    other = make_lab(4)
    assert other.address("h0") == fabric.address("h0")
    run_inside(fabric, "h0", "touch", "/tmp/first-lab")
    run_inside(other, "h0", "test", "!", "-e", "/tmp/first-lab")
    assert "h3" in other.hosts and "h3" not in fabric.hosts
    other.down()
    assert run_inside(fabric, "h0", "hostname") == "h0"


def test_a_second_lab_of_the_same_name_is_refused(fabric):
    with pytest.raises(UserError, match=f"assay lab down --lab {fabric.name}"):
        Lab.up(2, name=fabric.name)
    assert run_inside(fabric, "h0", "hostname") == "h0"


def test_faults_add_up_and_are_remembered(make_lab):
    lab = make_lab(2, host_rate="100mbit")
    lab.fault(["h1"], Fault(tx=1e6))
    lab.fault(["h1"], Fault(rx=2e6))
    assert Lab.load(lab.name).nodes["h1"].fault == Fault(tx=1e6, rx=2e6)
    assert Lab.load(lab.name).nodes["h0"].fault == Fault()
    lab.fault(["h1"], None)
    assert Lab.load(lab.name).nodes["h1"].fault == Fault()


def test_down_kills_all_processes_and_removes_everything(make_lab):
    lab = make_lab(3)
    children = [start_resident(lab, host) for host in ("h0", "head")]
    lab.down()
    assert [child.wait(timeout=LIMIT_S) for child in children] == [-signal.SIGKILL] * 2
    assert leftovers(lab.name) == []
    assert take_down(lab.name) == (lab.name, False)


@pytest.mark.parametrize("lose_state", [False, True], ids=["state-kept", "state-lost"])
def test_down_after_a_crash_removes_everything(make_lab, lose_state):
    lab = make_lab(2)
    hidden = start_resident(
        lab, "h0", "setsid", "env", "-i"
    )  # its own session and an empty environment, so it is hard to find
    switch = int((Path(lab.agent).parent / "nodes" / "switch" / "pid").read_text())
    held = os.open(f"/proc/{switch}/ns/net", os.O_RDONLY)  # so that no other lab gets its number
    namespace = os.readlink(f"/proc/{switch}/ns/net")
    assert is_used(namespace)
    for pid in {lab.nodes["h0"].pid, lab.nodes["h1"].pid, switch}:
        os.kill(pid, signal.SIGKILL)
    if lose_state:
        shutil.rmtree(state.folder(lab.name))
    assert take_down(lab.name) == (lab.name, True)
    assert hidden.wait(timeout=LIMIT_S) == -signal.SIGKILL
    assert leftovers(lab.name) == []
    assert not is_used(namespace)
    os.close(held)


def is_used(namespace: str) -> bool:
    """Whether a process or a mount has a network namespace, such as "net:[4026532000]"."""
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):  # it has ended
            if os.readlink(entry) == namespace:
                return True
    return f" {namespace} " in Path("/proc/self/mountinfo").read_text()


def test_a_dead_host_is_named(make_lab):
    lab = make_lab(2)
    descriptor = os.pidfd_open(lab.nodes["h1"].pid)
    os.kill(lab.nodes["h1"].pid, signal.SIGKILL)
    await_end(descriptor)
    done = subprocess.run(lab.enter("h1", ["true"]), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and "'h1'" in done.stderr and "lab status" in done.stderr
    assert not lab.alive("h1") and lab.alive("h0")
    with pytest.raises(UserError, match="assay lab down"):
        lab.fault(["h1"], Fault(down=True))


def await_end(pidfd: int) -> None:
    """Waits until the process has ended. Its descriptor then becomes readable."""
    assert select.select([pidfd], [], [], LIMIT_S)[0]
    os.close(pidfd)


def start_up_that_stops_at_tc(tmp_path: Path, name: str) -> subprocess.Popen[str]:
    """Starts an 'assay lab up' that stops when it calls tc, halfway through."""
    path, pipe = fake_tc(tmp_path, 'echo here >"$ASSAY_TEST_PIPE"; exec sleep 1000')
    environment = {
        **os.environ,
        "PATH": path,
        "ASSAY_TEST_PIPE": str(pipe),
        "PYTHONPATH": str(REPOSITORY / "python"),
    }
    argv = [
        sys.executable,
        "-m",
        "assay",
        "lab",
        "up",
        "--nodes",
        "3",
        "--host-rate",
        "10mbit",
        "--lab",
        name,
    ]
    starting = subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)
    assert pipe.read_text() == "here\n"
    assert find_processes(name)
    return starting


@lab_only
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_removes_everything(tmp_path, end):
    name = f"test-{os.getpid()}-interrupted"
    starting = start_up_that_stops_at_tc(tmp_path, name)
    try:
        starting.send_signal(end)
        assert "interrupted" in starting.communicate(timeout=LIMIT_S)[1]
        assert starting.returncode == 130
        assert leftovers(name) == []
    finally:
        starting.kill()
        take_down(name)


@lab_only
def test_nodes_of_a_killed_up_end(tmp_path):
    name = f"test-{os.getpid()}-killed"
    starting = start_up_that_stops_at_tc(tmp_path, name)
    try:
        nodes = [os.pidfd_open(int(p.read_text())) for p in state.folder(name).glob("nodes/h*/pid")]
        assert len(nodes) == 4
        starting.kill()
        starting.communicate(timeout=LIMIT_S)
        for node in nodes:
            await_end(node)
        with pytest.raises(UserError, match="assay lab down"):
            Lab.up(2, name=name)
    finally:
        starting.kill()
        take_down(name)
    assert leftovers(name) == []


@lab_only
def test_a_failed_up_removes_everything(tmp_path):
    name = f"test-{os.getpid()}-failed"
    path, _ = fake_tc(tmp_path, "echo 'no such thing' >&2; exit 1")
    done = cli("up", "--nodes", "2", "--host-rate", "10mbit", "--lab", name, env={"PATH": path})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "no such thing" in done.stderr and "tbf" in done.stderr
    assert leftovers(name) == []


def fake_tc(tmp_path: Path, script: str) -> tuple[str, Path]:
    """A PATH with a ``tc`` that runs ``script`` instead, and a pipe for it to write to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tc = tmp_path / "tc"
    tc.write_text(f"#!/bin/sh\n{script}\n")
    tc.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}", pipe


def test_slurm_runs_in_a_lab(make_lab, tmp_path):
    lab = make_lab(4, slurm=True)
    (tmp_path / "here").touch()
    names = run_inside(
        lab, "head", "srun", "-N4", "-t1", "sh", "-c", "test -e here && hostname", cwd=tmp_path
    )
    assert sorted(names.split()) == ["h0", "h1", "h2", "h3"]
    lab.down()
    assert leftovers(lab.name) == []
