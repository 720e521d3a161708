"""Explorations from beginning to end: the chips that may be asked for, what they are to compute,
and what comes of it; `hwgen.explore`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import get_args

from hwgen.errors import HwgenError
from hwgen.exploration.guided import Axis, combinations, guided, sampler_package
from hwgen.exploration.points import (
    Account,
    Chip,
    Explorer,
    Layer,
    Measure,
    Problem,
    check_measures,
    searched_for,
)
from hwgen.exploration.results import Results, Total
from hwgen.exploration.store import Store
from hwgen.exploration.work import Work
from hwgen.network.compiled import read_graph
from hwgen.network.operators.layer import Computation
from hwgen.network.operators.layer import Layer as NetworkLayer
from hwgen.network.operators.table import layers_of
from hwgen.passes.phase import SearchOptions
from hwgen.spec.find import find_spec
from hwgen.spec.load import load_hardware
from hwgen.spec.suggest import suggestion
from hwgen.spec.workload import Workload
from hwgen.verify.executors import Executor, Workers


@dataclass(frozen=True, slots=True)
class Space:
    """All chips that may be asked for, and what each has to compute. `fixed`: parameters with one
    value, which every chip shows too."""

    spec: Path
    axes: tuple[Axis, ...]
    fixed: tuple[tuple[str, int], ...]
    problems: tuple[Problem, ...]

    @property
    def kernels(self) -> int:
        """Of each chip; equal ones are several."""
        return sum(len(p.layers) for p in self.problems)

    def chip(self, values: Sequence[int]) -> Chip:
        """The chip with a value of each axis."""
        chosen = tuple((a.name, v) for a, v in zip(self.axes, values, strict=True))
        settings = (*chosen, *self.fixed)
        try:
            return Chip(settings, load_hardware(self.spec, dict(settings)))
        except HwgenError as error:
            return Chip(settings, error=error.diagnostic)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of a space. `budget`: chips to choose at most; None: all. `seconds`: of each
    kernel's search; `cached`: results of searches are kept on disk."""

    measures: tuple[Measure, ...]
    budget: int | None = None
    seed: int = 0
    seconds: float | None = None
    cached: bool = True

    @property
    def options(self) -> SearchOptions:
        return SearchOptions(self.seconds, objective=searched_for(self.measures))

    def chips(self, space: Space) -> int:
        """How many are compiled for."""
        every = combinations(space.axes)
        return min(self.budget or every, every)


def explored(
    space: Space,
    plan: Plan,
    workers: Executor,
    store: Store,
    told: Callable[[int, int], None] = lambda _, __: None,
) -> tuple[Results, Account]:
    """Compile for every chip, or for those that a sampler chooses. `told`: called with the kernels
    done and those of the whole run, found and equal ones included.

    Raises:
        HwgenError: as `guided` and `Explorer.points`.
    """
    budget = left = plan.chips(space)

    def tell(done: int, of: int) -> None:
        account = explorer.account
        before = account.computed + account.found + account.equal
        told(before + done, before + of + left * space.kernels)

    explorer = Explorer(workers, store, plan.options, plan.cached, tell)
    results = Results(space.spec.stem, plan.measures, ())
    totals: list[Total] = []

    def measured(wanted: Sequence[tuple[int, ...]]) -> list[tuple[float, ...] | None]:
        nonlocal left
        left -= len(wanted)
        made = [space.chip(values) for values in wanted]
        points = explorer.points([(c, p) for c in made for p in space.problems])
        new = [Total(c.settings, tuple(next(points) for _ in space.problems)) for c in made]
        totals.extend(new)
        return [None if t.error else results.values(t) for t in new]

    if budget == combinations(space.axes):
        measured([*product(*(a.values for a in space.axes))])
    else:
        guided(space.axes, budget, plan.seed, len(plan.measures), measured)
    return replace(results, totals=tuple(totals)), explorer.account


def kernels_of(space: Space, plan: Plan, total: Total) -> Iterator[tuple[str, Work]]:
    """The kernels of a chip, each with its name."""
    given = dict(total.settings)
    chip = space.chip([given[axis.name] for axis in space.axes])
    if chip.hardware is None:
        return
    for problem in space.problems:
        sizes = ", ".join(f"{n}={v}" for n, v in problem.settings)
        name = f"{problem.name} {sizes}".strip()
        for layer in problem.layers:
            label = f"{name} {layer.label}" if problem.network else name
            options = (plan.options, problem.network, plan.cached)
            yield label, Work(layer.workload, chip.hardware, *options)


def network_problems(models: Sequence[Path | str], without: Sequence[str] = ()) -> list[Problem]:
    """The layers of each model, less those of some kinds.

    Raises:
        HwgenError: H004 where none is of a kind that is left out; as `read_graph`.
    """
    graphs = [read_graph(path) for path in dict.fromkeys(models)]
    layers = [(g.name, layers_of(g)) for g in graphs]
    kinds = sorted({x.computation.kind for _, own in layers for x in own if x.computation})
    for kind in without:
        if kind not in kinds:
            raise HwgenError(
                "H004", "--without names layers that no model has", found=f"--without {kind}",
                allowed=", ".join(kinds) or "none, as there is no --model",
                repair=suggestion(kind, kinds),
            )  # fmt: skip
    return [Problem(name, (), _distinct(own, without), network=True) for name, own in layers]


def _distinct(layers: Sequence[NetworkLayer], without: Sequence[str]) -> tuple[Layer, ...]:
    """The computations of a network; equal layers are one."""
    found: dict[Computation, Layer] = {}
    for number, layer in enumerate(layers):
        own = layer.computation
        if own is None or own.kind in without:
            continue
        known = found.get(own) or Layer(f"{number} {own.kind}", own.workload(own.kind), 0)
        found[own] = replace(known, times=known.times + 1)
    return tuple(found.values())


def explore(
    chip: Path | str,
    workloads: Sequence[Workload] = (),
    *,
    models: Sequence[Path | str] = (),
    networks: Mapping[str, Sequence[Workload]] | None = None,
    parameters: Mapping[str, int | Iterable[int]] | None = None,
    objective: Sequence[Measure] = ("cycles", "traffic"),
    budget: int | None = None,
    seed: int = 0,
    db: Path | str | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    timeout: float | None = None,
    cached: bool = False,
) -> Results:
    """Compare chips: the same kernels for many values of a chip's parameters.

    Args:
        chip: the path or the bare name of its file.
        workloads: what each chip has to compute.
        models: `.tflite` and `.onnx` files, whose layers each chip has to compute.
        networks: the same, of layers that are workloads; equal ones are compiled once.
        parameters: a value, or several, for each of the chip's parameters.
        objective: what chips are compared by; the first but area is that of each kernel's search.
        budget: chips that Optuna's sampler chooses; None: every combination.
        seed: of the sampler.
        db: an SQLite file of results, in which nothing is computed twice.
        jobs: how many processes compile.
        cluster: the address of a Dask scheduler, whose workers compile instead.
        timeout: seconds that a worker may take for one kernel; None: as long as it takes.
        cached: whether results of searches are kept on disk.

    Raises:
        HwgenError: H050 another argument than these; as `find_spec`, `read_graph`,
            `check_measures`, `explored`, `Store` and `Workers`. A chip without a kernel
            is a result.
    """
    spec = find_spec(chip) if isinstance(chip, str) else chip
    asked = {n: _values(v) for n, v in (parameters or {}).items()}
    hardware = load_hardware(spec)
    allowed = [n for n, _ in hardware.parameters]
    _refuse("objective", [m for m in objective if m not in get_args(Measure)], get_args(Measure))
    _refuse("parameters", [n for n in asked if n not in allowed], allowed)
    _refuse("parameters", [n for n, v in asked.items() if not v], ["one value or more"])
    check_measures(hardware, objective)
    problems = [Problem(w.name, w.sizes, (Layer(w.name, w),)) for w in workloads]
    for name, layers in (networks or {}).items():
        named = {w: Layer(f"{n} {w.name}", w, layers.count(w)) for n, w in enumerate(layers)}
        problems.append(Problem(name, (), tuple(named.values()), network=True))
    space = Space(
        spec,
        tuple(Axis(n, v) for n, v in asked.items() if len(v) > 1),
        tuple((n, v[0]) for n, v in asked.items() if len(v) == 1),
        (*problems, *network_problems(models)),
    )
    plan = Plan(tuple(objective), budget, seed, None, cached)
    if plan.chips(space) < combinations(space.axes):
        sampler_package()  # A package that is missing is told before workers are started.
    with (
        Store(None if db is None else Path(db)) as store,
        Workers(jobs, cluster, timeout).executor() as workers,
    ):
        return explored(space, plan, workers, store)[0]


def _values(given: int | Iterable[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(sorted(set(given)))


def _refuse(argument: str, wrong: Sequence[str], allowed: Sequence[str]) -> None:
    if wrong:
        raise HwgenError(
            "H050", f"hwgen.explore takes no such {argument}", field=argument,
            found=", ".join(map(repr, wrong)), allowed=", ".join(allowed),
            repair=suggestion(wrong[0], allowed),
        )  # fmt: skip
