"""Shared by the parsers of the original benchmarks' command lines (IOR, RDBench, h5bench, mdtest): the result, the
argparse parser, and types for numbers and sizes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import UserError
from assay.records.schema import Scalar
from assay.records.units import parse_size


@dataclass(frozen=True)
class OriginalOptions:
    """The command line of an original benchmark as parameters of Assay's engine."""

    params: dict[str, Scalar]
    results: Path | None = None  # file to write the results to, in the benchmark's own format
    pretty: bool = False  # write that file indented


class OriginalParser(argparse.ArgumentParser):
    """An argparse parser that raises UserError instead of ending the process."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UserError(f"{self.prog}: {message}", f"see 'assay io bench {self.prog} --help'")


def binary_size(text: str) -> int:
    """IOR's sizes: 32k, 192m, 1g are binary."""
    return parse_size(text.upper() if text[-1:] in "mg" and text[:-1].isdigit() else text)


def size(text: str) -> int:
    try:
        return binary_size(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def non_negative_integer(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a non-negative integer")
    return int(text)


def integer(text: str) -> int:
    sign = text.startswith("-")
    return -non_negative_integer(text[1:]) if sign else non_negative_integer(text)


def without_program(arguments: Sequence[str], *names: str) -> list[str]:
    """The arguments without the program's name, if they begin with one of ``names``."""
    return list(arguments[1:] if arguments[:1] and arguments[0] in names else arguments)


def without_unset(parsed: dict[str, Any]) -> dict[str, Scalar]:
    """The options that the command line has. 0 is a value."""
    return {name: value for name, value in parsed.items() if value is not None and value is not False}
