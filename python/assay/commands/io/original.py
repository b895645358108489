"""Shared by the parsers of the original benchmarks' command lines (IOR, RDBench, h5bench, mdtest): the result, the
argparse parser, options that are refused, and types for numbers and sizes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import UserError
from assay.records.schema import Scalar


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


class Checked(argparse.Action):
    """An option that is more than a value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if problem := self.take(namespace, values, option_string or ""):
            parser.error(problem)

    def take(self, namespace: argparse.Namespace, values: object, option: str) -> str:
        """Takes the option. Returns why it is refused; "" if it is not."""
        raise NotImplementedError


class _Refused(Checked):
    """An option of the original that Assay does not have; ``const`` is its meaning there."""

    def take(self, namespace: argparse.Namespace, values: object, option: str) -> str:
        return f"{option} is not supported: {self.const}"


def add_refused(parser: argparse.ArgumentParser, meanings: Mapping[str, str]) -> None:
    """Options that are refused by their names and meanings, with a value ("-x=FILE") and without."""
    for option, meaning in meanings.items():
        parser.add_argument(option, action=_Refused, nargs="?", const=meaning, dest=argparse.SUPPRESS)


# IOR and mdtest read all numbers by one function (src/option.c, string_to_bytes): a whole number, then one letter; what
# follows the letter is not looked at, and any other letter is none.
_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,18})\s*(\S?)")
_EXPONENTS = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
LARGEST = (1 << 63) - 1
LAUNCHERS = ("mpirun", "mpiexec", "srun", "orterun", "prterun", "aprun", "jsrun", "ibrun")


def integer(text: str) -> int:
    """A number as IOR reads it: "32k" is 32 * 1024, "10MB" 10 * 1024 * 1024, "1t" 2^40. "1.5g", which IOR takes for 1,
    and "10x", which it takes for 10, are refused: nobody means them."""
    match = _NUMBER.match(text)
    exponent = _EXPONENTS.get(match[2].lower(), 0) if match else 0
    if match is None or (match[2] and match[2] not in "bB" and not exponent):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no number of IOR; write a whole number and k, m, g, t or p, such as 10m for 10 MiB"
        )
    number = int(match[1]) << exponent
    if abs(number) > LARGEST:
        raise argparse.ArgumentTypeError(f"'{text}' is larger than IOR's numbers")
    return number


def non_negative_integer(text: str) -> int:
    number = integer(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a non-negative integer")
    return number


def size(text: str) -> int:
    """A size of at least 1 byte."""
    number = non_negative_integer(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"a size of '{text}' is not possible")
    return number


def without_program(arguments: Sequence[str], *names: str) -> list[str]:
    """The arguments without the program, if the first is one of ``names``, or its path. Raises UserError for a launcher
    or another program before it (numactl, env): all options of the originals begin with "-"."""
    if not arguments or arguments[0].startswith("-"):
        return list(arguments)
    if Path(arguments[0]).name not in names:
        is_launcher = Path(arguments[0]).name in LAUNCHERS or any(Path(x).name in names for x in arguments)
        problem = (
            "Assay starts the ranks itself" if is_launcher else f"neither {names[0]} nor an option of it"
        )
        raise UserError(f"'{arguments[0]}': {problem}", f"leave it out: -n RANKS -- {names[0]} ...")
    return list(arguments[1:])


def without_unset(parsed: dict[str, Any]) -> dict[str, Scalar]:
    """The options that the command line has. 0 is a value."""
    return {name: value for name, value in parsed.items() if value is not None and value is not False}
