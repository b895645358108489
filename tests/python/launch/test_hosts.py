"""Host lists: the syntax of the Network Sanitizer and of HPC users is read, and wrong lists are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ClusterShell.NodeUtils import GroupResolverConfig
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
        ("srv01,srv3,srv2", ["srv01", "srv3", "srv2"]),
        ("n[3,1-2],n0", ["n3", "n1", "n2", "n0"]),
        ("r[2,1]n[01-02]", ["r2n01", "r2n02", "r1n01", "r1n02"]),
        ("n5,n[1-9]&n[3-5]", ["n5", "n3", "n4"]),
        ("n[8,2]!n2,a", ["n8", "a"]),
        ("c09,c010,c09", ["c09", "c010"]),
        ("[fe80::1%ib0],n[2,1]", ["fe80::1%ib0", "n2", "n1"]),
        ("2001:db8::1", ["2001:db8::1"]),
        ("n[01-02]-ib0", ["n01-ib0", "n02-ib0"]),
        ("n[02,01]-ib0.x,n3", ["n02-ib0.x", "n01-ib0.x", "n3"]),
        ("n[1-3]-ib0!n2-ib0", ["n1-ib0", "n3-ib0"]),
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


@pytest.mark.parametrize(
    "hosts",
    [
        [f"n{cabinet}c{node:02}" for cabinet in range(1, 5) for node in range(1, 10)],
        ["srv01", "srv3", "srv2"],
        ["n001", "n2"],
        ["c09", "c010"],
    ],
)
def test_folded_names_with_leading_zeros_are_the_same_hosts(hosts: list[str]) -> None:
    read = parse_hosts(fold(hosts), "-w")
    assert set(read) == set(hosts) and len(read) == len(hosts)


def test_a_file_has_names_sets_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the rack\nn[1-2]\n\n  login  # not a comment's host: x\nn9 # last\n")
    assert read_hosts(file, "--clients-file") == ["n1", "n2", "login", "n9"]


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("n2:4\nn1:4\n", ["n2", "n1"]),
        ("n1 slots=4 max_slots=8\nuser@n2 slots=4\n", ["n1", "user@n2"]),
        ("n1 cpu=2\nn2\n", ["n1", "n2"]),
        ("10.0.0.1 slots=2\n", ["10.0.0.1"]),
        ("n2\nn2\nn1\nn1\nn2\n", ["n2", "n1"]),
        ("n1 8 all.q@n1 <NULL>\nn2 8 all.q@n2 UNDEFINED\n", ["n1", "n2"]),
        ("[fe80::1%ib0]:4\n10.0.0.2:4\n", ["fe80::1%ib0", "10.0.0.2"]),
        ("n2 slots = 4\nn1 slots= 4 max_slots =8\n", ["n2", "n1"]),
        ("n2 16 n1 16\n", ["n2", "n1"]),
        ("n3 1 n1 1 n2 8\n", ["n3", "n1", "n2"]),
        ("n1 cpus = 8 slots = 4\n", ["n1"]),
        ("2 N1 80 N2 80\n", ["N1", "N2"]),
    ],
)
def test_slots_of_a_file_are_understood_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, hosts: list[str]
) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    assert read_hosts(file, "--hosts-file") == hosts
    assert "hosts: numbers of slots are not used" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line, problem",
    [
        ("n1:4 ifname=ib0", "hosts:1: n1:4: 'ifname=ib0' is not understood; fix: write n1"),
        ("rank 0=n1 slot=0", "a rank file of Open MPI"),
        ("group main ++pathfix /a /b", "a nodelist of Charm++"),
        ("host n1 ++cpus 2", "a nodelist of Charm++"),
        ("host n1", "a nodelist of Charm++"),
        ("[cluster]\nn1 ansible_connection=local", "an inventory of Ansible"),
        ("n1 ansible_host=10.0.0.1", "an inventory of Ansible"),
        ("- n1\n- n2", "a list in YAML"),
        ("hosts:\n- n1", "a list in YAML"),
        ("10.0.0.1 n1 n1.local", "as in /etc/hosts"),
        ("n1 slots=many", "'slots=many': not a number of slots"),
        ("n1 8 all.q n2", "a number after n1 that is not understood"),
        ("::1 localhost ip6-localhost", "as in /etc/hosts"),
        ("fe80::7 n7", "as in /etc/hosts"),
        ('["n1", "n2"]', "a list in JSON"),
        ('{"hosts": ["n1"]}', "a list in JSON"),
        ("^n1", "a host that Open MPI is to leave out"),
        ("n1/0*8+n2/0*8", "a value of PBS"),
        ("n1/0*8", "a value of PBS"),
        ("(n1:ncpus=8:mem=4gb)+(n2:ncpus=8)", "a value of PBS"),
        ("n1 0,1,2", "a host and its processors"),
        ("n1 n2 n1", "blanks between names; fix: write n1,n2"),
        ("n1, n2 " * 60, "blanks between names; fix: write n1,n2"),
        (" ".join(f"node{i}.x.org" for i in range(99)), "between names; fix: write a comma between them"),
        ("n[1-2] login,io", "between names; fix: write the hosts alone, with a comma between them"),
        ("4 n1", "between names; fix: write the hosts alone"),
        ("slot1_2@n1.x.org", "a slot of HTCondor; fix: write n1.x.org"),
        ("n[0-3]%2", "'n0%2' is not the name of a host"),
        ("n0%2", "'n0%2' is not the name of a host"),
        ("10.0.0.1-10.0.0.12", "a range without brackets; fix: write 10.0.0.[1-12]"),
        ("10.0.0.1-10.0.1.5", "a range without brackets; fix: write 10.0.[0-1].[1-9]"),
        ("10.0.0.9-10.0.0.1", "a range without brackets; fix: write 10.0.[0-1].[1-9]"),
        ("10.0.0.1-10.0.0.5:4", "a range without brackets"),
        ("1-2,5", "'1-2' is a range without brackets; fix: write [1-2,5]"),
        ("n[1-2] n[5-6],n9", "blanks between names; fix: write n[1-2],n[5-6],n9"),
        ("server: n1", "'server: n1' is not the name of a host"),
        ("3 N1 80 N2 80", "hosts of a job with their slots; fix: write N1,N2"),
        ("n1:2:mlx5_0", "hosts:1: n1: the adapter 'mlx5_0' is not understood; fix: write n1, or its name"),
        ("n1,n2:ib0", "'n2:ib0' is not the name of a host"),
        ("n[01:50].x.org", "'[01:50]' is a range in another notation; fix: write n[01-50].x.org"),
        ("n{1..4}-ib,m[2:3]", "fix: write n[1-4]-ib,m[2-3]"),
        ("(Resources)", "what Slurm prints for a job without hosts"),
        ("None assigned", "what Slurm prints for a job without hosts"),
        ("(null)", "what Slurm prints for a job without hosts"),
        ("10.0.0.1-3", "a range without brackets; fix: write 10.0.0.[1-3]"),
        ("n1..n4", "'n1..n4' is not the name of a host"),
        ("n1:n1:n2", "hosts of a job as LSF or PBS prints them; fix: write n1,n2"),
        ("4*n1.x.org:4*n-2", "hosts of a job as LSF or PBS prints them; fix: write n1.x.org,n-2"),
        ("16*n1", "hosts of a job as LSF or PBS prints them; fix: write n1"),
        ("n7*", "a pattern, and no host of ClusterShell's groups matches it"),
        ("n1 4", "a number after n1 that is not understood"),
        ("n[1-2],n3:2", "n3:2: a number of slots; fix: write n3"),
        ("*", "a pattern, and no host of ClusterShell's groups matches it"),
        ("n1,@*", "a pattern, and no host of ClusterShell's groups matches it"),
        ("@adm", "no group of hosts"),
        ("hostname,ip\nn1,10.0.0.1", "hosts:1: 'hostname,ip': the header of a table"),
        ("# from the site\nHOSTNAMES\nn1", "hosts:2: 'HOSTNAMES': the header of a table"),
        ('"Host Name";"Address"\n"n1";"10.0.0.1"', "the header of a table"),
        ("node,rack,role\nn1,r1,compute", "the header of a table"),
        ("n1,10.0.0.1", "a name and an address of one host"),
        ("n2\n10.0.0.1, n1", "hosts:2: '10.0.0.1, n1': a name and an address of one host"),
        ("n1,2001:db8::7", "a name and an address of one host"),
        ("beef, 10.0.0.1", "a name and an address of one host"),
        ("n1 10.0.0.1", "a name and an address of one host"),
        ("02:00:0a:00:00:01,n1,rack1", "a name and an address of one host"),
    ],
)
def test_a_line_that_says_more_than_slots_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(line)
    with pytest.raises(UserError) as refused:
        read_hosts(file, "--hosts-file")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text, launch_node",
    [
        ("b1 1 n1 40 n2 40\n", "b1 has one slot, the others 40 each: is it the job's launch node?"),
        ("b1\nn1\nn1\nn2\nn2\n", "b1 has one slot, the others 2 each"),
        ("b1 1 n1 40 n2 20\n", ""),
        ("n1 40 n2 40\n", ""),
        ("n1 1 n2 1\n", ""),
        ("n1\nn2\n", ""),
        ("n1\nn[2-3]\nn[2-3]\n", ""),
        ("n1:4\nn2:4\n", ""),
    ],
)
def test_the_launch_node_of_a_job_is_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, launch_node: str
) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    read_hosts(file, "--hosts-file")
    said = capsys.readouterr().err
    assert launch_node in said if launch_node else "launch node" not in said


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups of a site: rack1 and rack2, and all, which is both."""
    (tmp_path / "site.yaml").write_text("site:\n  rack1: n[1-2]\n  rack2: n[3-4]\n  all: '@rack1,@rack2'\n")
    (tmp_path / "groups.conf").write_text(f"[Main]\ndefault: site\nautodir: {tmp_path}\n")
    monkeypatch.setattr("assay.launch.hosts._GROUPS", GroupResolverConfig([str(tmp_path / "groups.conf")]))


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("@rack2,@rack1", ["n3", "n4", "n1", "n2"]),
        ("@all!@rack1", ["n3", "n4"]),
        ("@rack[1-2]", ["n1", "n2", "n3", "n4"]),
        ("x,*", ["x", "n1", "n2", "n3", "n4"]),
    ],
)
def test_groups_of_the_site_are_read(groups: None, text: str, hosts: list[str]) -> None:
    assert parse_hosts(text, "-w") == hosts


@pytest.mark.parametrize(
    "text, problem",
    [
        ("n1,@rack3", "@rack3: no such group of hosts, or none in it"),
        ("@all!@rak1", "@rak1: no such group of hosts, or none in it"),
        ("@rack[1-3]", "@rack3: no such group of hosts, or none in it"),
        ("@rack1,m*", "m*: a pattern, and no host of ClusterShell's groups matches it"),
        ("@all!m?", "m?: a pattern, and no host"),
        ("@other:rack1", "no group of hosts is called other"),
    ],
)
def test_a_group_without_hosts_is_not_left_out(groups: None, text: str, problem: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_hosts(text, "-w")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "text, fix",
    [
        ("n1/0*4+n2/0*4", "fix: write n1,n2"),
        ("b-1.x 1 n1 40 n2 40 ", "hosts of a job with their slots; fix: write b-1.x,n1,n2"),
        ("2 n1 80 n2 80", "hosts of a job with their slots; fix: write n1,n2"),
        ("28 29", "blanks between names; fix: write 28,29"),
        ("n0101:4,n0102:4", "-w n0101:4: a number of slots; fix: write n0101"),
        ("[::1]:2", "write [::1]"),
    ],
)
def test_slots_in_an_option_are_refused_by_name(text: str, fix: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_hosts(text, "-w")
    assert fix in str(refused.value)


def test_hosts_may_be_called_as_columns_are(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "server\nnode,ip-10-0-0-1\nhostname\n10.0.0.1,10.0.0.2\nfe80::1,fe80::2\nn[1-2],10.0.0.3\n"
    )
    assert read_hosts(file, "--hosts-file") == [
        "server", "node", "ip-10-0-0-1", "hostname", "10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2", "n1", "n2",
        "10.0.0.3",
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["a" * (1 << 18), "n1" + " " * (1 << 18) + "1", "[:" * (1 << 17)])
def test_the_time_of_a_line_grows_with_its_length_alone(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"{line}\n?\n")
    with pytest.raises(UserError):
        read_hosts(file, "--hosts-file")


@pytest.mark.parametrize(
    ("lines", "is_refused"),
    [
        (["batch5"] + ["c1"] * 42 + ["c2"] * 42, True),
        (["batch5"] + ["c1"] * 42 + ["c2"] * 43, True),
        (["batch5", "c1", "c2"], False),  # one slot on each node
        (["c1"] * 4 + ["c2"], False),  # slots fill the first node
        (["c1"] * 4 + ["c2"] * 4, False),
        (["c1"], False),
    ],
)
def test_the_launch_node_of_an_lsf_job_is_no_host_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], is_refused: bool
) -> None:
    path = tmp_path / "hosts"
    path.write_text("\n".join(lines))
    assert read_hosts(path, "--hosts-file") == list(
        dict.fromkeys(lines)
    )  # elsewhere rank 0 may be alone on a node
    monkeypatch.setenv("LSB_DJOB_HOSTFILE", str(path))
    if not is_refused:
        assert read_hosts(path, "--hosts-file") == list(dict.fromkeys(lines))
        return
    with pytest.raises(UserError, match="batch5 is there once, each other host 42 times or more") as refused:
        read_hosts(path, "--hosts-file")
    assert "write --hosts 'c[1-2]'" in refused.value.fix


def test_a_job_of_lsf_with_hosts_and_numbers_in_a_line_has_a_launch_node_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hosts"
    path.write_text("batch5 1 c1 42 c2 42\n")
    monkeypatch.setenv("LSB_DJOB_HOSTFILE", str(path))
    with pytest.raises(UserError, match="batch5 is there once"):
        read_hosts(path, "--hosts-file")


def test_a_quoted_host_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("Am Montag schrieb sie:\n> n[1-2]\n> n4  # slow\n")
    assert read_hosts(tmp_path / "hosts", "--hosts-file") == ["n1", "n2", "n4"]


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
    (tmp_path / "binary").write_bytes(b"n1\n\0\1\2n2")
    with pytest.raises(UserError, match="not a text file"):
        read_hosts(tmp_path / "binary", "--clients-file")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('<?xml version="1.0"?>', "XML or HTML"),
        ("export HOSTS=n1,n2", "a line of a shell script"),
        ("[Main]", "a section, as of an inventory of Ansible or of a configuration"),
        ("n1 ansible_host=10.0.0.1", "an inventory of Ansible"),
    ],
)
def test_a_line_of_another_file_is_named(line: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"{line}\nn1\n")
    with pytest.raises(UserError, match=re.escape(name)) as refused:
        read_hosts(tmp_path / "hosts", "--hosts-file")
    assert refused.value.fix == "write a host or a node set a line"


def test_double_sources_hosts_and_roles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="both given"):
        host_list("a", str(tmp_path), "--servers")
    file = tmp_path / "hosts"
    file.write_text("n1\nn2\nn[1-3]\n")
    with pytest.raises(UserError, match=f"--clients-file {file}: n1 is named twice"):
        host_list(None, str(file), "--clients")
    with pytest.raises(UserError, match="n2 is in both"):
        refuse_shared(["n1", "n2"], ["n2", "n3"])
    refuse_shared(["n1"], ["n2"])
    assert host_list(None, None, "--servers") == []
