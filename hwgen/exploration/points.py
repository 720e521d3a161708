"""Points of an exploration: chips, what is compiled for them, and the figures that come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from hwgen.errors import Diagnostic, HwgenError
from hwgen.exploration.store import Store
from hwgen.exploration.work import DEFECTS, Outcome, Refused, Work, outcome_of
from hwgen.passes.phase import SearchOptions
from hwgen.polyhedral.search.objective import Objective, allowed_objectives, check_objective
from hwgen.report.sweep import Point
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.executors import Executor, Lost

Measure = Literal["cycles", "traffic", "energy", "area"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
Settings = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip with values of its parameters, or why there is none such."""

    settings: Settings
    hardware: HardwareSpec | None = None
    error: Diagnostic | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A computation, and how often it runs. `label`: its place in a network."""

    label: str
    workload: Workload
    times: int = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """What a chip is to compute: a workload in some sizes, or the layers of a network."""

    name: str
    settings: Settings
    layers: tuple[Layer, ...]
    network: bool = False
    error: Diagnostic | None = None


@dataclass(slots=True)
class Account:
    """How the outcomes came about: `computed` in this run, `found` in the file of results,
    `equal` to another one of this run; `lost`: workers that died, and of these `late`, those that
    were ended as they took too long."""

    computed: int = 0
    found: int = 0
    equal: int = 0
    lost: int = 0
    late: int = 0


@dataclass(slots=True)
class Explorer:
    """Compiles points, each computation once. `told`: called with the kernels done
    of those that are asked for now."""

    workers: Executor
    store: Store
    options: SearchOptions
    cached: bool = True
    told: Callable[[int, int], None] = lambda _, __: None
    account: Account = field(default_factory=Account)
    _known: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    def points(self, wanted: Sequence[tuple[Chip, Problem]]) -> Iterator[Point]:
        """The figures of each chip with each problem, in their order.

        Raises:
            HwgenError: H047; H048 a worker has another hwgen.
        """
        keys = [[work.key for work in self._works(*pair)] for pair in wanted]
        new: dict[str, Work] = {}
        for pair, mine in zip(wanted, keys, strict=True):
            for key, work in zip(mine, self._works(*pair), strict=True):
                if key in self._known or key in new:
                    self.account.equal += 1
                elif (kept := self.store.read(key)) is not None:
                    self._known[key] = kept
                    self.account.found += 1
                else:
                    new[key] = work
        self._compute(new)
        for (chip, problem), mine in zip(wanted, keys, strict=True):
            yield _point(chip, problem, [self._known[key] for key in mine])

    def _works(self, chip: Chip, problem: Problem) -> Iterator[Work]:
        if chip.hardware is not None:
            for layer in problem.layers:
                yield Work(
                    layer.workload, chip.hardware, self.options, problem.network, self.cached
                )

    def _compute(self, new: Mapping[str, Work]) -> None:
        keys, works = [*new], [*new.values()]
        for done, (number, made) in enumerate(self.workers.run(outcome_of, works), 1):
            key = keys[number]
            if isinstance(made, Lost):
                outcome = Outcome(refused=Refused.of(made.error.diagnostic))
            else:
                outcome = made
            self._known[key] = outcome
            if outcome.kept:
                self.store.write(key, works[number], outcome)
            self.told(done, len(works))
        self.account.computed += len(works)
        self.account.lost, self.account.late = self.workers.lost, self.workers.late


def _point(chip: Chip, problem: Problem, outcomes: Sequence[Outcome]) -> Point:
    """The sums over a problem's layers; the first error, where one has no kernel, and of these
    the first that no chip is to blame for."""
    area = chip.hardware.area or None if chip.hardware is not None else None
    point = Point(problem.name, chip.settings, problem.settings, area=area)
    if error := chip.error or problem.error:
        return replace(point, error=error)
    made = list(zip(problem.layers, outcomes, strict=True))
    refused = [(layer, o.refused) for layer, o in made if o.refused is not None]
    if refused:
        layer, error = min(refused, key=lambda found: found[1].code not in DEFECTS)
        told = error.diagnostic
        where = f"{layer.label}: {told.field}".rstrip(": ") if problem.network else told.field
        return replace(point, error=replace(told, field=where), refused=len(refused))
    known = [(o.energy, layer.times) for layer, o in made if o.energy is not None]
    return replace(
        point,
        cycles=sum(o.cycles * layer.times for layer, o in made),
        bound=sum(o.bound * layer.times for layer, o in made),
        off_chip_bytes=sum(o.off_chip_bytes * layer.times for layer, o in made),
        energy=sum(e * times for e, times in known) if known else None,
        layers=tuple((layer.label, o.cycles * layer.times) for layer, o in made),
    )


def searched_for(measures: Sequence[Measure]) -> Objective:
    """The objective of each kernel's search: the first one that is of kernels."""
    for measure in measures:
        if measure != "area":
            return measure
    return "cycles"


def check_measures(hardware: HardwareSpec, measures: Sequence[Measure]) -> None:
    """Refuse what nothing is known of.

    Raises:
        HwgenError: H426 as `check_objective` of a kernel's search; an area, if the file has none.
    """
    check_objective(hardware, searched_for(measures))
    if "energy" in measures:
        check_objective(hardware, "energy")
    if "area" in measures and not hardware.area:
        known = allowed_objectives(hardware)
        raise HwgenError(
            "H426", f"chips cannot be compared by area: nothing in the file of {hardware.name} "
            "has one", location=hardware.location, field="objective", found="area, and no areas",
            allowed=", ".join(known),
            repair="add area: EXPRESSION, in square millimetres, to a memory or a unit",
        )  # fmt: skip
