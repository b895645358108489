"""Persistent memory, in a guest: a device of memory is swept through its mapping, and holds the accelerator's store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from storage_benches import available

from assay.launch.engines import engines_folder
from assay.records.run import Run
from assay.records.schema import Measurement
from assay.records.storage import DEVICE, IOR

ROOT = Path(__file__).parents[3]
needs_accelerator = not available("openmpi") or not (engines_folder() / "libassay-io-openmpi.so").is_file()

pytestmark = pytest.mark.skipif(needs_accelerator, reason="no openmpi with an accelerator here")


def test_devdax_is_swept_and_holds_the_store(
    in_guest: Callable[..., CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assay, out = str(ROOT / "assay"), tmp_path / "out"
    out.mkdir()
    sweep = f"{assay} io device /dev/dax0.0 --overwrite --bytes 8MiB --threads 1 --sizes 4k,64k"
    sweep += " --budget 0.02 --repeats 1"
    bench = (
        f"{assay} io bench ior --mpi openmpi -n 2 --repeats 1 --accelerated --timeout 200s --folder /mnt/pmem"
    )
    bench += " --store /dev/dax0.0"
    ior = "-w -r -R -t 64k -b 256k -C -e"
    script = f"{sweep} -o {out}/device && {bench} -o {out}/ior -- {ior}"
    monkeypatch.chdir(tmp_path)
    done = in_guest("--pmem", "32MiB", "--share", str(out), "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    swept = [r for r in Run.load(out / "device").records if isinstance(r, Measurement) and r.name == DEVICE]
    measured = {r.params["method"] for r in swept if r.metric == "bandwidth" and r.status == "ok"}
    assert measured == {"mmap", "stream"}
    assert {r.reason for r in swept if r.status == "waived"} == {"a /dev/dax device can only be mapped"}
    assert {r.summary.median for r in swept if r.metric == "wrong" and r.summary} == {0}
    figures = [r for r in Run.load(out / "ior").records if isinstance(r, Measurement) and r.name == IOR]
    assert {r.params["io"] for r in figures} == {"accelerated"}
    assert {r.summary.median for r in figures if r.metric == "wrong" and r.summary} == {0}
