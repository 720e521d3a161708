"""Primitives for chips whose units work at the same time: blocks that run in another iteration than
their own, blocks that stand further in, and loops that take turns where nothing else overlaps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from math import prod

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.edit import (
    add_predicate,
    check_plain,
    find_loop,
    find_stage,
    fresh,
    path,
    refuse,
    replace_loop,
)
from hwgen.polyhedral.tree.loop_edits import beside
from hwgen.polyhedral.tree.loop_tree import (
    Block,
    Loop,
    LoopTree,
    Node,
    Site,
    first_of,
    loops,
    map_blocks,
    map_loops,
)
from hwgen.polyhedral.tree.relations import SEQUENTIAL, shared
from hwgen.polyhedral.tree.terms import total
from hwgen.spec.expression import Binary, Const, Expr, Name
from hwgen.spec.hardware import HardwareSpec

MAX_SHIFT = 64
"""Iterations by which a block may run later or earlier than its own."""


def shift(
    state: LoopTree, hardware: HardwareSpec, tensor: str, loops: Sequence[str], iterations: int
) -> LoopTree:
    """A stage's blocks, or the one that begins its sums, run `iterations` of some loops later: of
    several, in the order in which they run, over the ends of the inner ones.

    Raises:
        HwgenError: H413, H414.
    """
    if not loops:
        raise refuse("shift takes a loop", "none", "one loop, or several", "name a loop")
    for loop in loops:
        find_loop(state, loop)
    mine = [s for s in state.sites if tensor in (s.block.name, s.block.stage)]
    if not mine:
        find_stage(state, tensor)
    if not hardware.units:
        raise refuse(
            f"{tensor} cannot run later than its iteration",
            f"{hardware.name}, whose processor runs one thing after the other",
            "chips with units, which work on several iterations at once",
            f"prefetch({tensor!r}, {loops[0]!r}, ...)",
        )
    if abs(iterations) > MAX_SHIFT:
        raise refuse(
            f"{tensor} cannot run so much later",
            str(iterations),
            f"-{MAX_SHIFT}..{MAX_SHIFT}",
            "as many iterations as buffers have slots",
        )
    for site in mine:
        _check_around(site, tensor, loops)
    names = {s.block.name for s in mine}
    several = len(loops) > 1

    def changed(block: Block) -> Block:
        if block.name not in names:
            return block
        shifts = {n: k for n, k in block.shifts if n not in loops}
        if iterations and not several:
            shifts[loops[0]] = iterations
        band, lag = block.band, block.lag
        if several or set(loops) & set(band):
            band, lag = (tuple(loops), iterations) if several and iterations else ((), 0)
        return replace(block, shifts=tuple(sorted(shifts.items())), band=band, lag=lag)

    return replace(state, root=map_blocks(state.root, changed))


def _check_around(site: Site, tensor: str, loops: Sequence[str]) -> None:
    """The loops are around a block, directly inside one another."""
    outside = next((n for n in loops if n not in site.names), None)
    if outside is not None:
        raise refuse(
            f"{site.block.name} is not inside {outside}",
            f"loops {', '.join(site.names) or 'none'}",
            "a loop around the block",
            f"compute_at({tensor!r}, {outside!r}) first",
        )
    if not _is_run(site.names, loops):
        raise refuse(
            f"{tensor} cannot run later in {', '.join(loops)} together",
            f"loops {', '.join(site.names)}",
            "loops directly inside one another, outermost first",
            "name them all, in the order in which they are nested",
        )


def _is_run(names: Sequence[str], band: Sequence[str]) -> bool:
    """Whether some loops follow each other among others."""
    if band[0] not in names:
        return False
    start = names.index(band[0])
    return tuple(names[start : start + len(band)]) == tuple(band)


def check_shifts(state: LoopTree) -> None:
    """Shifts are of loops around the block that run in order, and what shares loops can be compared
    in time.

    Raises:
        HwgenError: H413.
    """
    for site in state.sites:
        plain = {x.name for x in site.loops if x.kind in SEQUENTIAL}
        for loop, later in site.block.shifts:
            if loop not in plain:
                raise _astray(site, later, loop, "no loop")
        band = site.block.band
        if band and not (plain.issuperset(band) and _is_run(site.names, band)):
            raise _astray(site, site.block.lag, ", ".join(band), "no run of loops")
    for site in state.sites:
        if site.start is not None:
            for other in state.sites:
                _check_alike(site, site.start, other)


def _astray(site: Site, later: int, loops: str, what: str) -> HwgenError:
    return HwgenError(
        "H413",
        f"{site.block.name} runs {later} iterations later in {loops}, which is {what} in order "
        "around it any more",
        found=f"loops {', '.join(site.names) or 'none'}",
        allowed="edits that leave the loop as it is",
        repair="shift last",
    )


def _check_alike(site: Site, start: int, other: Site) -> None:
    """Where another block shares loops of a block's band, its shift begins where the band does."""
    own = other.block is site.block
    common = len(site.loops) if own else shared(site, other)
    inner = [n for n, k in zip(other.names[:common], other.delays, strict=False) if k]
    inner = [n for n in inner if other.names.index(n) > start - own]
    apart = other.start is not None and other.start != start and min(start, other.start) < common
    if not apart and not inner:
        return
    found = inner[0] if inner else ", ".join(other.block.band)
    raise refuse(
        f"{site.block.name} runs later in {', '.join(site.block.band)} together, and "
        f"{other.block.name} in some of these alone",
        f"{other.block.name} is shifted in {found}",
        f"shifts that all begin at {site.block.band[0]}",
        f"shift({other.block.name!r}, ...) over loops from {site.block.band[0]} inwards",
    )


def sink(state: LoopTree, hardware: HardwareSpec, tensor: str, loop: str, at: str) -> LoopTree:
    """The nest of a block stands at the end of the body of a loop beside it, or directly around it,
    and runs in the first or last iteration of each loop that it gets into; `start`: at the start of
    the body, in the first.

    Raises:
        HwgenError: H413, H414.
    """
    if tensor not in state.site:
        find_stage(state, tensor)
    target = find_loop(state, loop)
    if not hardware.units:
        raise refuse(
            f"{tensor} cannot be sunk into {loop}",
            f"{hardware.name}, whose processor runs one thing after the other",
            "chips with units, which work on several iterations at once",
            f"compute_at({tensor!r}, {loop!r})",
        )
    if at not in ("start", "first", "last"):
        raise refuse(
            f"{tensor} cannot be sunk so", repr(at), "'start', 'first', 'last'", "one of these"
        )
    check_plain(target, "a loop that blocks are sunk into")
    site = state.site[tensor]
    depth = max((n for n, x in enumerate(site.loops, 1) if len(x.body) > 1), default=0)
    chain = path(state.root, loop)
    names = [x.name for x in chain]
    beside = site.names[:depth] == tuple(names[:depth]) and not {*names} & {*site.names[depth:]}
    if not beside or not names:
        raise refuse(
            f"{tensor} cannot be sunk into {loop}",
            f"{loop} is in {', '.join(names[:-1]) or 'no loop'}, {tensor} in "
            f"{', '.join(site.names) or 'none'}",
            "a loop beside the block's nest, or the one directly around it",
            f"compute_at({tensor!r}, ...) beside {loop} first",
        )
    passed = [
        Binary("==", Name(x.name), Const(x.extent - 1 if at == "last" else 0))
        for x in chain[depth:]
    ]
    block = replace(site.block, predicate=(*site.block.predicate, *passed))
    nest: Node = block
    for around in reversed(site.loops[depth:]):
        nest = around.around((nest,))
    root = map_blocks(state.root, lambda b: None if b.name == tensor else b)

    def edit(x: Loop) -> tuple[Node, ...]:
        body = (nest, *x.body) if at == "start" else (*x.body, nest)
        return (x.around(body),) if x.name == loop else (x,)

    return replace(state, root=map_loops(root, edit))


def interleave(
    state: LoopTree,
    hardware: HardwareSpec,
    first: str,
    second: str,
    sizes: Sequence[int],
    within: Sequence[str],
) -> tuple[LoopTree, str]:
    """A loop around two beside each other, in the second one's place. Where each of some loops
    around them is in its last iteration, both take turns in it, so many iterations each time,
    then what is left; elsewhere all of the one runs in its first iteration, then all of the other.

    Raises:
        HwgenError: H413, H414.
    """
    extent = max(x.extent for x in beside(state, first, second, "interleaved"))
    around = [find_loop(state, n) for n in within]
    if not hardware.units:
        raise refuse(
            f"{first} and {second} gain nothing from turns",
            f"{hardware.name}, whose processor runs one thing after the other",
            "chips with units, which work on both at once",
            f"merge({first!r}, {second!r})",
        )
    known = [x.name for x in path(state.root, first)[:-1]]
    outside = next((n for n in within if n not in known), None)
    if outside is not None:
        raise refuse(
            f"{first} and {second} cannot be interleaved within {outside}",
            f"they are inside {', '.join(known) or 'nothing'}",
            "loops around both",
            f"name {known[-1]}" if known else "name no loop: they take turns once",
        )
    if min(sizes, default=0) < 1:
        raise refuse(
            f"{first} and {second} cannot be interleaved so",
            f"pieces of {', '.join(map(str, sizes)) or 'nothing'}",
            "one piece or more of an iteration or more; what is left is another",
            f"interleave({first!r}, {second!r}, {(max(1, extent // 2),)})",
        )
    ends = [*(n for n in accumulate(sizes) if n < extent), extent]
    turn = fresh(f"{first}_{second}_t", state)
    long = [x for x in around if x.extent > 1]
    order = [x for x in loops(state.root) if x.name in (first, second)]
    ways = [*_pieces(turn, ends, long)]
    body = tuple(x.around(add_predicate(x.body, _any(x, ways))) for x in order)
    made = Loop(turn, len(ends), body, turns=bool(long))
    root = replace_loop(state.root, first, lambda _: ())
    return replace(state, root=replace_loop(root, second, lambda _: (made,))), turn


_Way = tuple[tuple[Expr, ...], int, int | None]
"""A condition, and the part of a loop that runs where it holds; None: to its end."""


def _pieces(turn: str, ends: Sequence[int], around: Sequence[Loop]) -> Iterator[_Way]:
    """The pieces of the last iteration of some loops, and all in any other."""
    last = [Binary("==", Name(x.name), Const(x.extent - 1)) for x in around]
    for n, (start, end) in enumerate(zip((0, *ends), ends, strict=False)):
        now = Binary("==", Name(turn), Const(n))
        yield (*last, now), start, end if n + 1 < len(ends) else None
    if around:
        steps = [prod(x.extent for x in around[n + 1 :]) for n in range(len(around))]
        number = total((step, Name(x.name)) for step, x in zip(steps, around, strict=True))
        before = Binary("!=", number, Const(prod(x.extent for x in around) - 1))
        yield (before, first_of(turn)), 0, None


def _any(loop: Loop, ways: Sequence[_Way]) -> Expr:
    """That one of some conditions holds, and a loop is in its part."""
    found: list[Expr] = []
    for conditions, start, end in ways:
        name = Name(loop.name)
        low = (Binary(">=", name, Const(start)),) if start else ()
        high = (Binary("<", name, Const(end)),) if end is not None else ()
        found.append(reduce(partial(Binary, "and"), (*conditions, *low, *high)))
    return reduce(partial(Binary, "or"), found)
