"""A rank of the event builder that comes back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

BUILD = Path(__file__).parents[3] / "build"
LIMIT_S = 120  # against hangs
COMMAND = [str(BUILD / "bin" / "assay-probe"), "run", "events.build", "--protocol", "push"]


def test_a_rank_that_does_not_reach_the_manager_fails_so_that_it_is_started_again() -> None:
    environment = {
        **os.environ,
        "ASSAY_TRANSPORT": "tcp",
        "ASSAY_RANK": "1",
        "ASSAY_RANKS": "2",
        "ASSAY_INTERFACE": "lo",
    }
    # Bound and not listening: connections are refused, and nobody else gets the port.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        ) as rank:
            assert rank.stdin is not None and rank.stdout is not None
            listening = next(json.loads(line) for line in rank.stdout if '"listening"' in line)
            peers = [
                {"rank": 0, "address": "127.0.0.1", "port": closed.getsockname()[1]},
                {"rank": 1, "address": listening["address"], "port": listening["port"]},
            ]
            table = {"kind": "peers", "token": "ab" * 32, "incarnation": 1, "peers": peers}
            rank.stdin.write(json.dumps(table) + "\n")
            rank.stdin.flush()  # it stays open: a rank whose launcher is gone ends
            failure = json.loads(rank.stdout.readlines()[-1])
            rank.wait(LIMIT_S)
    assert rank.returncode == 2 and failure["kind"] == "failure"
    assert "does not reach rank 0, the event manager" in failure["problem"]
