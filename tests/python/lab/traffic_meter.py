"""Measures the goodput of TCP flows between nodes of a lab, from one process.

A socket belongs to the network namespace in which it was created, also if it is used elsewhere. One thread enters the
nodes to create the sockets and then drives all flows, so no synchronisation is needed.
"""

from __future__ import annotations

import ctypes
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from assay.lab import Lab

IDEAL = 0.956  # payload's share of the rate on the wire; the rest is headers
Ends = tuple[socket.socket, socket.socket]
_WARM_UP_S = 0.3  # the shapers' token buckets are full at first and let a burst pass
_CHUNK = bytes(1 << 16)
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def network_of(lab: Lab, node: str) -> Iterator[None]:
    """Enters the network namespace of a node for the block."""
    folder = Path(lab.agent).parent / "nodes" / node
    with (
        open("/proc/thread-self/ns/net") as home,
        open(f"/proc/{int((folder / 'pid').read_text())}/ns/net") as namespace_file,
    ):
        _enter(namespace_file.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def connect(lab: Lab, sender: str, receiver: str, limit_s: float = 240.0) -> Ends:
    """A connected pair: (socket in ``sender``, socket in ``receiver``)."""
    with network_of(lab, receiver):
        listener = socket.create_server((lab.address(receiver), 0))
    with listener, network_of(lab, sender):
        listener.settimeout(limit_s)
        sending = socket.create_connection(listener.getsockname(), timeout=limit_s)
        return sending, listener.accept()[0]


def goodput(lab: Lab, flows: Sequence[tuple[str, str]]) -> float:
    """The sum of all flows (sender, receiver) at once during 1 s, in B/s of payload received."""
    received = 0
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for sender, receiver in flows:
            sending, receiving = connect(lab, sender, receiver)
            for end, event in ((sending, selectors.EVENT_WRITE), (receiving, selectors.EVENT_READ)):
                stack.enter_context(end)
                end.setblocking(False)
                selector.register(end, event)
        began = time.monotonic() + _WARM_UP_S
        while (now := time.monotonic()) < began + 1:
            for key, _ in selector.select(0.1):
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if key.events == selectors.EVENT_WRITE:
                    end.send(_CHUNK)
                else:
                    amount = len(end.recv(1 << 18))
                    received += amount if now >= began else 0
        return received / (now - began)
