"""Judges the records of a run against a specification."""

from assay.judge.criteria import Specification, Vocabulary
from assay.judge.specification import find_specification, load_specification
from assay.judge.verdict import judge, overall

__all__ = ["Specification", "Vocabulary", "find_specification", "judge", "load_specification", "overall"]
