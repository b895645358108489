"""Translates listed hosts to Slurm's node names: with planted commands scontrol and srun.

Slurm's names of the nodes (n1) differ from their host names (rack1-01.site).
"""

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
# The identities that srun prints. Each node has a second adapter (10.9.0.x), which Slurm does not know.
IDENTITIES = "\n".join(
    f'{{"host":"host{i}","boot":"x","names":["n{i}"],"addresses":["10.0.0.{i}","10.9.0.{i}"]}}'
    for i in (2, 1, 3)
)


@pytest.fixture(autouse=True)
def planted_name_resolution(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    resolved = {"alias-two": {"10.0.0.2"}, "n3-ib": {"10.9.0.3"}}
    monkeypatch.setattr(slurm_nodes, "addresses_of", lambda name: resolved.get(name, {name}))
    for variable in ("", "_HET_GROUP_0", "_HET_GROUP_1"):
        monkeypatch.delenv(f"SLURM_JOB_NODELIST{variable}", raising=False)
    node_names.cache_clear()
    yield
    node_names.cache_clear()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Plants Slurm's commands, with or without an allocation of all nodes.

    Returns the file to which the planted srun appends its arguments.
    """

    def plant(allocated: bool = False, nodes: str = NODES, identities: str = IDENTITIES) -> Path:
        srun_log = tmp_path / "srun.log"
        for name, script in (
            ("scontrol", f"cat <<'E'\n{nodes}E\n"),
            ("srun", f"echo \"$*\" >>{srun_log}\ncat <<'E'\n{identities}\nE\n"),
        ):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        if allocated:
            monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
        return srun_log

    return plant


def test_slurms_node_names_are_kept_without_starting_srun(slurm: Callable[..., Path]) -> None:
    srun_log = slurm(allocated=True)
    assert node_names(("n3", "n1")) == {"n3": "n3", "n1": "n1"}
    assert not srun_log.exists()


def test_host_names_domain_names_addresses_and_aliases_become_nodes(slurm: Callable[..., Path]) -> None:
    srun_log = slurm()
    listed = ("n3.site.org", "rack1-01", "alias-two")
    assert node_names(listed) == {"n3.site.org": "n3", "rack1-01": "n1", "alias-two": "n2"}
    assert not srun_log.exists()


def test_names_unknown_to_slurm_are_matched_by_asking_the_nodes(slurm: Callable[..., Path]) -> None:
    srun_log = slurm(allocated=True)
    assert node_names(("host1", "n3-ib", "n2")) == {"host1": "n1", "n3-ib": "n3", "n2": "n2"}
    (line,) = srun_log.read_text().splitlines()
    assert "--nodes=3 --ntasks=3 --ntasks-per-node=1" in line and line.endswith("--identity")


def test_srun_gets_the_nodes_in_the_order_of_the_list(slurm: Callable[..., Path]) -> None:
    slurm()
    command = Srun().command(REMOTE, [Segment(["alias-two", "rack1-01"])], ["probe"])
    assert "--nodelist=n2,n1" in command


@pytest.mark.parametrize(
    "identities", ["", "{", '{"host":"host3","names":[],"addresses":["10.9.0.3"]}', '[1]\n"x"']
)
def test_a_host_that_is_no_node_is_refused(slurm: Callable[..., Path], identities: str) -> None:
    slurm(allocated=True, identities=identities)
    with pytest.raises(UserError) as refused:
        reach.check_hosts(REMOTE, ["n1", "n3-ib"], "srun")
    assert refused.value.what == "n3-ib: no node of this allocation (n[1-3]) has this name or address"
    assert "scontrol show nodes" in refused.value.fix


def test_outside_an_allocation_srun_is_not_started(slurm: Callable[..., Path]) -> None:
    srun_log = slurm()
    with pytest.raises(UserError, match=r"n3-ib: no node of Slurm \(n\[1-3\]\)"):
        node_names(("n1", "n3-ib"))
    assert not srun_log.exists()


def test_a_node_outside_the_allocation_is_refused(
    slurm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(allocated=True)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    with pytest.raises(UserError, match=r"n3: no node of this allocation \(n\[1-2\]\)"):
        node_names(("n1", "n3"))


@pytest.mark.parametrize("is_batch", [True, False])
def test_a_node_of_another_component_of_the_job_is_named(
    slurm: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, is_batch: bool
) -> None:
    """Of a heterogeneous job; salloc gives its shell no SLURM_JOB_NODELIST."""
    slurm()
    if is_batch:
        monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    monkeypatch.setenv("SLURM_JOB_NODELIST_HET_GROUP_0", "n1")
    monkeypatch.setenv("SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]")
    assert node_names(("n1",)) == {"n1": "n1"}
    with pytest.raises(UserError, match=r"n3: in component 1 .* in component 0 \(n1\)") as refused:
        node_names(("n1", "n3"))
    assert "--launcher openmpi" in refused.value.fix


def test_two_names_of_one_node_are_refused(slurm: Callable[..., Path]) -> None:
    slurm()
    with pytest.raises(UserError, match="n2 and alias-two are one node, n2"):
        node_names(("n2", "alias-two", "n1"))


def test_names_are_kept_if_slurm_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert node_names(("anything",)) == {"anything": "anything"}
    monkeypatch.setattr(slurm_nodes, "_nodes", dict)
    assert node_names(("other",)) == {"other": "other"}


def test_a_node_with_other_zeros_is_proposed(slurm: Callable[..., Path]) -> None:
    slurm()
    with pytest.raises(UserError) as refused:
        node_names(("n01", "n002", "n3"))
    assert refused.value.fix == "did you mean n[1-2]?"
