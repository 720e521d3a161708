"""What a kernel costs, as formulas over the trips of its loops: by the rules of the timing model,
from the same operations, but for what depends on when they run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hwgen.codegen.nodes import Code
from hwgen.codegen.program import Program
from hwgen.polyhedral.tree.loop_tree import LoopTree
from hwgen.spec.affine import affine
from hwgen.spec.call_cycles import OF_ALL_CALLS
from hwgen.spec.expression import Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

from .columns import Moved, off_chip_moves
from .share import largest_share
from .symbolic import Formula, nested, number, symbolic, value, whole, without
from .tally import ONCE, Count, Kind, Parameter, Parameters, add, tally
from .timing_result import TimingResult
from .turns import PROCESSOR


@dataclass(frozen=True, slots=True)
class Trips:
    """A parameter: how often a loop runs, and where that comes from."""

    name: str
    number: int
    origin: str


@dataclass(frozen=True, slots=True)
class CallCost:
    """Operations of one unit that take as long. `rule`: cycles of each, a formula over `given`;
    `times`: how many, over the parameters."""

    unit: str
    name: str
    rule: Formula
    given: tuple[tuple[str, int], ...]
    cycles: int
    times: Formula
    number: int


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Cycles that a unit is busy for. `number`: what the formula gives; `busy`: what the timing
    model has, which is more by what operations wait for while they run: other readers of their bus,
    and where it `posts`, room in its buffer."""

    unit: str
    formula: Formula
    number: int
    busy: int
    posts: bool

    @property
    def waits(self) -> int:
        return self.busy - self.number


@dataclass(frozen=True, slots=True)
class TensorCost:
    """Bytes of a tensor that are loaded from an off-chip memory, or stored there (`way`); of all
    that a processor computes, those of its memory together."""

    memory: str
    tensor: str
    way: str
    formula: Formula
    number: int


@dataclass(frozen=True, slots=True)
class Cost:
    """`exact`: the formulas are of every operation, and `timed`: so is the timing model. `shared`:
    cycles are those of the worker that has most to do."""

    sizes: tuple[tuple[str, int], ...]
    parameters: tuple[Trips, ...]
    calls: tuple[CallCost, ...]
    units: tuple[UnitCost, ...]
    tensors: tuple[TensorCost, ...]
    cycles: int
    exact: bool
    timed: bool
    shared: bool


def cost_of(
    program: Program,
    hardware: HardwareSpec,
    workload: Workload,
    trees: Sequence[LoopTree],
    timing: TimingResult,
) -> Cost:
    """The formulas of a program that was lowered from `trees` and takes what `timing` says.

    Raises:
        HwgenError: H763 and H764 of a program that no stream can be made of.
    """
    parameters = Parameters({name for tree in trees for name in tree.loop})
    counts: dict[Kind, Count] = {}
    moved: list[tuple[Moved, Count]] = []
    exact, shared = True, False
    for part in program.parts:
        if isinstance(part, Code):
            add(counts, {Kind(PROCESSOR, part.name, part.cycles): {(): 1}}, ONCE)
            if part.memory_bytes:
                moved.append((Moved("", part.name, "", part.memory_bytes), ONCE))
            continue
        share = largest_share(part, hardware)
        found, known = tally(share, hardware, parameters)
        add(counts, found, ONCE)
        exact = exact and known
        shared = shared or share is not part
        # Bytes are those of all workers.
        moved += off_chip_moves(part, hardware, parameters)
    numbers = {p.name: p.trips for p in parameters.all}

    def summed(terms: Iterable[tuple[int, Count]]) -> tuple[Formula, int]:
        """So often each of the polynomials, as a formula, and its number."""
        total: dict[str, Count] = {"": {}}
        for factor, count in terms:
            add(total, {"": count}, {(): factor})
        formula = nested(total[""], [*numbers])
        return formula, value(formula, numbers)

    calls: list[CallCost] = []
    units: list[UnitCost] = []
    for unit in timing.units:
        mine = [(kind, count) for kind, count in counts.items() if kind.unit == unit.unit]
        for k, count in mine:
            times = summed([(1, count)])
            calls.append(CallCost(k.unit, k.name, rule_of(k), k.given, k.cycles, *times))
        cycles = summed((k.cycles, count) for k, count in mine)
        units.append(UnitCost(unit.unit, *cycles, unit.busy, any(k.posts for k, _ in mine)))
    terms: dict[tuple[str, str, str], list[tuple[int, Count]]] = {}
    for one, count in moved:
        terms.setdefault(one[:3], []).append((one.bytes, count))
    order = {t.name: n for n, t in enumerate((*workload.inputs, *workload.outputs))}
    keys = sorted(terms, key=lambda key: (order.get(key[1], len(order)), key))
    origins = _Origins(workload, trees)
    trips = tuple(Trips(p.name, p.trips, origins.of(p)) for p in parameters.all)
    return Cost(
        origins.sizes(trips),
        trips,
        tuple(calls),
        tuple(units),
        tuple(TensorCost(*key, *summed(terms[key])) for key in keys),
        timing.cycles,
        exact,
        timing.exact,
        shared,
    )


def rule_of(kind: Kind) -> Formula:
    """Cycles of an operation, over what its call's formula names: what several calls transfer
    counts once, and a number is added for what is none of their formula: operands that are brought
    in to stay, and cycles in which a host issues them."""
    if kind.rule is None:
        return number(kind.cycles)
    each = symbolic(kind.rule)
    idle = without(each, OF_ALL_CALLS)
    run = whole(number(kind.runs) * idle + (each - idle)) if kind.runs > 1 else whole(each)
    return run + number(kind.cycles - value(run, dict(kind.given)))


class _Origins:
    """Where trips come from: the extents of a statement's loops, as the workload's file has them,
    cut into tiles."""

    def __init__(self, workload: Workload, trees: Sequence[LoopTree]) -> None:
        self._sizes = workload.sizes
        self._extent: dict[str, int] = {}
        self._cut: dict[str, list[tuple[str, int, int]]] = {}
        for tree in trees:
            self._extent |= tree.extents
            for site in tree.sites:
                written = _written(tree, site.block.stage, workload)
                for iterator, index in site.block.bindings:
                    linear = affine(index)
                    if iterator not in written or linear is None or linear.constant:
                        continue
                    for loop, step in linear.terms:
                        self._cut.setdefault(loop, []).append((*written[iterator], step))

    def of(self, parameter: Parameter) -> str:
        """The trips as a formula of sizes where they are one, else from where to where they go."""
        for first, end in parameter.bounds:
            for text, extent, step in self._cut.get(parameter.loop, ()):
                if step < 1 or self._extent[parameter.loop] != -(-extent // step):
                    continue
                shown = f"({text})" if step > 1 and re.search(r"\W", text) else text
                every, whole = -(-extent // step), extent // step
                # What runs a tile ahead leaves the last one apart.
                apart = end == every - 1 != whole
                if end == every or apart:
                    tiles = f"ceil({shown}/{step})" if step > 1 else text
                elif end in (whole, whole - 1):
                    tiles = f"floor({shown}/{step})"
                    apart = end < whole
                else:
                    continue
                missing = first + apart
                return f"{tiles} - {missing}" if missing else tiles
        first, end = parameter.bounds[0]
        return f"{parameter.loop} from {first} to {end - 1}"

    def sizes(self, trips: Sequence[Trips]) -> tuple[tuple[str, int], ...]:
        """The sizes that they name."""
        named = {word for t in trips for word in re.findall(r"\w+", t.origin)}
        return tuple((name, number) for name, number in self._sizes if name in named)


def _written(tree: LoopTree, stage: str, workload: Workload) -> dict[str, tuple[str, int]]:
    """The extents of a stage's iterators as text and number, where a tensor of the workload that
    they index by themselves says them: first the one that is written."""
    made = tree.stage[stage]
    extents = dict(made.iterators)
    found: dict[str, tuple[str, int]] = {}
    for access in (made.target, *made.reads_in("whole")):
        tensor = workload.tensor.get(access.tensor)
        if tensor is None:
            continue
        for index, extent, text in zip(access.indices, tensor.shape, tensor.written, strict=False):
            if isinstance(index, Name) and extents.get(index.name) == extent:
                found.setdefault(index.name, (text, extent))
    return found
