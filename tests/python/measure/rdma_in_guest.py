"""Runs in a guest with the SoftRoCE devices rxe0 and rxe1 for ``test_rdma_guest.py``, and prints one JSON object.

Each part is a function that returns its observations. It asserts nothing, so that one boot serves all tests.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.cli import load, main
from assay.launch.direct import Direct
from assay.launch.placement import HERE, Segment

ROOT = Path(__file__).resolve().parents[3]
EVENTS, FRAGMENT = 40, 65536
PROBE = [str(ROOT / "build/bin/assay-probe"), "run", "node.rdma"]
LIMIT_S = 240  # against hangs
CAP_IPC_LOCK, PR_CAPBSET_DROP = 14, 24  # linux/capability.h, linux/prctl.h


def assay(*arguments: str, prepare: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Runs a command in a fork of this process, which has already imported Assay; an emulated processor imports slowly.

    ``prepare`` is called in the fork. SIGALRM ends it after ``LIMIT_S``; the code is then -SIGALRM.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            signal.alarm(LIMIT_S)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            try:
                prepare()
                code = main(list(arguments))
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                code = 99
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return {"code": code, "out": texts[0], "err": texts[1]}


def figures(done: dict[str, Any]) -> list[dict[str, Any]]:
    """The measurements in the output of a command with --json."""
    try:
        records = json.loads(done["out"])["records"]
    except ValueError:
        return [done]
    return [
        {
            "metric": r["metric"],
            "median": r["summary"]["median"],
            **{k: r["params"][k] for k in ("op", "size", "peer_device")},
            "direction": r["params"].get("direction", ""),
            "device": r["subject"]["device"],
        }
        for r in records
        if r["kind"] == "measurement" and r.get("summary")
    ]


def sent_bytes() -> int:
    return sum(int(Path(f"/sys/class/net/{v}/statistics/tx_bytes").read_text()) for v in interfaces())


def interfaces() -> list[str]:
    """The network interfaces of the two devices."""
    names = []
    for device in ("rxe0", "rxe1"):
        names.append(Path(f"/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0").read_text().strip())
    return names


def operations() -> dict[str, Any]:
    """Every port sends. Few messages are in flight: the responder to a read would overflow the shaper's queue, and
    SoftRoCE recovers badly from dropped packets."""
    before = sent_bytes()
    arguments = ["--iterations", "64", "--repeats", "1", "--depth", "4", "--op", "write,read,send", "--json"]
    done = assay("rdma", *arguments)
    return {"code": done["code"], "figures": figures(done), "wire": sent_bytes() - before}


def sweep() -> dict[str, Any]:
    arguments = ["-d", "rxe0", "--peer-device", "rxe1", "--sizes", "1,4096,65536", "--iterations", "50"]
    return assay("rdma", *arguments, "--repeats", "1", "--qps", "2", "--depth", "4", "--bidirectional")


def start_probe(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROBE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def await_line(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    stderr = process.communicate(timeout=LIMIT_S)[1]
    return {"code": process.returncode, "err": stderr}


def start_server(*arguments: str) -> subprocess.Popen[str]:
    server = start_probe("--device", "rxe0", "--listen", "lo", "--timeout", "10", *arguments)
    await_line(server, '"ready"')
    return server


def kill_one_side(victim_name: str) -> dict[str, Any]:
    """Kills one of two measuring engines. Returns the other's error output and the time until it ended."""
    server = start_server()
    client = start_probe(
        "--device", "rxe1", "--peer", "127.0.0.1", "--iterations", "1000000", "--timeout", "10"
    )
    await_line(client, '"progress"')  # the client is in the timed part
    victim, other = (server, client) if victim_name == "server" else (client, server)
    begin = time.monotonic()
    victim.kill()
    survivor = finish(other)
    victim.communicate()
    return {**survivor, "seconds": time.monotonic() - begin}


def failing_client(*arguments: str) -> dict[str, Any]:
    """Runs a client with impossible options. Returns its error output and that of the server."""
    server = start_server()
    client = finish(start_probe("--device", "rxe1", "--peer", "127.0.0.1", *arguments))
    return {**client, "server": finish(server)}


def taken_port() -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 18777)):
        return finish(start_probe("--device", "rxe0", "--listen", "127.0.0.1", "--port", "18777"))


def stranger() -> dict[str, Any]:
    """A client of perftest connects to the server's port, then a client of Assay."""
    server = start_server()
    perftest = ["timeout", "20", "ib_write_bw", "-d", "rxe1", "-F", "-n", "10", "127.0.0.1"]
    subprocess.run(perftest, capture_output=True, check=False)
    client = finish(
        start_probe("--device", "rxe1", "--peer", "127.0.0.1", "--iterations", "20", "--repeats", "1")
    )
    return {**client, "server": finish(server)}


def without_locked_memory() -> dict[str, Any]:
    """As an ordinary user with an ordinary limit."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) != 0:
            os._exit(99)

    return assay("rdma", "-d", "rxe0", "--peer-device", "rxe1", prepare=confine)


def build_events(protocol: str) -> dict[str, Any]:
    """Event building over libfabric's verbs provider, a rank on each device."""
    before = sent_bytes()
    direct = Direct("ofi:verbs", heartbeat_ms=20_000, start_s=120)
    segments = [Segment(["localhost"], {"ASSAY_INTERFACE": name}) for name in interfaces()]
    engine = [PROBE[0], "run", "events.build", "--protocol", protocol, "--timeout", "100"]
    engine += ["--events", str(EVENTS), "--duration", "0", "--fragment", str(FRAGMENT)]
    done = subprocess.run(
        direct.command(HERE, segments, engine),
        env={**os.environ, **direct.environment(HERE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    records = [json.loads(line) for line in done.stdout.splitlines() if '"events.build"' in line]
    counts = {r["metric"]: r["summary"]["median"] for r in records if r.get("summary") and not r["subject"]}
    return {"code": done.returncode, "err": done.stderr, "counts": counts, "wire": sent_bytes() - before}


PARTS: dict[str, Callable[[], Any]] = {
    "operations": operations,
    "sweep": sweep,
    "events_push": lambda: build_events("push"),
    "events_pull": lambda: build_events("pull"),
    "server_killed": lambda: kill_one_side("server"),
    "client_killed": lambda: kill_one_side("client"),
    "taken_port": taken_port,
    "stranger": stranger,
    "locked_memory": without_locked_memory,
    "no_device": lambda: finish(start_probe("--device", "rxe7", "--peer", "127.0.0.1")),
    "no_gid": lambda: failing_client("--gid-index", "7"),
    "no_mtu": lambda: failing_client("--mtu", "3000"),
    "no_depth": lambda: failing_client("--depth", "32768"),
    "realtime": lambda: finish(start_probe("--device", "rxe0", "--realtime")),
    "nobody": lambda: finish(start_probe("--device", "rxe0", "--wait", "1")),
    "nobody_there": lambda: finish(start_probe("--device", "rxe0", "--peer", "127.0.0.1")),
}


def main_in_guest() -> None:
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    os.chdir("/tmp")
    load("rdma")
    results = {}
    for name in sys.argv[1:] or PARTS:
        try:
            results[name] = PARTS[name]()
        except Exception as error:
            results[name] = {"defect": repr(error)}
    print(json.dumps(results))


if __name__ == "__main__":
    main_in_guest()
