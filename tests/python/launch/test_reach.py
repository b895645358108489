"""Hosts that cannot be reached: the true reason, and the name that was meant."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import cast

import pytest

from assay.errors import UserError
from assay.launch import reach
from assay.launch.placement import Site


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that resolve, and to hosts that answer."""
    names: set[str] = set()

    def resolve(host: str, port: int, *_: object) -> list[str]:
        host.encode("idna")
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [host]

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        resolve(*address)
        return socket.socket()

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    return names


def refusal(hosts: list[str]) -> str:
    with pytest.raises(UserError) as refused:
        reach.check_hosts(cast(Site, SimpleNamespace(name="cluster", lab=None)), hosts)
    return str(refused.value)


@pytest.mark.parametrize(
    ("hosts", "known", "meant"),
    [
        (["n0", "n1"], ["n00", "n01"], "n[00-01]"),
        (["n001", "n002"], ["n1", "n2"], "n[1-2]"),
        (["r1n1-ib0"], ["r1n01-ib0"], "r1n01-ib0"),
        (["n0", "n7"], ["n00", "n01"], "n00"),
        (["n00", "n1"], ["n00", "n01"], "n01"),
    ],
)
def test_a_name_with_other_zeros_is_proposed(
    named: set[str], hosts: list[str], known: list[str], meant: str
) -> None:
    named.update(known)
    assert f"does not resolve); fix: did you mean {meant}?" in refusal(hosts)


@pytest.mark.parametrize(
    ("host", "written"),
    [("n1-n4", "n[1-4]"), ("n01-04", "n[01-04]"), ("r1n1-r1n4", "r1n[1-4]"), ("n4-n1", None), ("db-2", None)],
)
def test_a_range_without_brackets_is_proposed_with_them(
    named: set[str], host: str, written: str | None
) -> None:
    assert (f"if it is a range, write {written}" in refusal([host])) == (written is not None)


def test_nothing_is_proposed_where_nothing_is_alike(named: set[str]) -> None:
    named.update(["m00", "028"])
    for host in ("n0", "n", "28", "n" + "1" * 60):
        assert refusal([host]).endswith("fix: check the name and that the host is up, or leave it out")


def test_the_reason_is_the_letter_or_the_length_of_a_name(named: set[str]) -> None:
    assert "no host has such a name: 'œ' is none of A-Z" in refusal(["nœud00"])
    assert "or longer than 63 characters" in refusal(["n" * 64])
    named.add("nœud00")
    reach.check_hosts(cast(Site, SimpleNamespace(name="cluster", lab=None)), ["nœud00"])


def test_a_host_of_a_lab_is_proposed() -> None:
    lab = SimpleNamespace(hosts=["h00", "h01"])
    with pytest.raises(UserError) as refused:
        reach.check_hosts(cast(Site, SimpleNamespace(name="lab", lab=lab)), ["h0", "h1"])
    assert refused.value.fix == "did you mean h[00-01]?"
