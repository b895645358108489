"""From a saturation run to a platform that is known to be right: fit, write, simulate, compare.

The conclusions are drawn anew each time and replace those that the run had; what was measured stays.
"""

from __future__ import annotations

from pathlib import Path

from assay.errors import UserError
from assay.launch.placement import HERE
from assay.launch.simulator import Simulator
from assay.measure.saturation import SaturationRequest, read_cabinets, simulate_rounds
from assay.measure.session import Session
from assay.model.compare import comparisons, rounds_to_simulate, verdict
from assay.model.fit import Model, fit
from assay.model.network import Topology
from assay.model.study import Effort
from assay.records.run import Run
from assay.records.schema import Capacity, Comparison, Verdict


def draw_conclusions(run: Run, cabinets: Topology) -> Model:
    """Fits what the run has, and puts the capacities into it in place of those it had."""
    run.withdraw(lambda record: isinstance(record, Capacity))
    model = fit(run.records, cabinets)
    for capacity in model.capacities:
        run.append(capacity)
    return model


def model_of(run: Run) -> Model:
    cabinets = run.info.options.get("cabinets")
    if not isinstance(cabinets, list) or not cabinets:
        raise UserError(
            f"{run.path} has no saturation study that got as far as the cabinets",
            "measure one with 'assay saturate'",
        )
    model = draw_conclusions(run, read_cabinets(cabinets))
    if not any(c.state == "measured" and c.unit == "B/s" for c in model.capacities):
        raise UserError(
            f"{run.path}: no capacity is known: no round had a plateau or the study ended before",
            f"go on with it: assay saturate --resume {run.path}",
        )
    return model


def prove(session: Session, model: Model, platform: Path, limit: float) -> Verdict:
    """Runs every measured round on the platform; the comparisons and the verdict go into the run."""
    run = session.run
    run.withdraw(
        lambda r: isinstance(r, Comparison) or (isinstance(r, Verdict) and r.specification == "model")
    )
    pairs = rounds_to_simulate(run.records)
    hosts = [host for host in run.info.hosts if ("host", host, "up") in model.network.capacity]
    missing = set(run.info.hosts) - set(hosts)
    possible = [p for p in pairs if not missing & {end for flow in p.asked.flows for end in flow}]
    request = SaturationRequest(Simulator(platform, run.path), HERE, hosts, Effort())
    simulated = simulate_rounds(session, request, [p.asked for p in possible])
    for point in comparisons(pairs, simulated, model):
        run.append(point)
    points = [r for r in run.records if isinstance(r, Comparison)]
    proof = verdict(points, limit)
    if proof.outcome == "FAIL" and run.info.busy:
        proof.outcome, proof.reason = (
            "INCONCLUSIVE",
            f"{run.info.busy}; measure again when nothing else runs here",
        )
    run.append(proof)
    return proof
