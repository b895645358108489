"""Engines that do not start on this host: each has its true reason in one line, and exit code 2."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay.errors import SOURCE, UserError
from assay.launch import obstacles
from assay.launch.engines import describe, describe_storage, probe

ROOT = Path(__file__).resolve().parents[3]
ELF_OF_X86_64 = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + b"\x02\x00\x3e\x00"
OLD_GLIBC = """#!/bin/sh
echo "$0: /lib/x86_64-linux-gnu/libc.so.6: version \\`GLIBC_2.28' not found (required by $0)" >&2
echo "$0: /lib/x86_64-linux-gnu/libm.so.6: version \\`GLIBC_2.27' not found (required by $0)" >&2
exit 1
"""


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a file in the place of the engine, and says what this system is."""

    def plant_engine(content: bytes | str, mode: int = 0o755, machine: str = "x86_64") -> None:
        engine = tmp_path / "assay-probe"
        engine.write_bytes(content if isinstance(content, bytes) else content.encode())
        engine.chmod(mode)
        monkeypatch.setenv("ASSAY_ENGINES", str(tmp_path))
        monkeypatch.setattr(obstacles.platform, "machine", lambda: machine)
        monkeypatch.setattr(obstacles.platform, "libc_ver", lambda: ("glibc", "2.17"))

    return plant_engine


def refusal() -> UserError:
    with pytest.raises(UserError) as refused:
        describe(probe())
    return refused.value


def test_an_engine_of_another_processor_is_named_as_such(plant: Callable[..., None]) -> None:
    plant(ELF_OF_X86_64, machine="aarch64")
    error = refusal()
    assert "is for the processor x86_64; this one is aarch64" in error.what and error.fix == SOURCE


def test_a_truncated_engine_is_damaged_whatever_the_processor(plant: Callable[..., None]) -> None:
    plant(ELF_OF_X86_64)
    assert refusal().what.endswith("assay-probe is damaged")


def test_an_older_glibc_is_named_with_the_one_that_is_needed(plant: Callable[..., None]) -> None:
    plant(OLD_GLIBC)
    assert refusal().what.endswith("needs glibc 2.28; this system has 2.17")


def test_a_system_without_glibc_is_not_a_missing_file(plant: Callable[..., None]) -> None:
    plant("#!/nonexistent/loader\n")  # as a musl system, which lacks the loader of the engine
    assert refusal().what.endswith("needs glibc, which this system does not have")


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may execute all")
def test_an_engine_that_lost_its_mode_says_how_to_give_it_back(plant: Callable[..., None]) -> None:
    plant("#!/bin/sh\n", mode=0o644)
    assert "may not be executed" in refusal().what and refusal().fix.startswith("chmod +x ")


def start(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    env.pop("ASSAY_ENGINES", None)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, env=env)


def test_an_old_python_is_refused_before_it_meets_newer_syntax() -> None:
    code = "import sys; sys.version_info = (3, 9, 2); from assay.__main__ import main; sys.exit(main())"
    result = start(code, ROOT / "python")
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert result.stderr.startswith("assay: Python 3.11 or newer is needed, and this is 3.9.2; fix: ")


@pytest.mark.parametrize(
    ("missing", "arguments", "reason"),
    [
        ("bin", ["list"], "bin/assay-probe is missing: the package is incomplete; fix: pip install"),
        ("records", ["list"], "cannot start: ModuleNotFoundError"),
    ],
)
def test_a_half_copied_package_says_so_in_one_line(
    missing: str, arguments: list[str], reason: str, tmp_path: Path
) -> None:
    shutil.copytree(
        ROOT / "python" / "assay", tmp_path / "assay", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.rmtree(tmp_path / "assay" / missing, ignore_errors=True)
    code = (
        f"import sys; sys.argv = ['assay', *{arguments}]; from assay.__main__ import main; sys.exit(main())"
    )
    result = start(code, tmp_path)
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and reason in result.stderr
    assert "pip install --force-reinstall ./assay-*.whl" in result.stderr


def test_one_mpi_that_does_not_start_hides_no_benchmark_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = tmp_path / "assay-io-bench-a", tmp_path / "assay-io-bench-b"
    broken.write_text("#!/bin/sh\nexit 127\n")
    described = describe(next(probe().parent.glob("assay-io-bench-*")))
    (tmp_path / "described").write_bytes(msgspec.json.encode(described))
    whole.write_text(f"#!/bin/sh\ncat '{tmp_path}/described'\n")
    for executable in (broken, whole):
        executable.chmod(0o755)
    monkeypatch.setenv("ASSAY_ENGINES", str(tmp_path))

    assert describe_storage() == described.measurements
    whole.unlink()
    assert describe_storage() == []


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="optional: root alone becomes another"
)
def test_a_limit_of_threads_is_said_and_nothing_waits_for_those_that_lack() -> None:
    engine = probe()
    other = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups", "prlimit", "--nproc=6"]
    if subprocess.run([*other, engine, "--identity"], capture_output=True, timeout=60).returncode:
        pytest.skip("optional: another user cannot run the engine in this checkout")
    done = subprocess.run(
        [*other, "env", "ASSAY_NULL_RANKS=16", engine, "run", "events.build"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("assay-probe: cannot start a thread; fix: raise the limit")
