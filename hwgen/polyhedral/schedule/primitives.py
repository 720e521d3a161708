"""The primitives that edit a schedule, each legal or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hwgen.polyhedral.schedule.arguments import check_affine, parse_layout, parsed, primitive
from hwgen.polyhedral.schedule.history import History
from hwgen.polyhedral.schedule.placing import Made, behind, touched
from hwgen.polyhedral.schedule.script import Argument, Edit
from hwgen.polyhedral.tree import copies, layouts, loop_edits, pipelines, placement, reductions
from hwgen.polyhedral.tree.bind_expr import bind_expr
from hwgen.polyhedral.tree.distributing import distribute
from hwgen.polyhedral.tree.edit import check_memory, find_stage, main_site, refuse
from hwgen.polyhedral.tree.padding import decompose_padding
from hwgen.polyhedral.tree.planes import planes
from hwgen.polyhedral.tree.rescaling import rescale
from hwgen.polyhedral.tree.rewriting import rewrite_expr
from hwgen.polyhedral.tree.seeds import start_from
from hwgen.polyhedral.tree.tensorize import tensorize
from hwgen.polyhedral.tree.weighing import weigh
from hwgen.spec.processor import LoopKind, Processor
from hwgen.spec.suggest import suggestion

_COORDINATE = re.compile(r"\b[A-Za-z_]\w*\.[A-Za-z_]\w*\b")
"""Of a grid of blocks, or of a block's threads, as schedulers for GPUs call them."""


class Primitives(History):
    """The primitives, one edit each. Names of loops and tensors go in, names of what was made come
    out."""

    # Loops

    @primitive
    def split(
        self, loop: str, factor: int | None = None, nparts: int | None = None
    ) -> tuple[str, str]:
        """An outer loop over tiles of `factor` (or `nparts` tiles) and an inner one over a tile; a
        tail is guarded."""
        state, outer, inner = loop_edits.split(self.state, loop, factor, nparts)
        keywords: dict[str, Argument] = {"factor": factor} if nparts is None else {"nparts": nparts}
        self._commit(state, "split", (loop,), keywords, (outer, inner))
        return outer, inner

    @primitive
    def tile(self, x: str, y: str, x_factor: int, y_factor: int) -> tuple[str, str, str, str]:
        """Split two loops and reorder to outer x, outer y, inner x, inner y."""
        state, x_o, x_i = loop_edits.split(self.state, x, x_factor, None)
        state, y_o, y_i = loop_edits.split(state, y, y_factor, None)
        state = loop_edits.reorder(state, (x_o, y_o, x_i, y_i))
        results = (x_o, y_o, x_i, y_i)
        self._commit(state, "tile", (x, y, x_factor, y_factor), {}, results)
        return results

    @primitive
    def fuse(self, outer: str, inner: str, *more: str) -> str:
        """One loop for two or more that are directly inside one another."""
        state, name = loop_edits.fuse(self.state, outer, inner)
        for loop in more:
            state, name = loop_edits.fuse(state, name, loop)
        self._commit(state, "fuse", (outer, inner, *more), {}, (name,))
        return name

    @primitive
    def merge(self, first: str, second: str) -> str:
        """One loop for two of one extent beside each other, with the bodies of both."""
        state = loop_edits.merge(self.state, first, second)
        self._commit(state, "merge", (first, second), {}, (first,))
        return first

    @primitive
    def reorder(self, *loops: str) -> None:
        """The loops in this order, in the places that they hold now."""
        self._commit(loop_edits.reorder(self.state, loops), "reorder", loops, {})

    @primitive
    def unroll(self, loop: str) -> None:
        """Write the body of a loop once per iteration."""
        self._set_kind("unroll", loop)

    @primitive
    def vectorize(self, loop: str) -> None:
        """Run the iterations of an innermost loop as lanes of vector instructions."""
        self._set_kind("vectorize", loop)

    @primitive
    def parallel(self, loop: str) -> None:
        """Run the iterations of a loop on several workers at once."""
        self._set_kind("parallel", loop)

    def _set_kind(self, kind: str, loop: str) -> None:
        state = loop_edits.set_kind(self.state, loop, self._kind(kind))
        self._commit(state, kind, (loop,), {})

    @primitive
    def bind(self, loop: str, thread: str) -> None:
        """Make a loop a coordinate of the grid of blocks or of a block's threads."""
        kind = self._kind(thread)
        if kind.kind != "bind":
            raise refuse(
                f"{thread} is not a coordinate",
                thread,
                self._kinds("bind"),
                f"{kind.name}({loop!r})",
            )
        self._commit(loop_edits.set_kind(self.state, loop, kind), "bind", (loop, thread), {})

    @primitive
    def pragma(self, loop: str, key: str, value: int | str = "") -> None:
        """Hand a pragma to the compiler of the generated code."""
        machine = self._machine("pragmas")
        state = loop_edits.add_pragma(self.state, loop, key, value, machine)
        self._commit(state, "pragma", (loop, key, value), {})

    def _machine(self, what: str) -> Processor:
        machine = self.hardware.processor
        if machine is None:
            raise refuse(
                f"{self.hardware.name} has no {what}",
                "a chip without a processor",
                "chips whose spec has a processor",
                "leave this primitive out",
            )
        return machine

    def _kinds(self, kind: str) -> str:
        loops = self._machine("loops of this kind").loops
        return ", ".join(x.name for x in loops if not kind or x.kind == kind) or "none"

    def _kind(self, name: str) -> LoopKind:
        machine = self._machine(f"{name} loops")
        if name not in machine.loop:
            known = [x.name for x in machine.loops]
            raise refuse(
                f"{self.hardware.name} has no {name} loops",
                name,
                ", ".join(known) or "none",
                suggestion(name, known) or "leave the loop serial",
            )
        return machine.loop[name]

    # Stages

    @primitive
    def compute_at(self, stage: str, loop: str) -> None:
        """Compute a stage (or a group) at the start of a loop's body, as far as read there. What
        its loops were split and reordered into by then, and what stands in them, stays so."""
        edit = Edit("compute_at", (stage, loop), (), ())
        moved, order = set[int](), list[Made]()
        if touched(self.state, stage, self._named):
            order = self._order()
            moved = behind(self.state, order, stage, loop)
        rest = [[m for n, m in enumerate(order) if (n in moved) == late] for late in (False, True)]
        if not moved or not self._again((*rest[0], Made(edit, units=True), *rest[1]), edit):
            self._take(placement.at_group(self.state, stage, loop), edit)

    @primitive
    def compute_root(self, stage: str) -> None:
        """Compute a stage (or a group) wholly, before anything that reads it."""
        self._commit(placement.root_group(self.state, stage), "compute_root", (stage,), {})

    @primitive
    def compute_inline(self, stage: str) -> None:
        """Compute a stage again wherever it is read; its tensor is gone."""
        self._commit(placement.compute_inline(self.state, stage), "compute_inline", (stage,), {})

    @primitive
    def create_group(
        self,
        outputs: str | Sequence[str],
        inputs: str | Sequence[str],
        include_inputs: bool = False,
    ) -> str:
        """The stages that lead from the inputs to the outputs, to be placed as one."""
        outs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        ins = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        state, name = placement.create_group(self.state, outs, ins, include_inputs)
        keywords: dict[str, Argument] = {"include_inputs": True} if include_inputs else {}
        self._commit(state, "create_group", (outs, ins), keywords, (name,))
        return name

    @primitive
    def decompose_reduction(self, stage: str, loop: str = "") -> str:
        """The initialisation of a reduction as a block of its own, just before a loop; without one,
        right before its contributions. Its loops inside are called as the copied ones, with
        `_init` behind: `s[block].loops`."""
        state, name = reductions.decompose_reduction(self.state, stage, loop)
        self._commit(state, "decompose_reduction", (stage, loop) if loop else (stage,), {}, (name,))
        return name

    @primitive
    def decompose_padding(self, stage: str) -> str:
        """What a stage sets to a constant outside of a box as a stage of its own, before it."""
        state, name = decompose_padding(self.state, stage)
        self._commit(state, "decompose_padding", (stage,), {}, (name,))
        return name

    @primitive
    def start_from(self, stage: str, tensor: str) -> None:
        """A sum of integers starts from what its only reader adds to it; a maximum or minimum,
        from the first of its terms."""
        machine = self.hardware.processor
        if machine is not None and not self.hardware.units:
            raise refuse(
                f"sums on {self.hardware.name} start from their neutral element",
                "a processor without units",
                "chips whose accumulators are loaded",
                "leave this primitive out",
            )
        state = start_from(self.state, stage, tensor)
        self._commit(state, "start_from", (stage, tensor), {})

    @primitive
    def rfactor(self, stage: str, loop: str, axis: int = 0) -> str:
        """A reduction loop as a dimension (place `axis`) of partial results, reduced afterwards."""
        state, name = reductions.rfactor(self.state, stage, loop, axis)
        keywords: dict[str, Argument] = {"axis": axis} if axis else {}
        self._commit(state, "rfactor", (stage, loop), keywords, (name,))
        return name

    @primitive
    def rescale(self, stage: str, factor: int) -> str:
        """Blocks of `factor` elements, one after the other, of which a greatest or least element,
        and the sums of terms `exp(c * (element - it))`, run on: each block rescales what is summed
        up by then (online softmax). Exact up to rounding, so for floats alone."""
        state, name = rescale(self.state, stage, factor)
        self._commit(state, "rescale", (stage, factor), {}, (name,))
        return name

    @primitive
    def set_store_predicate(self, stage: str, condition: str) -> None:
        """Only instances for which a condition over loops holds (`"tx == 0"`) write the result; a
        loop may be called by the coordinate that it is bound to (`"threadIdx.x == 0"`)."""
        condition = self._with_loops(stage, condition)
        wanted = parsed(condition)
        check_affine(wanted, condition=True)
        state = reductions.set_store_predicate(self.state, stage, wanted)
        self._commit(state, "set_store_predicate", (stage, condition), {})

    def _with_loops(self, stage: str, condition: str) -> str:
        """A condition in which loops stand for the coordinates that they are bound to."""
        machine = self.hardware.processor
        bound = [x.name for x in machine.loops if x.kind == "bind"] if machine else []
        named = [n for n in bound if re.search(rf"\b{re.escape(n)}\b", condition)]
        named += [n for n in _COORDINATE.findall(condition) if n not in named]
        if not named:
            return condition
        find_stage(self.state, stage)
        around = {x.kind: x.name for x in main_site(self.state, stage).loops}
        for coordinate in named:
            if coordinate not in around:
                bind = f"bind(loop, {coordinate!r}) first, or name the loop"
                raise refuse(
                    f"no loop around {stage} is bound to {coordinate}",
                    coordinate,
                    ", ".join(x.name for x in main_site(self.state, stage).loops) or "no loops",
                    bind
                    if coordinate in bound
                    else f"name one of the loops around {stage}: "
                    f"{self.hardware.name} has no {coordinate}",
                )
            word = rf"\b{re.escape(coordinate)}\b"
            condition = re.sub(word, around[coordinate], condition)
        return condition

    @primitive
    def tensorize(
        self,
        loop: str,
        *intrinsics: str,
        lanes: bool = True,
        stationary: str | Sequence[str] = (),
    ) -> None:
        """Run the loops from `loop` inwards as one call of an intrinsic.

        For units beside the processor, several intrinsics may share the work of one stage, and a
        block (its name) may be given instead of a loop: the innermost of its loops that can be
        lanes of the calls are, or without `lanes` none. `stationary`: of two operands that could
        be the one that a unit holds for several calls, the tensor that is.
        """
        held = (stationary,) if isinstance(stationary, str) else tuple(stationary)
        state = tensorize(self.state, loop, intrinsics, self.hardware, lanes=lanes, stationary=held)
        keywords: dict[str, Argument] = {} if lanes else {"lanes": False}
        if held:
            keywords["stationary"] = held if len(held) > 1 else next(iter(held))
        self._commit(state, "tensorize", (loop, *intrinsics), keywords)

    # Buffers

    @primitive
    def cache_read(
        self,
        tensor: str,
        memory: str,
        readers: str | Sequence[str] = (),
        occurrence: int | Sequence[int] = 0,
        dtype: str = "",
    ) -> str:
        """A copy of a tensor in a memory, which the readers (all if none named) read instead; of
        several places in the value of a reader, that with number `occurrence`, from 1: one number
        for all readers, or one for each. `dtype`: to which the copy widens integers."""
        check_memory(self.hardware, memory)
        chosen = (readers,) if isinstance(readers, str) else tuple(readers)
        state, name = copies.cache_read(self.state, tensor, memory, chosen, occurrence, dtype)
        keywords: dict[str, Argument] = {"readers": chosen} if chosen else {}
        if occurrence:
            keywords["occurrence"] = (
                occurrence if isinstance(occurrence, int) else tuple(occurrence)
            )
        if dtype:
            keywords["dtype"] = dtype
        self._commit(state, "cache_read", (tensor, memory), keywords, (name,))
        return name

    @primitive
    def reindex_cache_read(
        self, tensor: str, memory: str, reader: str, occurrence: int = 0, whole: bool = False
    ) -> str:
        """A copy in a memory of what one reader reads of a tensor, laid out as it reads it, or with
        `whole` as its result is, which then may take its place."""
        check_memory(self.hardware, memory)
        chosen = (tensor, memory, reader)
        state, name = copies.reindex_cache_read(self.state, *chosen, occurrence, whole=whole)
        given: dict[str, Argument] = {"occurrence": occurrence} if occurrence else {}
        if whole:
            given["whole"] = True
        self._commit(state, "reindex_cache_read", chosen, given, (name,))
        return name

    @primitive
    def cache_write(
        self, tensor: str, memory: str, dtype: str = "", readers: str | Sequence[str] = ()
    ) -> str:
        """A stage that computes into a memory first; a copy then moves the result, and narrows it
        where the stage is to keep `dtype` until then; `readers` read it from the memory."""
        check_memory(self.hardware, memory)
        chosen = (readers,) if isinstance(readers, str) else tuple(readers)
        state, name = copies.cache_write(self.state, tensor, memory, dtype, chosen)
        given: dict[str, Argument] = {"dtype": dtype} if dtype else {}
        if chosen:
            given["readers"] = chosen
        self._commit(state, "cache_write", (tensor, memory), given, (name,))
        return name

    @primitive
    def planes(self, tensor: str, dtype: str) -> tuple[str, ...]:
        """A tensor is put together from narrower ones that part its bits, the lowest first."""
        state, names = planes(self.state, tensor, dtype)
        self._commit(state, "planes", (tensor, dtype), {}, names)
        return names

    @primitive
    def weigh(self, stage: str, dtype: str) -> tuple[str, ...]:
        """What a stage reads of narrow integers is multiplied by weights that the kernel supplies:
        by 1, and by -1 where it is subtracted."""
        if not self.hardware.units:
            raise refuse(
                f"nothing on {self.hardware.name} sums up products",
                "a processor without units",
                "chips whose units do",
                "leave this primitive out",
            )
        state, names = weigh(self.state, stage, dtype)
        self._commit(state, "weigh", (stage, dtype), {}, names)
        return names

    @primitive
    def bind_expr(self, stage: str, expr: str) -> str:
        """A part of a stage's value, as the stage has it, becomes a stage of its own."""
        state, name = bind_expr(self.state, stage, parsed(expr))
        self._commit(state, "bind_expr", (stage, expr), {}, (name,))
        return name

    @primitive
    def rewrite_expr(self, stage: str, expr: str, new: str) -> None:
        """A part of a stage's value is said otherwise, which is proved to be the same number."""
        state = rewrite_expr(self.state, stage, parsed(expr), parsed(new))
        self._commit(state, "rewrite_expr", (stage, expr, new), {})

    @primitive
    def distribute(self, stage: str) -> tuple[str, str]:
        """A sum of products with a number in one factor becomes a sum of products, and a sum of
        the other factor times the number."""
        state, names = distribute(self.state, stage)
        self._commit(state, "distribute", (stage,), {}, names)
        return names

    @primitive
    def set_scope(self, tensor: str, memory: str) -> None:
        """Where an intermediate lives."""
        check_memory(self.hardware, memory)
        state = copies.set_scope(self.state, tensor, memory)
        self._commit(state, "set_scope", (tensor, memory), {})

    @primitive
    def prefetch(self, tensor: str, loop: str, distance: int = 1) -> None:
        """At the start of a loop's body, fetch what it will read `distance` iterations later."""
        machine = self._machine("prefetches")
        if not machine.prefetch:
            raise refuse(
                f"{self.hardware.name} has no prefetches",
                "no prefetch template",
                "processors that can prefetch",
                f"cache_read({tensor!r}, memory) copies instead",
            )
        state = copies.prefetch(self.state, tensor, loop, distance)
        self._commit(state, "prefetch", (tensor, loop, distance), {})

    @primitive
    def double_buffer(self, tensor: str, slots: int = 2) -> None:
        """Consecutive tiles of a tensor take turns in several copies of its buffer."""
        state = copies.double_buffer(self.state, tensor, slots)
        self._commit(state, "double_buffer", (tensor, slots), {})

    @primitive
    def shift(self, tensor: str, loop: str | Sequence[str], iterations: int) -> None:
        """A stage's block runs so many iterations of a loop later than its own (software
        pipelining): another unit then works on the next ones meanwhile. Of several loops inside
        one another: over the ends of the inner ones, into the next iteration of the outer."""
        loops = (loop,) if isinstance(loop, str) else tuple(loop)
        state = pipelines.shift(self.state, self.hardware, tensor, loops, iterations)
        given = loops[0] if len(loops) == 1 else loops
        self._commit(state, "shift", (tensor, given, iterations), {})

    @primitive
    def sink(self, tensor: str, loop: str, at: str) -> None:
        """A block's nest stands at the end of the body of a loop beside it, or directly around it,
        and runs in the `"first"` or `"last"` iteration of each loop that it gets into."""
        state = pipelines.sink(self.state, self.hardware, tensor, loop, at)
        self._commit(state, "sink", (tensor, loop, at), {})

    @primitive
    def interleave(
        self, first: str, second: str, sizes: Sequence[int], within: str | Sequence[str] = ()
    ) -> str:
        """In the last iteration of loops around two beside each other, these take turns in a loop
        around both, so many iterations each time, then what is left; elsewhere one runs after the
        other."""
        loops = (within,) if isinstance(within, str) else tuple(within)
        given = first, second, tuple(sizes)
        state, name = pipelines.interleave(self.state, self.hardware, *given, loops)
        around = loops[0] if len(loops) == 1 else loops
        self._commit(state, "interleave", (*given, around), {}, (name,))
        return name

    @primitive
    def storage_align(self, tensor: str, axis: int, factor: int, offset: int = 0) -> None:
        """The stride of an axis becomes `offset` modulo `factor` elements."""
        state = layouts.storage_align(self.state, tensor, axis, factor, offset)
        self._commit(state, "storage_align", (tensor, axis, factor, offset), {})

    @primitive
    def transform_layout(self, tensor: str, layout: str) -> None:
        """Store a tensor otherwise: `"[i, j] -> [j // 16, i, j % 16]"`."""
        variables, dimensions = parse_layout(layout)
        for dimension in dimensions:
            check_affine(dimension)
        state = layouts.transform_layout(self.state, tensor, variables, dimensions)
        self._commit(state, "transform_layout", (tensor, layout), {})

    @primitive
    def alias(self, tensor: str, of: str) -> None:
        """Store a tensor in the place of another that nothing uses any more by then."""
        state = copies.alias(self.state, self.hardware, tensor, of)
        self._commit(state, "alias", (tensor, of), {})

    @primitive
    def retain(self, tensor: str, loop: str) -> None:
        """What a loop's iterations compute of a stage stays: each computes what none before has."""
        self._commit(copies.retain(self.state, tensor, loop), "retain", (tensor, loop), {})

    @primitive
    def set_bank(self, tensor: str, bank: int) -> None:
        """A buffer lives in one bank of its memory."""
        self._commit(layouts.set_bank(self.state, tensor, bank), "set_bank", (tensor, bank), {})

    @primitive
    def set_address(self, tensor: str, address: int) -> None:
        """A buffer starts at a fixed byte of its memory."""
        state = layouts.set_address(self.state, tensor, address)
        self._commit(state, "set_address", (tensor, address), {})

    @primitive
    def pad(self, loop: str, multiple: int) -> None:
        """A loop runs over the next multiple; operands are padded so that no result changes."""
        self._commit(layouts.pad(self.state, loop, multiple), "pad", (loop, multiple), {})
