"""The gaps of a NUMA profile: problems of its recording, and views that its mode cannot measure."""

from __future__ import annotations

from collections.abc import Sequence

from assay.numa.profile import Profile
from assay.numa.recording import as_shown
from assay.records.numa import NumaAbsent
from assay.records.units import format_quantity

EMULATED = "nodes are emulated: placement is simulated, and no access was slower for it"
ONE_NODE = "this machine has one node: nothing is remote; try --emulate 2"


def problems(recordings: Sequence[Profile], own_bytes: int) -> list[str]:
    """Messages about the recordings that readers must know before they read the figures. ``own_bytes``: first touched
    by the recorder itself."""
    main = recordings[0].recording
    messages = [EMULATED] if main.process.emulated else []
    if len(main.nodes) < 2:
        messages.append(ONE_NODE)
    for profile in recordings:
        messages += profile.recording.notes
    if any(profile.recording.end is None for profile in recordings):
        messages.append("the recording ended early: it holds what happened until then")
    lost = sum(profile.recording.end.lost for profile in recordings if profile.recording.end)
    if lost:
        messages.append(
            f"{lost} events could not be recorded: counts are at least the shown ones, and shares are doubtful; leave "
            "a processor to the recorder, or sysctl kernel.perf_event_mlock_kb=8196"
        )
    sampling = main.sampling
    if sampling:
        messages.append(
            f"accesses are samples ({as_shown(sampling.events)}), one of about {sampling.period} each; loads and "
            "stores are sampled apart, so their ratio says nothing"
        )
        if sampling.throttled:
            messages.append(
                f"the kernel held samples back {sampling.throttled} times: give a longer --period"
            )
    if own_bytes:
        messages.append(f"{format_quantity(own_bytes, 'B')} that the recorder itself touched are left out")
    return list(dict.fromkeys(messages))


def absent(mode: str, is_watched: bool, has_times: bool) -> list[NumaAbsent]:
    """The views that a mode has no figures for. ``is_watched``: page faults and bindings were recorded.
    ``has_times``: accesses or first touches were recorded with their time."""
    reasons = []
    if mode == "touch":
        reasons.append(
            (
                "Accesses",
                "loads and stores were not counted: compile with assay numa cc, or add --every-access",
            )
        )
    elif mode != "sample":
        reasons.append(
            ("Call tree of accesses", "accesses are counted by line; who called it is not recorded")
        )
    if not has_times:
        reasons.append(("Time line of the remote share", "accesses are counted without their time"))
    if mode == "qemu":
        reasons.append(("Objects", "the emulator does not follow allocations: all memory is one object"))
    if not is_watched:
        reasons.append(
            (
                "Bindings, first touches by policy, memory over time",
                "page faults and threads were not watched",
            )
        )
    return [NumaAbsent(view, reason) for view, reason in reasons]
