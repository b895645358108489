"""A fix names the command that helps where Assay runs: in a checkout, in the Debian package, in the wheel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.errors import ORIGIN, REPAIR, SOURCE, Origin, origin, rebuild

ROOT = Path(__file__).parents[2]


def test_a_module_says_how_assay_was_installed(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").touch()
    assert origin(tmp_path / "python/assay/errors.py") == "checkout"
    assert origin(Path("/usr/lib/assay/lib/python3.11/site-packages/assay/errors.py")) == "debian"
    assert origin(Path("/nowhere/lib/python3.13/site-packages/assay/errors.py")) == "wheel"
    assert (ORIGIN, REPAIR) == ("checkout", "make setup")


@pytest.mark.parametrize(
    ("installed", "in_wheel", "fix"),
    [
        ("checkout", True, "Debian: apt-get install libmpich-dev, then make setup"),
        ("debian", True, "apt-get install --reinstall ./assay_*.deb"),
        ("debian", False, "apt-get install --reinstall ./assay_*.deb"),
        ("wheel", True, "pip install --force-reinstall ./assay-*.whl"),
        ("wheel", False, SOURCE),
    ],
)
def test_a_missing_engine_has_the_fix_of_its_installation(
    installed: Origin, in_wheel: bool, fix: str
) -> None:
    assert rebuild("libmpich-dev", in_wheel, installed) == fix


def test_no_module_but_one_tells_users_of_a_package_to_make() -> None:
    """vendors.py names the module of a site's MPI beside it, in a checkout alone."""
    told = [
        path.relative_to(ROOT / "python/assay").as_posix()
        for path in (ROOT / "python/assay").rglob("*.py")
        if re.search(r"\bmake setup\b", path.read_text())
    ]
    assert sorted(told) == ["errors.py", "launch/vendors.py"]
