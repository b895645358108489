"""Tests of the defaults over a network: credits, sends in flight, and what Open MPI sends without asking."""

from __future__ import annotations

import pytest

from assay.errors import UserError
from assay.launch.launchers import Launcher, Local, OpenMpi
from assay.launch.placement import HERE
from assay.measure.events import MAX_MEMORY, EventRequest, check_memory, network_credits, network_in_flight


@pytest.mark.parametrize(
    ("ranks", "credits", "in_flight"), [(2, 24, 4), (4, 16, 6), (8, 7, 14), (16, 4, 16), (200, 2, 16)]
)
def test_few_ranks_have_more_credits_and_fewer_sends(ranks: int, credits: int, in_flight: int) -> None:
    assert network_credits(ranks) == credits
    assert network_in_flight(ranks) == in_flight


@pytest.mark.parametrize(
    ("launcher", "message", "limit"),
    [
        (OpenMpi(), 512 << 10, 576 << 10),
        (OpenMpi(), 8 << 20, None),
        (Local(), 512 << 10, None),
    ],
)
def test_open_mpi_sends_messages_without_asking_the_receiver(
    launcher: Launcher, message: int, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 4 MiB, since it keeps buffers of that size; and what the user has set stays."""
    name = "OMPI_MCA_btl_tcp_eager_limit"
    monkeypatch.delenv(name, raising=False)
    request = EventRequest(launcher, HERE, ["a", "b"], {"fragment": message})
    assert request.eager_limit(launcher) == limit
    assert request.segments(launcher)[0].env == ({} if limit is None else {name: str(limit)})
    monkeypatch.setenv(name, "4096")
    assert request.segments(launcher)[0].env == {}


@pytest.mark.parametrize("launcher", [OpenMpi(), Local()])
def test_the_buffers_of_open_mpi_are_counted(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 of each rank, of the message's size and 64 KiB."""
    monkeypatch.delenv("OMPI_MCA_btl_tcp_eager_limit", raising=False)
    needed = 2 * 8 * 8 * 2 * (512 << 10) + (40 * 8 * (576 << 10) if isinstance(launcher, OpenMpi) else 0)
    request = EventRequest(launcher, HERE, ["here"] * 8, {"fragment": 512 << 10, "credits": 2})
    monkeypatch.setattr("assay.measure.events.available_memory", lambda: needed / MAX_MEMORY + 1)
    check_memory(request)
    monkeypatch.setattr("assay.measure.events.available_memory", lambda: needed / MAX_MEMORY - 1)
    with pytest.raises(UserError, match="--size 512 KiB: the buffers of 8 ranks need"):
        check_memory(request)
