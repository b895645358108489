"""Judges the records of a run against a specification."""

from assay.judge.criteria import Specification, Vocabulary
from assay.judge.doubt import doubt
from assay.judge.integrity import integrity
from assay.judge.result import result
from assay.judge.specification import find_specification, load_specification
from assay.judge.verdict import deciding_criteria, judge, overall

__all__ = [
    "Specification",
    "Vocabulary",
    "deciding_criteria",
    "doubt",
    "find_specification",
    "integrity",
    "judge",
    "load_specification",
    "overall",
    "result",
]
