"""``assay rdma`` on a machine without RDMA, and how it reads its command line."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cli import main
from assay.commands.rdma import read_options
from assay.errors import UserError
from assay.launch.engines import describe, engines_folder, probe
from assay.measure import session

pytestmark = pytest.mark.skipif(
    not (engines_folder() / "assay-probe").is_file(), reason="the engines are not built"
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The root of a planted machine, on which the tests run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_ROOT", str(tmp_path / "root"))
    describe.cache_clear()
    yield tmp_path / "root"
    describe.cache_clear()


def plant(root: Path, device: str) -> None:
    port = root / "sys/class/infiniband" / device / "ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")


def test_every_metric_is_waived_without_a_device(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rdma", "--json", "-o", "out"]) == 2
    report = json.loads(capsys.readouterr().out)
    measured = [r for r in report["records"] if r["kind"] == "measurement"]
    assert {r["metric"] for r in measured} == {"bandwidth", "peak", "message_rate", "corrupted", "wire"}
    assert {r["status"] for r in measured} == {"waived"}
    assert "no RDMA device" in measured[0]["reason"] or "without libibverbs" in measured[0]["reason"]
    assert report["run"]["outcome"] == "INCONCLUSIVE"


@pytest.mark.parametrize("arguments", [["-d", "mlx5_0"], ["-d", "mlx5_0", "--peer-device", "mlx5_1"]])
def test_a_named_device_that_is_not_there_is_one_line(
    machine: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rdma", *arguments, "-o", "out"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "-d mlx5_0: " in captured.err
    assert not Path("out").exists()


def test_every_metric_is_waived_if_libibverbs_finds_no_device(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A planted device that /sys shows and libibverbs does not. On a real machine the provider library is missing."""
    if list(Path("/sys/class").glob("infiniband/*")):
        pytest.skip("optional: this machine has RDMA devices")
    plant(machine, "mlx5_0")
    assert main(["rdma", "--json", "-o", "out"]) == 2
    report = json.loads(capsys.readouterr().out)
    reasons = {r["reason"] for r in report["records"] if r["kind"] == "measurement"}
    assert len(reasons) == 1
    assert "libibverbs" in reasons.pop()


BAD = [
    (["--peer", "n2"], "--peer n2 without -d"),
    (["--peer-device", "rxe1"], "--peer-device without -d"),
    (["-d", "rxe0", "--peer", "a,b"], "--peer names 2 hosts"),
    (["-d", "rxe0", "n2"], "no parameter 'n2'"),
    (["-d", "rxe0", "--peer", "n[3-1]"], "n[3-1]"),
    (["-d", "rxe0", "--colour", "3"], "no parameter '--colour'"),
    (["-d", "rxe0", "--mute"], "no parameter '--mute'"),
    (["-d", "rxe0", "--depth"], "--depth without a value"),
    (["-d", "rxe0", "--depth", "0"], "--depth 0: out of bounds"),
    (["-d", "rxe0", "--port", "70000"], "--port 70000: out of bounds"),
    (["-d", "rxe0", "--qps", "many"], "not a whole number"),
    (["-d", "rxe0", "--spec", "missing.toml"], "missing.toml"),
    (["-d", "rxe0", "--peer-device", "rxe1", "--peer", "no-such-host-1"], "unknown host"),
]


@pytest.mark.parametrize(
    ("arguments", "named"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_bad_input_is_one_line(
    arguments: list[str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "run_engine", start)
    assert main(["rdma", *arguments]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1, captured.err
    assert named in captured.err
    assert not (tmp_path / "runs").exists()


def test_peer_is_the_other_side_and_other_options_are_parameters() -> None:
    described = describe(probe()).find("node.rdma")
    others = ["--iterations", "200", "--op=write,read", "--bidirectional", "--gid-index", "-1"]
    params = {"iterations": "200", "op": "write,read", "bidirectional": True, "gid_index": "-1"}
    assert read_options(described, Namespace(peer="n2", unknown=others)) == (params, "n2")
    assert read_options(described, Namespace(peer=None, unknown=["--sizes", "1,2"])) == ({"sizes": "1,2"}, "")
    with pytest.raises(UserError, match="--peer names 2 hosts"):
        read_options(described, Namespace(peer="n[1-2]", unknown=[]))
