"""Hosts whose topology is not read from the kernel alone are named."""

from __future__ import annotations

from assay.explain import explain
from assay.records.schema import LATE_FACT, Context, Subject


def causes(**facts: str | int) -> list[str]:
    record = Context(subject=Subject(host="n1"), facts={k.replace("_", ".", 1): v for k, v in facts.items()})
    return [f"{finding.severity}: {finding.cause}; {finding.fix}" for finding in explain([record])]


def test_a_planted_machine_is_named() -> None:
    (cause,) = causes(topology_planted="numa:4 core:8 pu:2")
    assert cause.startswith("warning: n1 was measured as the planted machine 'numa:4 core:8 pu:2'")


def test_ignored_variables_are_named_with_their_host() -> None:
    (cause,) = causes(topology_ignored="HWLOC_SYNTHETIC, HWLOC_XMLFILE")
    assert "of n1: ignored" in cause and cause.endswith("unset HWLOC_SYNTHETIC, HWLOC_XMLFILE")


def test_cores_without_memory_are_counted_and_their_memory_is_named() -> None:
    (cause,) = causes(cpu_cores=17, numa_cores_without_memory=9, numa_nearest_memory="node 0 -> 1")
    assert "9 of 17 cores of n1" in cause and "cpuset.mems" in cause
    assert "as remote bandwidth (node 0 -> 1)" in cause


def test_cores_whose_threads_are_in_several_nodes_are_counted() -> None:
    (cause,) = causes(cpu_cores=2, numa_cores_across_nodes=2)
    assert "2 of 2 cores of n1 have hardware threads in several NUMA nodes" in cause
    assert "the firmware's cores and its nodes disagree" in cause and "SRAT" in cause


def test_a_machine_as_the_kernel_describes_it_has_no_finding() -> None:
    assert causes(numa_nodes=1) == []


def test_a_host_that_came_late_is_named_once_with_its_longest_delay() -> None:
    records = [Context(subject=Subject(host="h3"), facts={LATE_FACT: seconds}) for seconds in (12.0, 45.0)]
    (finding,) = explain(records)
    assert (finding.rule, finding.severity, finding.subject.host) == ("late_start", "warning", "h3")
    assert finding.cause.startswith("h3 came 45 s after most others")
