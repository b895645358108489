"""``assay doctor`` on planted machines: wrong settings are found with their fixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import machines
import pytest

from assay.cli import main


@pytest.fixture
def diagnose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the doctor on a planted machine. Returns its checks of settings and devices by name."""

    def run(machine: str, *options: str) -> dict[str, dict[str, str]]:
        monkeypatch.setenv("ASSAY_ROOT", str(machines.plant(machine, tmp_path)))
        main(["doctor", "--json", *options])
        return {check["name"]: check for check in json.loads(capsys.readouterr().out)}

    return run


def test_each_wrong_setting_is_found_with_its_fix(diagnose: Any) -> None:
    checks = diagnose(machines.COBALT)
    problems = {
        name for name, check in checks.items() if check["section"] == "settings" and check["state"] != "ok"
    }
    assert problems == {
        "the frequency governor is performance",
        "turbo is off, for figures that repeat",
        "the kernel moves no pages by itself",
        "receive buffers may be large",
        "jumbo frames on adapters that are up",
        "PCIe links run at what device and slot can do",
        "no device sits in a slot that is too small for it",
    }
    governor = checks["the frequency governor is performance"]
    assert governor["found"] == "performance, powersave; wanted: performance"
    assert governor["fix"] == "cpupower frequency-set -g performance"
    assert checks["jumbo frames on adapters that are up"]["fix"] == "ip link set eth3 mtu 9000"
    riser = checks["PCIe links run at what device and slot can do"]
    assert "0000:83:00.0" in riser["fix"] and "0000:03:00.0" not in riser["fix"]
    slot = checks["no device sits in a slot that is too small for it"]
    assert "0000:03:00.0" in slot["fix"] and slot["found"].startswith("50")


def test_a_correctly_set_machine_has_no_problem(diagnose: Any) -> None:
    checks = diagnose(machines.SOUND)
    assert [
        check for check in checks.values() if check["section"] == "settings" and check["state"] != "ok"
    ] == []


def test_devices_are_listed_with_numa_node_and_link(diagnose: Any) -> None:
    checks = diagnose(machines.COBALT)
    assert checks["eth3"]["found"] == "NUMA node 1, up, 10 Gbit/s, 1500 B"
    assert checks["mlx4_0:1"]["found"] == "NUMA node 0, ACTIVE, 56 Gbit/s, InfiniBand"
    assert checks["0000:83:00.0"]["found"] == (
        "NUMA node 1, display, 5 GT/s, x16, 50.78 % of what the device can do"
    )
    assert "br0" not in checks and "0000:80:01.0" not in checks


@pytest.mark.parametrize(
    ("machine", "turbo", "governor"),
    [(machines.AMD, "note", "ok"), (machines.ARM, "note", "note"), (machines.SOUND, "ok", "ok")],
)
def test_settings_that_a_processor_lacks_are_notes(
    diagnose: Any, machine: str, turbo: str, governor: str
) -> None:
    checks = diagnose(machine, "--spec", "cobalt2")
    assert checks["turbo is off"]["state"] == turbo
    assert checks["the frequency governor is performance"]["state"] == governor
