"""The names of packages: messages that name Debian's are shown in the words of the system."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest

from assay import system
from assay.cli import main

ROOT = Path(__file__).parents[2]
ROCKY = {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}
LEAP = {"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}
UBUNTU = {"ID": "ubuntu", "ID_LIKE": "debian"}
ARCH = {"ID": "arch"}


def on(release: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)


@pytest.mark.parametrize(
    ("release", "shown"),
    [
        (ROCKY, "no mpirun (dnf install openmpi-devel, then make setup)"),
        (LEAP, "no mpirun (zypper install openmpi4-devel, then make setup)"),
        (UBUNTU, "no mpirun (Debian: apt-get install libopenmpi-dev, then make setup)"),
        (ARCH, "no mpirun (install what Debian calls libopenmpi-dev, then make setup)"),
    ],
    ids=["rocky", "leap", "ubuntu", "arch"],
)
def test_a_message_names_the_packages_of_this_system(
    release: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(release, monkeypatch)
    message = "no mpirun (Debian: apt-get install libopenmpi-dev, then make setup)"
    assert system.in_local_words(message) == shown


def test_packages_that_a_system_lacks_are_named_as_debian_does(monkeypatch: pytest.MonkeyPatch) -> None:
    on(ROCKY, monkeypatch)
    assert system.install("openmpi-bin", "libsimgrid-dev") == (
        "dnf install openmpi, and install what Debian calls libsimgrid-dev"
    )
    assert system.install("slurm-wlm") == "dnf install slurm slurm-slurmctld slurm-slurmd"


def test_a_system_without_os_release_is_of_no_family(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> dict[str, str]:
        raise FileNotFoundError("no os-release")

    monkeypatch.setattr(platform, "freedesktop_os_release", missing)
    assert system.family() == ""


@pytest.mark.parametrize(("release", "command"), [(ROCKY, "dnf"), (LEAP, "zypper")], ids=["rocky", "leap"])
def test_doctor_and_errors_never_name_debians_command_elsewhere(
    release: dict[str, str],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on(release, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))  # no tool is there
    monkeypatch.setenv("ASSAY_ENGINES", str(tmp_path))
    main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)
    assert {c["name"]: c["fix"] for c in checks}["srun"] == f"{command} install slurm"
    assert main(["net", "--launcher", "openmpi"]) == 2
    texts = [c["found"] + c["fix"] for c in checks] + [capsys.readouterr().err]
    assert [text for text in texts if "apt-get" in text or "Debian: " in text] == []


def test_every_package_that_a_message_names_has_a_row() -> None:
    """Of Python's messages and the engines'; a string may go on in the next line. ``rebuild`` takes a
    package's name."""
    sources = [*ROOT.glob("python/assay/**/*.py"), *ROOT.glob("engines/**/*.[ch]pp")]
    named = {
        name
        for path in sources
        for match in re.finditer(
            r'apt-get install ((?:[a-z0-9][a-z0-9+.-]+(?: "\n\s*")?[ ,)"]+)+)', path.read_text()
        )
        for name in re.findall(r"[a-z0-9][a-z0-9+.-]+", match[1].partition(",")[0].partition(")")[0])
    }
    named.update(
        match[1]
        for path in ROOT.glob("python/assay/**/*.py")
        for match in re.finditer(r"\brebuild\([\"']([^\"']+)", path.read_text())
    )
    assert {"iproute2", "ibverbs-providers", "libopenmpi-dev"} <= named
    assert sorted(named - set(system.packages())) == []
