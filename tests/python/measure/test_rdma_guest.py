"""RDMA between two SoftRoCE devices in a guest of the lab, whose network has a planted rate.

``rdma_in_guest.py`` runs inside. One boot serves all tests; each asserts on a part of its output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = [pytest.mark.acceptance("network"), pytest.mark.timeout(2700)]  # an emulated machine

INSIDE = Path(__file__).with_name("rdma_in_guest.py")
# Low enough that an emulated processor keeps up: the wire is the limit.
RATE_MBIT = 80
# A packet of 4096 bytes payload at most (here 2048 or 4096, by the interface's MTU) has some 62 bytes of
# headers: Ethernet 14, IPv4 20, UDP 8, RoCE 16, and its checksum 4. With the burst that a shaper lets pass
# and acknowledgements, the payload is within this share of the rate.
LOW, HIGH = 0.80, 1.12

EVENTS, FRAGMENT = 40, 65536  # as in rdma_in_guest.py

Observations = dict[str, Any]


@pytest.fixture(scope="module")
def results(in_guest: Callable[..., CompletedProcess[str]]) -> Observations:
    wires = ["--rdma", "2", "--rdma-rate", f"{RATE_MBIT}mbit"]
    done = in_guest(*wires, "--", sys.executable, str(INSIDE))
    assert done.returncode == 0, done.stderr
    parts: Observations = json.loads(done.stdout.splitlines()[-1])
    return parts


@pytest.mark.statistical(
    "1 in 100, assumed: an emulated processor fills 80 Mbit/s if nothing else runs; 80 % is enough"
)
def test_every_port_sends_and_the_planted_rate_is_found(results: Observations) -> None:
    part = results["operations"]
    assert part["code"] == 0, part
    medians = {(f["device"], f["op"], f["metric"]): f["median"] for f in part["figures"]}
    for device in ("rxe0:1", "rxe1:1"):
        for op in ("write", "read", "send"):
            share = medians[device, op, "bandwidth"] / (RATE_MBIT * 1e6 / 8)
            assert 0 < share <= HIGH, (device, op, share)
            # A send waits if its receiver is not ready.
            assert share >= (LOW if op != "send" else 0.5), (device, op, share)
            assert medians[device, op, "peak"] >= medians[device, op, "bandwidth"]
            rate = medians[device, op, "message_rate"] * 65536
            assert rate == pytest.approx(medians[device, op, "bandwidth"])
            assert medians[device, op, "corrupted"] == 0


def test_the_bytes_used_the_network(results: Observations) -> None:
    """Two directions with three operations of 64 messages of 64 KiB each, and separate messages that are verified."""
    assert results["operations"]["wire"] >= 2 * 3 * 64 * 65536
    shares = {
        (f["device"], f["op"], f["direction"]): f["median"]
        for f in results["operations"]["figures"]
        if f["metric"] == "wire"
    }
    # Both ends of both directions, by the counters of their interfaces.
    assert len(shares) == 2 * 3 * 2 and min(shares.values()) >= 1


def test_the_table_in_both_directions_with_several_queue_pairs(results: Observations) -> None:
    part = results["sweep"]
    assert part["code"] == 0, part
    assert "guest rxe0:1 <-> guest rxe1:1  (RC, 2 queue pairs, depth 4" in part["out"]
    rows = [line.split() for line in part["out"].splitlines()]
    assert [row[0] for row in rows if row[1:2] == ["50"]] == ["1", "4096", "65536"]
    assert "PASS" in part["out"]


@pytest.mark.parametrize("protocol", ["push", "pull"])
def test_events_are_built_over_the_verbs_of_libfabric(results: Observations, protocol: str) -> None:
    part = results[f"events_{protocol}"]
    assert part["code"] == 0, part
    assert part["counts"]["events_built"] == EVENTS and part["counts"]["fragments_built"] == 2 * EVENTS
    assert part["counts"]["fragments_corrupt"] == part["counts"]["fragments_duplicate"] == 0
    assert part["wire"] >= EVENTS * FRAGMENT  # half of the fragments go to the other device


@pytest.mark.parametrize("which", ["server", "client"])
def test_a_side_that_is_killed_is_named_by_the_other(results: Observations, which: str) -> None:
    part = results[f"{which}_killed"]
    assert part["code"] == 2
    assert "has gone away" in part["err"]
    assert part["seconds"] < 20


def test_a_foreign_client_is_refused_and_the_right_one_served(results: Observations) -> None:
    part = results["stranger"]
    assert part["code"] == 0, part
    assert part["server"]["code"] == 0, part
    assert "refused: 127.0.0.1 does not speak the protocol" in part["server"]["err"]


def test_a_low_limit_on_locked_memory_is_named_with_its_fix(results: Observations) -> None:
    part = results["locked_memory"]
    assert part["code"] == 2
    done = " ".join(part["out"].split())
    assert "cannot register 2048 KiB of memory" in done
    assert "the limit on locked memory is 64 KiB; fix: raise it: ulimit -l unlimited" in done


REFUSED = {
    "taken_port": "cannot listen on 127.0.0.1:18777: Address already in use",
    "no_device": "no RDMA device is called 'rxe7'; fix: choose one of rxe0, rxe1",
    "no_gid": "rxe1:1 has no GID of index 7; fix: choose one of: 0 is fe80:",
    "no_mtu": "rxe1:1 cannot use an MTU of 3000; fix: give a power of two from 256 to its active one",
    "no_depth": "rxe1:1 has no completion queue of 32769 entries; fix: ask for 32767 at most",
    "realtime": "--realtime would block rxe0",
    "nobody": ":18515 within 1 s",
    "nobody_there": "no process listens on 127.0.0.1:18515",
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_settings_are_one_line(results: Observations, case: str) -> None:
    part = results[case]
    assert part["code"] == 2, part
    (line,) = [text for text in part["err"].splitlines() if text.startswith("assay-probe: ")]
    assert REFUSED[case] in line
    assert "defect" not in line
    if "server" in part:
        assert part["server"]["code"] == 2
        # The server learns of the client's failure, or finds the same limit on its own device.
        assert "gave up: rxe1:1" in part["server"]["err"] or "assay-probe: rxe0:1" in part["server"]["err"]
