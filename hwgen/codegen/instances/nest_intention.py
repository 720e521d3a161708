"""What a block of a processor's tree intends, statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hwgen.codegen.instances.boxes import Comparison, conditions_of
from hwgen.codegen.instances.forms import Form, Ranges, known_form, remainder, total, variable
from hwgen.codegen.instances.statements import Element, Wanted
from hwgen.codegen.nodes import Code
from hwgen.codegen.processor.combine import begins, goes_on
from hwgen.codegen.processor.lower import Placing
from hwgen.codegen.processor.storage import Placed
from hwgen.polyhedral.tree.loop_tree import RUNNING, Site, Stage
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.polyhedral.tree.relations import combining
from hwgen.spec.expression import Access, names
from hwgen.spec.typecheck import neutral

ElementOf = Callable[[Access, bool], Element]
"""Where an access is; of what is written, in the partial results of threads."""


def combined_of(stage: str) -> str:
    """Where the partial results of a stage's threads meet is called so."""
    return f"{stage} combined"


def stored_of(stage: str) -> str:
    """The same, where a thread stores what came of them."""
    return f"{stage} stored"


def expected(program: Code, placing: Placing, site: Site) -> Iterator[tuple[str, Wanted]]:
    """What the statements of a block are to execute, by what they are called.

    Raises:
        HwgenError: H747 a form that is not known.
    """
    block, stage = site.block, placing.state.stage[site.block.stage]
    over, ranges = _variables(placing, site)
    found = [*block.predicate]
    threads = combining(placing.state, site)
    if block.store_predicate is not None and not threads:
        found.append(block.store_predicate)
    bound = {n: known_form(e, over, ranges) for n, e in block.bindings}
    conditions = tuple(c for p in found for c in conditions_of(p, over, ranges))
    points = {v: variable(v) for v in ranges}

    def element(access: Access, writes: bool) -> Element:
        placed = placing.partial.get((block.name, access.tensor)) if writes else None
        placed = placed or placing.placed[access.tensor]
        return _element(program, placed, access, bound, over, ranges)

    target = element(stage.target, True)
    if block.part == "init":
        value = beginning(stage, placing.state.tensor[stage.tensor].dtype)
        table = {a: element(a, False) for a in stage.reads_in("init")}
        yield block.name, Wanted(ranges, conditions, points, target, "=", value, bound, table)
        return
    table = {a: element(a, False) for a in stage.reads} | {RUNNING: target}
    called = None if block.tensorized is None else block.call
    operands = () if called is None else called.named
    accesses = {stage.target: target, **table}
    yield (
        block.name,
        Wanted(
            ranges, conditions, points, target, stage.op, stage.value, bound, table,
            tuple((n, accesses[a]) for n, a in operands),
            called.intrinsic.name if called is not None else "",
        ),
    )  # fmt: skip
    if (block.name, stage.tensor) in placing.partial:
        yield from _parts(placing, site, stage, element)


def _variables(placing: Placing, site: Site) -> tuple[dict[str, Form], Ranges]:
    """A block's loops as the program's variables, and how far these go."""
    named = {n: placing.variables.get(n, n) for n in site.names}
    ranges = {named[n]: (0, e) for n, e in site.extents.items()}
    return {n: variable(v) for n, v in named.items()}, ranges


def _element(
    program: Code,
    placed: Placed,
    access: Access,
    bound: Mapping[str, Form],
    over: Mapping[str, Form],
    ranges: Ranges,
) -> Element:
    """Where an access is, by the layout of its buffer."""
    buffer = program.array[placed.buffer.name]
    index = (known_form(i, bound, ranges) for i in access.indices)
    origins = (known_form(o, over, ranges).scaled(-1) for o in placed.box.origins)
    distances = [total(i, o) for i, o in zip(index, origins, strict=True)]
    table = {f"d{n}": form for n, form in enumerate(distances)}
    along = (known_form(d, table, ranges) for d in placed.dimensions)
    parts = [a.scaled(s) for a, s in zip(along, buffer.strides, strict=True)]
    if placed.turn:
        slot = remainder(over[placed.turn], buffer.slots, ranges)
        parts.append(slot.scaled(buffer.slot_elements))
    return Element(buffer.name, total(*parts))


def _parts(
    placing: Placing, site: Site, stage: Stage, element: ElementOf
) -> Iterator[tuple[str, Wanted]]:
    """Partial results of threads: how each begins, and where they meet, element by element."""
    threads = combining(placing.state, site)
    over, ranges = _variables(placing, site)
    depth = site.loops.index(threads[0]) + 1
    spatial = {n for n, _ in stage.spatial}
    used = {n for i, e in site.block.bindings if i in spatial for n in names(e)}
    around = {x.name for x in site.loops[:depth]}
    around |= {n for n in site.names if n in placing.variables}
    known = (around | used) & {*site.names}
    mine = [n for n in site.names if n in known]
    taken = {next(iter(over[n].names)): n for n in mine}
    own = {v: ranges[v] for v in taken}
    apart = {x.name for x in threads}
    guards = [p for p in site.block.predicate if {*names(p)} <= known - apart]
    conditions = tuple(c for p in guards for c in conditions_of(p, over, ranges))
    part, whole = element(stage.target, True), element(stage.target, False)
    points = {v: variable(v) for v, n in taken.items() if n in around}
    dtype = placing.state.tensor[stage.tensor].dtype
    zero, name = neutral(stage.op, dtype), site.block.name
    each = Wanted(own, conditions, {**points, "#0": part.index}, part, "=", zero)
    yield begins(name), each
    both = {**points, "#0": part.index, "#1": whole.index}
    table = {stage.target: whole}
    if site.block.part != "whole":
        first = tuple(Comparison(over[x.name], "==") for x in threads)
        yield (
            goes_on(name),
            Wanted(own, (*conditions, *first), both, part, "=", stage.target, {}, table),
        )
    extents = tuple((next(iter(over[x.name].names)), x.extent) for x in threads)
    meet = Wanted(
        own, conditions, both, whole, stage.op, stage.target, {}, {stage.target: part},
        threads=extents,
    )  # fmt: skip
    yield combined_of(name), meet
    stored = site.block.store_predicate
    more = () if stored is None else conditions_of(stored, over, ranges)
    yield stored_of(name), replace(meet, conditions=(*conditions, *more))
