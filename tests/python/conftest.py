"""Fixtures for all Python tests: labs (virtual clusters of network namespaces) and guests (QEMU machines).

Properties (hypothesis) are tested on the same examples in each run: what they find follows from the code alone. With
ASSAY_FUZZ_ROUNDS ("make fuzz") the examples are random.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.conjecture.providers import _local_constants as no_constants

from assay.lab import Lab, Rates, take_down
from assay.lab.traffic import parse_rate
from assay.launch import supervise
from assay.launch.load import Load

ROOT = Path(__file__).resolve().parents[2]
EXPLORES = "ASSAY_FUZZ_ROUNDS" in os.environ
GUEST_LIMIT_S = 1200  # against hangs: a guest is emulated, and slower beside other programs

settings.register_profile(
    "assay", derandomize=not EXPLORES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("assay")
if not EXPLORES:
    # Examples also have constants of all modules that are loaded: of the tests that ran before in this process.
    HypothesisProvider._local_constants = no_constants  # type: ignore[assignment]

MakeLab = Callable[..., Lab]


@pytest.fixture(autouse=True)
def plant_load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Load], None]:
    """Nothing else runs, as the verbs see it: other programs beside the tests change no verdict. A test of a busy
    machine plants its load: ``plant_load(Load(others=1.3, processors=2))``."""
    planted = Load()

    class Meter:
        def __init__(self, _token: str) -> None: ...

        def end(self) -> Load:
            return planted

    def plant(load: Load) -> None:
        nonlocal planted
        planted = load

    monkeypatch.setattr(supervise, "LoadMeter", Meter)
    return plant


@pytest.fixture(scope="session")
def make_lab() -> Iterator[MakeLab]:
    """Makes labs: ``make_lab(hosts=8, cabinets=2, host_rate="100mbit", duplex_rate=..., cabinet_rate=...,
    up_rate=..., down_rate=..., slurm=False, mtu=1500, adapters=1, lossless=False)``.

    Each lab has a unique name, so labs of users and of other test sessions are not touched. All are taken down
    when the session ends, also after a failure. Skips the tests where no lab can be made.
    """
    if os.geteuid() != 0:
        pytest.skip("labs need root")
    names: list[str] = []

    def make(
        hosts: int = 4,
        cabinets: int = 1,
        *,
        host_rate: str | None = None,
        up_rate: str | None = None,
        down_rate: str | None = None,
        duplex_rate: str | None = None,
        cabinet_rate: str | None = None,
        slurm: bool = False,
        mtu: int = 1500,
        adapters: int = 1,
        lossless: bool = False,
    ) -> Lab:
        texts = (up_rate or host_rate, down_rate or host_rate, duplex_rate, cabinet_rate)
        rates = Rates(*(parse_rate(text) if text else None for text in texts), lossless=lossless)
        names.append(f"test-{os.getpid()}-{len(names)}")
        return Lab.up(hosts, cabinets, rates, with_slurm=slurm, name=names[-1], mtu=mtu, adapters=adapters)

    yield make
    for name in names:
        take_down(name)


RunInGuest = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def in_guest() -> RunInGuest:
    """Runs a command in a guest: ``in_guest("--numa", "2", "--", "cat", "/proc/meminfo")``; the arguments are those
    of ``assay lab vm``. A boot takes 10 to 30 s, so the tests of a module should share a guest. An emulated kernel that
    hangs is booted again; the notice of it becomes a warning of the test run. Skips the tests where no guest can be
    made."""
    if os.geteuid() != 0:
        pytest.skip("guests need root for their hardware and for files that only root reads")
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("no QEMU here")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "assay", "lab", "vm", "--timeout", f"{GUEST_LIMIT_S}s", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
            timeout=GUEST_LIMIT_S + 120,
        )
        first, _, rest = done.stderr.partition("\n")
        if first.startswith("the guest did not boot in ") and first.endswith("; trying once more"):
            warnings.warn(first, stacklevel=2)
            done.stderr = rest
        return done

    return run
