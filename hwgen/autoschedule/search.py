"""Finding a schedule: inline what is cheap, tile what reduces, share what is left among workers.

Nothing here can do what a user's script cannot: it calls the schedule's public primitives, and
what they refuse is passed over for the next best.
"""

from __future__ import annotations

from functools import partial
from math import prod

from hwgen.autoschedule import blocks, lanes
from hwgen.autoschedule.cost import (
    Grid,
    Point,
    Structure,
    grid,
    simple_cycles,
)
from hwgen.autoschedule.nests import (
    Nest,
    attempt,
    count,
    is_read_in_place,
    last_index,
    nest_of,
    plain_target,
    pristine,
)
from hwgen.autoschedule.options import DEFAULTS, Options
from hwgen.autoschedule.orders import order_loops
from hwgen.autoschedule.report import Choice, SearchReport
from hwgen.autoschedule.sharing import share_loops, share_out
from hwgen.constants import WRITTEN_NODES
from hwgen.errors import HwgenError, Tolerating
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.search.search import Watch
from hwgen.polyhedral.tree.cost import nest_bound, operations
from hwgen.polyhedral.tree.edit import main_site
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.polyhedral.tree.placement import MAX_NESTED
from hwgen.spec.expression import DTYPES, Access, Name, names, nesting, walk
from hwgen.spec.processor import Processor


def autoschedule(schedule: Schedule, options: Options = DEFAULTS) -> SearchReport:
    """Complete a schedule; edits that were made before stay.

    Deterministic. Where nothing applies to a nest it stays as it is.
    """
    machine = schedule.hardware.processor
    if machine is None:
        return SearchReport(notes=("no processor: nothing to schedule",))
    bound = float(nest_bound(schedule.state, machine))
    before = count(schedule)
    touched = _touched(schedule)
    watch = Watch(options.seconds)
    choices, apart = _inline_all(schedule)
    exhausted = True
    bound_loops = bool(machine.coordinates("block"))
    for stage in [s.tensor for s in schedule.state.stages if s.reduces and not s.continues]:
        if stage not in schedule.state.stage or not pristine(schedule.state, stage):
            continue
        nest = nest_of(schedule.state, stage)
        if bound_loops:
            choice, complete = _tile_blocks(schedule, nest, machine, options, watch)
        else:
            choice, complete = _tile_lanes(schedule, nest, machine, options, watch)
        exhausted = exhausted and complete
        if choice is not None:
            choices.append(choice)
    for stage in [] if bound_loops else [s.tensor for s in schedule.state.stages]:
        if is_read_in_place(schedule.state, stage):  # What no tiling has copied.
            choices += _read_in_place(schedule, stage)
    for stage in [s.tensor for s in schedule.state.stages if s.tensor not in apart]:
        if pristine(schedule.state, stage):
            choices.append(_simple(schedule, stage, machine, options))
    for stage in reversed(apart):  # What reads it has its loops by now.
        fused = pristine(schedule.state, stage) and _compute_where_read(schedule, stage)
        if fused:
            choices.append(Choice(stage, "computed where it is read", 0.0))
        elif pristine(schedule.state, stage):
            choices.append(_simple(schedule, stage, machine, options))
    choices += share_loops(schedule, touched)
    choices += order_loops(schedule, touched)
    share_out(schedule, touched, options)
    choices += _complete(schedule, machine, touched)
    notes = [] if count(schedule) > before else ["the schedule was complete"]
    if not exhausted and watch.expired:
        notes.append(f"search cut short, {watch.reason}")
    return SearchReport(tuple(choices), bound, exhausted, tuple(notes))


# Inlining


def _inline_all(schedule: Schedule) -> tuple[list[Choice], list[str]]:
    """Element-wise producers whose every element is needed once are written where needed; those
    that would be written too often, to be computed there once. All are checked at once; only where
    one is refused, one by one."""
    with Tolerating(""), schedule.batch(blame=False):
        return _inline_each(schedule)
    return _inline_each(schedule)


def _inline_each(schedule: Schedule) -> tuple[list[Choice], list[str]]:
    choices: list[Choice] = []
    apart: list[str] = []
    in_lanes = not schedule.hardware.machine.coordinates("block")
    for stage in [s.tensor for s in schedule.state.stages]:
        if in_lanes and is_read_in_place(schedule.state, stage):
            readers = schedule.state.readers(stage)
            if not any(nest_of(schedule.state, r.tensor).narrow for r in readers):
                choices += _read_in_place(schedule, stage)
            continue
        if not _cheap_to_inline(schedule.state, stage):
            continue
        if not _short(schedule.state, stage):
            apart.append(stage)
        elif attempt(schedule, partial(schedule.compute_inline, stage)) is None:
            choices.append(Choice(stage, "inlined", 0.0))
    return choices, apart


def _read_in_place(schedule: Schedule, stage: str) -> list[Choice]:
    refused = attempt(schedule, partial(schedule.compute_inline, stage))
    return [Choice(stage, "read in place", 0.0)] if refused is None else []


def _short(state: LoopTree, name: str) -> bool:
    """Whether a producer is written once, or its only reader stays short with it written out, which
    in no case becomes too deep."""
    reader = state.readers(name)[0]
    if nesting(reader.value) + nesting(state.stage[name].value) > MAX_NESTED:
        return False
    nodes = list(walk(reader.value))
    times = sum(isinstance(n, Access) and n.tensor == name for n in nodes)
    written = sum(1 for _ in walk(state.stage[name].value))
    return times == 1 or len(nodes) + times * written <= WRITTEN_NODES


def _compute_where_read(schedule: Schedule, stage: str) -> bool:
    """Compute each element of a stage right before its only reader reads it; whether it worked."""
    reader = main_site(schedule.state, schedule.state.readers(stage)[0].tensor)
    if not reader.names:
        return False

    def edits() -> None:
        schedule.compute_at(stage, reader.names[-1])
        schedule.set_scope(stage, lanes.private_memory(schedule.hardware))

    return attempt(schedule, edits) is None


def _cheap_to_inline(state: LoopTree, name: str) -> bool:
    stage = state.stage[name]
    readers = state.readers(name)
    return (
        state.tensor[name].role == "intermediate"
        and not stage.reduces
        and stage.kind == "compute"
        and plain_target(stage)
        and pristine(state, name)
        and len(readers) == 1
        and pristine(state, readers[0].tensor)
        and _reads_once(readers[0], name)
        and not any(state.stage[a.tensor].reduces for a in stage.reads if a.tensor in state.stage
                    and readers[0].reduces)
    )  # fmt: skip


def _reads_once(reader: Stage, tensor: str) -> bool:
    """Whether different instances of a reader read different elements."""
    accesses = [a for a in reader.reads if a.tensor == tensor]
    if len(accesses) != 1:
        return False
    used = [i.name for i in accesses[0].indices if isinstance(i, Name)]
    mixed = [i for i in accesses[0].indices if not isinstance(i, Name) and len(names(i)) > 1]
    return not mixed and all(n in used or e == 1 for n, e in reader.iterators)


# Reductions


def _tile_lanes(
    schedule: Schedule, nest: Nest, machine: Processor, options: Options, watch: Watch
) -> tuple[Choice | None, bool]:
    """The cheapest tiling that the schedule accepts; whether none was left out."""
    if not nest.plain:
        return None, True
    structures = lanes.structures(schedule.state, nest, machine)
    grids = [grid(nest, schedule.hardware, s) for s in structures]
    ranked = _ranked(grids, options.attempts)
    ended = False
    for number, (structure, point) in enumerate(ranked):
        made = partial(lanes.schedule_nest, schedule, nest, structure, point, machine)
        refused = attempt(schedule, made)
        if refused is None:
            text = f"{point}, columns {structure.v}"
            text += f", rows {structure.r}" if structure.r else ""
            text += f", sums along {structure.dot}" if structure.dot else ""
            text += ", operands widened" if structure.widened else ""
            text += f", packed {', '.join(structure.packed)}" if structure.packed else ""
            return Choice(
                nest.stage,
                text,
                point.cycles,
                sum(g.considered for g in grids),
                sum(g.pruned for g in grids),
                number,
            ), True
        if _is_last(refused, watch):
            ended = True
            break
    considered = sum(g.considered for g in grids)
    return (
        Choice(nest.stage, "left as it is", float(nest.points), considered, considered,
               len(ranked)),
        len(ranked) < options.attempts and not ended,
    )  # fmt: skip


def _is_last(refused: HwgenError, watch: Watch) -> bool:
    """True if no choice of a nest is tried after a refused one: isl gave up, or time is over."""
    return refused.code == "H407" or watch.expired


def _ranked(grids: list[Grid], number: int) -> list[tuple[Structure, Point]]:
    """The cheapest point of each structure, as its other sizes would be refused alike; ties keep
    the structures' order."""
    found = [(g.structure, p) for g in grids if (p := g.best()) is not None]
    return sorted(found, key=lambda x: x[1].cycles)[:number]


def _tile_blocks(
    schedule: Schedule, nest: Nest, machine: Processor, options: Options, watch: Watch
) -> tuple[Choice | None, bool]:
    if not nest.plain or schedule.hardware.workspace_of("thread") is None:
        return None, True
    options_, considered, pruned = blocks.ranked(nest, schedule.hardware)
    ended = False
    for number, tiling in enumerate(options_[: options.attempts]):
        made = partial(blocks.schedule_nest, schedule, nest, tiling, machine)
        refused = attempt(schedule, made)
        if refused is None:
            return Choice(nest.stage, str(tiling), tiling.cycles, considered, pruned, number), True
        if _is_last(refused, watch):
            ended = True
            break
    return (
        Choice(nest.stage, "left as it is", float(nest.points), considered, pruned,
               min(len(options_), options.attempts)),
        len(options_) <= options.attempts and not ended,
    )  # fmt: skip


# What has no reuse, and what a user began


def _simple(schedule: Schedule, stage: str, machine: Processor, options: Options) -> Choice:
    state = schedule.state
    found = state.stage[stage]
    elements = prod(e for _, e in found.iterators)
    width = DTYPES[state.tensor[stage].dtype]
    moved = elements * width + sum(
        min(elements, prod(state.tensor[a.tensor].shape)) * DTYPES[state.tensor[a.tensor].dtype]
        for a in found.reads
    )
    work = operations(found.value, last_index(found))
    cycles = simple_cycles(elements, work, moved, machine, width)
    if machine.coordinates("block"):
        made = partial(blocks.schedule_simple, schedule, stage, machine)
    else:
        busy = machine.workers > 1 and elements * 2 > options.worth(machine)
        made = partial(lanes.schedule_simple, schedule, stage, machine, busy=busy)
    refused = attempt(schedule, made)
    text = "its loops shared out" if refused is None else "left as it is"
    return Choice(stage, text, cycles, 1, 0, int(refused is not None))


def _touched(schedule: Schedule) -> tuple[str, ...]:
    """Stages whose nests were edited before."""
    state = schedule.state
    return tuple(s.tensor for s in state.stages if not pristine(state, s.tensor))


def _complete(schedule: Schedule, machine: Processor, touched: tuple[str, ...]) -> list[Choice]:
    """Nests that were edited before: workers for the outermost loop, lanes for the innermost,
    wherever nothing else is said about them."""
    choices: list[Choice] = []
    for stage in [s for s in touched if s in schedule.state.stage]:
        site = main_site(schedule.state, stage)
        if not site.loops or any(x.kind != "serial" for x in site.loops):
            continue
        if site.block.tensorized is not None:
            continue
        if machine.coordinates("block"):
            done = blocks.complete(schedule, stage, machine)
        else:
            done = lanes.complete(schedule, stage, machine)
        if done:
            choices.append(Choice(stage, f"completed: {', '.join(done)}", 0.0, 1))
    return choices
