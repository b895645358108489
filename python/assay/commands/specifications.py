"""The specifications that a verb judges by: built-in ones and those of --spec.

They name rules and measurements of all rooms, whose imports take longer than those of the other shared options. So only
verbs that judge import this module.
"""

from __future__ import annotations

import argparse

from assay.explain import RULES
from assay.judge import Specification, Vocabulary, find_specification, load_specification
from assay.launch.engines import describe_if_built, describe_profilers, describe_storage, metrics_of
from assay.measure.events_tune import DESCRIBED as EVENTS
from assay.measure.fabric import DESCRIBED as FABRIC
from assay.measure.storage import SPEEDUP_DESCRIBED


def specifications(args: argparse.Namespace, *built_in: str) -> list[Specification]:
    """Reads the built-in specifications and those of --spec before anything starts, so that an error is reported at
    once."""
    return [read_specification(name) for name in [*built_in, *args.spec]]


def read_specification(name: str) -> Specification:
    """Reads a specification by path or built-in name, and checks it against the engines' descriptions. Without
    engines the names are not checked."""
    description = describe_if_built()
    if description is None:
        return load_specification(find_specification(name), Vocabulary(rules=RULES))
    measurements = [
        *description.measurements,
        *describe_profilers(),
        *describe_storage(),
        SPEEDUP_DESCRIBED,
        *FABRIC,
        *EVENTS,
    ]
    vocabulary = Vocabulary(
        metrics=metrics_of(measurements),
        rules=RULES,
        facts={fact.name: fact.unit for fact in description.facts},
        parameters={m.name: {p.name: p.unit for p in m.parameters} for m in measurements},
    )
    return load_specification(find_specification(name), vocabulary)
