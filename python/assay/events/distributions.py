"""The grid of a search for Optuna: a point is given by the indices of its values on the axes, so that neighbouring
values are at distance 1.

Optuna takes half a second to load, and only a search needs it: no other module imports it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import optuna

from assay.events.space import Point, Space

TrialState = optuna.trial.TrialState
Distributions = dict[str, optuna.distributions.BaseDistribution]

optuna.logging.set_verbosity(optuna.logging.ERROR)


def distributions(space: Space) -> Distributions:
    """Optuna's distribution of each axis, including axes with a single value."""
    return {
        axis.name: optuna.distributions.IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else optuna.distributions.CategoricalDistribution(tuple(range(len(axis.values))))
        for axis in space.axes
    }


def point_of(space: Space, indices: Mapping[str, int]) -> Point:
    return tuple(axis.values[indices[axis.name]] for axis in space.axes)


def indices_of(space: Space, point: Point) -> dict[str, int]:
    return {axis.name: axis.values.index(value) for axis, value in zip(space.axes, point, strict=True)}


def new_study(seed: int, random_points: int) -> optuna.Study:
    """A study that maximises: the first ``random_points`` points are uniformly random, the others chosen by the
    tree-structured Parzen estimator (TPE)."""
    with _without_experimental_warnings():
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=random_points)
    return optuna.create_study(direction="maximize", sampler=sampler)


@contextmanager
def _without_experimental_warnings() -> Iterator[None]:
    """Optuna warns of features whose interface may change; its version is pinned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def importance_of(space: Space, values: Mapping[Point, float]) -> dict[str, float]:
    """The importance of each axis by PED-ANOVA on the given points. It is 0 for axes with a single value."""
    distribution_by_axis = distributions(space)
    varied = {axis.name: distribution_by_axis[axis.name] for axis in space.axes if len(axis.values) > 1}
    study = optuna.create_study(direction="maximize")
    for point, figure in values.items():
        indices = {name: index for name, index in indices_of(space, point).items() if name in varied}
        study.add_trial(optuna.trial.create_trial(params=indices, distributions=varied, value=figure))
    with _without_experimental_warnings():
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    importances = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(importances.get(name, 0.0)) for name in space.names}
