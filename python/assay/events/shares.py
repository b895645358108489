"""The rates of the network with which event building is compared: those of pairs of hosts, and of MPI's all-to-all.

All rates are of payload that crosses the network. Messages of a rank to itself stay in its memory and are left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from assay.events.figures import ALLTOALL
from assay.records.matrices import rows_of
from assay.records.schema import AnyRecord, Matrix, Measurement, Pairs

PAIRS = "network.all_to_all"


@dataclass(frozen=True)
class NetworkRates:
    """What the network carried in the same run, in B/s of all ranks; NaN where it was not measured."""

    pairs: float = math.nan  # every rank sends to one and receives from another
    alltoall: float = math.nan
    alltoallv: float = math.nan
    # MPI_Alltoall with what event building does besides: each byte written before, and checked after it.
    alltoall_verified: float = math.nan
    ids: tuple[int, ...] = ()


def network_rates(records: Iterable[AnyRecord]) -> NetworkRates:
    rows: dict[str, list[float]] = {}
    rates: dict[tuple[str, str], float] = {}
    ids: list[int] = []
    for record in records:
        if isinstance(record, Pairs | Matrix) and (record.name, record.metric) == (PAIRS, "bandwidth"):
            for row in [record] if isinstance(record, Pairs) else rows_of(record):
                rows.setdefault(str(row.subject.host), []).extend(row.values)
            ids.append(record.id)
        elif isinstance(record, Measurement) and record.name == ALLTOALL:
            operation = str(record.params.get("operation", ""))
            rates[operation, record.metric] = record.median if record.status == "ok" else math.nan
            ids.append(record.id)
    # A rank that sends evenly to all needs the time of each pair in turn: the harmonic mean of their rates.
    pairs = [statistics.harmonic_mean(values) for values in rows.values() if values and min(values) > 0]
    return NetworkRates(
        sum(pairs) if pairs else math.nan,
        rates.get(("MPI_Alltoall", "bandwidth"), math.nan),
        rates.get(("MPI_Alltoallv", "bandwidth"), math.nan),
        rates.get(("MPI_Alltoall", "verified_bandwidth"), math.nan),
        tuple(ids),
    )
