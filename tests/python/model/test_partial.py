"""A study that ended early gives a platform that SimGrid loads and that names what it lacks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import hidden_platforms
import pytest
from planted_network import PlantedNetwork, linear_time

from assay.cli import main
from assay.errors import UserError
from assay.launch import simulator
from assay.launch.platforms import platform_hosts
from assay.model.fit import fit
from assay.model.fitted import Model
from assay.model.network import Network
from assay.model.platform import build, write_platform
from assay.records.run import Run
from assay.records.schema import AnyRecord, Flows, Verdict


def planted_study() -> tuple[hidden_platforms.HiddenPlatform, list[AnyRecord], dict[str, list[str]]]:
    """Hosts alike, so that one time of a message holds for all."""
    hidden = next(
        h for s in range(1000) if not (h := hidden_platforms.draw_platform(s, (3, 3), (4, 6))).heterogeneous
    )
    near = 2 * hidden.host_latency
    rate = min(value for (level, _, way), value in hidden.capacity.items() if level == "host" and way == "up")
    network = Network(hidden.cabinets, dict(hidden.capacity))
    planted = PlantedNetwork(network, linear_time(near, rate), linear_time(near + 2e-6, rate))
    return hidden, planted.records, planted.study(hidden.cabinets).cabinets


def routes(root: ET.Element) -> set[tuple[str, str]]:
    return {(str(route.get("src")), str(route.get("dst"))) for route in root.iter("zoneRoute")}


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_part_of_a_study_gives_routes_between_all_hosts(share: float) -> None:
    """Or an error that nothing is known yet."""
    _, records, cabinets = planted_study()
    model = fit(records[: int(share * len(records))], cabinets)
    try:
        root = build(model, "a run -- cut short")
    except UserError as error:
        assert share < 0.7 and "no host's capacity is known" in error.what
        return
    zones = {str(zone.get("id")) for zone in [*root.iter("cluster"), *root.iter("zone")]} - {"all"}
    assert routes(root) == {(a, b) for a in zones for b in zones if a != b}
    text = ET.tostring(root, encoding="unicode")
    assert ET.fromstring(text).tag == "platform"
    assert ("the platform is partial" in text) == any(
        c.value is None and c.level == "cabinet" and c.direction != "limiter" for c in model.capacities
    )


def without(records: list[AnyRecord], *experiments: str) -> list[AnyRecord]:
    return [r for r in records if not (isinstance(r, Flows) and r.params.get("experiment") in experiments)]


@pytest.mark.slow
@pytest.mark.skipif(simulator.unavailable() is not None, reason=str(simulator.unavailable()))
def test_simgrid_loads_a_partial_platform_whose_proof_cannot_pass(tmp_path: Path) -> None:
    """Cut off before the links between cabinets were measured."""
    _, records, cabinets = planted_study()
    run = Run.create("saturate", ["saturate"], path=tmp_path / "run")
    run.info.hosts = [host for hosts in cabinets.values() for host in hosts]
    run.info.options["cabinets"] = [f"{name}={','.join(hosts)}" for name, hosts in cabinets.items()]
    for record in without(
        records,
        "cabinet",
        "other_partners",
        "every_second",
        "backbone",
        "strides",
        "two_cabinets",
        "all_to_all",
    ):
        run.append(record)
    run.finish("partial", "interrupted")
    target = tmp_path / "platform.xml"
    assert main(["model", str(run.path), "--platform", str(target)]) == 2
    assert set(platform_hosts(target)) == set(run.info.hosts)
    (verdict,) = [r for r in Run.load(run.path).records if isinstance(r, Verdict)]
    assert verdict.outcome == "INCONCLUSIVE" and "the platform is partial" in verdict.reason


def test_comments_and_markup_in_reasons_keep_the_xml_valid(tmp_path: Path) -> None:
    _, records, cabinets = planted_study()
    model: Model = fit(records, {name: list(hosts) for name, hosts in cabinets.items()})
    for capacity in model.capacities:
        capacity.reason += " --->-- & <link>"
    write_platform(model, tmp_path / "p.xml", "a--run-")
    assert len(platform_hosts(tmp_path / "p.xml")) == sum(map(len, cabinets.values()))
