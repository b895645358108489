"""Planted loss in a lab, counted with UDP sockets: the share is as planted, and only on the planted side of a host."""

from __future__ import annotations

import os
import socket
import time

import pytest
from traffic_meter import network_of

from assay.lab import Fault, Lab

pytestmark = [
    pytest.mark.acceptance("lab"),
    pytest.mark.statistical(
        "1 in 1,000,000: two binomials at five standard deviations; more if a receive queue overflows"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="labs need root"),
]

SENT = 20_000
SO_RCVBUFFORCE = 33  # linux/socket.h; Python does not name it
PACE = 50  # datagrams between two pauses, so that no queue overflows


@pytest.fixture(scope="module")
def fabric(make_lab) -> Lab:
    return make_lab(3)


def lost_share(lab: Lab, sender: str, receiver: str) -> float:
    """The share of datagrams between two hosts that does not arrive."""
    with network_of(lab, receiver):
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiving.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        receiving.bind((lab.address(receiver), 0))
        receiving.settimeout(0.5)
    with network_of(lab, sender):
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sending, receiving:
        for number in range(SENT):
            sending.sendto(b"x", receiving.getsockname())
            if number % PACE == 0:
                time.sleep(1e-4)
        arrived = 0
        try:
            while arrived < SENT:
                receiving.recv(1)
                arrived += 1
        except TimeoutError:
            pass
    return 1 - arrived / SENT


def test_loss_is_as_planted_and_only_on_the_planted_sides(fabric: Lab) -> None:
    fabric.fault(["h1"], Fault(rx_loss=0.05))
    fabric.fault(["h2"], Fault(tx_loss=0.20))
    # Five standard deviations of a binomial: a false alarm in two million runs.
    assert lost_share(fabric, "h0", "h1") == pytest.approx(0.05, abs=5 * (0.05 * 0.95 / SENT) ** 0.5)
    assert lost_share(fabric, "h2", "h0") == pytest.approx(0.20, abs=5 * (0.20 * 0.80 / SENT) ** 0.5)
    assert lost_share(fabric, "h1", "h0") == 0
    assert lost_share(fabric, "h0", "h2") == 0
    fabric.fault(["h1", "h2"], None)
    assert lost_share(fabric, "h0", "h1") == 0
    assert lost_share(fabric, "h2", "h0") == 0
