"""Quantities, strictly, both ways: "180 Gbit/s" in, 2.25e10 B/s at rest, "22.5 GB/s" out.

Records are in SI base units; people write and read multiples. Here is the only place that knows them.
Strict means that the spelling decides: a bit is never a byte, kB is 1000 and KiB is 1024, and a unit
that is not in the table is refused with the nearest one that is. Guessing would pass a machine at an
eighth of the rate that was asked for.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import NamedTuple

from assay.errors import UserError


class Quantity(NamedTuple):
    """A value in its SI base unit: "B", "B/s", "s", "1/s" or "1"."""

    value: float
    unit: str


_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def _known_units() -> dict[str, Quantity]:
    """Every spelling that is accepted, with what one of it is in the base unit."""
    amounts = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
    for bit in ("bit", "b"):
        amounts |= {f"{prefix}{bit}": factor / 8 for prefix, factor in _DECIMAL.items()}
    amounts |= {f"{prefix}bit": factor / 8 for prefix, factor in _BINARY.items()}
    units = {name: Quantity(factor, "B") for name, factor in amounts.items()}
    units |= {f"{name}/s": Quantity(factor, "B/s") for name, factor in amounts.items()}
    units |= {f"{prefix or '1'}/s": Quantity(factor, "1/s") for prefix, factor in _DECIMAL.items()}
    seconds = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
    units |= {name: Quantity(factor, "s") for name, factor in seconds.items()}
    return units | {"": Quantity(1.0, "1"), "1": Quantity(1.0, "1"), "%": Quantity(0.01, "1")}


_UNITS = _known_units()
# What values are shown in, from the smallest up.
_STEPS = {
    "B": {f"{prefix}B": factor for prefix, factor in _DECIMAL.items()},
    "B/s": {f"{prefix}B/s": factor for prefix, factor in _DECIMAL.items()},
    "1/s": {f"{prefix or '1'}/s": factor for prefix, factor in _DECIMAL.items()},
    "s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)\s*(\S*)\s*")
_OPTION_SIZE = re.compile(r"\s*(\d+)\s*([kKMG]?)\s*")


def parse_quantity(text: str) -> Quantity:
    """A number and its unit, in base units; no unit means a count ("1").

    Raises UserError when it is no such thing, negative, or in a unit that is not known.
    """
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise UserError(f"'{text}' is not a quantity", "write a number and a unit, such as '180 Gbit/s'")
    number, spelling = match.groups()
    unit = _UNITS.get(spelling)
    if unit is None:
        raise UserError(f"unknown unit '{spelling}' in '{text}'", _suggestion(spelling))
    value = float(number)
    if math.isinf(value):
        raise UserError(f"'{text}' is not a quantity", "the number is too large")
    # Units below one have exact inverses: 3 ns / 1e9 rounds once, 3 * 1e-9 twice.
    return Quantity(value / round(1 / unit.value) if unit.value < 1 else value * unit.value, unit.unit)


def _suggestion(spelling: str) -> str:
    """The known unit that a reader would take ``spelling`` for: letter case and "ps" are usual slips."""
    wanted = re.sub(r"ps$", "/s", spelling)
    known = [name for name in _UNITS if name]
    same_letters = [name for name in known if name.lower() == wanted.lower()]
    if same_letters:  # "gb/s" is nearer to Gb/s than to GB/s
        nearest = min(same_letters, key=lambda name: sum(a != b for a, b in zip(name, wanted, strict=True)))
        return f"did you mean '{nearest}'?"
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else "known are s, ms, B, KiB, MB, GB/s, Gbit/s, 1/s, % ..."


def parse_in(text: str, unit: str) -> float:
    """The value of ``text`` in the base unit ``unit``: ``parse_in("60s", "s")`` is 60.0.

    Raises UserError also when the quantity is of another kind.
    """
    quantity = parse_quantity(text)
    if quantity.unit != unit:
        raise UserError(
            f"'{text}' is in {name_unit(quantity.unit)}", f"a value in {name_unit(unit)} is needed here"
        )
    return quantity.value


def name_unit(unit: str) -> str:
    """A base unit in words, for messages."""
    return "no unit (a count or a share)" if unit == "1" else unit


def parse_size(text: str) -> int:
    """A size in whole bytes, at least 1, as options take it: "65536", "64KiB", "64k" or "64 kB".

    A bare k, M or G is binary here, as in dd, fio and IOR; "kB" stays decimal.
    """
    match = _OPTION_SIZE.fullmatch(text)
    if match:
        number, prefix = match.groups()
        size: float = int(number) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[prefix.upper()]
    else:
        size = parse_in(text, "B")
    if size < 1 or size != int(size):
        raise UserError(f"a size of '{text}' is not possible", "give a whole number of bytes, at least 1")
    return int(size)


def format_quantity(value: float, unit: str) -> str:
    """Three significant digits and the decimal multiple that suits: (2.25e10, "B/s") is "22.5 GB/s".

    Counts stay whole; a unit that is not ours is shown as it is.
    """
    if not math.isfinite(value):
        return f"{value} {unit}".removesuffix(" 1")
    if unit == "1":
        return f"{value:.0f}" if value == int(value) else _three_digits(value)
    if unit not in _STEPS:
        return f"{_three_digits(value)} {unit}"
    if value == 0:
        return f"0 {unit}"
    rounded = float(f"{value:.2e}")  # first, so that 999.9 MB is "1 GB", never "1000 MB"
    steps = _STEPS[unit]
    fitting = [label for label, factor in steps.items() if abs(rounded) >= factor * (1 - 1e-9)]
    label = fitting[-1] if fitting else next(iter(steps))
    return f"{_three_digits(rounded / steps[label])} {label}"


def _three_digits(value: float) -> str:
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e" in text and 1 <= abs(value) < 1e6 else text


def unit_of(text: str) -> str:
    """How the unit of a quantity is spelled: "Gbit/s" of "180 Gbit/s"; "" for a count."""
    match = _QUANTITY.fullmatch(text)
    return match[2] if match else ""


def format_as(value: float, spelling: str) -> str:
    """A value in a unit of the reader's choice: (2.354e10, "Gbit/s") is "188.32 Gbit/s".

    Two decimals at least, so that 99.74 % is not 99.75 %; whole numbers stay whole.
    """
    number = float(f"{value / _UNITS[spelling].value:.10g}")
    digits = ".0f" if number == int(number) else ".2f" if abs(number) >= 1 else ".3g"
    return f"{number:{digits}} {spelling}".rstrip()


def format_size(size: int) -> str:
    """A message size, exactly: 1048576 is "1 MiB", 1000 is "1000 B"."""
    for prefix, factor in reversed(_BINARY.items()):
        if size and size % int(factor) == 0:
            return f"{size // int(factor)} {prefix}B"
    return f"{size} B"


def format_share(share: float) -> str:
    """A share of one as a percentage: 0.12 is "12 %"."""
    return f"{_three_digits(100 * share)} %"
