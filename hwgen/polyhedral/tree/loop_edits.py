"""Primitives on loops: split, fuse, reorder, and the ways to run a loop.

Each takes a state and gives the next; legality of the whole is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hwgen.polyhedral.tree.edit import (
    add_predicate,
    check_not_tensorized,
    check_plain,
    find_loop,
    fresh,
    path,
    refuse,
    replace_loop,
    substitute_loops,
    under,
)
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node, loops, map_blocks
from hwgen.polyhedral.tree.terms import simplify
from hwgen.spec.expression import Binary, Const, Expr, Name
from hwgen.spec.processor import LoopKind, Pragma, Processor

MAX_UNROLL = 4096
"""Bodies that one unrolled loop may become."""


def split(
    state: LoopTree, loop: str, factor: int | None, nparts: int | None
) -> tuple[LoopTree, str, str]:
    """Two loops instead of one: `loop = outer * factor + inner`; a tail is guarded.

    Raises:
        HwgenError: H413, H414.
    """
    old = find_loop(state, loop)
    check_plain(old, "split")
    check_not_tensorized(state, loop)
    if (factor is None) == (nparts is None):
        raise refuse(
            "split takes either factor or nparts",
            f"factor={factor}, nparts={nparts}",
            "one of the two",
            "split(loop, factor=32)",
        )
    size = factor if factor is not None else -(-old.extent // (nparts or 1))
    if (factor or nparts or 0) < 1:
        raise refuse(
            f"{loop} cannot be split so",
            f"factor={factor}" if nparts is None else f"nparts={nparts}",
            "1 or more",
            f"a number of 1..{old.extent}",
        )
    count = -(-old.extent // size) if nparts is None else nparts
    outer, inner = fresh(f"{loop}_o", state), fresh(f"{loop}_i", state)
    value = Binary("+", Binary("*", Name(outer), Const(size)), Name(inner))
    extents = _extents(state, loop) | {outer: count, inner: size}

    def edit(node: Loop) -> tuple[Node, ...]:
        body = substitute_loops(node.body, {loop: value}, extents)
        if count * size > node.extent:
            body = add_predicate(body, Binary("<", simplify(value, extents), Const(node.extent)))
        body = (Loop(inner, size, body, pragmas=node.pragmas),)
        tiles = max(1, count - 1)
        ahead = (replace(p, distance=min(-(-p.distance // size), tiles)) for p in node.prefetches)
        return (Loop(outer, count, body, prefetches=tuple(ahead)),)

    root = replace_loop(state.root, loop, edit)
    gone = loop, f"{loop} was split into {outer} and {inner}"
    return state.with_root(root, gone), outer, inner


def _extents(state: LoopTree, loop: str) -> dict[str, int]:
    """The extents of a loop, and of those around and inside it."""
    *outer, mine = path(state.root, loop)
    return {x.name: x.extent for x in (*outer, *mine.held)}


def fuse(state: LoopTree, outer: str, inner: str) -> tuple[LoopTree, str]:
    """One loop instead of two that are directly inside one another.

    Raises:
        HwgenError: H413, H414.
    """
    first, second = find_loop(state, outer), find_loop(state, inner)
    for loop in (first, second):
        check_plain(loop, "fused")
        check_not_tensorized(state, loop.name)
    if first.body != (second,):
        raise refuse(
            f"{outer} and {inner} cannot be fused",
            f"the body of {outer} is {_body(first)}",
            f"a loop whose body is {inner} alone",
            "reorder the loops so that they are directly inside one another",
        )
    name = fresh(f"{outer}_{inner}_f", state)
    extent = first.extent * second.extent
    extents = _extents(state, outer) | {name: extent}
    bindings: dict[str, Expr] = {
        outer: Binary("//", Name(name), Const(second.extent)),
        inner: Binary("%", Name(name), Const(second.extent)),
    }
    bindings = {n: simplify(e, extents) for n, e in bindings.items()}

    def edit(node: Loop) -> tuple[Node, ...]:
        body = substitute_loops(second.body, bindings, extents)
        ahead = (replace(p, distance=p.distance * second.extent) for p in node.prefetches)
        prefetches = {p.tensor: p for p in (*second.prefetches, *ahead)}
        return (
            Loop(
                name,
                extent,
                body,
                pragmas=second.pragmas or node.pragmas,
                prefetches=tuple(prefetches.values()),
            ),
        )

    gone = ((n, f"{outer} and {inner} were fused into {name}") for n in bindings)
    return state.with_root(replace_loop(state.root, outer, edit), *gone), name


def merge(state: LoopTree, first: str, second: str) -> LoopTree:
    """One loop, of the first one's name and place, for two beside each other: in each iteration
    their bodies, in the order in which they stand. The shorter one's body ends when it would.

    Raises:
        HwgenError: H413, H414.
    """
    one, other = beside(state, first, second, "merged")

    def renamed(block: Block) -> Block:
        shifts = tuple((first if n == second else n, k) for n, k in block.shifts)
        band = tuple(first if n == second else n for n in block.band)
        return replace(block, shifts=shifts, band=band)

    extent = max(one.extent, other.extent)

    def ending(loop: Loop) -> Callable[[Block], Block]:
        end = Binary("<", Name(first), Const(loop.extent))
        more = (end,) if loop.extent < extent else ()
        return lambda block: replace(block, predicate=(*block.predicate, *more))

    body = substitute_loops(other.body, {second: Name(first)}, state.extents)
    body = map_blocks(map_blocks(body, renamed), ending(other))
    root = replace_loop(state.root, second, lambda _: ())
    order = [x.name for x in loops(state.root) if x.name in (first, second)]

    def edit(node: Loop) -> tuple[Node, ...]:
        prefetches = {p.tensor: p for p in (*other.prefetches, *node.prefetches)}
        pragmas = node.pragmas or other.pragmas
        mine = map_blocks(node.body, ending(one))
        return (
            replace(
                node,
                extent=extent,
                body=(*mine, *body) if order[0] == first else (*body, *mine),
                pragmas=pragmas,
                prefetches=tuple(prefetches.values()),
            ),
        )

    gone = second, f"{second} was merged into {first}"
    return state.with_root(replace_loop(root, first, edit), gone)


def beside(state: LoopTree, first: str, second: str, what: str) -> tuple[Loop, Loop]:
    """Two loops inside the same loops.

    Raises:
        HwgenError: H413, H414.
    """
    one, other = find_loop(state, first), find_loop(state, second)
    for loop in (one, other):
        check_plain(loop, what)
        check_not_tensorized(state, loop.name)
    above = [tuple(x.name for x in path(state.root, n)[:-1]) for n in (first, second)]
    if first == second or above[0] != above[1]:
        raise refuse(
            f"{first} and {second} cannot be {what}",
            f"one inside {', '.join(above[0]) or 'nothing'}, one inside "
            f"{', '.join(above[1]) or 'nothing'}",
            "two loops inside the same loops",
            "merge the loops around them first",
        )
    return one, other


def _body(loop: Loop) -> str:
    return ", ".join(n.name for n in loop.body)


def reorder(state: LoopTree, order: Sequence[str]) -> LoopTree:
    """The given loops in the given order, in the places that they hold now.

    Raises:
        HwgenError: H413, H414.
    """
    found = [find_loop(state, n) for n in order]
    for loop in found:
        check_not_tensorized(state, loop.name)
    if len({x.name for x in found}) != len(found) or len(found) < 2:
        raise refuse(
            "reorder takes two or more different loops",
            ", ".join(order),
            "different loops of one nest",
            "name each loop once",
        )
    paths = {n: path(state.root, n) for n in order}
    deepest = max(order, key=lambda n: len(paths[n]))
    chain = paths[deepest]
    names = [x.name for x in chain]
    strangers = [n for n in order if n not in names]
    if strangers:
        raise refuse(
            f"{strangers[0]} is not in one nest with {deepest}",
            f"{deepest} is inside {', '.join(names[:-1]) or 'no loop'}",
            "loops that are inside one another",
            "reorder each nest by itself",
        )
    places = sorted(names.index(n) for n in order)
    for loop in chain[places[0] : places[-1]]:
        if len(loop.body) > 1:
            raise refuse(
                f"{loop.name} holds more than the next loop",
                f"its body is {_body(loop)}",
                "loops directly inside one another",
                "move the other blocks away first (compute_at, compute_root)",
            )
    arranged = list(chain)
    for place, name in zip(places, order, strict=True):
        arranged[place] = chain[names.index(name)]
    nodes = chain[-1].body
    for loop in reversed(arranged[places[0] :]):
        nodes = (replace(loop, body=nodes),)
    return state.with_root(replace_loop(state.root, names[places[0]], lambda _: nodes))


def set_kind(state: LoopTree, loop: str, kind: LoopKind) -> LoopTree:
    """Run a loop in one of the chip's ways.

    Raises:
        HwgenError: H413, H414.
    """
    old = find_loop(state, loop)
    if old.kind != kind.name:
        check_plain(old, kind.name)
    check_not_tensorized(state, loop)
    if old.extent not in kind.extent:
        raise refuse(
            f"{loop} cannot be of kind {kind.name}",
            f"extent {old.extent}",
            str(kind.extent),
            f"split {loop} first",
        )
    if kind.kind == "vectorize" and not all(isinstance(n, Block) for n in old.body):
        raise refuse(
            f"{loop} is not an innermost loop",
            f"its body is {_body(old)}",
            "a loop that contains no other",
            f"reorder {loop} to the inside",
        )
    if kind.kind == "unroll" and old.extent > MAX_UNROLL:
        raise refuse(
            f"{loop} is too long to unroll",
            f"{old.extent} bodies",
            f"at most {MAX_UNROLL}",
            f"split {loop} and unroll its inner part",
        )
    if kind.kind == "bind":
        _check_free(state, loop, kind)
    _check_pragmas(old, kind, old.pragmas)
    made = replace(old, kind=kind.name, combines=kind.reduces, sums=bool(kind.sum))
    return state.with_root(replace_loop(state.root, loop, lambda _: (made,)))


def _check_free(state: LoopTree, loop: str, kind: LoopKind) -> None:
    """A coordinate is one loop on every path."""
    for site in under(state, loop):
        for other in site.loops:
            if other.kind == kind.name and other.name != loop:
                raise refuse(
                    f"{kind.name} is taken",
                    f"{other.name}, in one nest with {loop}, is bound to it",
                    "one loop per coordinate and nest",
                    "bind to another coordinate",
                )


def _check_pragmas(
    loop: Loop, kind: LoopKind | None, pragmas: Sequence[tuple[str, int | str]]
) -> None:
    """Only one of the two says how the compiler treats a loop: its kind or a pragma."""
    if kind is not None and kind.emit and pragmas:
        raise refuse(
            f"{loop.name} cannot be {kind.name} and have a pragma",
            f"pragma {pragmas[0][0]}",
            "a pragma on a loop whose kind writes none itself",
            f"split {loop.name} and treat its parts differently",
        )


def add_pragma(
    state: LoopTree, loop: str, key: str, value: int | str, machine: Processor
) -> LoopTree:
    """Hand a pragma to the compiler of the generated code; a loop has one, the last.

    Raises:
        HwgenError: H413, H414.
    """
    found = find_loop(state, loop)
    check_not_tensorized(state, loop)
    if not machine.pragmas:
        raise refuse(
            "this chip has no pragmas",
            f"{key} {value}",
            "a processor whose spec has pragmas",
            "leave the pragma out",
        )
    pragma = machine.pragma.get(key)
    if pragma is None or not _takes(pragma, value):
        raise refuse(
            f"{key!r} is not a pragma that this chip's compiler heeds"
            if pragma is None
            else f"pragma {key!r} does not go with {repr(value) if value != '' else 'no number'}",
            repr(f"{key} {value}".strip()),
            ", ".join(_usage(p) for p in machine.pragmas),
            f"pragma({loop!r}, {_example(pragma or machine.pragmas[0])}); parallel and vectorize "
            "are primitives, which are checked",
        )
    _check_pragmas(found, machine.loop.get(found.kind), ((key, value),))

    def edit(x: Loop) -> tuple[Node, ...]:
        return (replace(x, pragmas=((key, value),)),)

    return replace(state, root=replace_loop(state.root, loop, edit))


def _takes(pragma: Pragma, value: int | str) -> bool:
    if isinstance(value, str):
        return value == "" and bool(pragma.alone)
    return not isinstance(value, bool) and pragma.values is not None and value in pragma.values


def _usage(pragma: Pragma) -> str:
    """A pragma and what may follow it."""
    if pragma.values is None:
        return f"{pragma.name!r} without a number"
    return f"{pragma.name!r} with {pragma.values}{' or without' if pragma.alone else ''}"


def _example(pragma: Pragma) -> str:
    if pragma.values is None:
        return repr(pragma.name)
    return f"{pragma.name!r}, {4 if 4 in pragma.values else pragma.values.minimum}"
