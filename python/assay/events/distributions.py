"""A grid as Optuna sees it: each axis by the place of the value on it, so that distances are those of neighbours.

Optuna takes half a second to load, and only a search needs it: this is the one module that loads it.
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
    """Of every axis, also those with one value."""
    return {
        axis.name: optuna.distributions.IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else optuna.distributions.CategoricalDistribution(tuple(range(len(axis.values))))
        for axis in space.axes
    }


def point_of(space: Space, places: Mapping[str, int]) -> Point:
    return tuple(axis.values[places[axis.name]] for axis in space.axes)


def places_of(space: Space, point: Point) -> dict[str, int]:
    return {axis.name: axis.values.index(value) for axis, value in zip(space.axes, point, strict=True)}


def new_study(seed: int, at_random: int) -> optuna.Study:
    """A study that looks for a maximum: the first ``at_random`` points are drawn evenly, the others by TPE."""
    with _stable_here():
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=at_random)
    return optuna.create_study(direction="maximize", sampler=sampler)


@contextmanager
def _stable_here() -> Iterator[None]:
    """Optuna warns of features whose interface may change; its version is pinned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def importance_of(space: Space, values: Mapping[Point, float]) -> dict[str, float]:
    """PED-ANOVA on the given points. Axes with one value have none."""
    spread = distributions(space)
    varied = {axis.name: spread[axis.name] for axis in space.axes if len(axis.values) > 1}
    study = optuna.create_study(direction="maximize")
    for point, figure in values.items():
        places = {name: place for name, place in places_of(space, point).items() if name in varied}
        study.add_trial(optuna.trial.create_trial(params=places, distributions=varied, value=figure))
    with _stable_here():
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(found.get(name, 0.0)) for name in space.names}
