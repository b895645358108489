"""Specifications: a correct file is read completely, and each mistake is refused with its line."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from assay.errors import UserError
from assay.judge.criteria import Share, Vocabulary
from assay.judge.specification import find_specification, load_specification
from assay.launch.engines import describe_if_built
from assay.records.units import Quantity

METRICS = {
    "net.a/bandwidth": "B/s",
    "net.a/latency": "s",
    "net.a/corrupted": "1",
    "net.b/corrupted": "1",
    "mem/bandwidth": "B/s",
}

GOOD = """\
title = "as bought"

[[criterion]]  # the size is a quantity
metric = "net.a/bandwidth"
where = {op = "send", size = "1 MiB", inflight = 8}
min = "180 Gbit/s"
max = "1 TB/s"

[[ criterion ]]
metric = "net.a/bandwidth"
statistic = "p5"
[criterion.where]
size = "64 KiB"
[criterion.min]
share = "10 %"
of = "mem/bandwidth"
where = {operation = "copy", threads = 1}

[[criterion]]
metric = "net.*/corrupted"
max = 0
hosts = "several"

[[criterion]]
findings = "none"
rule = "slow_host"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text)
    return path


def test_every_kind_of_criterion_is_read(tmp_path: Path) -> None:
    specification = load_specification(write(tmp_path, GOOD), Vocabulary(METRICS, ["slow_host"]))
    first, second, third, fourth = specification.criteria
    assert (specification.name, specification.title) == ("site", "as bought")
    assert first.where == {"op": "send", "size": Quantity(2**20, "B"), "inflight": 8}
    assert first.min == Quantity(22.5e9, "B/s")
    assert str(first) == "net.a/bandwidth op=send size=1 MiB inflight=8 >= 180 Gbit/s and <= 1 TB/s"
    assert second.min == Share(0.1, "mem/bandwidth", {"operation": "copy", "threads": 1})
    assert str(second) == "net.a/bandwidth p5 size=64 KiB >= 10 % of mem/bandwidth operation=copy threads=1"
    assert third.max == Quantity(0, "1") and third.hosts == "several"
    assert str(fourth) == "no fault found by slow_host"
    assert [criterion.line for criterion in specification.criteria] == [3, 9, 19, 24]


OK = '[[criterion]]\nmetric = "net.a/bandwidth"\nmin = "1 GB/s"\n\n'  # lines 1 to 4 of each file


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[[criterion]]\nmetric = "net.a/bandwidth"\nleast = "1 GB/s"', 7, "unknown key 'least'"),
        (
            '[[criterion]]\nmetric = "net.a/bandwidth"\nmax = "1 GBps"',
            7,
            "unknown unit 'GBps'.*did you mean 'GB/s'",
        ),
        ('[[criterion]]\nmetric = "net.a/latency"\nmax = "1 GB/s"', 7, "does not fit a metric in s"),
        (
            '[[criterion]]\n\nmetric = "net.a/bandwith"\nmax = "1 GB/s"',
            7,
            "unknown metric.*'net.a/bandwidth'",
        ),
        ('[[criterion]]\nmetric = "bandwidth"\nmax = "1 s"', 6, "not a metric"),
        ('[[criterion]]\nmetric = "net.*"\nmax = "1 s"', 6, "not a metric"),
        ('[[criterion]]\nmetric = "net.a/*"\nmax = "1 s"', 6, "several units"),
        ('[[criterion]]\nmetric = "net.a/latency"\nmin = "2 s"\nmax = "1 s"', 7, "min 2 s is above max 1 s"),
        (
            '[[criterion]]\nmetric = "net.a/bandwidth"\nwhere = {size = "1 KiB"}\n'
            'max = {share = "1 %", of = "mem/bandwidth"}\nmin = {share = "2 %", of = "mem/bandwidth"}',
            9,
            "min 2 % of mem/bandwidth is above max 1 % of",
        ),
        ('[[criterion]]\nmetric = "net.a/latency"', 5, "neither min nor max"),
        ('[[criterion]]\nmin = "1 s"', 5, "no metric"),
        ('[[criterion]]\nmetric = "net.a/bandwidth"\nmax = "1 TB/s"', 5, "same figure.*line 1"),
        (
            '[[criterion]]\nmetric = "net.a/bandwidth"\nwhere = {size = "1 Mib"}\nmax = "1 TB/s"',
            7,
            "unknown unit 'Mib'",
        ),
        (
            '[[criterion]]\nmetric = "net.a/bandwidth"\nwhere = {size = [1]}\nmax = "1 TB/s"',
            7,
            "single value",
        ),
        ('[[criterion]]\nmetric = "net.a/latency"\nmax = true', 7, "not a quantity"),
        (
            '[[criterion]]\nmetric = "net.a/latency"\nmax = "1 s"\nstatistic = "mean"',
            8,
            "unknown statistic 'mean'",
        ),
        ('[[criterion]]\nmetric = "net.a/latency"\nmax = {share = "1 %"}', 7, "needs 'share' and 'of'"),
        (
            '[[criterion]]\nmetric = "net.a/latency"\nmax = {share = "1 s", of = "net.a/latency"}',
            7,
            "'1 s' is in s",
        ),
        (
            '[[criterion]]\nmetric = "net.a/latency"\nmax = {share = "1 %", of = "mem/bandwidth"}',
            7,
            "does not fit",
        ),
        ('[[criterion]]\nmetric = "net.a/latency"\nmax = {share = "1 %", for = "x"}', 7, "unknown key 'for'"),
        ('[[criterion]]\nfindings = "few"', 6, "findings = 'few' is not known"),
        (
            '[[criterion]]\nfindings = "none"\nrule = "slow_hosts"',
            7,
            "unknown rule 'slow_hosts'.*choose one of slow_host",
        ),
        ('[[criterion]]\nfindings = "none"\nmetric = "net.a/latency"', 7, "unknown key 'metric'"),
        ('[[criterion]]\nmetric = 4\nmax = "1 s"', 6, "not a string"),
        ('[[criterion]]\nfindings = "none"\nhosts = "all"', 7, "hosts = 'all' is not known"),
        ('[[criterion]]\nmetric = "net.a', 6, "not valid TOML"),
    ],
)
def test_a_wrong_criterion_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = write(tmp_path, OK + text)
    with pytest.raises(UserError, match=rf"(?s)^{path}:{line}: .*{message}") as caught:
        load_specification(path, Vocabulary(METRICS, ["slow_host"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"site\.toml:1: the file has no criterion"),
        ("criterion = 1", r"site\.toml:1: 'criterion' is not an array"),
        ('title = "x"\nlimits = 3', r"site\.toml:2: unknown key 'limits'"),
        ("[[criterion]]\nx = [", r"site\.toml:\d: not valid TOML"),
        ("a = " + "[" * 3000, "too many tables or lists inside each other"),
    ],
)
def test_a_file_that_is_no_specification_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_specification(write(tmp_path, text))


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_specification(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\0\1\2\3")
    with pytest.raises(UserError, match="not a text file, so not a specification"):
        load_specification(tmp_path / "binary.toml")


def test_built_in_specifications_are_found_by_name() -> None:
    for name in ("self", "net"):
        assert load_specification(find_specification(name)).name == name
    with pytest.raises(UserError, match=r"no specification named 'selv'; fix: choose one of .*net.*self"):
        find_specification("selv")
    with pytest.raises(UserError, match=r"no specification at 'nowhere/x\.toml'"):
        find_specification("nowhere/x.toml")


SHIPPED = sorted(path.stem for path in Path(find_specification("self")).parent.glob("*.toml"))
SUPPLEMENTS = {"self-mpi": "self"}  # a verb judges by both


@pytest.mark.parametrize("name", SHIPPED)
def test_built_in_specifications_allow_no_wrong_byte_and_no_fault(name: str) -> None:
    """If a specification has a criterion on a measurement that counts wrong bytes, it must have a criterion that allows
    none of them."""
    description = describe_if_built()
    if description is None:
        pytest.skip("the engines are not built")
    names = [name, SUPPLEMENTS[name]] if name in SUPPLEMENTS else [name]
    criteria = [c for each in names for c in load_specification(find_specification(each)).criteria]
    if all(criterion.fact for criterion in criteria):
        return  # settings alone: nothing is measured
    assert any(not criterion.metric and not criterion.fact and not criterion.rule for criterion in criteria)
    zero_metrics = {criterion.metric for criterion in criteria if criterion.max == Quantity(0, "1")}
    for measurement in description.measurements:
        corrupted = f"{measurement.name}/corrupted"
        is_judged = any(
            fnmatchcase(f"{measurement.name}/{metric.name}", criterion.metric)
            for criterion in criteria
            for metric in measurement.metrics
            if criterion.metric
        )
        if is_judged and any(metric.name == "corrupted" for metric in measurement.metrics):
            assert any(fnmatchcase(corrupted, pattern) for pattern in zero_metrics), corrupted
