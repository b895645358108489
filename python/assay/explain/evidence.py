"""The input of the rules: the records of a run, and values that several rules share, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from assay.explain.culprit import all_suspects
from assay.explain.group_retest import group_outcome, measured_groups
from assay.explain.matrix import PairMatrix
from assay.explain.retest import Outcome, outcome_of, retested_pairs
from assay.explain.suspect import Suspect
from assay.profile.heap import HeapProfile
from assay.profile.numa import NumaProfile
from assay.profile.profiles import Profiles
from assay.records.schema import AnyRecord, Measurement, Scalar

Options = Mapping[str, Scalar | list[str] | None]


class Evidence:
    """The records of one run, its hosts in rank order, the options that it was started with, and its profiles."""

    def __init__(
        self,
        records: Iterable[AnyRecord],
        hosts: Sequence[str] = (),
        options: Options | None = None,
        profiles: Profiles | None = None,
    ) -> None:
        self.records = list(records)
        self.hosts = list(hosts)
        self.options: Options = options or {}
        self.profiles = profiles

    def measurements(self, name: str, metric: str = "") -> list[Measurement]:
        """The records with a value of one measurement, or of one of its metrics."""
        return [
            record
            for record in self.records
            if isinstance(record, Measurement)
            and record.name == name
            and metric in ("", record.metric)
            and record.status == "ok"
            and record.summary
        ]

    @property
    def heap(self) -> HeapProfile | None:
        """The merged ranks of an MPI program, or else the largest process; None in a run without heap profiles."""
        return None if self.profiles is None else self.profiles.main

    @property
    def numa(self) -> NumaProfile | None:
        """The merged ranks of an MPI program, or else the first process; None in a run without NUMA profiles."""
        return None if self.profiles is None else self.profiles.numa_main

    @cached_property
    def matrix(self) -> PairMatrix:
        """Bandwidth of each pair of hosts under load in both directions."""
        return PairMatrix.of_bandwidth(self.records, self.hosts)

    @cached_property
    def one_way(self) -> PairMatrix:
        """Bandwidth of each pair of hosts without traffic in the other direction."""
        return PairMatrix.of_one_way(self.records, self.hosts)

    @cached_property
    def suspects(self) -> list[tuple[Suspect, Outcome | None]]:
        """Every suspect with the outcome of its retest; the outcome is None if it was not retested."""
        suspects = all_suspects(self.matrix, self.one_way)
        retested, groups = retested_pairs(self.records), measured_groups(self.records)
        outcomes = []
        for suspect in suspects:
            alone = outcome_of(suspect, suspects, retested)
            if alone is None or not alone.persists:
                alone = group_outcome(suspect, suspects, groups) or alone
            outcomes.append((suspect, alone))
        return outcomes
