"""``assay lab`` on the command line: its output, its exit codes, and one line on standard error for every mistake.

A planted rate is a limit that ``assay lab up`` gave to a host or cabinet; a fault can only lower it.
"""

from __future__ import annotations

import json
import os

import pytest

from assay import cli
from assay.lab import Lab


@pytest.fixture(scope="module")
def fabric(make_lab) -> Lab:
    return make_lab(4, 2, host_rate="100mbit")


@pytest.fixture
def lab_cli(monkeypatch, capfd):
    """A function that runs ``assay lab ARGUMENTS`` on ``lab`` and returns its exit code, standard output and standard
    error. Without ``lab`` the arguments are for a lab that does not exist."""

    def run(*arguments: str, lab: Lab | None = None) -> tuple[int, str, str]:
        monkeypatch.setenv("ASSAY_LAB", lab.name if lab else f"test-{os.getpid()}-none")
        status = cli.main(["lab", *arguments])
        return (status, *capfd.readouterr())

    return run


def test_status_as_a_table(lab_cli, fabric):
    """The columns are host, cabinet, address, sending and receiving rate, fault, number of processes."""
    status, out, _ = lab_cli("status", lab=fabric)
    assert status == 0
    assert "4 hosts (h[0-3]) in 2 cabinets" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("h2"))
    assert row == ["h2", "c1", "10.77.1.1", "100", "Mbit/s", "100", "Mbit/s", "-", "0"]


def test_faults_show_in_the_status_until_they_are_cleared(lab_cli, fabric):
    assert lab_cli("fault", "h[1,3]", "--tx", "50%", lab=fabric)[0] == 0
    assert lab_cli("fault", "h3", "--rx", "20mbit", "--down", lab=fabric)[0] == 0
    hosts = {host["name"]: host for host in json.loads(lab_cli("status", "--json", lab=fabric)[1])["hosts"]}
    assert not any(hosts["h0"]["fault"].values())
    assert (hosts["h1"]["tx"], hosts["h1"]["rx"]) == (6.25e6, 12.5e6)
    assert hosts["h3"]["fault"] == {
        "tx": 6.25e6,
        "rx": 2.5e6,
        "down": True,
        "tx_loss": None,
        "rx_loss": None,
        "tx_to": {},
    }
    assert "tx, rx, down" in lab_cli("status", lab=fabric)[1]
    assert lab_cli("fault", "h[0-3]", "--clear", lab=fabric)[0] == 0
    described = json.loads(lab_cli("status", "--json", lab=fabric)[1])
    assert all(host["tx"] == 12.5e6 and not host["fault"]["down"] for host in described["hosts"])
    assert described["rates"] == {
        "up": 12.5e6,
        "down": 12.5e6,
        "duplex": None,
        "cabinet": None,
        "lossless": False,
    }


def test_slow_paths_and_uplinks_show_in_the_status_until_they_are_cleared(lab_cli, make_lab):
    lab = make_lab(4, 2, host_rate="100mbit", cabinet_rate="150mbit")
    assert lab_cli("fault", "h0", "--tx", "50%", "--to", "h[2-3]", lab=lab)[0] == 0
    assert lab_cli("fault", "c1", "--rx", "50%", lab=lab)[0] == 0
    described = json.loads(lab_cli("status", "--json", lab=lab)[1])
    assert described["hosts"][0]["fault"]["tx_to"] == {"h2": 6.25e6, "h3": 6.25e6}
    assert described["cabinet_faults"] == {"c1": {"tx": None, "rx": 75e6 / 8}}
    text = lab_cli("status", lab=lab)[1]
    assert "tx to h[2-3]" in text and "faulty: c1 rx" in text
    assert lab_cli("fault", "h0", "--clear", lab=lab)[0] == lab_cli("fault", "c1", "--clear", lab=lab)[0] == 0
    assert "faulty" not in lab_cli("status", lab=lab)[1]


def test_exec_on_several_hosts_prefixes_lines_with_the_host_and_returns_the_worst_exit_code(lab_cli, fabric):
    script = 'hostname; [ "$(hostname)" != h1 ] || exit 5'
    status, out, _ = lab_cli("exec", "h[0-1],head", "--", "sh", "-c", script, lab=fabric)
    assert status == 5
    assert sorted(out.splitlines()) == ["h0: h0", "h1: h1", "head: head"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("up --nodes 0", "--nodes: '0' is not a whole number of at least 1"),
        ("up --nodes 251", "--nodes a number from 1 to 250"),
        ("up --nodes many", "--nodes"),
        ("up --nodes 2 --cabinets 3", "--cabinets a number from 1 to 2"),
        ("up --nodes 2 --cabinets 0", "--cabinets"),
        ("up --host-rate fast", "'fast'"),
        ("up --host-rate 0mbit", "cannot be planted"),
        ("up --duplex-rate 100", "B/s is needed"),
        ("up --mtu 100", "576 to 65535"),
        ("up --mtu big", "576 to 65535"),
        ("up --lab a/b", "'a/b' cannot be the name"),
        ("status", "assay lab up"),
        ("exec h0 -- true", "assay lab up"),
        ("fault h0 --down", "assay lab up"),
        ("fly", "'fly'"),
    ],
)
def test_wrong_input_without_a_lab_is_one_line(lab_cli, arguments, message):
    assert_one_line(lab_cli(*arguments.split()), message)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("exec h9 -- true", "no host 'h9'"),
        ("exec h[5-1] -- true", "h[5-1]"),
        ("exec h0", "no command given"),
        ("fault head --down", "no host or cabinet 'head'"),
        ("fault c9 --tx 50%", "there are c[0-"),
        ("fault h0", "--tx, --rx, --tx-loss, --rx-loss or --down"),
        ("fault h0 --to h1", "--to has no rate"),
        ("fault h0 --tx 50% --to h77", "no host 'h77'"),
        ("fault h0 --tx 50% --to h[0-1]", "h0 sends nothing to itself"),
        ("fault h0,c0 --tx 50%", "has hosts and cabinets"),
        ("fault c0 --tx 50% --to h1", "--to is for hosts"),
        ("fault c0 --down", "c0 is a cabinet"),
        ("fault h0 --rx-loss 0%", "above 0%"),
        ("fault h0 --tx-loss 100%", "under 100%"),
        ("fault h0 --tx-loss some", "not a quantity"),
        ("fault h0 --down --clear", "exclude each other"),
        ("fault h0 --tx 0%", "--down"),
        ("fault h0 --tx 150%", "up to 100%"),
        ("fault h0 --tx half", "'half'"),
        ("fault h0 --rx 1gbit", "above the planted rate"),
        ("up", "assay lab down"),
    ],
)
def test_wrong_input_in_a_lab_is_one_line(lab_cli, fabric, arguments, message):
    assert_one_line(lab_cli(*arguments.split(), lab=fabric), message)


def test_a_share_needs_a_planted_rate(lab_cli, make_lab):
    assert_one_line(lab_cli("fault", "h0", "--tx", "50%", lab=make_lab(1)), "give an absolute rate")


def test_a_second_down_has_nothing_to_do(lab_cli, make_lab):
    lab = make_lab(2)
    assert lab_cli("down", lab=lab)[:2] == (0, f"lab '{lab.name}' is down\n")
    status, out, _ = lab_cli("down", lab=lab)
    assert status == 0 and "nothing to do" in out


def test_without_root_up_is_refused(lab_cli, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert_one_line(lab_cli("up"), "run it as root")


def test_without_iproute2_the_package_is_named(lab_cli, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool, path=None: None)
    assert_one_line(lab_cli("up"), "apt-get install iproute2")


@pytest.mark.parametrize("verb", ["up", "status", "exec", "fault", "down"])
def test_help_has_examples(capsys, verb):
    assert cli.main(["lab", verb, "--help"]) == 0
    assert f"examples:\n  assay lab {verb}" in capsys.readouterr().out


def assert_one_line(result: tuple[int, str, str], message: str) -> None:
    """The command failed with exit code 2 and one line on standard error, which contains ``message``."""
    status, out, errors = result
    assert (status, out) == (2, "")
    assert errors.startswith("assay: ") and errors.count("\n") == 1
    assert message in errors
