"""Specifications held against records: what was asked, what was seen, and the verdict."""

from assay.judge.specification import Specification, find_specification, load_specification
from assay.judge.verdict import judge, overall

__all__ = ["Specification", "find_specification", "judge", "load_specification", "overall"]
