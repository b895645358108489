"""``assay judge``: the exit code gives the outcome, and the recorded run is not changed."""

from pathlib import Path

import msgspec
import pytest

from assay.cli import main
from assay.records.run import Run
from assay.records.schema import Measurement, Summary

SPECIFICATION = '[[criterion]]\nmetric = "network.all_to_all/bandwidth"\nmin = "{limit}"\n'


@pytest.fixture
def run(tmp_path: Path) -> Run:
    result = Run.create("net", ["assay", "net"], path=tmp_path / "run")
    summary = Summary(n=5, median=2e9)
    result.append(Measurement(name="network.all_to_all", metric="bandwidth", unit="B/s", summary=summary))
    result.finish("complete")
    return result


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site.toml"


@pytest.mark.parametrize(("limit", "outcome", "status"), [("8 Gbit/s", "PASS", 0), ("8 GB/s", "FAIL", 1)])
def test_the_outcome_is_the_exit_code(
    run: Run, site: Path, capsys: pytest.CaptureFixture[str], limit: str, outcome: str, status: int
) -> None:
    site.write_text(SPECIFICATION.format(limit=limit))
    before = (run.path / "records.jsonl").read_bytes()
    assert main(["judge", str(run.path), str(site)]) == status
    output = capsys.readouterr().out
    observed = "16 Gbit/s" if "bit" in limit else "2 GB/s"
    assert outcome in output and observed in output
    assert (run.path / "records.jsonl").read_bytes() == before


def test_a_missing_measurement_is_inconclusive(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", str(run.path), "self"]) == 2
    output = " ".join(capsys.readouterr().out.split())
    assert "INCONCLUSIVE" in output and "nothing measured node.noise/lost" in output


def test_a_partial_run_does_not_pass(run: Run, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.write_text(SPECIFICATION.format(limit="1 GB/s"))
    run.finish("partial", "interrupted")
    assert main(["judge", str(run.path), str(site)]) == 2
    assert "the run is partial: interrupted" in capsys.readouterr().out


def test_json_output_is_one_record_per_line(run: Run, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.write_text(SPECIFICATION.format(limit="1 GB/s"))
    assert main(["judge", str(run.path), str(site), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    verdict = msgspec.json.decode(line)
    assert (verdict["kind"], verdict["outcome"], verdict["margin"]) == ("verdict", "PASS", 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "self"], "not a run directory"),
        (["{run}", "selv"], "no specification named 'selv'"),
        (["{run}", "{site}"], "site.toml:3: unknown unit 'GBps'"),
    ],
)
def test_a_usage_error_is_one_line(
    run: Run, site: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    site.write_text(SPECIFICATION.format(limit="1 GBps"))
    assert main(["judge", *(argument.format(run=run.path, site=site) for argument in arguments)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
