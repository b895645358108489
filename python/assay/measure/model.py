"""Fits a network model to a saturation run, and validates the SimGrid platform made of it by simulation.

Each fit and each validation replaces the earlier results in the run. The measurements are kept.
"""

from __future__ import annotations

from pathlib import Path

from assay.errors import UserError
from assay.launch.placement import HERE
from assay.launch.simulator import Simulator
from assay.measure.saturation import SaturationRequest, read_cabinets, simulate_rounds
from assay.measure.session import Session
from assay.model.compare import comparisons, rounds_to_simulate
from assay.model.fit import fit
from assay.model.fitted import Model
from assay.model.levels import more_levels
from assay.model.network import Topology
from assay.model.proof import verdict
from assay.model.study import Effort
from assay.records.run import Run
from assay.records.schema import Capacity, Comparison, Finding, Verdict

MORE_LEVELS = "more_levels"  # rule of the finding that the network has more than two levels


def fit_capacities(run: Run, cabinets: Topology) -> Model:
    """Fits the run's measurements and replaces its capacities."""
    run.withdraw(
        lambda record: (
            isinstance(record, Capacity) or (isinstance(record, Finding) and record.rule == MORE_LEVELS)
        )
    )
    model = fit(run.records, cabinets)
    for capacity in model.capacities:
        run.append(capacity)
    model.more_levels = more_levels(run.records, model)
    if model.more_levels:
        run.append(
            Finding(
                rule=MORE_LEVELS,
                cause="the network has more than two levels, hosts and cabinets: rows of cabinets, or links that "
                "only some of them share",
                severity="warning",
                confidence=0.9,
                details=model.more_levels,
                fix="the model has two: name the upper level as cabinets (--topology), or use its platform inside "
                "one row",
            )
        )
    return model


def fit_run(run: Run) -> Model:
    """Fits the run. Raises UserError if the run lacks cabinets or a measured rate."""
    cabinets = run.info.options.get("cabinets")
    if not isinstance(cabinets, list) or not cabinets:
        raise UserError(
            f"{run.path} has no saturation study in which the cabinets were determined",
            "measure one with 'assay saturate'",
        )
    model = fit_capacities(run, read_cabinets(cabinets))
    if not any(c.state == "measured" and c.unit == "B/s" for c in model.capacities):
        raise UserError(
            f"{run.path}: no capacity is known: no round reached a plateau, or the study ended early",
            f"continue the study: assay saturate --resume {run.path}",
        )
    return model


def validate(session: Session, model: Model, platform: Path, limit: float) -> Verdict:
    """Simulates every measured round on the platform; adds the comparisons and the verdict to the run.

    ``limit``: the largest accepted relative error.
    """
    run = session.run
    run.withdraw(
        lambda r: isinstance(r, Comparison) or (isinstance(r, Verdict) and r.specification == "model")
    )
    measured = rounds_to_simulate(run.records)
    hosts = [host for host in run.info.hosts if ("host", host, "up") in model.network.capacity]
    # A round with a host that the platform lacks is not simulated.
    missing = set(run.info.hosts) - set(hosts)
    possible = [m for m in measured if not missing & {host for flow in m.round.flows for host in flow}]
    request = SaturationRequest(Simulator(platform, run.path), HERE, hosts, Effort())
    simulated = simulate_rounds(session, request, [m.round for m in possible])
    for point in comparisons(measured, simulated, model):
        run.append(point)
    points = [r for r in run.records if isinstance(r, Comparison)]
    result = verdict(points, limit)
    if result.outcome == "FAIL" and run.info.busy:
        result.outcome, result.reason = (
            "INCONCLUSIVE",
            f"{run.info.busy}; measure again when nothing else runs here",
        )
    unknown = [c for c in model.capacities if c.value is None and c.unit == "B/s"]
    if result.outcome == "PASS" and unknown:
        result.outcome, result.reason = (
            "INCONCLUSIVE",
            f"the platform is partial: {len(unknown)} capacities were not measured",
        )
    run.append(result)
    return result
