"""Persistent memory in a guest: ``assay io device`` measures a device-DAX device, which then holds the accelerator's
store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from storage_benches import is_available

from assay.launch.engines import engines_folder
from assay.records.run import Run
from assay.records.schema import Measurement
from assay.records.storage import DEVICE, IOR

lacks_accelerator = not is_available("openmpi") or not (engines_folder() / "libassay-io-openmpi.so").is_file()

pytestmark = [
    pytest.mark.acceptance("storage"),
    pytest.mark.timeout(2700),  # an emulated machine
    pytest.mark.skipif(lacks_accelerator, reason="no openmpi with an accelerator here"),
]


def test_device_dax_is_measured_and_holds_the_store(
    in_guest: Callable[..., CompletedProcess[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    sweep = (
        "io device /dev/dax0.0 --overwrite --bytes 8MiB --threads 1 --sizes 4k,64k --budget 0.02s --repeats 1"
    )
    bench = "io bench ior --mpi openmpi -n 2 --repeats 1 --accelerated --timeout 200s --folder /mnt/pmem"
    bench += " --store /dev/dax0.0"
    ior = "-w -r -R -t 64k -b 256k -C -e"
    commands = [f"{sweep} -o {out}/device".split(), f"{bench} -o {out}/ior -- {ior}".split()]
    # In one process: an emulated processor takes long to start Python.
    script = f"import sys; from assay.cli import main; sys.exit(max(map(main, {commands})))"
    monkeypatch.chdir(tmp_path)
    done = in_guest("--pmem", "32MiB", "--share", str(out), "--", sys.executable, "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    device_records = [
        r for r in Run.load(out / "device").records if isinstance(r, Measurement) and r.name == DEVICE
    ]
    measured = {r.params["method"] for r in device_records if r.metric == "bandwidth" and r.status == "ok"}
    assert measured == {"mmap", "stream"}
    assert {r.reason for r in device_records if r.status == "waived"} == {
        "a /dev/dax device can only be mapped"
    }
    assert {r.summary.median for r in device_records if r.metric == "wrong" and r.summary} == {0}
    figures = [r for r in Run.load(out / "ior").records if isinstance(r, Measurement) and r.name == IOR]
    assert {r.params["io"] for r in figures} == {"accelerated"}
    assert {r.summary.median for r in figures if r.metric == "wrong" and r.summary} == {0}
