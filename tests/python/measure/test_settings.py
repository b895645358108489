"""Settings, read from machines planted in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.measure.settings import Reading, read_settings


def plant(root: Path, files: dict[str, str]) -> dict[str, Reading]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return {r.name: r for r in read_settings(root)}


GOVERNOR = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"


@pytest.mark.parametrize(
    ("governors", "value", "good"),
    [
        (["performance", "performance"], "performance", True),
        (["powersave", "powersave"], "powersave", False),
        (["performance", "powersave"], "performance, powersave", False),
    ],
)
def test_the_governor_of_every_core_counts(
    tmp_path: Path, governors: list[str], value: str, good: bool
) -> None:
    files = {GOVERNOR.format(i): governor for i, governor in enumerate(governors)}
    reading = plant(tmp_path, files)["frequency governor"]
    assert (reading.value, reading.good) == (value, good)
    assert "cpupower" in reading.mend


@pytest.mark.parametrize(
    ("file", "text", "good"),
    [
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1", True),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "0", False),
        ("sys/devices/system/cpu/cpufreq/boost", "0", True),
        ("sys/devices/system/cpu/cpufreq/boost", "1", False),
    ],
)
def test_turbo_of_intel_and_of_others(tmp_path: Path, file: str, text: str, good: bool) -> None:
    assert plant(tmp_path, {file: text})["turbo"].good is good


def test_buffers_and_huge_pages(tmp_path: Path) -> None:
    readings = plant(
        tmp_path,
        {
            "proc/sys/net/core/rmem_max": "212992",
            "proc/sys/net/core/wmem_max": "16777216",
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
        },
    )
    assert readings["net.core.rmem_max"].good is False
    assert readings["net.core.rmem_max"].mend == "sysctl -w net.core.rmem_max=16777216"
    assert readings["net.core.wmem_max"].good is True
    assert readings["transparent huge pages"].value == "never"
    assert readings["transparent huge pages"].good is False


def test_what_a_machine_does_not_have_is_neither_good_nor_bad(tmp_path: Path) -> None:
    readings = plant(tmp_path, {})
    assert readings["turbo"].good is None and readings["turbo"].value == "not on this machine"
