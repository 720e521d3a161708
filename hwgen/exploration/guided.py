"""Guided exploration: Optuna's sampler chooses the chips, in batches that do not depend on how many
workers there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

from hwgen.packages import needed

BATCH = 8
"""Chips that are chosen before the results of any of them are known."""

Figures = tuple[float, ...] | None
"""The objectives of a chip; None where it has no kernel for something."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A name and its values in ascending order."""

    name: str
    values: tuple[int, ...]


def combinations(axes: Sequence[Axis]) -> int:
    """How many chips there are."""
    return prod(len(a.values) for a in axes)


def guided(
    axes: Sequence[Axis],
    budget: int,
    seed: int,
    objectives: int,
    measured: Callable[[Sequence[tuple[int, ...]]], Sequence[Figures]],
) -> None:
    """Measure `budget` different chips, of more. `measured`: the figures of some, by their values.

    In place of a chip that the sampler has chosen before, one is drawn at random.

    Raises:
        HwgenError: H046 without the package `optuna`; as `measured`.
    """
    optuna = sampler_package()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    known: dict[tuple[int, ...], Figures] = {}
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
    others = Random(seed)
    while len(known) < budget:
        trials = [study.ask() for _ in range(min(BATCH, budget - len(known)))]
        asked = [_values(trial, axes) for trial in trials]
        new = [v for v in dict.fromkeys(asked) if v not in known]
        count = len(trials)
        while len(new) < count:
            places = [others.randrange(len(a.values)) for a in axes]
            drawn = tuple(a.values[n] for a, n in zip(axes, places, strict=True))
            if drawn not in known and drawn not in new:
                new.append(drawn)
                names = (a.name for a in axes)
                study.enqueue_trial(dict(zip(names, places, strict=True)))
                trials.append(study.ask())
                asked.append(_values(trials[-1], axes))
        known |= dict(zip(new, measured(new), strict=True))
        _tell(study, trials, [known[v] for v in asked], optuna.trial.TrialState.FAIL)


def sampler_package() -> Any:
    """Optuna.

    Raises:
        HwgenError: H046 where it is not installed.
    """
    return needed("optuna", "chooses chips", "explore")


def _values(trial: Any, axes: Sequence[Axis]) -> tuple[int, ...]:
    found: list[int] = []
    for axis in axes:
        place: int = trial.suggest_int(axis.name, 0, len(axis.values) - 1)
        found.append(axis.values[place])
    return tuple(found)


def _tell(study: Any, trials: Sequence[Any], figures: Sequence[Figures], failed: object) -> None:
    for trial, told in zip(trials, figures, strict=True):
        if told is None:
            study.tell(trial, state=failed)
        else:
            study.tell(trial, told)
