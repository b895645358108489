"""Listed hosts under srun: planted scontrol and srun, which know their nodes by names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.launch import reach, slurm_nodes
from assay.launch.launchers import Srun
from assay.launch.placement import REMOTE, Segment
from assay.launch.slurm_nodes import node_names

NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.1 NodeHostName=rack1-01.site Version=22.05
NodeName=n2 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.2 NodeHostName=rack1-02.site Version=22.05
NodeName=n3 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.3 NodeHostName=n3 Version=22.05
"""
# What the nodes say of themselves: n3 has a second adapter, which Slurm does not know.
SAID = "\n".join(
    f'{{"host":"own{i}","boot":"x","names":["n{i}"],"addresses":["10.0.0.{i}","10.9.0.{i}"]}}'
    for i in (2, 1, 3)
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    resolved = {"alias-two": {"10.0.0.2"}, "n3-ib": {"10.9.0.3"}}
    monkeypatch.setattr(slurm_nodes, "addresses_of", lambda name: resolved.get(name, {name}))
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    node_names.cache_clear()
    yield
    node_names.cache_clear()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Plants Slurm's commands, in an allocation of all nodes or in none. Returns the file that counts srun's starts."""

    def plant(allocated: bool = False, nodes: str = NODES, said: str = SAID) -> Path:
        started = tmp_path / "started"
        for name, script in (
            ("scontrol", f"cat <<'E'\n{nodes}E\n"),
            ("srun", f"echo \"$*\" >>{started}\ncat <<'E'\n{said}\nE\n"),
        ):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        if allocated:
            monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
        return started

    return plant


def test_slurms_own_names_are_kept_and_nothing_is_started(slurm: Callable[..., Path]) -> None:
    started = slurm(allocated=True)
    assert node_names(("n3", "n1")) == {"n3": "n3", "n1": "n1"}
    assert not started.exists()


def test_host_names_domain_names_addresses_and_aliases_become_nodes(slurm: Callable[..., Path]) -> None:
    started = slurm()
    listed = ("n3.site.org", "rack1-01", "alias-two")
    assert node_names(listed) == {"n3.site.org": "n3", "rack1-01": "n1", "alias-two": "n2"}
    assert not started.exists()


def test_what_slurm_does_not_know_the_nodes_of_the_allocation_tell(slurm: Callable[..., Path]) -> None:
    started = slurm(allocated=True)
    assert node_names(("own1", "n3-ib", "n2")) == {"own1": "n1", "n3-ib": "n3", "n2": "n2"}
    (line,) = started.read_text().splitlines()
    assert "--nodes=3 --ntasks=3 --ntasks-per-node=1" in line and line.endswith("--identity")


def test_srun_is_told_the_nodes_in_the_order_of_the_list(slurm: Callable[..., Path]) -> None:
    slurm()
    command = Srun().command(REMOTE, [Segment(["alias-two", "rack1-01"])], ["probe"])
    assert "--nodelist=n2,n1" in command


@pytest.mark.parametrize("said", ["", "{", '{"host":"own3","names":[],"addresses":["10.9.0.3"]}', '[1]\n"x"'])
def test_a_host_that_is_no_node_is_one_clear_line(slurm: Callable[..., Path], said: str) -> None:
    slurm(allocated=True, said=said)
    with pytest.raises(UserError) as refused:
        reach.check_hosts(REMOTE, ["n1", "n3-ib"], "srun")
    assert refused.value.what == "n3-ib: no node of this allocation (n[1-3]) has this name or address"
    assert "scontrol show nodes" in refused.value.fix


def test_outside_an_allocation_nothing_is_started_to_ask(slurm: Callable[..., Path]) -> None:
    started = slurm()
    with pytest.raises(UserError, match=r"n3-ib: no node of Slurm \(n\[1-3\]\)"):
        node_names(("n1", "n3-ib"))
    assert not started.exists()


def test_a_node_outside_the_allocation_is_refused(
    slurm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(allocated=True)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    with pytest.raises(UserError, match=r"n3: no node of this allocation \(n\[1-2\]\)"):
        node_names(("n1", "n3"))


def test_two_names_of_one_node_are_refused(slurm: Callable[..., Path]) -> None:
    slurm()
    with pytest.raises(UserError, match="n2 and alias-two are one node, n2"):
        node_names(("n2", "alias-two", "n1"))


def test_without_an_answer_of_slurm_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node_names(("anything",)) == {"anything": "anything"}
    monkeypatch.setattr(slurm_nodes, "_nodes", dict)
    assert node_names(("other",)) == {"other": "other"}
