"""TOML files with the line of every key, so that an error can name it.

``tomllib`` drops line numbers. The k-th ``[[name]]`` header of the text is the k-th table of that list, so a key's
line is searched between two headers.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

import assay
from assay.errors import UserError
from assay.records.foreign import Wanted, read_text


def find_built_in(folder: str, name: str, kind: str) -> Path:
    """Finds a file by path, or by the name of a built-in one in ``folder`` of the checkout or of the installed
    package. Raises UserError with the built-in names."""
    path = Path(name)
    if path.suffix == ".toml" or "/" in name:
        if path.is_file():
            return path
        raise UserError(f"no {kind} at '{name}'", "give a TOML file or a built-in name")
    built_in = _built_in(folder)
    if name not in built_in:
        choice = f"choose one of {', '.join(sorted(built_in))}, or " if built_in else ""
        raise UserError(f"no {kind} named '{name}'", f"{choice}give the path of a TOML file")
    return built_in[name]


def built_in_names(folder: str) -> list[str]:
    """The names that ``find_built_in`` knows in a folder."""
    return sorted(_built_in(folder))


def _built_in(folder: str) -> dict[str, Path]:
    package = Path(assay.__file__).parent
    folders = [package / folder, package.parents[1] / folder]
    return {path.stem: path for folder_path in folders for path in sorted(folder_path.glob("*.toml"))}


class TomlFile:
    """A parsed file; ``table`` is the index of the ``[[array]]`` table that is being read, or -1."""

    def __init__(self, path: str | Path, array: str, kind: str) -> None:
        self.path = Path(path)
        self.array = array
        text = read_text(self.path, Wanted(f"a {kind}", f"a {kind} is a TOML file"))
        try:
            self.document: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            where = f"{path}:{line[1]}" if line else f"{path}:{text.count(chr(10)) + 1}"
            raise UserError(f"{where}: not valid TOML: {error}", "correct the file") from None
        except RecursionError:
            raise UserError(
                f"{path}: too many tables or lists inside each other", "correct the file"
            ) from None
        self.lines = text.splitlines()
        header = re.compile(rf"\s*\[\[\s*[\"']?{re.escape(array)}[\"']?\s*\]\]")
        self.headers = [n for n, line in enumerate(self.lines, 1) if header.match(line)]
        self.table = -1

    def line_of(self, key: str = "") -> int:
        """Returns the line of ``key`` in the current table, else of its header, counted from 1."""
        first, last = 1, len(self.lines)
        if self.table >= 0 and self.headers:
            index = min(self.table, len(self.headers) - 1)
            first = self.headers[index]
            last = self.headers[index + 1] - 1 if index + 1 < len(self.headers) else last
        name = rf"[\"']?{re.escape(key)}[\"']?"
        assignment = re.compile(rf"\s*(?:{name}\s*[=.]|\[+\s*(?:\w+\s*\.\s*)?{name}\s*[.\]])")
        if key:
            for number in range(first, last + 1):
                if assignment.match(self.lines[number - 1]):
                    return number
        return first

    def refuse(self, key: str, problem: str, fix: str) -> NoReturn:
        raise UserError(f"{self.path}:{self.line_of(key)}: {problem}", fix)

    def refuse_unknown_keys(
        self, table: dict[str, Any], allowed: tuple[str, ...], context: str, reported_key: str = ""
    ) -> None:
        """Raises UserError for a key that is not known."""
        for key in table:
            if key not in allowed:
                self.refuse(
                    reported_key or key,
                    f"unknown key '{key}' in {context}",
                    f"choose one of {', '.join(allowed)}",
                )
