"""The notebooks in docs/ read a run: their code runs, prints the figures that were planted, and draws them."""

from __future__ import annotations

import json
from pathlib import Path

import make_run
import pytest

DOCS = Path(__file__).parents[3] / "docs"
NOTEBOOKS = sorted(DOCS.glob("storage_*.ipynb"))
# What each prints of the planted run (tests/fixtures/make_storage.py), and how many pictures it draws.
# "stock" is the MPI's own I/O, without the accelerator.
PLANTED = {
    "storage_ior": ("Open MPI 4.1.4 accelerated write, 4 nodes, 1 MiB: 47.6 GB/s", 2),
    "storage_solver": ("Open MPI 4.1.4 accelerated view: write 1 s", 1),
    "storage_hdf5": ("Open MPI 4.1.4 read stock: raw 2 GB/s, observed 1 GB/s", 1),
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_reads_a_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import matplotlib.pyplot as plt  # takes a second

    plt.switch_backend("agg")
    plt.close("all")  # those of other tests
    monkeypatch.setenv("ASSAY_NOTEBOOK_RUN", str(make_run.make("storage", tmp_path / "run")))
    monkeypatch.chdir(DOCS)
    cells = json.loads(path.read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}", "exec"), names)
    expected, pictures = PLANTED[path.stem]
    assert expected in capsys.readouterr().out
    assert len(plt.get_fignums()) == pictures
    plt.close("all")


def test_no_notebook_holds_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
