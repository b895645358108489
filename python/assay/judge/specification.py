"""Reads a specification: criteria in TOML, checked completely before anything is measured.

A mistake in a specification would give a wrong verdict, so nothing is ignored: every key, unit, metric and rule must
be known, min must not exceed max, and no two criteria may judge the same figure. Each error names file and line.
There is no expression language: a limit is a quantity, or a share of another metric of the run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from assay.errors import UserError
from assay.judge.criteria import (
    STATISTICS,
    SUBJECT_FIELDS,
    Condition,
    Criterion,
    Limit,
    Share,
    Specification,
    Vocabulary,
    format_limit,
)
from assay.judge.inventory import Inventory
from assay.judge.inventory_file import read_inventory
from assay.records.schema import Scalar
from assay.records.toml import TomlFile, find_built_in
from assay.records.units import Quantity, describe_unit, parse_in, parse_quantity, unit_of


def find_specification(name: str) -> Path:
    """Finds a specification by path or by the name of a built-in one ("self"). Raises UserError."""
    return find_built_in("specs", name, "specification")


def load_specification(path: str | Path, vocabulary: Vocabulary | None = None) -> Specification:
    """Reads and checks a specification. Raises UserError with file and line for any mistake."""
    return _Reader(TomlFile(path, "criterion", "specification"), vocabulary or Vocabulary()).specification()


class _Reader:
    """Turns a parsed TOML document into a Specification; ``refuse`` raises UserError with file and line."""

    def __init__(self, file: TomlFile, vocabulary: Vocabulary) -> None:
        self.file, self.vocabulary = file, vocabulary
        self.line_of, self.refuse, self._refuse_unknown_keys = (
            file.line_of,
            file.refuse,
            file.refuse_unknown_keys,
        )

    def specification(self) -> Specification:
        document = self.file.document
        self._refuse_unknown_keys(
            document, ("title", "inventory", "criterion", "parameters"), "a specification"
        )
        tables = document.get("criterion", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            problem = "'criterion' is not an array of tables"
            self.refuse("criterion", problem, "start each criterion with the line [[criterion]]")
        if not tables and "inventory" not in document:
            self.refuse("", "the file has no criterion", "add a table [[criterion]] or a table [inventory]")
        criteria: list[Criterion] = []
        for index, table in enumerate(tables):
            self.file.table = index  # errors name lines of this table
            criterion = self._criterion(table)
            for other in criteria:
                if _identity(other) == _identity(criterion):
                    problem = f"this criterion is about the same figure as the criterion on line {other.line}"
                    self.refuse("", problem, "put min and max into one criterion")
            criteria.append(criterion)
        self.file.table = -1
        parameters = self._parameters(document.get("parameters", {}))
        inventory = (
            read_inventory(self.file, document["inventory"]) if "inventory" in document else Inventory()
        )
        return Specification(
            self.file.path.stem, criteria, self._text(document, "title"), parameters, inventory
        )

    def _criterion(self, table: dict[str, Any]) -> Criterion:
        if "findings" in table:
            return self._findings(table)
        return self._fact(table) if "fact" in table else self._bounds(table)

    def _parameters(self, tables: Any) -> dict[str, dict[str, Scalar]]:
        """Reads tables such as ``[parameters."node.udp_receive"]``: a measurement is run with these parameters."""
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            self.refuse(
                "parameters", "'parameters' is not a table of tables", 'write [parameters."MEASUREMENT"]'
            )
        parameters = self.vocabulary.parameters
        read: dict[str, dict[str, Scalar]] = {}
        for name, table in tables.items():
            if parameters is not None and name not in parameters:
                self.refuse(
                    name, f"unknown measurement '{name}'", f"did you mean {_nearest(name, parameters)}?"
                )
            read[name] = {key: self._parameter(name, key, value) for key, value in table.items()}
        return read

    def _parameter(self, measurement: str, key: str, value: Any) -> Scalar:
        parameters = self.vocabulary.parameters
        if parameters is not None and key not in parameters[measurement]:
            names = ", ".join(sorted(parameters[measurement]))
            fix = f"choose one of {names}" if names else "remove it: this measurement has no parameters"
            self.refuse(key, f"unknown parameter '{key}' of {measurement}", fix)
        if not isinstance(value, str | int | float | bool):
            self.refuse(key, f"'{key}' is not a single value", "write a string, a number or a boolean")
        unit = parameters[measurement][key] if parameters is not None else ""
        if unit and isinstance(value, str) and "," not in value:
            quantity = self._quantity(value, key)
            if quantity.unit != unit:
                problem = f"{key} = {value!r} does not fit a parameter in {describe_unit(unit)}"
                self.refuse(key, problem, f"give a value in {describe_unit(unit)}")
            return int(quantity.value) if quantity.value == int(quantity.value) else quantity.value
        return value

    def _fact(self, table: dict[str, Any]) -> Criterion:
        known_keys = ("fact", "where", "is", "min", "max", "absent", "fix", "hosts", "title")
        self._refuse_unknown_keys(table, known_keys, "a criterion on a fact")
        fact = self._text(table, "fact")
        unit = None
        if self.vocabulary.facts is not None:
            if fact not in self.vocabulary.facts:
                self.refuse(
                    "fact", f"unknown fact '{fact}'", f"did you mean {_nearest(fact, self.vocabulary.facts)}?"
                )
            unit = self.vocabulary.facts[fact]
        equals = self._equals(table, unit)
        low, high = (self._fact_limit(table, key, unit) for key in ("min", "max"))
        if not equals and low is None and high is None:
            self.refuse("", f"the criterion on {fact} has no bound", "give 'is', 'min' or 'max'")
        if equals and (low or high):
            self.refuse("is", f"the criterion on {fact} has both 'is' and a bound", "remove one of them")
        self._check_order(low, high)
        absent = self._text(table, "absent")
        if absent not in ("", "pass"):
            self.refuse("absent", f"absent = '{absent}' is not known", 'write absent = "pass" or remove it')
        return Criterion(
            fact=fact, equals=equals, min=low, max=high, absent=absent,
            where=self._where(table), fix=self._text(table, "fix"), limit_units=_written_units(table),
            **self._common(table),
        )  # fmt: skip

    def _equals(self, table: dict[str, Any], unit: str | None) -> tuple[Scalar, ...]:
        value = table.get("is", ())
        values = tuple(value) if isinstance(value, list | tuple) else (value,)
        for value in values:
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                self.refuse(
                    "is",
                    f"is = {value!r} is not a string or a number",
                    'write for example is = "performance"',
                )
            if unit is not None and isinstance(value, str) != (unit == ""):
                kind = "a string" if unit == "" else f"a number in {describe_unit(unit)}"
                self.refuse("is", f"is = {value!r} does not fit this fact", f"write {kind}")
        return values

    def _fact_limit(self, table: dict[str, Any], key: str, unit: str | None) -> Limit | None:
        if key in table and unit == "":
            self.refuse(key, f"'{key}' does not fit a fact that is text", "use 'is'")
        limit = self._limit(table, key, unit)
        if isinstance(limit, Share):
            self.refuse(key, f"'{key}' of a fact cannot be a share of a metric", "give a quantity")
        return limit

    def _findings(self, table: dict[str, Any]) -> Criterion:
        self._refuse_unknown_keys(table, ("findings", "rule", "hosts", "title"), "a criterion on findings")
        if table["findings"] != "none":
            self.refuse(
                "findings", f"findings = {table['findings']!r} is not known", 'write findings = "none"'
            )
        rule = self._text(table, "rule")
        if rule and self.vocabulary.rules is not None and rule not in self.vocabulary.rules:
            self.refuse(
                "rule", f"unknown rule '{rule}'", f"choose one of {', '.join(sorted(self.vocabulary.rules))}"
            )
        return Criterion(rule=rule, **self._common(table))

    def _bounds(self, table: dict[str, Any]) -> Criterion:
        self._refuse_unknown_keys(
            table, ("metric", "where", "min", "max", "statistic", "fix", "hosts", "title"), "a criterion"
        )
        metric = self._text(table, "metric")
        if not metric:
            self.refuse(
                "", "a criterion has no metric", 'write metric = "MEASUREMENT/METRIC" or findings = "none"'
            )
        unit = self._unit(metric, "metric")
        statistic = self._text(table, "statistic") or "median"
        if statistic not in STATISTICS:
            self.refuse(
                "statistic", f"unknown statistic '{statistic}'", f"choose one of {', '.join(STATISTICS)}"
            )
        low, high = (self._limit(table, key, unit) for key in ("min", "max"))
        if low is None and high is None:
            self.refuse("", f"the criterion on {metric} has neither min nor max", "give min, max or both")
        self._check_order(low, high)
        where = self._where(table)
        return Criterion(
            metric,
            where,
            statistic,
            low,
            high,
            limit_units=_written_units(table),
            fix=self._text(table, "fix"),
            **self._common(table),
        )

    def _common(self, table: dict[str, Any]) -> dict[str, Any]:
        hosts = self._text(table, "hosts")
        if hosts not in ("", "one", "several"):
            self.refuse("hosts", f"hosts = '{hosts}' is not known", 'choose one of "one", "several"')
        return {
            "title": self._text(table, "title"),
            "hosts": hosts,
            "line": self.line_of(),
        }

    def _check_order(self, low: Limit | None, high: Limit | None) -> None:
        contradictory = False
        if isinstance(low, Quantity) and isinstance(high, Quantity):
            if low.unit != high.unit:
                self.refuse("max", "min and max are in different units", "give both in the metric's unit")
            contradictory = low.value > high.value
        elif isinstance(low, Share) and isinstance(high, Share) and _reference(low) == _reference(high):
            contradictory = low.share > high.share
        if contradictory and low and high:
            problem = f"min {format_limit(low)} is above max {format_limit(high)}"
            self.refuse("min", problem, "lower min or raise max: no value can pass both")

    def _limit(self, table: dict[str, Any], key: str, unit: str | None) -> Limit | None:
        if key not in table:
            return None
        value = table[key]
        if isinstance(value, dict):
            return self._share(value, key, unit)
        quantity = self._quantity(value, key)
        if unit is not None and quantity.unit != unit:
            problem = f"{key} = {value!r} does not fit a metric in {describe_unit(unit)}"
            self.refuse(key, problem, f"give a value in {describe_unit(unit)}")
        return quantity

    def _share(self, table: dict[str, Any], key: str, unit: str | None) -> Share:
        self._refuse_unknown_keys(table, ("share", "of", "where"), f"{key} = {{...}}", key)
        share, reference = self._text(table, "share", key), self._text(table, "of", key)
        if not share or not reference:
            self.refuse(
                key,
                f"{key} needs 'share' and 'of'",
                'example: {share = "10 %", of = "node.memory/bandwidth"}',
            )
        reference_unit = self._unit(reference, key)
        if unit is not None and reference_unit is not None and unit != reference_unit:
            problem = (
                f"a share of {reference} is in {describe_unit(reference_unit)} and does not fit this metric"
            )
            self.refuse(key, problem, f"name a metric in {describe_unit(unit)}")
        try:
            return Share(parse_in(share, "1"), reference, self._where(table, key))
        except UserError as error:
            self.refuse(key, error.what, error.fix)

    def _where(self, table: dict[str, Any], key: str = "where") -> dict[str, Condition]:
        where = table.get("where", {})
        if not isinstance(where, dict):
            self.refuse(key, "'where' is not a table", 'example: {op = "send", size = "1 MiB"}')
        return {name: self._condition(name, value, key) for name, value in where.items()}

    def _condition(self, name: str, value: Any, key: str) -> Condition:
        if not isinstance(value, str | int | float | bool):
            self.refuse(key, f"'{name}' is not a single value", "write a string, a number or a boolean")
        # A string such as "1 MiB" must be a valid quantity. Strings such as "h3" and "2x2" are names.
        if (
            isinstance(value, str)
            and name not in SUBJECT_FIELDS
            and re.match(r"[\d.]+(\s+\S+|[A-Za-zµ/%]+)$", value)
        ):
            return self._quantity(value, key)
        return value

    def _quantity(self, value: Any, key: str) -> Quantity:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            self.refuse(key, f"{key} is not a quantity", "write a number and a unit, such as '180 Gbit/s'")
        try:
            return parse_quantity(value)
        except UserError as error:
            self.refuse(key, error.what, error.fix)

    def _unit(self, metric: str, key: str) -> str | None:
        """Returns the unit of a metric; None if the vocabulary lists no metrics."""
        if metric.count("/") != 1:
            self.refuse(
                key, f"'{metric}' is not a metric", "write MEASUREMENT/METRIC, such as node.memory/bandwidth"
            )
        if self.vocabulary.metrics is None:
            return None
        units = {unit for name, unit in self.vocabulary.metrics.items() if fnmatchcase(name, metric)}
        if not units:
            self.refuse(
                key,
                f"unknown metric '{metric}'",
                f"did you mean {_nearest(metric, self.vocabulary.metrics)}?",
            )
        if len(units) > 1:
            self.refuse(
                key, f"'{metric}' matches metrics in several units", "write a criterion for each unit"
            )
        return units.pop()

    def _text(self, table: dict[str, Any], key: str, reported_key: str = "") -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            self.refuse(reported_key or key, f"'{key}' is not a string", "put the value between quotes")
        return value


def _written_units(table: dict[str, Any]) -> tuple[str, str]:
    """The units in which min and max are written, such as "Gbit/s"; empty where there is none."""
    low, high = (unit_of(table[key]) if isinstance(table.get(key), str) else "" for key in ("min", "max"))
    return low, high


def _identity(criterion: Criterion) -> tuple[str, ...]:
    """Identifies the figure that a criterion judges. Two criteria with equal identities are refused."""
    where = repr(sorted(criterion.where.items()))
    return criterion.metric, criterion.fact, criterion.rule, criterion.statistic, where


def _reference(share: Share) -> str:
    """Identifies the metric that a share refers to."""
    return share.of + repr(sorted(share.where.items()))


def _nearest(name: str, names: Collection[str]) -> str:
    return "'" + "' or '".join(difflib.get_close_matches(name, names, n=2, cutoff=0.0)) + "'"
