"""``assay --version``: one number everywhere, and the commit of the checkout or of the package."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from assay import __version__
from assay.cli import main
from assay.version import COMMIT_FILE, commit

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def plant_checkout(folder: Path) -> Path:
    """A repository with one commit. Returns its package."""
    package = folder / "python/assay"
    package.mkdir(parents=True)
    (package / "cli.py").touch()
    (folder / "pyproject.toml").touch()
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return package


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cmake = re.search(r"project\(assay VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    released = re.findall(
        r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert cmake and citation
    assert {project, cmake[1], citation[1], released[0]} == {__version__}


@pytest.mark.parametrize("recipe", ["spack/package.py", "assay.spec", "apptainer.def"])
def test_a_recipe_names_this_version_and_says_that_it_is_untested(recipe: str) -> None:
    text = (ROOT / "packaging" / recipe).read_text()
    assert text.startswith("# UNTESTED")
    assert set(re.findall(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", text)) == {__version__}


def test_the_version_is_printed_with_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    line = capsys.readouterr().out
    assert re.fullmatch(rf"assay {re.escape(__version__)}( \(commit [0-9a-f]{{12}}(-dirty)?\))?\n", line)
    assert ("commit" in line) == (commit() != "")


def test_a_checkout_has_the_commit_of_git_and_tells_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = plant_checkout(tmp_path)
    head = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # of a hook that runs Assay
    assert commit(package) == head
    (package / "cli.py").write_text("changed")
    assert commit(package) == f"{head}-dirty"


def test_a_checkout_without_git_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = plant_checkout(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit(package) == ""


def test_a_package_has_its_own_commit_and_not_that_of_the_repository_around_it(tmp_path: Path) -> None:
    """An environment inside the checkout of another program: its packages have another commit."""
    plant_checkout(tmp_path)
    package = tmp_path / ".venv/lib/python3.11/site-packages/assay"
    package.mkdir(parents=True)
    assert commit(package) == ""
    (package / COMMIT_FILE).write_text("0123456789ab\n")
    assert commit(package) == "0123456789ab"
    (package / COMMIT_FILE).write_text("\x1b[31m")
    assert commit(package) == ""
