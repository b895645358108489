"""A complete network run with a planted engine whose hosts have other names than the host list."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.launch.placement import Segment, Site
from assay.launch.without_mpi import WithoutMpi
from assay.measure import engine_processes
from assay.measure.network import NetworkRequest, measure_network
from assay.measure.session import Session
from assay.records.run import Run
from assay.records.schema import Finding, Measurement

HOSTS = [f"n{i}" for i in range(8)]
# The planted engine: rank r runs on n<r>.site, and n3 sends at half its rate, also alone.
ENGINE = """
import json, sys
own = [f"n{i}.site" for i in range(8)]
def line(**fields): print(json.dumps(fields), flush=True)
def rate(source): return 5e8 if source == 3 else 1e9
line(kind="ranks", labels=own, host_index=list(range(8)), hosts=[{"host": host} for host in own])
name, options = sys.argv[2], dict(zip(sys.argv[3::2], sys.argv[4::2]))
params = {"size": 1048576, "op": "send"}
head = {"name": name, "metric": "bandwidth", "unit": "B/s", "params": params}
if name == "network.pairs":
    for pair in options["--pairs"].split(","):
        a, b = map(int, pair.split("-"))
        value = {"n": 1, "median": rate(a)}
        line(kind="measurement", subject={"host": own[a], "peer": own[b]}, summary=value, **head)
else:
    for i in range(8):
        peers = [j for j in range(8) if j != i]
        line(kind="pairs", subject={"host": own[i]}, peers=[own[j] for j in peers],
             values=[rate(i) * (1 + 0.001 * ((i * j) % 3)) for j in peers], **head)
"""


class PlantedLauncher(WithoutMpi):
    """A launcher that starts the planted engine in place of the real one."""

    name = flavour = "planted"

    def __init__(self, engine: Path) -> None:
        self.engine = engine
        self.started: list[list[str]] = []

    def unavailable(self) -> str | None:
        return None

    def command(self, site: Site, segments: Sequence[Segment], argv: Sequence[str]) -> list[str]:
        self.started.append(list(argv))
        return [sys.executable, str(self.engine), *argv[1:]]


@pytest.mark.parametrize("listed", [HOSTS, HOSTS[::-1], [f"{host}.site" for host in HOSTS]])
def test_a_suspect_is_retested_under_its_listed_name(
    listed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE)
    monkeypatch.setattr(engine_processes, "probe", lambda _flavour: engine)
    launcher = PlantedLauncher(engine)
    session = Session(Run.create("net", ["net"], path=tmp_path / "run"), quiet=True)
    session.run.info.hosts = list(listed)
    request = NetworkRequest(launcher, Site("ssh"), [], list(listed), params={"budget": 60.0})
    measure_network(session, request)
    assert session.ended_early == ""
    assert [argv[2] for argv in launcher.started] == [
        "network.all_to_all",
        "network.one_way",
        "network.pairs",
    ]
    session.conclude([])
    suspect = next(host for host in listed if host.startswith("n3"))
    (finding,) = [r for r in session.run.records if isinstance(r, Finding) and r.rule == "slow_host"]
    assert (finding.subject.host, finding.side) == (suspect, "transmit")
    assert f"{suspect} sends at 50" in finding.cause
    alone = [r for r in session.run.records if isinstance(r, Measurement) and r.name == "network.pairs"]
    assert {r.subject.host for r in alone} <= set(listed) and any(r.median == 5e8 for r in alone)


def test_the_budget_is_divided_between_the_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE)
    monkeypatch.setattr(engine_processes, "probe", lambda _flavour: engine)
    launcher = PlantedLauncher(engine)
    session = Session(Run.create("net", ["net"], path=tmp_path / "run"), quiet=True)
    measure_network(session, NetworkRequest(launcher, Site("ssh"), [], HOSTS, params={"budget": 15.0}))
    budgets = {argv[2]: float(argv[argv.index("--budget") + 1]) for argv in launcher.started}
    assert 1.0 <= budgets["network.pairs"] <= 15.0
    assert budgets["network.all_to_all"] == pytest.approx(6.75)
    # the time of the retest of one suspect is reserved
    assert budgets["network.one_way"] <= 15.0 - 1.0 - 1.0 - 12 * 0.35
    assert session.run.info.hosts == HOSTS
