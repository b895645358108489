"""Explains a run: rules find the causes of bad results in its records.

A rule is a function from ``Evidence`` (the records, and what several rules compute from them) to findings of one
kind. ``RULES`` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from assay.explain.adapters import slow_adapter
from assay.explain.alloc import alloc
from assay.explain.corruption import corruption
from assay.explain.counters import port_errors
from assay.explain.culprit import all_suspects, join_suspects, one_way_suspects, suspects
from assay.explain.enlarged import enlarged
from assay.explain.events import (
    event_backpressure,
    event_death,
    event_dip,
    event_ledger,
    event_resends,
    event_share,
)
from assay.explain.evidence import Evidence, Options
from assay.explain.expected import below_expected
from assay.explain.fabric import (
    credit_loop,
    crowded_ports,
    islands,
    lost_routes,
    mixed_rates,
    no_lid,
    self_loops,
    slow_cables,
)
from assay.explain.gpu import gpu_copies
from assay.explain.group_retest import plan_groups
from assay.explain.hca import hca_binding
from assay.explain.heap import (
    heap_copies,
    heap_first_touch,
    heap_fragmentation,
    heap_leak,
    heap_reallocation,
    heap_temporary,
    heap_tiny,
    heap_variable,
)
from assay.explain.host_limits import host_limit
from assay.explain.late import late_start
from assay.explain.limit_share import name_limits
from assay.explain.loss import packet_loss
from assay.explain.machine import topology
from assay.explain.matrix import PairMatrix
from assay.explain.numa import numa_applied, numa_placement, numa_threads
from assay.explain.peers import slow_node
from assay.explain.power import state_power
from assay.explain.rdma import rdma_failed, rdma_wire
from assay.explain.retest import plan_retest
from assay.explain.slow import congestion, slow_block, slow_host, slow_pair
from assay.explain.slow_gpu import slow_gpu
from assay.explain.slow_network import slow_network
from assay.explain.storage import straggler, wrong_data
from assay.explain.turns import taking_turns
from assay.explain.udp import udp_loss
from assay.explain.wire import host_names, shared_network, wire_bypass
from assay.records.schema import AnyRecord, Finding

Rule = Callable[[Evidence], list[Finding]]

# The keys are the rules' names in findings and specifications (specs/*.toml).
RULES: dict[str, Rule] = {
    "corruption": corruption,  # payloads that arrived with wrong bytes
    "wire_bypass": wire_bypass,  # payload that did not cross the network (shared memory, another adapter)
    "slow_adapter": slow_adapter,  # a slow adapter that was used while a much faster one was idle
    "shared_network": shared_network,  # another network measurement at the same time
    "topology": topology,  # a planted machine, hwloc variables that describe another one, cores without memory
    "enlarged": enlarged,  # hosts of a simulation that its platform file does not have
    "host_limit": host_limit,  # a quota, a shaper or full buffers of a host itself
    "late_start": late_start,  # a host that came long after the others
    "host_names": host_names,  # a machine that the host list names twice, or not at all
    "packet_loss": packet_loss,  # a host that loses packets that it sends or receives
    "slow_host": slow_host,  # a host that sends or receives more slowly than its peers
    "slow_node": slow_node,  # a host whose memory, GPUs or storage are slower than those of its peers
    "slow_pair": slow_pair,  # a slow path between two hosts that are fast with others
    "slow_block": slow_block,  # a group of hosts that is slow with the rest or with another group
    "slow_network": slow_network,  # a network on which most hosts stay below the expected rate of their links
    "congestion": congestion,  # a loss of bandwidth under load that vanishes when the pair is alone
    "hca_binding": hca_binding,  # a requested RDMA adapter that carried too little
    "port_errors": port_errors,  # link errors that an adapter's port counted
    "slow_gpu": slow_gpu,  # a GPU that copies more slowly than the others of its host
    "gpu_copies": gpu_copies,  # a narrow PCIe link, or a path that GPUs share
    "rdma_failed": rdma_failed,  # an RDMA transfer that an adapter ended with an error
    "rdma_wire": rdma_wire,  # RDMA payload that did not pass an adapter
    "udp_loss": udp_loss,  # the point where UDP messages were dropped
    "below_expected": below_expected,  # a figure below the interval derived from link rates and packet headers
    "wrong_data": wrong_data,  # files that hold wrong bytes
    "straggler": straggler,  # a rank or node that is the slowest in nearly every round of I/O
    "taking_turns": taking_turns,  # the two directions of a pair that wait for each other
    "slow_cable": slow_cables,  # a cable of a fabric that is narrower or slower than most of its kind or its ports
    "lost_route": lost_routes,  # forwarding tables with missing entries or loops
    "mixed_rates": mixed_rates,  # slower cables that are so many that they were built so
    "island": islands,  # parts of a fabric that no cables join
    "self_loop": self_loops,  # cables from a switch to itself
    "no_lid": no_lid,  # end ports that the subnet manager has not configured
    "credit_loop": credit_loop,  # routes whose buffers can wait for each other forever
    "crowded_port": crowded_ports,  # up ports with far more destinations than others
    "event_ledger": event_ledger,  # fragments that are wrong, missing or unaccounted for
    "event_death": event_death,  # nodes that died while events were built
    "event_dip": event_dip,  # a stretch of slow building, and the node that caused it
    "event_backpressure": event_backpressure,  # a rank that waits far longer than others to pass events on
    "event_resends": event_resends,  # packets that the network lost while events were built
    "event_share": event_share,  # building far below what the network carries
    "alloc": alloc,  # the best allocator, as advice
    "heap_leak": heap_leak,  # a line of a profiled program whose blocks are never freed
    "heap_temporary": heap_temporary,  # blocks that are freed before the next allocation
    "heap_tiny": heap_tiny,  # blocks of a byte
    "heap_reallocation": heap_reallocation,  # blocks that grow in many small steps
    "heap_copies": heap_copies,  # short-lived copies of containers
    "heap_fragmentation": heap_fragmentation,  # a few blocks that keep many nearly empty pages
    "heap_first_touch": heap_first_touch,  # page faults that huge pages, or reused blocks, would save
    "heap_variable": heap_variable,  # a large variable
    "numa_placement": numa_placement,  # an object of a profiled program whose memory lies far from its users
    "numa_threads": numa_threads,  # threads that move between nodes
    "numa_applied": numa_applied,  # an applied placement whose remote share differs from the prediction
}


def explain(
    records: Iterable[AnyRecord], hosts: Sequence[str] = (), options: Options | None = None
) -> list[Finding]:
    """Returns all findings about a run: faults, then warnings, then advice.

    ``hosts`` are the run's hosts in rank order, ``options`` those of its command. Findings among the records are
    ignored.
    """
    return explain_evidence(Evidence(records, hosts, options))


def explain_evidence(evidence: Evidence) -> list[Finding]:
    """Returns all findings of the rules, faults first."""
    findings = [finding for rule in RULES.values() for finding in rule(evidence)]
    findings = name_limits(evidence, findings)
    return sorted(findings, key=lambda finding: ("fault", "warning", "advice").index(finding.severity))


__all__ = [
    "RULES",
    "Evidence",
    "PairMatrix",
    "all_suspects",
    "explain",
    "explain_evidence",
    "join_suspects",
    "one_way_suspects",
    "plan_groups",
    "plan_retest",
    "state_power",
    "suspects",
]
