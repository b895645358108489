"""Ranks without MPI: the direct launcher with small programs that behave like ranks, and the engine over its
transports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UserError
from assay.lab import Fault, Lab
from assay.launch.direct import TRANSPORTS, Direct
from assay.launch.engines import probe
from assay.launch.placement import HERE, Segment, Site, lab_site
from assay.launch.supervise import EngineProcess, EngineResult, run_engine
from assay.records.schema import AnyRecord, Measurement, Pairs

pytestmark = pytest.mark.programs

LIMIT_S = 240  # against hangs
PATIENT_MS = 60_000  # a heartbeat that no busy machine misses

# The functions of a planted rank. A test appends a body that calls them. Ranks wait for each other by files: ``doom``
# ends a rank, and ``await_end`` returns when the launcher has noticed it, which then collects the process.
RANK = """
import json, os, signal, sys, time
rank = int(os.environ["ASSAY_RANK"])
def say(**line): print(json.dumps(line, separators=(",", ":")), flush=True)
def listen(version="1/1"):
    say(kind="listening", rank=rank, host="h", address="127.0.0.1", port=1000 + rank, version=version)
def table(): return json.loads(sys.stdin.readline())
def result(**facts): say(kind="context", facts={k: str(v) for k, v in facts.items()})
def await_file(path):
    while not os.path.exists(path): time.sleep(0.01)
def doom(path, end):
    with open(path + ".new", "w") as file: file.write(str(os.getpid()))
    os.rename(path + ".new", path)
    end()
def await_end(path):
    await_file(path)
    while os.path.exists("/proc/" + open(path).read()): time.sleep(0.01)
def kill_self(): os.kill(os.getpid(), signal.SIGKILL)
"""


def launch(
    body: str, ranks: int = 3, *, lines: tuple[str, ...] = (), **options: Any
) -> tuple[int, list[dict[str, Any]], str]:
    """Runs ranks of a small program. Returns the exit code, the lines of standard output, and standard error."""
    return launch_program([sys.executable, "-c", RANK + body], ranks, lines, **options)


def launch_program(
    program: list[str], ranks: int, lines: tuple[str, ...], **options: Any
) -> tuple[int, list[dict[str, Any]], str]:
    direct = Direct("tcp", **options)
    argv = direct.command(HERE, [Segment(["localhost"] * ranks)], program)
    done = subprocess.run(
        argv,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **direct.environment(HERE)},
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_all_ranks_get_the_same_table_and_token() -> None:
    code, lines, _ = launch(
        'listen(); t = table(); result(token=t["token"], peers=t["peers"], incarnation=t["incarnation"])'
    )
    assert code == 0
    assert len(lines) == 3, "lines about the ranks' ports are not passed on"
    facts = [line["facts"] for line in lines]
    assert facts[0] == facts[1] == facts[2]
    assert len(facts[0]["token"]) == 64 and facts[0]["incarnation"] == "0"
    assert "1002" in facts[0]["peers"]
    second_token = launch('listen(); result(token=table()["token"])', ranks=1)[1][0]["facts"]["token"]
    assert second_token != facts[0]["token"], "each job has its own token"


def test_the_token_is_in_no_command_line_or_environment() -> None:
    code, lines, _ = launch(
        "listen(); token = table()['token']\n"
        "seen = [open(f'/proc/{pid}/{file}', 'rb').read() for pid in (os.getpid(), os.getppid())"
        " for file in ('cmdline', 'environ')]\n"
        "result(seen=any(token.encode() in text for text in seen))",
        ranks=1,
    )
    assert code == 0 and lines[0]["facts"] == {"seen": "False"}


def test_a_rank_that_is_killed_ends_the_job_and_is_named() -> None:
    code, lines, _ = launch("listen(); table()\nif rank == 1: kill_self()\ntime.sleep(1000)")
    assert code == 2
    (failure,) = [line for line in lines if line["kind"] == "failure"]
    assert failure["problem"] == "rank 1 on localhost was ended by signal 9 (Killed)"
    assert failure["subject"]["rank"] == 1 and failure["primary"]


def test_a_surviving_job_goes_on_without_a_rank_other_than_0(tmp_path: Path) -> None:
    body = (
        "listen(); table()\nif rank == {0}: doom('{1}{0}', kill_self)\nawait_end('{1}{0}'); result(rank=rank)"
    )
    code, lines, err = launch(body.format(2, tmp_path / "end"), survive=True)
    assert code == 0
    assert {line["facts"]["rank"] for line in lines} == {"0", "1"}
    assert "rank 2 on localhost was ended by signal 9 (Killed); the others go on" in err
    code, lines, _ = launch(body.format(0, tmp_path / "end"), survive=True)
    assert code == 2
    assert "rank 0 on localhost was ended by signal 9" in lines[0]["problem"]


def test_the_failure_of_a_rank_that_the_others_survive_is_told_in_words(tmp_path: Path) -> None:
    """A rank that was stopped and goes on finds that the others are gone."""
    failure = 'say(kind="failure", problem="h3 hears no other rank", fix="check its links")'
    body = f"listen(); table()\nif rank == 1: {failure}; doom('{tmp_path}/end', kill_self)\nawait_end('{tmp_path}/end')"
    code, _, err = launch(body, survive=True)
    assert code == 0
    assert "assay: localhost: h3 hears no other rank (fix: check its links); the others go on" in err
    assert "{" not in err and "kind" not in err


def test_a_rank_that_has_not_listened_has_not_come(tmp_path: Path) -> None:
    """Its hello is passed on when it listens: a host that is stopped between the two is late."""
    body = (
        f'say(kind="hello", rank=rank, host="h")\nlistens = {str(tmp_path)!r} + "/{{}}"\n'
        "if rank == 2: await_file(listens.format(0)); await_file(listens.format(1)); sys.exit(2)\n"
        'listen(); open(listens.format(rank), "w").close(); table()'
    )
    _, lines, _ = launch(body)
    assert {line["rank"] for line in lines if line["kind"] == "hello"} == {0, 1}


RESTARTED_RANK = """
listen(); t = table()
if rank == 1 and t["incarnation"] == 0: kill_self()
if rank == 1:
    result(**t, rank=rank)
    open(DONE, "w").close()
await_file(DONE)
"""


def restarted_rank(folder: Path) -> str:
    """Rank 1 is killed when it is first started. The others end when it has reported."""
    return f"DONE = {str(folder / 'done')!r}" + RESTARTED_RANK


def test_a_restarted_rank_has_a_higher_incarnation(tmp_path: Path) -> None:
    code, lines, _ = launch(restarted_rank(tmp_path), survive=True, restart_s=0.1)
    assert code == 0
    (facts,) = [line["facts"] for line in lines]
    assert facts["incarnation"] == "1" and "1002" in facts["peers"]


def test_a_rank_is_restarted_for_as_long_as_it_takes(tmp_path: Path) -> None:
    """Its host may be cut off: the rank ends again before it listens, with a pause that doubles."""
    starts = tmp_path / "starts"
    body = (
        f"if rank == 1: open({str(starts)!r}, 'a').write('x')\n"
        f"tries = len(open({str(starts)!r}).read()) if rank == 1 else 0\n"
        "if 1 < tries < 6: sys.exit(2)\n"
        "listen(); t = table()\n"
        "if tries == 1: kill_self()\n"
        f"if rank == 1: result(**t, rank=rank); open({str(tmp_path / 'done')!r}, 'w').close()\n"
        f"await_file({str(tmp_path / 'done')!r})"
    )
    code, lines, err = launch(body, survive=True, restart_s=0.01)
    assert code == 0
    assert [line["facts"]["incarnation"] for line in lines] == ["5"]
    assert "ended by signal 9 (Killed); the others go on; it is started again in 0.01 s" in err
    assert "ended with status 2; the others go on; it is started again in 0.16 s" in err


def test_a_rank_is_restarted_on_request(tmp_path: Path) -> None:
    requests = ('{"restart": 1}', "nonsense", '{"restart": 99}')
    code, lines, _ = launch(restarted_rank(tmp_path), survive=True, lines=requests)
    assert code == 0
    assert [line["facts"]["incarnation"] for line in lines] == ["1"]


def test_rank_0_gets_a_line_of_input_each_time_that_it_is_ready() -> None:
    body = """
listen(); table()
if rank == 0:
    for line in range(9):
        say(kind="ready", label="for the next round")
        text = sys.stdin.readline()
        if text == "\\n": break
        result(round=text)
"""
    first, second = '{"flows": [[0, 1]]}', '{"flows": [[1, 2]]}'
    code, lines, _ = launch(body, lines=(first, '{"restart": 99}', "", second))
    assert code == 0
    assert [line["kind"] for line in lines] == ["ready", "context", "ready", "context", "ready"]
    assert [line["facts"]["round"] for line in lines[1::2]] == [f"{first}\n", f"{second}\n"]


def test_rounds_of_flows_run_over_tcp() -> None:
    rounds = [{"flows": flows, "size": 65536, "seconds": 0.05} for flows in ([[0, 1], [1, 2]], [[2, 0]])]
    lines_of_rounds = tuple(map(json.dumps, rounds))
    code, lines, errors = launch_program([str(probe("")), "run", "network.saturation"], 3, lines_of_rounds)
    assert code == 0, errors
    assert [len(line["sources"]) for line in lines if line["kind"] == "flows"] == [2, 1]
    assert sum(line["kind"] == "ready" for line in lines) == 3


def test_a_restarted_rank_gets_no_port_of_a_dead_rank(tmp_path: Path) -> None:
    end, done = str(tmp_path / "end"), str(tmp_path / "done")
    code, lines, _ = launch(
        "listen(); t = table()\n"
        f"if rank == 2: doom({end!r}, lambda: os._exit(0))\n"
        f'if rank == 1 and t["incarnation"] == 0: await_end({end!r}); os._exit(3)\n'
        f"if rank == 1: result(ports=[p['port'] for p in t['peers']]); open({done!r}, 'w').close()\n"
        f"await_file({done!r})",
        survive=True,
        restart_s=0.1,
    )
    assert code == 0
    assert [line["facts"]["ports"] for line in lines] == ["[1000, 1001, 0]"]


# Answers each line of members with a plan, and ends after the second.
PLANNER = """
import json, sys
for _ in range(2):
    ranks = json.loads(sys.stdin.readline())["ranks"]
    print(json.dumps({"kind": "plan", "ranks": ranks, "steps": [[1, 0]]}), flush=True)
"""


def test_rank_0_gets_a_plan_for_the_members_that_it_reports() -> None:
    code, lines, _ = launch(
        "listen(); table()\n"
        "if rank == 0:\n"
        "    for members in ([0, 1], [0]):\n"
        "        say(kind='members', ranks=members); result(plan=sys.stdin.readline().strip())\n"
        "    say(kind='members', ranks=[0, 1])\n",  # of the planner that has ended
        ranks=2,
        planner=[sys.executable, "-c", PLANNER],
    )
    assert code == 0
    plans = [json.loads(line["facts"]["plan"]) for line in lines]
    assert [plan["ranks"] for plan in plans] == [[0, 1], [0]] and plans[0]["steps"] == [[1, 0]]


def test_a_job_without_a_planner_leaves_members_out() -> None:
    code, lines, _ = launch(
        "listen(); table()\nif rank == 0: say(kind='members', ranks=[0, 1]); result(a=1)", ranks=2
    )
    assert code == 0 and [line["kind"] for line in lines] == ["context"]


def test_no_planner_is_left_when_the_job_ends(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    planner = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid()) + '.'); time.sleep(1000)"
    body = f"listen(); table()\nwhile not open({str(pid)!r}, 'a+').tell(): time.sleep(0.01)"
    code, _, _ = launch(body, ranks=2, planner=[sys.executable, "-c", planner])
    assert code == 0 and not Path(f"/proc/{pid.read_text().strip('.')}").exists()


def test_different_versions_are_refused() -> None:
    code, lines, _ = launch("listen(version=f'{rank}/1'); table()", ranks=2)
    assert code == 2
    assert "the ranks are of different versions: 0/1 on localhost, 1/1 on localhost" in lines[0]["problem"]


def test_a_rank_that_ends_before_it_listens_ends_the_job() -> None:
    code, _, err = launch(
        "print('assay-probe: no interface', file=sys.stderr)\nif rank: sys.exit(2)\ntable()"
    )
    assert code == 2
    assert "assay-probe: no interface" in err


def test_no_rank_is_left_when_the_launcher_is_terminated() -> None:
    direct = Direct("tcp")
    body = "listen(); table(); result(pid=os.getpid()); time.sleep(1000)"
    argv = direct.command(HERE, [Segment(["localhost"] * 2)], [sys.executable, "-c", RANK + body])
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **direct.environment(HERE)},
    )
    assert process.stdout is not None
    pids = [int(json.loads(process.stdout.readline())["facts"]["pid"]) for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT_S) == 130
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(UserError, match="no transport is called 'rapidio'; fix: choose one of mpi, tcp"):
        Direct("rapidio")


# --- The engine ----------------------------------------------------------------------------------


def measure(
    transport: str,
    site: Site,
    hosts: list[str],
    on_record: Callable[[AnyRecord], object] = lambda _: None,
    heartbeat_ms: int = 1000,
    seconds: float = 3,
) -> tuple[EngineResult, list[AnyRecord]]:
    direct = Direct(transport, heartbeat_ms=heartbeat_ms)
    engine = [str(probe("")), "run", "network.all_to_all", "--sizes", "1048576", "--budget", str(seconds)]
    argv = direct.command(site, [Segment(hosts)], [*engine, "--timeout", "30", "--yield-us", "0"])
    records: list[AnyRecord] = []

    def keep(record: AnyRecord) -> None:
        records.append(record)
        on_record(record)

    started = EngineProcess(argv, direct.environment(site), hosts)
    return run_engine(started, keep, lambda _: None, direct.diagnose), records


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("operation", ["send", "put", "get"])
def test_the_network_measurement_runs_without_mpi(transport: str, operation: str) -> None:
    direct = Direct(transport, heartbeat_ms=PATIENT_MS)
    engine = [str(probe("")), "run", "network.all_to_all", "--sizes", "8,100000", "--repeats", "20"]
    argv = direct.command(HERE, [Segment(["localhost"] * 3)], [*engine, "--op", operation, "--budget", "0"])
    records: list[AnyRecord] = []
    ending = run_engine(
        EngineProcess(argv, direct.environment(HERE)), records.append, lambda _: None, lambda _: None
    )
    assert ending.failure is None, ending.stderr
    assert len([r for r in records if isinstance(r, Pairs) and r.metric == "bandwidth"]) == 6
    corrupted = [r for r in records if isinstance(r, Measurement) and r.metric == "corrupted"]
    assert corrupted and all(r.median == 0 for r in corrupted)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ASSAY_TRANSPORT", "rapidio", "no transport is called 'rapidio'; fix: choose one of tcp, udp, ofi"),
        ("ASSAY_RANK", "7", "ASSAY_RANK='7' is not a number from 0 to 1"),
        ("ASSAY_HEARTBEAT_MS", "fast", "ASSAY_HEARTBEAT_MS='fast' is not a number from 1 to 60000"),
        ("ASSAY_INTERFACE", "nonsense0", "no interface 'nonsense0' with an address"),
    ],
)
def test_a_wrong_environment_is_one_line(variable: str, value: str, message: str) -> None:
    env = {"ASSAY_TRANSPORT": "tcp", "ASSAY_RANK": "0", "ASSAY_RANKS": "2", "ASSAY_INTERFACE": "lo"}
    done = subprocess.run(
        [str(probe("")), "run", "network.all_to_all"],
        env={**os.environ, **env, variable: value},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("transport", ["tcp", "ofi:shm"])
def test_a_rank_that_waits_for_its_peers_ends_at_the_first_sigterm(transport: str) -> None:
    """PSM, which libfabric loads, would catch the signal and call exit(), which can hang."""
    rank_environment = {"ASSAY_RANK": "0", "ASSAY_RANKS": "2", "ASSAY_INTERFACE": "lo"}
    process = subprocess.Popen(
        [str(probe("")), "run", "network.all_to_all"],
        env={**os.environ, **rank_environment, "ASSAY_TRANSPORT": transport},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert any(b'"listening"' in line for line in process.stdout)
        process.terminate()
        assert process.wait(timeout=LIMIT_S) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("line", ["", "hello\n", '{"kind":"peers"}\n'])
def test_a_wrong_table_of_peers_is_one_line(line: str) -> None:
    done = subprocess.run(
        [str(probe("")), "run", "network.all_to_all"],
        env={
            **os.environ,
            "ASSAY_TRANSPORT": "tcp",
            "ASSAY_RANK": "0",
            "ASSAY_RANKS": "2",
            "ASSAY_INTERFACE": "lo",
        },
        input=line,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert "start ranks through 'assay'" in done.stderr and done.stderr.count("\n") == 1


in_acceptance = pytest.mark.acceptance("network")


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(hosts=4, host_rate="200mbit")


@pytest.mark.lab
def test_every_host_of_a_lab_sends_to_every_other(lab: Lab) -> None:
    direct = Direct("tcp", heartbeat_ms=PATIENT_MS)
    engine = [
        str(probe("")),
        "run",
        "network.all_to_all",
        "--sizes",
        "100000",
        "--repeats",
        "5",
        "--budget",
        "0",
    ]
    argv = direct.command(lab_site(lab), [Segment(lab.hosts)], engine)
    records: list[AnyRecord] = []
    started = EngineProcess(argv, direct.environment(lab_site(lab)), lab.hosts)
    ending = run_engine(started, records.append, lambda _: None, direct.diagnose)
    assert ending.failure is None, ending.stderr
    rows = [r for r in records if isinstance(r, Pairs) and r.metric == "bandwidth"]
    assert {(row.subject.host, peer) for row in rows for peer in row.peers} == set(permutations(lab.hosts, 2))
    corrupted = [r for r in records if isinstance(r, Measurement) and r.metric == "corrupted"]
    assert corrupted and all(r.median == 0 for r in corrupted)


@in_acceptance
@pytest.mark.statistical(
    "1 in 500, assumed: a processor must serve four ranks of 200 Mbit/s within the heartbeat's 3 s"
)
@pytest.mark.lab
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_network_measurement_runs_on_four_hosts_of_a_lab(lab: Lab, transport: str) -> None:
    ending, records = measure(transport, lab_site(lab), lab.hosts)
    assert ending.failure is None, ending.stderr
    rows = [r for r in records if isinstance(r, Pairs) and r.metric == "bandwidth"]
    assert {row.subject.host for row in rows} == set(lab.hosts)
    values = [value for row in rows for value in row.values]
    # Each host sends to one peer at a time, so no pair is faster than its host.
    assert len(values) == 12 and min(values) > 0 and max(values) < 1.3 * 200e6 / 8, values


@in_acceptance
@pytest.mark.lab
def test_lost_datagrams_are_retransmitted(lab: Lab) -> None:
    lab.fault(["h2"], Fault(rx_loss=0.02))
    try:
        ending, records = measure("udp", lab_site(lab), lab.hosts)
    finally:
        lab.fault(["h2"], None)
    assert ending.failure is None, ending.stderr
    corrupted = [r for r in records if isinstance(r, Measurement) and r.metric == "corrupted"]
    assert corrupted and all(r.median == 0 for r in corrupted)


@in_acceptance
@pytest.mark.statistical("1 in 500, assumed: a healthy rank that gets no processor for 900 ms is named too")
@pytest.mark.lab
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_host_whose_link_goes_down_is_named(lab: Lab, transport: str) -> None:
    hosts = lab.hosts

    def take_link_down(record: AnyRecord) -> None:
        if isinstance(record, Pairs):  # the first size is measured: the second is under way
            lab.fault(["h3"], Fault(down=True))

    direct = Direct(transport, heartbeat_ms=300)
    engine = [str(probe("")), "run", "network.all_to_all", "--sizes", "1024,65536", "--budget", "20"]
    argv = direct.command(lab_site(lab), [Segment(hosts)], [*engine, "--timeout", "30", "--yield-us", "0"])
    try:
        started = EngineProcess(argv, direct.environment(lab_site(lab)), hosts)
        ending = run_engine(started, take_link_down, lambda _: None, direct.diagnose)
    finally:
        lab.fault(["h3"], None)
    assert ending.failure is not None
    # Either the other ranks name h3, or h3 reports that it hears no other rank.
    message = ending.failure.problem
    assert (
        "rank 3 at" in message and "nothing was heard from it for 900 ms" in message
    ) or "h3 hears no other" in message
