"""Writes ``report.html``: one file with a whole run and the page that shows it.

The page is built once from ``web/`` as a template with a marker. A report is that template with the run in place of
the marker, so writing a report needs no Node. The data are JSON lines (``run.json``, then the records), compressed, in
base64. The browser reads them line by line from a DecompressionStream, so that it never holds a matrix of 4096 hosts
as one string of 300 MB. The file loads nothing from the network: it can be mailed, archived and opened from disk.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from assay.errors import REPAIR, UserError
from assay.judge import overall, result
from assay.profile.profiles import Profiles
from assay.profile.sources import load_sources
from assay.records.files import replace_file
from assay.records.matrices import rows_of
from assay.records.run import Run
from assay.records.schema import AnyRecord, Matrix, Pairs, RunInfo, Subject, Verdict, encode
from assay.report.heap_page import heap_pages
from assay.report.numa_page import numa_pages

REPORT_NAME = "report.html"
MARKER = b"@ASSAY_DATA@"
PAIR_DIGITS = 5  # significant digits kept of a pair's value; the page shows 3
# Pair values in one report, beyond the first matrix: a browser opens that of 4096 hosts in 10 s.
PAIR_VALUES = 4_000_000
GZIP_LEVEL = 6  # 9 takes three times as long for 2 % less

_PACKAGED = Path(__file__).with_name(REPORT_NAME)
_CHECKOUT = Path(__file__).resolve().parents[3] / "web" / "dist" / REPORT_NAME


class MatrixKey(NamedTuple):
    """Identifies a pair matrix of a run."""

    name: str
    metric: str
    op: str
    size: int  # B


def build_report(run_dir: Path, output: Path | None = None, profiles: Profiles | None = None) -> Path:
    """Writes the report of the run in ``run_dir`` atomically to ``output`` (default: ``report.html`` in ``run_dir``).
    ``profiles``: those of the run, where they are loaded already.

    Returns its path. Raises UserError if the page is not built or the file cannot be written.
    """
    page = _template()
    run = Run.load(run_dir)
    target = output or run_dir / REPORT_NAME
    before, after = page.split(MARKER)
    data = base64.b64encode(_compressed(_lines(run, profiles or Profiles(run_dir))))
    _write_report(target, before + data + after, 0o600 if load_sources(run.path).files else 0o666)
    return target


def _compressed(lines: Iterator[bytes]) -> bytes:
    """The lines as one gzip stream, never all of them in memory."""
    packer = zlib.compressobj(GZIP_LEVEL, wbits=16 + zlib.MAX_WBITS)
    return b"".join([*map(packer.compress, lines), packer.flush()])


def _template() -> bytes:
    for path in (_PACKAGED, _CHECKOUT):
        if path.is_file():
            page = path.read_bytes()
            if page.count(MARKER) != 1:
                raise UserError(f"{path}: not a report template", REPAIR)
            return page
    raise UserError(f"the report's page is not built: no {_CHECKOUT}", REPAIR)


def _lines(run: Run, profiles: Profiles) -> Iterator[bytes]:
    yield encode(_concluded(run)) + b"\n"
    kept = _kept_matrices(run.records)
    for record in run.records:
        rows: Iterable[AnyRecord] = rows_of(record) if isinstance(record, Matrix) else (record,)
        if isinstance(record, Matrix) and _matrix_key(record) not in kept:
            rows = [_row_without_values(record, host) for host in record.hosts]
        for row in rows:
            yield encode(_reduce_row(row, kept) if isinstance(row, Pairs) else row) + b"\n"
    sources = load_sources(run.path)
    for page in heap_pages(profiles, sources):
        yield msgspec.json.encode(page) + b"\n"
    for placement in numa_pages(profiles, sources):
        yield msgspec.json.encode(placement) + b"\n"


def _concluded(run: Run) -> RunInfo:
    """``run.json`` with outcome and result, which a run lacks that ended early or is older: the page shows, and decides
    nothing."""
    verdicts = [record for record in run.records if isinstance(record, Verdict)]
    outcome = run.info.outcome or (overall(verdicts) if verdicts else None)
    return msgspec.structs.replace(run.info, outcome=outcome, result=run.info.result or result(run.records))


def _row_without_values(matrix: Matrix, host: str) -> Pairs:
    return Pairs(
        id=matrix.id, name=matrix.name, metric=matrix.metric, unit=matrix.unit, better=matrix.better,
        subject=Subject(host=host), params=matrix.params,
    )  # fmt: skip


def _reduce_row(row: Pairs, kept: set[MatrixKey]) -> Pairs:
    """Shrinks a row of a pair matrix, since these are most of a large report. Values have fewer digits. A row of a
    matrix that is not kept has no values; findings can still cite it, and the page says that they are missing."""
    if _matrix_key(row) not in kept:
        return msgspec.structs.replace(row, peers=[], values=[])
    return msgspec.structs.replace(row, values=[float(f"{v:.{PAIR_DIGITS}g}") for v in row.values])


def _kept_matrices(records: list[AnyRecord]) -> set[MatrixKey]:
    """Returns the matrices that fit into ``PAIR_VALUES``, largest messages first; at least one."""
    extent: Counter[MatrixKey] = Counter()
    for record in records:
        if isinstance(record, Pairs | Matrix):
            extent[_matrix_key(record)] += len(record.values) if isinstance(record, Pairs) else record.cells
    kept: set[MatrixKey] = set()
    total = 0
    for key in sorted(extent, key=lambda key: key.size, reverse=True):
        if not kept or total + extent[key] <= PAIR_VALUES:
            kept.add(key)
            total += extent[key]
    return kept


def _matrix_key(row: Pairs | Matrix) -> MatrixKey:
    return MatrixKey(row.name, row.metric, str(row.params.get("op", "")), int(row.params.get("size", 0)))


def _write_report(target: Path, content: bytes, mode: int) -> None:
    """Writes the file completely or not at all. ``mode``: the permissions of a new file, less the umask. A report with
    source files is readable by its owner only."""
    try:
        replace_file(target, content, mode)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}", "name a writable file with -o") from None
