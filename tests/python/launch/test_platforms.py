"""Platform files of SimGrid: hosts as SimGrid finds them, its quantities, and its complaints in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch.platforms import computing, parse_speed, platform_hosts, require_listable
from assay.launch.simulator import ROUTE_FIX, complaint, pass_messages
from assay.model.what_if import change_platform


def write(folder: Path, content: str, version: str = "4.1") -> Path:
    path = folder / "platform.xml"
    path.write_text(f'<?xml version="1.0"?>\n<platform version="{version}">{content}</platform>\n')
    return path


def test_hosts_of_each_element_are_found(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '<zone id="all" routing="Full">'
        '<zone id="a" routing="Cluster"><cabinet id="c" prefix="a" suffix=".x" radical="1-2" speed="1Gf"/>'
        '<router id="r"/><backbone id="b" bandwidth="1GBps" latency="1us"/></zone>'
        '<zone id="v" routing="Vivaldi"><peer id="p7" speed="730Mf" coordinates="1 2 3"/></zone>'
        '<AS id="o" routing="Full"><host id="h" speed="1Gf"/></AS>'
        '<cluster id="t" prefix="t-" suffix="" radical="0,2-3" topology="FAT_TREE" speed="1Gf"/>'
        "</zone>",
    )
    assert platform_hosts(path) == ["a1.x", "a2.x", "p7", "h", "t-0", "t-2", "t-3"]


def test_a_host_that_no_list_can_hold_is_named_with_its_platform(tmp_path: Path) -> None:
    path = write(tmp_path, '<zone id="w" routing="Wifi"><host id="Station 1" speed="1Gf"/></zone>')
    with pytest.raises(
        UserError, match=r"platform.xml: the host 'Station 1': .*fix: rename it in the platform"
    ):
        require_listable(platform_hosts(path), path)


@pytest.mark.parametrize("version", ["3", "2", "0", "three"])
def test_an_old_version_is_named_with_the_command_that_updates_it(tmp_path: Path, version: str) -> None:
    path = write(tmp_path, '<AS id="a"><cluster id="c" radical="0-1" power="2Gf"/></AS>', version)
    with pytest.raises(
        UserError, match=f"a platform of version {version}, .*fix: update it.*simgrid_update_xml"
    ):
        platform_hosts(path)


def test_comments_before_the_declaration_are_no_error(tmp_path: Path) -> None:
    file = tmp_path / "p.xml"
    platform = (
        '<platform version="4.1"><zone id="z" routing="Full"><host id="n1" speed="1Gf"/></zone></platform>'
    )
    file.write_text(f"\n<!-- ours -->\n <!-- <?xml -->\n<?xml version='1.0'?>\n{platform}")
    assert platform_hosts(file) == ["n1"]
    file.write_text(f"<!-- ours <?xml version='1.0'?>\n{platform}")
    with pytest.raises(UserError, match="not XML"):
        platform_hosts(file)


def test_hosts_of_an_included_file_are_not_left_out(tmp_path: Path) -> None:
    path = write(
        tmp_path, '<zone id="a" routing="Full"><include file="b.xml"/><host id="h" speed="1Gf"/></zone>'
    )
    with pytest.raises(UserError, match=r"include file='b\.xml'.*: SimGrid reads no other file since 3\.18"):
        platform_hosts(path)


def test_a_platform_without_a_host_or_a_speed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no host, cluster, cabinet or peer in it"):
        platform_hosts(write(tmp_path, '<zone id="a" routing="Full"/>'))
    with pytest.raises(UserError, match="no host has a speed"):
        computing(write(tmp_path, '<host id="h"/>'), 1.0)


@pytest.mark.parametrize(
    "text, speed",
    [
        ("1Gf", 1e9),
        ("286.087kf", 286087.0),
        ("1.0E9f", 1e9),
        ("1.0E9", 1e9),
        ("730Mf", 730e6),
        ("2Gf,1Gf", 2e9),
        ("20000", 20000.0),
        ("1gigaflops", 1e9),
        ("3Tf", 3e12),
    ],
)
def test_speeds_are_those_of_simgrid(text: str, speed: float) -> None:
    assert parse_speed(text) == pytest.approx(speed)


@pytest.mark.parametrize("text", ["", "fast", "1Gb", "-1Gf", "0f", "1gf", "1e999f"])
def test_a_speed_that_simgrid_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_speed(text)


ABORT = """[0.000000] ./src/xbt/exception.cpp:48: [xbt_exception/CRITICAL] Uncaught exception std::out_of_range: Bad key
Existing config keys:
  bmf/max-iterations: (int)1000
[0.000000] ./src/xbt/exception.cpp:75: [xbt_exception/CRITICAL] Current backtrace:
  ->  0# 0x00007F3E02ADC12F in /usr/lib/libsimgrid.so.3.32
Aborted
"""


def test_a_complaint_of_simgrid_is_one_line() -> None:
    assert complaint(ABORT) == "SimGrid failed: Uncaught exception std::out_of_range: Bad key"
    parse_error = "[0.0] exception.cpp:95: [xbt_exception/ERROR] Parse error at p.xml:2: Invalid XML\n"
    assert complaint(parse_error) == "SimGrid failed: Parse error at p.xml:2: Invalid XML"
    assert complaint("a program's own words\n") is None
    gateways = "assay-probe-smpi: defect: Bad gateways for route from 'a' to 'b'.\n"
    assert complaint(gateways) == f"SimGrid failed: Bad gateways for route from 'a' to 'b'; {ROUTE_FIX}"


@pytest.mark.parametrize(
    "status, level, problem",
    [
        (134, "CRITICAL", "SimGrid failed: Uncaught exception std::out_of_range: Bad key"),
        (0, "CRITICAL", "SimGrid failed: Uncaught exception std::out_of_range: Bad key"),
        (0, "ERROR", None),
    ],
)
def test_only_a_failed_run_keeps_simgrids_words_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], status: int, level: str, problem: str | None
) -> None:
    (tmp_path / "words").write_text(f"the program's\n{ABORT.replace('CRITICAL', level)}")
    command = ["sh", "-c", f"cat {tmp_path}/words >&2; exit {status}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert pass_messages(process) == problem
    shown = capfd.readouterr().err
    assert shown.startswith("the program's\n") and ("backtrace" in shown) == (problem is None)


@pytest.mark.parametrize("topology", ["TORUS", "FAT_TREE", "DRAGONFLY"])
def test_a_cluster_whose_parameters_say_its_hosts_is_not_enlarged(tmp_path: Path, topology: str) -> None:
    fixed = f'<cluster id="t" topology="{topology}" topo_parameters="2" prefix="t" suffix="" radical="0-1"/>'
    with pytest.raises(UserError, match=f"has 2 hosts, as the topo_parameters of its {topology} say"):
        change_platform(write(tmp_path, fixed), 3, [], tmp_path)
    flat = '<cluster id="f" topology="FLAT" prefix="f" suffix="" radical="0"/>'
    grown = change_platform(write(tmp_path, f'<zone id="a">{fixed}{flat}</zone>'), 4, [], tmp_path)
    assert platform_hosts(grown) == ["t0", "t1", "f0", "f2"]


@pytest.mark.parametrize(("hosts", "in_a", "in_b"), [(9, 5, 4), (12, 6, 6), (13, 7, 6)])
def test_hosts_are_added_to_like_clusters_evenly_and_have_names_of_their_own(
    tmp_path: Path, hosts: int, in_a: int, in_b: int
) -> None:
    clusters = [f'<cluster id="{name}" prefix="{name}" suffix="" radical="1-4"/>' for name in "ab"]
    path = write(tmp_path, f'<zone id="all" routing="Full">{"".join(clusters)}</zone>')
    given = platform_hosts(path)
    grown = platform_hosts(change_platform(path, hosts, [], tmp_path))
    assert len(grown) == len(set(grown)) == hosts and set(given) <= set(grown)
    assert [sum(host.startswith(name) for host in grown) for name in "ab"] == [in_a, in_b]
