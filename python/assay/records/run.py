"""A run: a directory with the command and all measurements.

    run.json        command, hosts, start, end and outcome (RunInfo)
    records.jsonl   one record per line, append-only, flushed line by line
    pairs-N.*       the cells of a pair matrix of many hosts (record N, ``Matrix``)

Of the slices of time of a long run, a bounded number is kept in memory (``series.py``).

A killed run keeps every complete line; an incomplete last line is dropped on reading. Its ``run.json`` still says
"running", which is read as "partial".
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from assay import __version__
from assay.errors import UserError
from assay.records.files import naming, open_appended, open_regular, read_regular, replace_file
from assay.records.foreign import named
from assay.records.schema import (
    SCHEMA_VERSION,
    AnyRecord,
    Capacity,
    Comparison,
    Context,
    Failure,
    Finding,
    Matrix,
    Measurement,
    Pairs,
    RunInfo,
    Verdict,
    decode_record,
    decode_run_info,
    encode,
)
from assay.records.series import KeptRecords
from assay.records.storage import SPEEDUP

if TYPE_CHECKING:
    from assay.records.matrices import RowCollector

CONCLUSIONS = Verdict | Finding | Capacity | Comparison  # derived from measurements

MATRIX_FILE_HOSTS = 128  # hosts; runs of fewer keep rows in records.jsonl, which people and scripts can read
COPY_AGAIN = "copy the run again from where it was made, as a whole"
RUNS = Path("runs")  # the default folder of runs, below the current directory


def as_text(argument: str) -> str:
    """Returns a command line's argument as text; bytes that are not UTF-8 are escaped."""
    return os.fsencode(argument).decode(errors="backslashreplace")


class Run:
    """A run directory: ``create`` makes one, ``load`` reads one."""

    def __init__(self, path: Path, info: RunInfo, records: Iterable[AnyRecord]) -> None:
        self.path = path
        self.info = info
        self._kept = KeptRecords()
        self._last_id = 0
        for record in records:
            self._keep(record)
        self._file: IO[bytes] | None = None
        self._rows: RowCollector | None = None
        self._contexts = {_fingerprint(r) for r in self.records if isinstance(r, Context)}
        matrices = [r for r in self.records if isinstance(r, Matrix)]
        if matrices:
            from assay.records.matrices import set_folder  # imports numpy, which most commands do without

            for matrix in matrices:
                set_folder(matrix, path)

    @property
    def records(self) -> list[AnyRecord]:
        return self._kept.records

    def _keep(self, record: AnyRecord) -> None:
        self._kept.append(record)
        self._last_id = record.id

    @classmethod
    def create(cls, verb: str, command: list[str], parent: Path = RUNS, path: Path | None = None) -> Run:
        """Creates ``path``, which must not hold a run yet, or PARENT/DATE-TIME-VERB-XXXX. Raises UserError."""
        now = datetime.now(UTC)
        identity = f"{now:%Y%m%d-%H%M%S}-{verb}-{secrets.token_hex(2)}"
        folder = path or parent / identity
        if (folder / "run.json").exists():
            raise UserError(f"{folder} already holds a run", "name another directory, or remove it")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if not folder.is_absolute() and not _has_current_directory():
                raise UserError(
                    f"cannot make the run directory {folder}: the current directory has been removed",
                    "change to another one, or name an absolute path with -o",
                ) from error
            raise UserError(
                f"cannot make the run directory {folder}: {error.strerror}",
                "name a directory with -o whose parent you can write to",
            ) from error
        info = RunInfo(
            id=identity,
            command=[as_text(argument) for argument in command],
            assay=__version__,
            started=now.isoformat(timespec="seconds"),
        )
        run = cls(folder, info, [])
        run.save()
        return run

    @classmethod
    def load(cls, path: Path | str) -> Run:
        """Reads a run directory. A run that was not finished is "partial". Raises UserError."""
        folder = Path(path)
        try:
            info: RunInfo = decode_run_info(read_regular(folder / "run.json"))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{named(folder)} is not a run directory: no run.json in it", "see 'ls runs/'"
            ) from None
        except (OSError, msgspec.MsgspecError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"cannot read {folder / 'run.json'}: {reason}") from error
        if info.schema != SCHEMA_VERSION:
            raise UserError(
                f"{folder} was written with record schema {info.schema}, this Assay reads {SCHEMA_VERSION}",
                f"use the version that wrote it ({info.assay})",
            )
        if info.state == "running":
            info.state, info.reason = "partial", info.reason or "the run was killed"
        file = folder / "records.jsonl"
        run = cls(folder, info, read_records(file))
        if info.state == "complete" and run._last_id < info.last_record:
            raise UserError(f"{file}: records are missing, and the run is complete", COPY_AGAIN)
        return run

    def check_owner(self) -> None:
        """Raises UserError if another user could have written the command of this run."""
        for path in (self.path, self.path / "run.json"):
            status = path.stat()
            if status.st_uid != os.geteuid() or status.st_mode & stat.S_IWOTH:
                raise UserError(
                    f"{path} belongs to another user or can be written by all: its command may be anybody's",
                    "read it there, and type it yourself",
                )

    @classmethod
    def reopen(cls, path: Path | str) -> Run:
        """Reopens a run that ended early, without its conclusions and without node figures of incomplete measurements.

        Raises UserError if the run is complete.
        """
        run = cls.load(path)
        if run.info.state == "complete":
            raise UserError(f"{run.path} is complete: there is nothing to resume", "start a new run")
        run._rewrite(lambda record: not _is_provisional(record, run.info.completed))
        run.info.state, run.info.reason, run.info.ended, run.info.outcome = "running", "", None, None
        run.save()
        return run

    def withdraw(self, chosen: Callable[[AnyRecord], bool]) -> None:
        """Removes the chosen conclusions, so that they can be derived again. Measurements stay."""
        self._rewrite(lambda record: not (isinstance(record, CONCLUSIONS) and chosen(record)))

    def _rewrite(self, stays: Callable[[AnyRecord], bool]) -> None:
        """Removes the other records from the file and from memory."""
        if self._file is not None:  # else it would write to the replaced file
            self._file.close()
            self._file = None
        ended = bool(self.info.last_record)
        if ended:
            self.info.last_record = 0  # unknown while the file is replaced
            self.save()
        file = self.path / "records.jsonl"
        replace_file(file, (encode(record) + b"\n" for record in read_records(file) if stays(record)))
        known = {record.id: record for record in self.records}
        self._kept, self._last_id = KeptRecords(), 0
        for record in read_records(file):
            self._keep(known.get(record.id, record))
        if ended:
            self.info.last_record = self._last_id
            self.save()

    def append(self, record: AnyRecord) -> AnyRecord:
        """Assigns the record's id, writes it and flushes. An equal ``Context`` is kept once.

        Rows of a pair matrix of many hosts are collected, and written as one ``Matrix`` when another record comes."""
        if isinstance(record, Context):
            fingerprint = _fingerprint(record)
            if fingerprint in self._contexts:
                return record
            self._contexts.add(fingerprint)
        if isinstance(record, Pairs) and max(len(self.info.hosts), len(record.peers)) >= MATRIX_FILE_HOSTS:
            self._collect(record)
            return record
        self._flush_rows()
        return self._write(record)

    def _collect(self, row: Pairs) -> None:
        if self._rows is None:
            from assay.records.matrices import RowCollector  # imports numpy, which most commands do without

            self._rows = RowCollector(self.path)
        if not self._rows.accepts(row):
            self._flush_rows()
        self._rows.add(row)

    def _flush_rows(self) -> None:
        if self._rows is not None and not self._rows.is_empty:
            self._write(self._rows.write(self._next_id()))

    def _next_id(self) -> int:
        return self._last_id + 1

    def _write(self, record: AnyRecord) -> AnyRecord:
        record.id = self._next_id()
        if self._file is None:
            self._file = open_appended(self.path / "records.jsonl")  # open as long as the run
        with naming(self.path / "records.jsonl"):
            self._file.write(encode(record) + b"\n")
            self._file.flush()
        self._keep(record)
        return record

    def save(self) -> None:
        """Replaces run.json atomically."""
        replace_file(self.path / "run.json", msgspec.json.format(encode(self.info), indent=1) + b"\n")

    def discard(self) -> None:
        """Removes a run that has not begun: run.json, and its folders if they are empty."""
        (self.path / "run.json").unlink(missing_ok=True)
        for folder in (*(path for path in self.path.iterdir() if path.is_dir()), self.path):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def finish(self, state: str, reason: str = "") -> None:
        """Ends the run as "complete", "partial" or "failed", with a reason."""
        assert state in ("complete", "partial", "failed")
        self._flush_rows()
        self.info.state = state  # type: ignore[assignment]
        self.info.reason = reason
        self.info.last_record = self._last_id
        self.info.ended = datetime.now(UTC).isoformat(timespec="seconds")
        self.save()
        if self._file is not None:
            self._file.close()
            self._file = None


def _fingerprint(record: Context) -> bytes:
    return encode((record.subject, sorted(record.facts.items())))


def _is_provisional(record: AnyRecord, completed: list[str]) -> bool:
    if isinstance(record, CONCLUSIONS | Failure):
        return True
    if not isinstance(record, Measurement):
        return False
    if record.name == SPEEDUP:  # computed from others at the end
        return True
    if not record.name.startswith("node."):
        return False
    return record.name not in completed


def _has_current_directory() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def read_records(path: Path) -> Iterator[AnyRecord]:
    """Yields every record of the file; an incomplete last line is dropped. Raises UserError."""
    with contextlib.suppress(FileNotFoundError), open_regular(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_record(line)
            except msgspec.MsgspecError as error:
                kind = named(path)
                if kind != str(path):
                    raise UserError(f"{kind} is no file of records", COPY_AGAIN) from error
                raise UserError(
                    f"{path}:{number}: not a record: {error}", "was it edited by hand?"
                ) from error


def newest_run(parent: Path = RUNS) -> Path:
    """Returns the newest run directory below ``parent``. Raises UserError if there is none."""
    runs = sorted(parent.glob("*/run.json"), key=lambda p: p.stat().st_mtime)
    if not runs:
        raise UserError(f"no runs in {parent}/", "start one with 'assay check'")
    return runs[-1].parent
