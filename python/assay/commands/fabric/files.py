"""Writes the output files of ``assay fabric`` commands: never over an existing file, and all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from assay.errors import UserError


def refuse_existing(paths: list[Path]) -> None:
    """Raises UserError if one of the files exists. Called before a long computation."""
    for path in paths:
        if path.exists():
            raise UserError(f"{path} exists already", "name another one, or remove it")


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Writes each text, or bytes, to its path. Raises UserError if a file exists or cannot be written, and removes the
    files that it has written."""
    refuse_existing(list(contents))
    written: list[Path] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                written.append(path)
                file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UserError(f"cannot write {error.filename or 'the files'}: {error.strerror}") from None
