"""Parses and formats quantities: "180 Gbit/s" is read as 2.25e10 B/s and shown as "22.5 GB/s".

Records hold SI base units ("B", "B/s", "s", "1/s", "1"); only this module and its twin in the report,
``web/src/data/format.ts``, convert them. Both pass the cases in ``tests/fixtures/quantities.json``.

Parsing is strict: a bit is never a byte, kB is 1000 and KiB is 1024, and an unknown unit is refused with the
nearest known one. A guess could pass a machine at an eighth of the required rate.

Formatting follows one rule:

    B     binary (KiB, MiB, ...): memory, messages, files. 1000 to 1023 of a unit are shown whole.
    B/s   decimal (MB/s, GB/s): memory, storage and network alike, so that they compare.
    1/s   decimal (k/s, M/s).
    s     ns, µs, ms, s.
    1     a count if whole; below one a share in percent; else a plain number.

Three significant digits, no trailing zeros, no exponent. Bits per second appear where a reader compares with
another tool's output (``format_bit_rate``), and in verdicts in the unit of the specification (``format_as``).
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


_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}


def _known_units() -> dict[str, Quantity]:
    """Maps each accepted spelling to the size of that unit in its base unit."""
    amounts = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
    for bit in ("bit", "b"):
        amounts |= {f"{prefix}{bit}": factor / 8 for prefix, factor in _DECIMAL.items()}
    amounts |= {f"{prefix}bit": factor / 8 for prefix, factor in _BINARY.items()}
    units = {name: Quantity(factor, "B") for name, factor in amounts.items()}
    units |= {f"{name}/s": Quantity(factor, "B/s") for name, factor in amounts.items()}
    units |= {f"{prefix or '1'}/s": Quantity(factor, "1/s") for prefix, factor in _DECIMAL.items()}
    seconds = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
    units |= {name: Quantity(factor, "s") for name, factor in seconds.items()}
    return units | {"": Quantity(1.0, "1"), "1": Quantity(1.0, "1"), "%": Quantity(0.01, "1")}


_UNITS = _known_units()
# The units that values are shown in, in ascending order.
_DISPLAY_UNITS = {
    "B": {f"{prefix}B": factor for prefix, factor in ({"": 1.0} | _BINARY).items()},
    "B/s": {f"{prefix}B/s": factor for prefix, factor in _DECIMAL.items()},
    "1/s": {f"{prefix or '1'}/s": factor for prefix, factor in _DECIMAL.items()},
    "s": {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0},
}
SMALLEST_AS = 0.01  # of the reader's unit, down to which a value is shown in it
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)\s*(\S*)\s*")
MAX_SIZE, MAX_DIGITS = 2**63, 20  # of a size in B: what a signed integer of the engines holds
_OPTION_SIZE = re.compile(r"\s*(\d+)\s*([kKmMgG]?)\s*")


def parse_quantity(text: str, needed: str = "") -> Quantity:
    """Parses a number and a unit into base units; without a unit it is a count ("1"). ``needed``: the base unit that an
    error suggests, where only that is possible.

    Raises UserError if ``text`` is not a quantity, is negative, or has an unknown unit.
    """
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise UserError(f"'{text}' is not a quantity", "write a number and a unit, such as '180 Gbit/s'")
    number, spelling = match.groups()
    unit = _UNITS.get(spelling)
    if unit is None:
        raise UserError(f"unknown unit '{spelling}' in '{text}'", _suggestion(spelling, needed))
    # Units below 1 have exact inverses: 3 ns / 1e9 rounds once, 3 * 1e-9 twice.
    value = float(number) / round(1 / unit.value) if unit.value < 1 else float(number) * unit.value
    if math.isinf(value):
        raise UserError(f"'{text[:40]}' is not a quantity", "the number is too large")
    return Quantity(value, unit.unit)


# The units that an error names where none is similar, by base unit.
_USUAL = {
    "": "s, ms, B, KiB, MB, GB/s, Gbit/s, 1/s, % ...",
    "s": "ns, us, ms, s, min, h",
    "B": "B, kB, KiB, MB, MiB, GB, GiB ...",
    "B/s": "MB/s, GB/s, Mbit/s, Gbit/s ...",
    "1/s": "1/s, k/s, M/s ...",
    "1": "%, or none",
}


def _suggestion(spelling: str, needed: str) -> str:
    """Names the known unit nearest to ``spelling``; letter case and "ps" for "/s" are the usual slips."""
    normalized = re.sub(r"ps$", "/s", spelling)
    names = [name for name, unit in _UNITS.items() if name and needed in ("", unit.unit)]
    if needed and any(name.lower() == normalized.lower() for name in _UNITS.keys() - set(names)):
        return f"known are {_USUAL[needed]}"  # it is a unit of something else
    same_letters = [name for name in names if name.lower() == normalized.lower()]
    if same_letters:  # "gb/s" is nearer to Gb/s than to GB/s
        nearest = min(
            same_letters, key=lambda name: sum(a != b for a, b in zip(name, normalized, strict=True))
        )
        return f"did you mean '{nearest}'?"
    close = difflib.get_close_matches(normalized, names, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"known are {_USUAL[needed]}"


def parse_in(text: str, unit: str) -> float:
    """Parses ``text`` as a quantity of the base unit ``unit``: ``parse_in("60s", "s")`` is 60.0.

    Raises UserError as ``parse_quantity`` does, and if the quantity has another base unit.
    """
    quantity = parse_quantity(text, unit)
    if quantity.unit != unit:
        raise UserError(
            f"'{text}' is in {describe_unit(quantity.unit)}",
            f"a value in {describe_unit(unit)} is needed here",
        )
    return quantity.value


def describe_unit(unit: str) -> str:
    """Describes a base unit in messages."""
    return "no unit (a count or a share)" if unit == "1" else unit


def parse_size(text: str) -> int:
    """Parses an option's size in whole bytes, at least 1: "65536", "64KiB", "64k" or "64 kB".

    A bare k, m or g, in either case, is binary, as in dd, fio and IOR; "kB" is decimal. Raises UserError otherwise.
    """
    match = _OPTION_SIZE.fullmatch(text)
    if match:
        number, prefix = match.groups()
        size: float = (
            float(number)
            if len(number) > MAX_DIGITS
            else int(number) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[prefix.upper()]
        )
    else:
        size = parse_in(text, "B")
    if size >= MAX_SIZE:
        raise UserError(f"a size of '{text[:40]}' is not possible", "give less than 8 EiB")
    if size < 1 or size != int(size):
        raise UserError(f"a size of '{text}' is not possible", "give a whole number of bytes, at least 1")
    return int(size)


def format_quantity(value: float, unit: str) -> str:
    """Formats ``value``, in the base unit ``unit``, by the rule above: (2.25e10, "B/s") is "22.5 GB/s".

    A unit that is not a base unit is appended as it is: (4.2, "K") is "4.2 K".
    """
    if not math.isfinite(value):
        return f"{value} {unit}".removesuffix(" 1")
    if unit == "1":
        if value == int(value):
            return f"{value:.0f}"
        return format_share(value) if abs(value) < 1 else _three_digits(value)
    if unit not in _DISPLAY_UNITS:
        return f"{_three_digits(value)} {unit}"
    if value == 0:
        return f"0 {unit}"
    units = list(_DISPLAY_UNITS[unit].items())
    fitting = [index for index, (_, factor) in enumerate(units) if abs(value) >= factor]
    index = fitting[-1] if fitting else 0
    base = 1024 if unit == "B" else 1000
    if index + 1 < len(units) and abs(_rounded(value / units[index][1])) >= base:
        index += 1  # 999.9 MB/s rounds to "1 GB/s", never to "1000 MB/s"
    label, factor = units[index]
    return f"{_three_digits(value / factor)} {label}"


def _rounded(value: float) -> float:
    """Rounds to three significant digits, and from 1000 to 1024 to a whole number."""
    return float(round(value)) if 1000 <= abs(value) <= 1024 else float(f"{value:.2e}")


def _three_digits(value: float) -> str:
    rounded = _rounded(value)
    if rounded == 0:
        return "0"
    decimals = max(0, 2 - int(f"{rounded:e}".partition("e")[2]))
    text = f"{rounded:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def unit_of(text: str) -> str:
    """Returns the unit of a quantity as it is spelled: "Gbit/s" of "180 Gbit/s"; "" of a count."""
    match = _QUANTITY.fullmatch(text)
    return match[2] if match else ""


def format_as(value: float, spelling: str) -> str:
    """Formats a value in a unit of the reader's choice: (2.354e10, "Gbit/s") is "188.32 Gbit/s".

    A value far below that unit has its own: (5e-7, "ms") is "500 ns". Else at least two decimals, so that
    99.74 % is not shown as 99.75 %; whole numbers have none.
    """
    unit = _UNITS[spelling]
    number = float(f"{value / unit.value:.10g}")
    if 0 < abs(number) < SMALLEST_AS and unit.unit != "1":
        return format_quantity(value, unit.unit)
    digits = ".0f" if number == int(number) else ".2f" if abs(number) >= 1 else ".3g"
    return f"{number:{digits}} {spelling}".rstrip()


def format_bit_rate(rate: float) -> str:
    """Formats a rate in B/s with two decimals as COBALT's tests print it: 22.5e9 is "180.00 Gbit/s".

    Below 0.1 Gbit/s it is in Mbit/s.
    """
    bits = 8 * rate
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e8 else f"{bits / 1e6:.2f} Mbit/s"


def format_size(size: int) -> str:
    """Formats a parameter's size exactly, so that it reads back: 1048576 is "1 MiB", 1000 is "1000 B"."""
    for prefix, factor in reversed(_BINARY.items()):
        if size and size % int(factor) == 0:
            return f"{size // int(factor)} {prefix}B"
    return f"{size} B"


def format_share(share: float) -> str:
    """Formats a share as a percentage: 0.12 is "12 %"."""
    return f"{_three_digits(100 * share)} %"
