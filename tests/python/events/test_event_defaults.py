"""Tests of the defaults over a network: credits, sends in flight, and what Open MPI sends without asking."""

from __future__ import annotations

import pytest

from assay.launch.launchers import Launcher, Local, OpenMpi
from assay.launch.placement import HERE
from assay.measure.events import EventRequest, network_credits, network_in_flight


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
    assert request.segments(launcher)[0].env == ({} if limit is None else {name: str(limit)})
    monkeypatch.setenv(name, "4096")
    assert request.segments(launcher)[0].env == {}
