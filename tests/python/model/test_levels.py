"""Networks of three levels (rows of cabinets) are reported, by latency or by rates; networks of two are not."""

from __future__ import annotations

import random
import re

import pytest
from hidden_platforms import draw_platform
from planted_network import PlantedNetwork, cluster, linear_time

from assay.model.fit import fit
from assay.model.levels import more_levels
from assay.model.network import Link, Network
from assay.model.rounds import Flow
from assay.records.schema import Measurement


class Rows(Network):
    """Cabinets two by two in rows; between rows all flows pass the row's link up and down."""

    def path(self, flow: Flow) -> list[Link]:
        rows = [list(self.cabinets).index(self.cabinet_of[end]) // 2 for end in flow]
        links = super().path(flow)
        if rows[0] != rows[1]:
            links += [("row", str(rows[0]), "up"), ("row", str(rows[1]), "down")]
        return links


class PlantedRows(PlantedNetwork):
    """``further``: seconds more to another row."""

    further = 0.0
    noise = 0.0
    random: random.Random

    def _latency(self, a: str, b: str, size: int, params: dict) -> Measurement:
        record = super()._latency(a, b, size, params)
        names = list(self.network.cabinets)
        rows = [names.index(self.network.cabinet_of[host]) // 2 for host in (a, b)]
        more = self.further if rows[0] != rows[1] else 0.0
        record.samples = [(time + more) * (1 + self.noise * self.random.random()) for time in record.samples]
        return record


def rows(cabinets: int, row_link: float | None, further: float) -> PlantedRows:
    """Cabinets of six hosts of 100 MB/s, an uplink of 300 MB/s each, rows of two."""
    network = Rows(cluster(cabinets, 6).cabinets, dict(cluster(cabinets, 6).capacity))
    for index, name in enumerate(network.cabinets):
        for direction in ("up", "down"):
            network.capacity["cabinet", name, direction] = 3e8
            if row_link is not None:
                network.capacity["row", str(index // 2), direction] = row_link
    planted = PlantedRows(network, linear_time(20e-6), linear_time(26e-6))
    planted.further = further
    planted.random = random.Random(1)
    return planted


def third_level_signs(planted: PlantedNetwork) -> list[str]:
    study = planted.study()
    return more_levels(planted.records, fit(planted.records, study.cabinets))


@pytest.mark.parametrize("cabinets", [4, 6])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_rows_that_are_further_away_show_in_latency(cabinets: int, noise: float) -> None:
    planted = rows(cabinets, None, 8e-6)
    planted.noise = noise
    signs = third_level_signs(planted)
    assert len(signs) == 1 and re.search(
        r"some hosts are (20|26)\S* µs away and the others (26|34)\S* µs", signs[0]
    ), signs


@pytest.mark.parametrize("row_link", [2e8, 4e8])
def test_rows_at_equal_distance_show_in_rates(row_link: float) -> None:
    """A row's link below one cabinet's uplink; or below two of them, which no cabinet alone fills."""
    signs = third_level_signs(rows(4, row_link, 0.0))
    assert signs and all("two levels let expect" in sign for sign in signs)


@pytest.mark.parametrize("seed", range(10))
def test_two_levels_show_no_third(seed: int) -> None:
    hidden = draw_platform(seed, (2, 6), (4, 10))
    network = Network(hidden.cabinets, dict(hidden.capacity))
    near = 2 * hidden.host_latency
    far = near + 2 * hidden.cabinet_latency
    assert third_level_signs(PlantedNetwork(network, linear_time(near), linear_time(far))) == []
