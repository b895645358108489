"""The token of a run, by which the two sides of a UDP measurement recognise each other. Senders without it are refused,
and it appears on no command line."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from assay.launch.engines import engines_folder
from assay.launch.placement import HERE
from assay.measure.engine_processes import Side
from assay.measure.session import Session
from assay.records.run import Run

ENGINE = engines_folder() / "assay-probe"
LIMIT_S = 240  # against hangs
SLOW = ["--size", "1000", "--streams", "1", "--rate", "100000", "--budget", "0.5", "--wait", "200"]

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(not ENGINE.is_file(), reason="the engines are not built"),
]


@pytest.fixture
def port() -> Iterator[int]:
    """A free port for control whose successor is free for data. A TCP socket reserves it among the processes that run
    tests: its numbers are not those of UDP."""
    for port in range(21000, 31000, 7):
        with ExitStack() as stack:
            reserved = stack.enter_context(socket.socket())
            udp = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2)]
            try:
                reserved.bind(("127.0.0.1", port))
                for offset, checked in enumerate(udp):
                    checked.bind(("127.0.0.1", port + offset))
            except OSError:
                continue
            for checked in udp:
                checked.close()
            yield port
            return
    raise AssertionError("no free port")


def token_file(folder: Path, digit: str) -> Path:
    path = folder / f"token-{digit}"
    path.touch(mode=0o600)
    path.write_text(digit * 64 + "\n")
    return path


def start(side: str, port: int, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ENGINE, "run", f"node.udp_{side}", "--host", "127.0.0.1", "--port", str(port), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_receiver(port: int, *arguments: object) -> subprocess.Popen[str]:
    process = start("receive", port, "--size", 1000, "--sockets", 1, *arguments)
    assert process.stdout is not None
    while '"ready"' not in process.stdout.readline():
        assert process.poll() is None, process.communicate()
    return process


def test_sides_with_the_same_token_measure(tmp_path: Path, port: int) -> None:
    token = token_file(tmp_path, "1")
    listening = start_receiver(port, "--token", token)
    sender = start("send", port, *SLOW, "--token", token)
    assert sender.wait(LIMIT_S) == 0, sender.communicate()
    output, errors = listening.communicate(timeout=LIMIT_S)
    assert listening.returncode == 0, errors
    records = [json.loads(line) for line in output.splitlines()]
    (loss,) = [r for r in records if r.get("metric") == "loss" and r["params"]["stream"] == "all"]
    assert loss["summary"]["median"] == 0


def test_a_sender_with_another_token_or_none_is_refused(tmp_path: Path, port: int) -> None:
    listening = start_receiver(port, "--token", token_file(tmp_path, "1"))
    strangers = [
        start("send", port, *SLOW[:-1], "0.5", *arguments)
        for arguments in ([], ["--token", token_file(tmp_path, "2")])
    ]
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        for text in (b"", b"x" * 65000, b'assay-udp/2 {"type":"hello"} ' + b"0" * 64):
            stranger.sendto(text, ("127.0.0.1", port))
    for process in strangers:
        assert process.wait(LIMIT_S) == 2
        assert "does not answer" in process.communicate()[1]
    # The receiver still runs and accepts the legitimate sender.
    sender = start("send", port, *SLOW, "--token", token_file(tmp_path, "1"))
    assert sender.wait(LIMIT_S) == 0, sender.communicate()
    _, errors = listening.communicate(timeout=LIMIT_S)
    assert listening.returncode == 0, errors
    assert errors.count("a control message that is not of this run") == 1, errors


@pytest.mark.parametrize("fault", ["mode", "content", "missing"])
def test_an_unusable_token_file_is_one_line(tmp_path: Path, port: int, fault: str) -> None:
    path = token_file(tmp_path, "1")
    if fault == "mode":
        path.chmod(0o644)
    elif fault == "content":
        path.write_text("secret\n")
    else:
        path.unlink()
    process = start("receive", port, "--token", path)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1 and str(path) in errors and "; fix: " in errors


def test_a_pair_gets_a_new_token_that_no_command_line_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted engines record their command line and the first line of their standard input."""
    planted_engine = tmp_path / "engine"
    planted_engine.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        f"seen = pathlib.Path({str(tmp_path)!r}) / sys.argv[2]\n"
        "seen.write_text(json.dumps([sys.argv, sys.stdin.readline(), sorted(os.environ.values())]))\n"
        'print(json.dumps({"kind": "ready", "listens": "x"}), flush=True)\n'
    )
    planted_engine.chmod(0o755)
    monkeypatch.setattr("assay.measure.engine_processes.probe", lambda flavour="": planted_engine)
    tokens = []
    for number in range(2):
        session = Session(Run.create("udp", [], path=tmp_path / f"run{number}"), quiet=True)
        session.measure_pair(
            Side("node.udp_receive", HERE, socket.gethostname(), {}),
            Side("node.udp_send", HERE, socket.gethostname(), {}),
        )
        for side in ("node.udp_receive", "node.udp_send"):
            argv, line, environment = json.loads((tmp_path / side).read_text())
            assert argv[argv.index("--token") + 1] == "-"
            assert len(line.strip()) == 64
            assert not [text for text in [*argv, *environment] if line.strip() in text]
            tokens.append(line)
    assert tokens[0] == tokens[1] and tokens[2] == tokens[3] and tokens[0] != tokens[2]
