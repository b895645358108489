"""Advice on where a program's memory lies: each finding names the object, the line that touches it first, and the
remote share that another placement is predicted to give."""

from __future__ import annotations

from collections.abc import Callable

from assay.explain.evidence import Evidence
from assay.profile.numa import NumaProfile, by_node, known, total
from assay.records.numa import NumaAdvice, NumaApplied
from assay.records.schema import Finding, Subject
from assay.records.units import format_quantity, format_share

MAX_FINDINGS = 8
MIN_AWAY = 0.05  # of a thread's accesses, made on another node than most of them
MIN_THREAD = 0.01  # of all accesses; threads with fewer are left out
MISPREDICTED = 0.05  # least difference of predicted and measured remote share of a wrong prediction

Advice = Callable[[NumaProfile, str], list[Finding]]


def _rule(advice: Advice) -> Callable[[Evidence], list[Finding]]:
    """Makes a rule of a function of a NUMA profile and its host. Without a profile it finds nothing."""

    def rule(evidence: Evidence) -> list[Finding]:
        profile = evidence.numa
        return [] if profile is None else advice(profile, evidence.hosts[0] if evidence.hosts else "")

    return rule


def _emulated_note(profile: NumaProfile) -> str:
    return " (emulated nodes)" if profile.process.emulated else ""


def _placement(profile: NumaProfile, host: str) -> list[Finding]:
    return [_misplaced(profile, advice, host) for advice in profile.advice[:MAX_FINDINGS]]


def _misplaced(profile: NumaProfile, advice: NumaAdvice, host: str) -> Finding:
    profiled, toucher = profile.objects[advice.object], profile.location(advice.toucher)
    by = f" by {toucher.place}" if toucher else ""
    before, after = format_share(advice.before), format_share(advice.predicted)
    if advice.assumed:
        cause = f"{profiled.name} is touched first{by} on one node, and threads run on several"
        details = [f"{before} of its accesses are remote if all nodes use it alike; predicted then: {after}"]
    else:
        cause = f"{before} of the accesses to {profiled.name} are remote"
        details = [*([f"touched first{by}"] if by else []), f"predicted: {after} remote"]
        all_accesses = known(profile.matrix)
        if all_accesses:
            details.append(f"{format_share(advice.gain / all_accesses)} of all accesses become local")
    if profiled.bytes:
        details.append(f"{format_quantity(profiled.bytes, 'B')} allocated there")
    return _finding("numa_placement", host, cause + _emulated_note(profile), "advice", details, advice.fix)


def _threads(profile: NumaProfile, host: str) -> list[Finding]:
    """Threads that are bound to no node and access memory from several."""
    if not profile.is_exact:
        return []  # first touches alone say little about where a thread ran
    all_accesses, moving = total(profile.matrix), []
    for thread in profile.threads:
        counts = by_node(profile.counts(thread), of_pages=False)
        thread_accesses = sum(counts.values())
        if thread.pinned is not False or thread_accesses < MIN_THREAD * all_accesses:
            continue
        away = thread_accesses - max(counts.values())
        if away >= MIN_AWAY * thread_accesses:
            moving.append(
                f"thread {thread.name}: {format_share(away / thread_accesses)} of its accesses on another node"
            )
    if not moving:
        return []
    noun = "1 thread moves" if len(moving) == 1 else f"{len(moving)} threads move"
    cause = f"{noun} between nodes{_emulated_note(profile)}"
    fix = "bind threads to nodes: OMP_PROC_BIND=spread OMP_PLACES=numa_domains, or numactl --cpunodebind"
    return [_finding("numa_threads", host, cause, "advice", moving[:MAX_FINDINGS], fix)]


def _applied(profile: NumaProfile, host: str) -> list[Finding]:
    return [
        _mispredicted(row, host)
        for row in profile.applied
        if row.measured is not None and abs(row.measured - row.predicted) > MISPREDICTED and not row.assumed
    ][:MAX_FINDINGS]


def _mispredicted(row: NumaApplied, host: str) -> Finding:
    measured = format_share(row.measured or 0.0)
    return _finding(
        "numa_applied",
        host,
        f"{row.name}: {measured} remote after the placement, predicted {format_share(row.predicted)}",
        "warning",
        [f"{format_share(row.before)} remote before it"],
        "compare the two runs: did the program do the same work, on the same processors?",
    )


def _finding(rule: str, host: str, cause: str, severity: str, details: list[str], fix: str) -> Finding:
    return Finding(
        rule=rule,
        cause=cause,
        subject=Subject(host=host),
        side="node",
        severity="warning" if severity == "warning" else "advice",
        details=details,
        fix=fix,
    )


numa_placement = _rule(_placement)
numa_threads = _rule(_threads)
numa_applied = _rule(_applied)
