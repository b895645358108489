"""Quantities are parsed, formatted and read back; an unknown unit is named in the error."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import UserError
from assay.records.units import (
    Quantity,
    format_bit_rate,
    format_quantity,
    format_share,
    format_size,
    parse_in,
    parse_quantity,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("180 Gbit/s", 22.5e9, "B/s"),
        ("180 Gb/s", 22.5e9, "B/s"),
        ("180 GB/s", 180e9, "B/s"),
        ("1 GiB/s", 2**30, "B/s"),
        ("1 MiB", 2**20, "B"),
        ("1MB", 1e6, "B"),
        ("8 bit", 1, "B"),
        ("8 Kibit", 1024, "B"),
        ("3 ns", 3e-9, "s"),
        ("2.5 us", 2.5e-6, "s"),
        ("2.5 µs", 2.5e-6, "s"),
        ("2.5 \N{GREEK SMALL LETTER MU}s", 2.5e-6, "s"),  # looks like the micro sign
        ("1 EiB", 2**60, "B"),
        ("1 min", 60, "s"),
        ("99.75 %", 0.9975, "1"),
        ("100 1/s", 100, "1/s"),
        ("2 M/s", 2e6, "1/s"),
        ("0", 0, "1"),
        ("1e3 1", 1000, "1"),
    ],
)
def test_a_quantity_is_read_in_its_base_unit(text: str, value: float, unit: str) -> None:
    assert parse_quantity(text) == Quantity(pytest.approx(value, rel=1e-15), unit)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1 gb/s", "Gb/s"),
        ("1 Gbps", "Gb/s"),
        ("1 KB", "kB"),
        ("1 Mib", "MiB"),
        ("5 sec", "s"),
        ("1 gibit", "Gibit"),
    ],
)
def test_an_unknown_unit_is_named_with_the_nearest(text: str, meant: str) -> None:
    with pytest.raises(
        UserError, match=f"unknown unit '{text.split()[1]}'.*did you mean '{re.escape(meant)}'"
    ):
        parse_quantity(text)


def test_a_unit_of_something_else_is_no_suggestion() -> None:
    with pytest.raises(UserError, match=r"unknown unit 'gbit/s'.*known are B, kB"):
        parse_quantity("10 gbit/s", "B")


@pytest.mark.parametrize(
    "text", ["", "fast", "-1 B", "nan B", "inf", "1 2 B", "0x10 B", "1,5 GB/s", "1e999 B"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_quantity(text)


def test_another_kind_of_quantity_is_refused() -> None:
    assert parse_in("1.5 min", "s") == 90
    with pytest.raises(UserError, match=r"'60' is in no unit .*s is needed"):
        parse_in("60", "s")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("64KiB", 65536),
        ("64 KiB", 65536),
        ("64k", 65536),
        ("64K", 65536),
        ("64kB", 64000),
        ("4M", 2**22),
    ],
)
def test_sizes_of_options_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0", "-4", "0.5 B", "1 bit", "4 s", "1.5", "64kb/s", "many"])
def test_impossible_sizes_are_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_size(text)


CASES = json.loads((Path(__file__).parents[2] / "fixtures/quantities.json").read_text())


@pytest.mark.parametrize(("value", "unit", "text"), CASES["quantities"])
def test_formats_a_quantity_as_the_report_does(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


@pytest.mark.parametrize(("size", "text"), CASES["sizes"])
def test_formats_a_size_as_the_report_does(size: int, text: str) -> None:
    assert format_size(size) == text


def test_nan_shares_and_bit_rates_are_formatted() -> None:
    assert format_quantity(float("nan"), "B/s") == "nan B/s"
    assert format_share(0.9975) == "99.8 %"
    assert (format_bit_rate(22.5e9), format_bit_rate(6.25e6)) == ("180.00 Gbit/s", "50.00 Mbit/s")


@given(st.floats(min_value=1e-12, max_value=1e14), st.sampled_from(["B", "B/s", "1/s", "s"]))
def test_what_is_shown_reads_back_within_its_digits(value: float, unit: str) -> None:
    reparsed = parse_quantity(format_quantity(value, unit))
    assert reparsed.unit == unit
    assert reparsed.value == pytest.approx(value, rel=5.01e-3)


@given(st.integers(min_value=1, max_value=2**45))
def test_a_size_reads_back_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == size
