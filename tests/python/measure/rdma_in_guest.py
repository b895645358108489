"""Run in a guest that has rxe0 and rxe1: what ``test_rdma_guest.py`` asserts on, as one JSON object.

Each part is a function that returns what was seen; nothing is asserted here, so that one boot answers all.
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

ROOT = Path(__file__).resolve().parents[3]
PROBE = [str(ROOT / "build/bin/assay-probe"), "run", "node.rdma"]
LIMIT_S = 240  # against hangs
CAP_IPC_LOCK, PR_CAPBSET_DROP = 14, 24  # linux/capability.h, linux/prctl.h


def assay(*arguments: str, prepare: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """A command in a copy of this process, which has imported Assay: an emulated processor takes long for that.

    ``prepare`` is called in the copy. SIGALRM ends it after ``LIMIT_S``; the code is then -SIGALRM.
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
    """The measurements of a run that was asked for with --json."""
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
    """Those of the two devices."""
    names = []
    for device in ("rxe0", "rxe1"):
        names.append(Path(f"/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0").read_text().strip())
    return names


def operations() -> dict[str, Any]:
    """Every port as sender; few messages in flight, since one that answers a read does not mind how much a
    shaper's queue holds, and SoftRoCE recovers badly from what is dropped."""
    before = sent_bytes()
    arguments = ["--iterations", "64", "--repeats", "1", "--depth", "4", "--op", "write,read,send", "--json"]
    done = assay("rdma", *arguments)
    return {"code": done["code"], "figures": figures(done), "wire": sent_bytes() - before}


def sweep() -> dict[str, Any]:
    arguments = ["-d", "rxe0", "--peer-device", "rxe1", "--sizes", "1,4096,65536", "--iterations", "50"]
    return assay("rdma", *arguments, "--repeats", "1", "--qps", "2", "--depth", "4", "--bidirectional")


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROBE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def await_line(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return


def ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    stderr = process.communicate(timeout=LIMIT_S)[1]
    return {"code": process.returncode, "err": stderr}


def listening(*arguments: str) -> subprocess.Popen[str]:
    server = started("--device", "rxe0", "--listen", "lo", "--timeout", "10", *arguments)
    await_line(server, '"ready"')
    return server


def killed(which: str) -> dict[str, Any]:
    """Two engines at work, one of which is killed: what the other says, and how soon."""
    server = listening()
    client = started("--device", "rxe1", "--peer", "127.0.0.1", "--iterations", "1000000", "--timeout", "10")
    await_line(client, '"progress"')  # it is in the timed part
    victim, other = (server, client) if which == "server" else (client, server)
    begin = time.monotonic()
    victim.kill()
    survivor = ended(other)
    victim.communicate()
    return {**survivor, "seconds": time.monotonic() - begin}


def refused(*arguments: str) -> dict[str, Any]:
    """A client that cannot do what it is asked for: what it says, and what the other side does."""
    server = listening()
    client = ended(started("--device", "rxe1", "--peer", "127.0.0.1", *arguments))
    return {**client, "server": ended(server)}


def taken_port() -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 18777)):
        return ended(started("--device", "rxe0", "--listen", "127.0.0.1", "--port", "18777"))


def stranger() -> dict[str, Any]:
    """perftest calls at our port, then our own client does."""
    server = listening()
    theirs = ["timeout", "20", "ib_write_bw", "-d", "rxe1", "-F", "-n", "10", "127.0.0.1"]
    subprocess.run(theirs, capture_output=True, check=False)
    client = ended(started("--device", "rxe1", "--peer", "127.0.0.1", "--iterations", "20", "--repeats", "1"))
    return {**client, "server": ended(server)}


def without_locked_memory() -> dict[str, Any]:
    """As an ordinary user with an ordinary limit."""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        if ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) != 0:
            os._exit(99)

    return assay("rdma", "-d", "rxe0", "--peer-device", "rxe1", prepare=confine)


PARTS: dict[str, Callable[[], Any]] = {
    "operations": operations,
    "sweep": sweep,
    "server_killed": lambda: killed("server"),
    "client_killed": lambda: killed("client"),
    "taken_port": taken_port,
    "stranger": stranger,
    "locked_memory": without_locked_memory,
    "no_device": lambda: ended(started("--device", "rxe7", "--peer", "127.0.0.1")),
    "no_gid": lambda: refused("--gid-index", "7"),
    "no_mtu": lambda: refused("--mtu", "3000"),
    "no_depth": lambda: refused("--depth", "32768"),
    "realtime": lambda: ended(started("--device", "rxe0", "--realtime")),
    "nobody": lambda: ended(started("--device", "rxe0", "--wait", "1")),
    "nobody_there": lambda: ended(started("--device", "rxe0", "--peer", "127.0.0.1")),
}


def answer() -> None:
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
    answer()
