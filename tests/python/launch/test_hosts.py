"""Host lists: the syntax of the Network Sanitizer and of HPC users is read, and wrong lists are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import UserError
from assay.launch.hosts import fold, host_list, parse_hosts, read_hosts, refuse_shared


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("client[1-5]", ["client1", "client2", "client3", "client4", "client5"]),
        ("client[1,10]", ["client1", "client10"]),
        ("client[1-3,10]", ["client1", "client2", "client3", "client10"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a,b", ["a", "b"]),
        ("n[1-4]!n[2-3]", ["n1", "n4"]),
        ("n[1-3/2]", ["n1", "n3"]),
    ],
)
def test_host_lists_are_expanded(text: str, hosts: list[str]) -> None:
    assert parse_hosts(text, "--clients") == hosts


@pytest.mark.parametrize("text", ["client[5-1]", "", " ", "client[", "client[1-", "n[1-3]!n[1-3]"])
def test_a_wrong_list_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_hosts(text, "--clients")
    assert str(refused.value).startswith("--clients ")
    assert refused.value.exit_code == 2 and refused.value.fix


@settings(deadline=None, derandomize=True)
@given(st.sets(st.integers(0, 9999), min_size=1, max_size=50))
def test_a_folded_list_is_read_back(numbers: set[int]) -> None:
    hosts = [f"n{i}" for i in sorted(numbers)]
    assert parse_hosts(fold(hosts), "-w") == hosts


def test_a_file_has_names_sets_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the rack\nn[1-2]\n\n  login  # not a comment's host: x\nn9 # last\n")
    assert read_hosts(file, "--clients-file") == ["n1", "n2", "login", "n9"]


def test_a_wrong_line_of_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("n1\nn[3-1]\n")
    with pytest.raises(UserError, match=r"hosts:2:"):
        read_hosts(file, "--clients-file")


def test_missing_empty_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_hosts(tmp_path / "none", "--clients-file")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(UserError, match="no host in it"):
        read_hosts(tmp_path / "empty", "--clients-file")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00n1")
    with pytest.raises(UserError, match="not a text file"):
        read_hosts(tmp_path / "binary", "--clients-file")


def test_double_sources_hosts_and_roles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="both given"):
        host_list("a", str(tmp_path), "--servers")
    file = tmp_path / "hosts"
    file.write_text("n1\nn2\nn[1-3]\n")
    with pytest.raises(UserError, match="n1 is named twice"):
        host_list(None, str(file), "--clients")
    with pytest.raises(UserError, match="n2 is in both"):
        refuse_shared(["n1", "n2"], ["n2", "n3"])
    refuse_shared(["n1"], ["n2"])
    assert host_list(None, None, "--servers") == []
