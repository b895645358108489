"""A cabinet whose uplink is slow, named by ``assay net`` on a simulated network: its engine measures the sweep, each
direction alone, the suspects, and the groups at once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.measure.network import IN_FLIGHT, SHARE_IN_FLIGHT, message_and_seconds
from assay.records.run import Run
from assay.records.schema import Finding

ASSAY = Path(__file__).parents[3] / "assay"
LIMIT_S = 120
CABINETS, HOSTS, RATE = 3, 4, 1.25e9  # HOSTS of a cabinet; B/s of a host


def platform(slow: str, share: float) -> str:
    """Cabinets with uplinks as wide as all their hosts. ``slow``: the uplink ("up2") or downlink ("down2") of a
    cabinet with this ``share`` of its rate."""
    count = CABINETS * HOSTS
    links = {f"{side}-n{i}": RATE for side in ("tx", "rx") for i in range(count)}
    links |= {f"{side}{cabinet}": RATE * HOSTS for side in ("up", "down") for cabinet in range(CABINETS)}
    links[slow] *= share
    routes = []
    for a in range(count):
        for b in range(count):
            trunks = [] if a // HOSTS == b // HOSTS else [f"up{a // HOSTS}", f"down{b // HOSTS}"]
            path = "".join(f'<link_ctn id="{name}"/>' for name in (f"tx-n{a}", *trunks, f"rx-n{b}"))
            if a != b:
                routes.append(f'<route src="n{a}" dst="n{b}" symmetrical="NO">{path}</route>')
    return "\n".join([
        '<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        '<platform version="4.1"><zone id="cluster" routing="Full">',
        *(f'<host id="n{i}" speed="1Gf"/>' for i in range(count)),
        *(f'<link id="{name}" bandwidth="{rate:.0f}Bps" latency="1us"/>' for name, rate in links.items()),
        *routes, "</zone></platform>",
    ])  # fmt: skip


@pytest.mark.programs
@pytest.mark.skipif(not shutil.which("smpirun"), reason="smpirun is not installed")
@pytest.mark.parametrize(
    ("slow", "named"), [("up2", "from n[8-11] to n[0-7]"), ("down0", "from n[4-11] to n[0-3]")]
)
def test_a_slow_uplink_is_named_with_its_share(slow: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(platform(slow, 0.5))
    command = [ASSAY, "simulate", "p.xml", "--", "net", "-o", "run", "--sizes", "1MiB", "--repeats", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    faults = [
        r for r in Run.load(tmp_path / "run").records if isinstance(r, Finding) and r.severity == "fault"
    ]
    assert [fault.cause.partition(":")[0] for fault in faults] == [named]
    assert faults[0].effect == pytest.approx(-0.5, abs=0.03)


@pytest.mark.parametrize("rate", [1e5, 1.2e7, 1.25e9, 5e10])
@pytest.mark.parametrize("seconds", [1e-3, 0.1, 0.4])
def test_messages_in_flight_take_their_share_of_a_group(rate: float, seconds: float) -> None:
    size, longer = message_and_seconds(1 << 20, rate, seconds)
    assert longer >= seconds and 64 << 10 <= size <= 1 << 20
    assert IN_FLIGHT * size / rate <= SHARE_IN_FLIGHT * longer * (1 + 1e-9)
    assert longer == seconds or size == 64 << 10  # smaller messages before a longer time
