"""Event building in the terminal: rates beside the network's, the ledger, rates over time, and a search."""

from __future__ import annotations

import io

from planted_events import RATE, PlantedEventRun, network_records
from rich.console import Console

from assay.events.figures import buildings
from assay.events.space import Axis, Space
from assay.events.tuner import Tuner
from assay.measure.events_tune import landscape_records
from assay.records.schema import AnyRecord
from assay.report.events import BLOCKS, COLUMNS, show_events

HOSTS = [f"h{k}" for k in range(8)]


def shown(records: list[AnyRecord]) -> str:
    text = io.StringIO()
    show_events(Console(file=text, width=160, color_system=None), records)
    return text.getvalue()


def test_rates_stand_beside_what_the_network_carries() -> None:
    text = shown(PlantedEventRun(noise=0).records() + network_records(HOSTS, RATE, 8 * RATE))
    assert "push, shift, 512 KiB, 2 credits, 8 parallel" in text
    assert "800 MB/s" in text and "700 MB/s" in text
    assert "87.5 %" in text  # 700 of 800, both beside it
    assert "in the same run" in text


def test_what_was_not_measured_beside_it_has_no_share() -> None:
    line = next(line for line in shown(PlantedEventRun().records()).splitlines() if line.startswith("push"))
    assert line.split()[-4:-2] != [] and " - " in line


def test_the_ledger_shows_each_count_and_what_was_not_counted() -> None:
    text = shown(PlantedEventRun(ledger={"fragments_lost": 12345.0}).records())
    assert "fragments lost" in text and "12,345" in text


def test_a_dip_of_one_second_in_hours_is_seen() -> None:
    text = shown(PlantedEventRun(seconds=10_000, dips=[(range(5000, 5001), 0.05, "h2")]).records())
    line = next(line for line in text.splitlines() if "over 10000 s" in line)
    blocks = [letter for letter in line if letter in BLOCKS]
    assert len(blocks) == COLUMNS and blocks.count(BLOCKS[0]) == 1


def test_a_death_shows_when_building_went_on() -> None:
    assert "lost h3: building resumed after 130 ms" in shown(
        PlantedEventRun(seconds_to_resume={3: 0.13}).records()
    )


def test_a_rank_that_came_back_is_told() -> None:
    planted = PlantedEventRun(seconds_to_resume={3: 0.13}, seconds_to_return={3: 2.5})
    assert "h3 came back, and took part again 2.5 s after its loss" in shown(planted.records())


def test_a_new_plan_is_told_and_splits_no_run() -> None:
    planted = PlantedEventRun(seconds_to_resume={3: 0.13})
    records = planted.records()
    records.insert(10, planted.record("events.build", "replan", 0.25, {"steps": 13}))
    assert records[9].name == records[11].name == "events.slices"
    text = shown(records)
    assert "planned anew for the ranks that were there: 13 steps, after 250 ms" in text
    assert text.count("over 60 s") == 1 and len(buildings(records)) == 1


def test_a_search_shows_its_best_points_its_cost_and_what_matters() -> None:
    space = Space((Axis("fragment", (1024, 2048, 4096)), Axis("credits", (1, 2, 4, 8))))
    result = Tuner(space, lambda point: 1e9 - abs(int(point[0]) - 2048) * 1e5 + int(point[1]), 12).run()
    text = shown(list(landscape_records(result)))
    first = text.splitlines()[1].split()
    assert first[:3] == ["2", "KiB", "8"] and "100 %" in text
    assert "12 points measured, 100 % of the grid's cost" in text
    assert "what matters: fragment" in text
