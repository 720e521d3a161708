"""Kernels of several stages that share loops over blocks of the result.

A chain of stages tile by tile: the last stage's loops are cut into blocks, everything before is
computed inside of these, so that what is in between never leaves the chip, and blocks of different
iterations run at the same time (`pipelining.py`). Which dimension is cut, and how long blocks are,
is tried; calls and copies are those of `block_completing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from hwgen.constants import (
    BLOCK_SIZES,
    OPERAND_TILE,
    PIPELINED_KERNELS,
    RECOMPUTED,
    SHORT_KERNEL,
    USUAL_BLOCK,
    WINDOW_ROWS,
)
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.block_completing import KEPT, Choice, Completion, Covers
from hwgen.passes.handovers import in_pieces
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.phase import DEFAULTS, SearchOptions
from hwgen.passes.pipeline_ranking import CLOSE
from hwgen.passes.pipelining import Pipeline, PipelineCandidate
from hwgen.passes.sliding import instances, slid, slides
from hwgen.passes.start import Start
from hwgen.passes.trees import compile_tree
from hwgen.passes.worth import is_near, is_scarce
from hwgen.polyhedral import isl
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import views_of
from hwgen.polyhedral.search.choose import TIE
from hwgen.polyhedral.search.objective import Measure
from hwgen.polyhedral.search.search import SCHEDULE_WORK, Watch
from hwgen.polyhedral.tree.edit import find_stage, refuse
from hwgen.polyhedral.tree.faded import faded
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.spec.expression import Name, names, substitute
from hwgen.spec.workload import Tensor, Workload


@dataclass(frozen=True, slots=True)
class Sketch:
    """Blocks of the result: `size` elements along a dimension. `tiles`: stages and the iterators of
    which tiles are loaded one after the other; `running`: an extremum that runs on from tile to
    tile, and the terms that are of its tiles; `outer`: dimensions whose elements are taken one
    after the other, outside of blocks."""

    dimension: int
    size: int
    tiles: tuple[tuple[str, str], ...] = ()
    running: tuple[str, str] | None = None
    outer: tuple[int, ...] = ()

    def loops(self, schedule: Schedule) -> frozenset[str]:
        """The loops over blocks and tiles of its schedule."""
        blocks = schedule.get_loops(_last(schedule.workload).name)[: len(self.outer) + 1]
        inner = [stage for stage, _ in self.tiles]
        inner += [] if self.running is None else [self.running[1]]
        return frozenset((*blocks, *(schedule.get_loops(stage)[len(blocks)] for stage in inner)))


def fused_if_better(start: Start, made: Kernel, options: SearchOptions = DEFAULTS) -> Kernel:
    """A kernel, or one whose stages share loops if that is better; by cycles, if it takes fewer of
    them, or as many and moves fewer bytes."""
    if not several(start.workload) or made.program.codes or _done(made, options):
        return made
    if len(made.parts) == 1 and made.cycles > SHORT_KERNEL and not _waits(made):
        return made
    with isl.bounded():
        most = options.measure(made)
        if options.objective == "cycles":
            most = (int(made.cycles * TIE),)
        found = fused(start, options, most, _sizes(made))
    if found is None or options.objective != "cycles" or found.cycles * TIE < made.cycles:
        return found or made
    return found if found.offchip_bytes < made.offchip_bytes else made


def _waits(made: Kernel) -> bool:
    """Whether of a single phase units that compute wait for each other, or stages for sums of
    others: else its tiles, of which all were looked at, say all that blocks could, but for the few
    cycles that loads begin sooner."""
    operations = made.match.selection.operations
    units = {o.intrinsic.unit for o in operations if o.kind not in ("load", "store")}
    sums = sum(s.accumulates for s in made.workload.statements)
    return len(units) > 1 or sums > 1


def _sizes(made: Kernel) -> Mapping[int, Sequence[int]] | None:
    """Of a single phase, by dimension the elements of blocks that are worth a look: its search has
    seen all tiles, so that they are as many as the outermost loop walks; of a short kernel twice as
    many too, as latencies weigh more in stages that follow one another."""
    if len(made.parts) > 1 or made.ended_by:
        return None
    indices = made.scop.statements[-1].target.indices
    for loop in made.tiling.loops[:1]:
        size = loop.tile * made.match.block.get(loop.loop, 1)
        sizes = (size, 2 * size) if made.cycles <= SHORT_KERNEL else (size,)
        return {d: sizes for d, index in enumerate(indices) if loop.loop in index.names}
    return {}


def _last(workload: Workload) -> Tensor:
    """What the last statement computes."""
    moved = views_of(workload)
    computed = [s for s in workload.statements if s.target.tensor not in moved]
    return workload.tensor[computed[-1].target.tensor]


def several(workload: Workload) -> bool:
    """Whether there is more than one stage that could share loops."""
    moved = views_of(workload)
    return sum(s.target.tensor not in moved for s in workload.statements) > 1


def _done(made: Kernel, options: SearchOptions) -> bool:
    """Whether a kernel is hardly to be improved: near its bound, without a byte too many, or best
    of all tiles of a single phase, of which the closed form knows the bytes."""
    if options.objective == "cycles":
        return is_near(made, options)
    tensors = (*made.workload.inputs, *made.workload.outputs)
    once = made.offchip_bytes <= sum(t.bytes for t in tensors)
    alone = made.account.search.exhausted and len(made.parts) == 1
    return (once and options.objective == "traffic") or alone


def fused(
    start: Start,
    options: SearchOptions = DEFAULTS,
    most: Measure = (inf,),
    sizes_of: Mapping[int, Sequence[int]] | None = None,
) -> Kernel | None:
    """The best kernel whose stages share loops over blocks of the last one's; None where none takes
    at most `most` by the objective. `sizes_of`: by dimension, elements of a block, if not any."""
    workload = start.workload
    completion = Completion(start.schedule, options, start)
    watch = Watch(options.seconds, work=options.work)
    search = _Search(start, completion, most, watch)
    if sizes_of is None:
        dimensions = range(len(_last(workload).shape))
        fewer = {d: WINDOW_ROWS if _slides(start, d) else () for d in dimensions}
        sizes_of = {d: (*fewer[d], *BLOCK_SIZES) for d in dimensions}
    # Extrema that run on first: what waits for whole ones is rarely better, which its bound shows.
    for running in (*_extrema(completion.schedule.state), None):
        search.watch = Watch(options.seconds, work=options.work)
        # From a tile's elements to its terms and sums it is two handovers, not one.
        search.slots = 2 if running is None else 3
        for dimension, extent in enumerate(_last(workload).shape):
            sizes = [size for size in sizes_of.get(dimension, ()) if size < extent]
            if not sizes:
                continue
            sketch = Sketch(dimension, sizes[0], running=running)
            schedule = _begun(start, sketch)
            if schedule is None or not _once(schedule, sketch):
                continue
            outer = _apart(start, sketch)
            search.dimension([replace(sketch, outer=x) for x in dict.fromkeys((outer, ()))], sizes)
    return search.in_pieces()


def _apart(start: Start, sketch: Sketch) -> tuple[int, ...]:
    """Dimensions whose elements, taken one after the other, let inputs stay for all blocks of one:
    heads of an attention, whose blocks of rows each need all of its keys."""
    found: list[int] = []
    workload = start.workload
    inputs = {t.name for t in workload.inputs}
    for dimension, extent in enumerate(_last(workload).shape):
        mine = replace(sketch, outer=(dimension,))
        if extent == 1 or dimension == sketch.dimension:
            continue
        schedule = _begun(start, mine)
        if schedule is None or not _once(schedule, mine):
            continue
        around, block = schedule.get_loops(_last(workload).name)[:2]
        moved = [
            {n for i in read.indices for n in names(substitute(i, site.block.binding))}
            for site in schedule.state.sites
            for read in schedule.state.stage[site.block.stage].reads
            if read.tensor in inputs
        ]
        stays = any(around in m and block not in m for m in moved)
        if stays and all(around in m for m in moved if block in m):
            found.append(dimension)
    return tuple(found)


def shareable(start: Start) -> bool:
    """Whether all stages may share a loop over blocks of the last one's elements, and do hardly
    anything for several of them."""
    for dimension, extent in enumerate(_last(start.workload).shape):
        sketch = Sketch(dimension, BLOCK_SIZES[0])
        schedule = _begun(start, sketch) if extent > BLOCK_SIZES[0] else None
        if schedule is not None and _once(schedule, sketch):
            return True
    return False


def _extrema(state: LoopTree) -> Iterator[tuple[str, str]]:
    """The extrema that may run on while sums are rescaled, of more elements than a tile has, and
    the terms of these sums."""
    for stage in state.stages:
        if stage.op not in ("max=", "min=") or dict(stage.reduction) == {}:
            continue
        try:
            found = faded(state, stage.tensor)
        except HwgenError as error:
            if error.code != "H413":
                raise
            continue
        if dict(stage.iterators)[found.loop] > OPERAND_TILE:
            yield stage.tensor, found.term.tensor


@dataclass
class _Search:
    """The best kernel of the sketches that have been looked at, of those that take at most `most`
    by the objective, until a limit is reached; `piped`: the best pipeline. `slots`: of each buffer,
    for which there is to be room; `made`: what scripts gave then; None where refused."""

    start: Start
    completion: Completion
    most: Measure
    watch: Watch
    best: Kernel | None = None
    piped: Pipeline | None = None
    slots: int = 2
    made: dict[tuple[str, int], Kernel | None] = field(default_factory=lambda: {})

    def dimension(self, sketches: Sequence[Sketch], sizes: Sequence[int]) -> None:
        """Look at blocks of some sizes along a dimension, of the best of some sketches."""
        running = sketches[0].running
        first: tuple[int, Sketch, Choice, Kernel] | None = None
        at, tiles = 0, ()
        every = self._tiled(sketches[-1]) if running is None else [()]
        for tiles in every:
            usual = sum(size <= USUAL_BLOCK for size in BLOCK_SIZES)
            usual += sum(size < BLOCK_SIZES[0] for size in sizes)
            for at in reversed(range(min(len(sizes), usual))):
                if self.watch.expired:
                    return
                found = [
                    (at, x, *made)
                    for at, x in self._alike(sketches, sizes, at, tiles)
                    if (made := self._covered(x)) is not None
                ]
                first = found[0] if found else None
                for other in found[1:]:
                    if first is None or self._clearly_less(other[3], first[3]):
                        first = other
                if first is not None:
                    break
            if first is not None:
                break
        if first is None:
            return
        at, sketch, choice, kernel = first
        kernels = [kernel]
        # Where blocks of rows share what they load, there is nothing to gain from fewer rows.
        fewer = [] if running else [*reversed(range(at))]
        for number in [*fewer, *range(at + 1, len(sizes))]:
            made = self._made(replace(sketch, size=sizes[number]), choice)
            if made is None and number > at:
                break
            kernels += [] if made is None else [made]
        kernels.sort(key=self._least)
        best = [k for k in kernels[:PIPELINED_KERNELS] if self._least(k) < self.most]
        for prospect in sorted(map(PipelineCandidate, best), key=self._promise):
            if self._promise(prospect) >= self.most:
                break
            made = prospect.pipelined()
            self._keep(made.kernel)
            if self.piped is None or self._less(made, self.piped):
                self.piped = made

    def in_pieces(self) -> Kernel | None:
        """The best kernel, the best pipeline's handovers in pieces where that is better."""
        if self.piped is not None and self._least(self.piped.kernel) < self.most:
            self._keep(in_pieces(self.piped).kernel)
        return self.best

    def _less(self, one: Pipeline, other: Pipeline) -> bool:
        return self._measure(one.kernel) < self._measure(other.kernel)

    def _keep(self, kernel: Kernel) -> None:
        if self._measure(kernel) <= self.most:
            self.best, self.most = kernel, self._measure(kernel)

    def _measure(self, kernel: Kernel) -> Measure:
        return self.completion.options.measure(kernel)

    def _least(self, kernel: Kernel) -> Measure:
        """What a kernel takes at least by the objective, however its stages are shifted."""
        return (*self._measure(kernel)[:-1], _busiest(kernel))

    def _promise(self, prospect: PipelineCandidate) -> Measure:
        """What a pipeline is about to take by the objective."""
        return (*self._measure(prospect.plain)[:-1], prospect.cycles)

    def _alike(
        self,
        sketches: Sequence[Sketch],
        sizes: Sequence[int],
        at: int,
        tiles: tuple[tuple[str, str], ...],
    ) -> Iterator[tuple[int, Sketch]]:
        """Sketches with blocks of about as many elements each, and the places of their sizes."""
        shape = _last(self.start.workload).shape
        for sketch in sketches:
            most = sizes[at] * prod(shape[d] for d in sketch.outer)
            place = max(n for n, size in enumerate(sizes) if size <= most)
            left = self._left(sketch, tiles) if sketch.outer else tiles
            yield place, replace(sketch, size=sizes[place], tiles=left)

    def _left(
        self, sketch: Sketch, tiles: tuple[tuple[str, str], ...]
    ) -> tuple[tuple[str, str], ...]:
        """The tiles of iterators that no outer loop takes one element of at a time."""
        schedule = _begun(self.start, sketch)
        if schedule is None:
            return ()
        site, taken = schedule.state.site, sketch.loops(schedule)
        return tuple((s, n) for s, n in tiles if taken.isdisjoint(names(site[s].block.binding[n])))

    def _clearly_less(self, kernel: Kernel, other: Kernel) -> bool:
        """Whether a kernel's busiest unit has clearly less to do than another's."""
        *before, busy = self._least(other)
        return self._least(kernel) < (*before, busy / CLOSE)

    def _rank(self, kernel: Kernel) -> Measure:
        return (*self._least(kernel), kernel.cycles)

    def _covered(self, sketch: Sketch) -> tuple[Choice, Kernel] | None:
        """The covers whose busiest unit works least, and the kernel."""
        best: tuple[Choice, Kernel] | None = None
        schedule = _begun(self.start, sketch)
        if schedule is None:
            return None
        completion, loops = self.completion.of(schedule), sketch.loops(schedule)
        choices: list[Covers] = []
        with Tolerating(REFUSALS):
            choices = completion.covers(loops)
        for covers in choices:
            together = (True, False) if completion.again else (False,)
            for once in together:
                choice = Choice(loops, KEPT[0], covers, once)
                made = self._compiled(completion, choice)
                if made is not None:
                    if best is None or self._rank(made) < self._rank(best[1]):
                        best = choice, made
                    break
        return best

    def _made(self, sketch: Sketch, choice: Choice) -> Kernel | None:
        schedule = _begun(self.start, sketch)
        if schedule is None:
            return None
        again = replace(choice, inside=sketch.loops(schedule))
        return self._compiled(self.completion.of(schedule), again)

    def _compiled(self, completion: Completion, choice: Choice) -> Kernel | None:
        """The kernel that a choice gives units, results in the place of operands where room is
        scarce; None where there is none, or no time left."""
        if self.watch.expired:
            return None
        moved = views_of(self.start.workload)
        try:
            schedule = completion.written(choice)
        except HwgenError as error:
            if not error.code.startswith(REFUSALS):
                raise
            return None
        sites = schedule.state.sites
        if any(s.block.tensorized is None and s.block.stage not in moved for s in sites):
            return None  # The processor would run some.
        # Choices often differ in what a schedule has none of.
        key = schedule.trace(), self.slots
        if key not in self.made:
            self.watch.spend(SCHEDULE_WORK)
            assert isinstance(choice.inside, frozenset)
            sliding = slid(schedule, choice.inside)
            found = _with_room(sliding, self.slots)
            if found is None and sliding.trace() != schedule.trace():
                found = _with_room(schedule, self.slots)
            self.made[key] = found
        return self.made[key]

    def _tiled(self, sketch: Sketch) -> Iterator[tuple[tuple[str, str], ...]]:
        """Which operands come in tiles: none, then one after the other, the largest first."""
        yield ()
        schedule = _begun(self.start, sketch)
        assert schedule is not None
        found: list[tuple[int, str, str]] = []
        state = schedule.state
        for stage in state.stages:
            site = state.site[stage.tensor]
            own = {n for n, e in site.block.bindings if isinstance(e, Name)}
            for read in stage.reads:
                used = [i.name for i in read.indices if isinstance(i, Name) and i.name in own]
                # Not what the loop over blocks moves.
                if state.tensor[read.tensor].role == "input" and len(used) == len(read.indices):
                    extents = {n: site.extents[str(site.block.binding[n])] for n in used}
                    longest = max(used, key=lambda n: extents[n])
                    if extents[longest] > OPERAND_TILE:
                        found.append((prod(extents.values()), stage.tensor, longest))
        found.sort(key=lambda x: -x[0])
        # Two operands of a sum may be tiled along the same loop.
        tiles = (*dict.fromkeys((s, n) for _, s, n in found),)
        for count in range(1, len(tiles) + 1):
            yield tiles[:count]


def _with_room(schedule: Schedule, slots: int) -> Kernel | None:
    """The kernel of a schedule, results in the place of operands where room for so many slots of
    each buffer is scarce."""
    plain: Kernel | None = None
    with Tolerating(REFUSALS):
        with Tolerating("H502"):
            plain = compile_tree(schedule)
        if plain is not None and not is_scarce(plain, slots):
            return plain
        dense = _in_place(schedule)
        return plain if dense.state is schedule.state else compile_tree(dense)
    return plain


def _busiest(kernel: Kernel) -> int:
    return max(u.busy for u in kernel.timing.units)


def _in_place(schedule: Schedule) -> Schedule:
    """The same with results in the place of operands that nothing reads afterwards."""
    made = schedule.copy()
    for stage in made.state.stages:
        memory = made.state.memory(stage.tensor)
        for read in stage.reads if memory and not stage.reduces else ():
            computed = read.tensor in made.state.stage
            alike = made.state.memory(read.tensor) == memory
            if not (computed and alike) or read.indices != stage.target.indices:
                continue
            with Tolerating(("H411", "H413")):
                made.alias(stage.tensor, read.tensor)
                break
    return made


def _loop(schedule: Schedule, tensor: str, dimension: int) -> str:
    """The loop that moves a dimension of a tensor alone.

    Raises:
        HwgenError: H413 where there is none, H414 where no stage has the tensor's name.
    """
    state = schedule.state
    indices = find_stage(state, tensor).target.indices
    index = indices[dimension] if dimension < len(indices) else None
    binding = state.site[tensor].block.binding if tensor in state.site else {}
    loop = binding.get(index.name) if isinstance(index, Name) else None
    if not isinstance(loop, Name):
        raise refuse(
            f"{tensor} has no blocks along dimension {dimension}",
            f"index {index}" if index is not None else f"{len(indices)} dimensions",
            "an index that is a loop",
            "another dimension",
        )
    return loop.name


def _begun(start: Start, sketch: Sketch) -> Schedule | None:
    with Tolerating(REFUSALS):
        return begun(start, sketch)
    return None


def _slides(start: Start, dimension: int) -> bool:
    """Whether windows slide along a dimension of the result."""
    sketch = Sketch(dimension, WINDOW_ROWS[-1])
    schedule = _begun(start, sketch)
    return schedule is not None and slides(schedule.state, sketch.loops(schedule))


def _once(schedule: Schedule, sketch: Sketch) -> bool:
    """Whether hardly any instances of blocks are executed several times."""
    state, loops = schedule.state, sketch.loops(schedule)
    done = sum(instances(site, loops) for site in state.sites)
    once = sum(prod(n for _, n in state.stage[s.block.stage].iterators) for s in state.sites)
    return done <= RECOMPUTED * once


def _blocks(s: Schedule, tensor: str, sizes: Iterable[tuple[int, int]]) -> list[str]:
    """Loops over blocks of some dimensions of a tensor, put outermost.

    Raises:
        HwgenError: as `_loop`, which a dimension has once, and the primitives.
    """
    every = [s.split(_loop(s, tensor, n), factor=size)[0] for n, size in sizes]
    if s.get_loops(tensor)[: len(every)] != (*every,):
        s.reorder(*every, *(n for n in s.get_loops(tensor) if n not in every))
    return every


def _sibling_dimension(state: LoopTree, tensor: str, dimension: int, sibling: str) -> int:
    """The dimension of a sibling whose loop reads an input in the same place as the loop of a
    tensor's dimension; the same number where they read none."""

    def places(stage: Stage, dimension: int) -> set[tuple[str, int]]:
        moving = {*names(stage.target.indices[dimension])}
        return {
            (read.tensor, n)
            for read in stage.reads
            for n, index in enumerate(read.indices)
            if not moving.isdisjoint(names(index))
        }

    wanted, stage = places(state.stage[tensor], dimension), state.stage[sibling]
    every = range(len(stage.target.indices))
    return next((n for n in every if wanted & places(stage, n)), dimension)


def begun(start: Start, sketch: Sketch) -> Schedule:
    """A schedule in which stages share the sketch's loops: what another reads is computed in them,
    and the loops of siblings, which are results too, are merged with them.

    Raises:
        HwgenError: H41x where that breaks a dependence.
    """
    s = start.schedule.copy()
    last = _last(start.workload).name
    moved = views_of(start.workload)
    sizes = {**dict.fromkeys(sketch.outer, 1), sketch.dimension: sketch.size}
    written_over = {x.over for x in s.state.stages}
    with s.batch(blame=False):
        every = _blocks(s, last, sizes.items())
        for stage in reversed([x.tensor for x in s.state.stages]):
            if stage == last or stage in moved:
                continue
            if s.state.readers(stage) or stage in written_over:
                s.compute_at(stage, every[-1])
                continue
            found = [(_sibling_dimension(s.state, last, n, stage), e) for n, e in sizes.items()]
            for block, own in zip(every, _blocks(s, stage, found), strict=True):
                s.merge(block, own)
        for stage, iterator in sketch.tiles:
            (loop,) = names(s.state.site[stage].block.binding[iterator])
            outer, _ = s.split(loop, factor=OPERAND_TILE)
            s.reorder(outer, *(n for n in s.get_loops(stage) if n not in (*every, outer)))
        if sketch.running is not None:
            s.rescale(sketch.running[0], OPERAND_TILE)
    return s
