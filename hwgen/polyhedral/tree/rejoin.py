"""Split loops put together again, for questions that take isl long otherwise.

Two loops `f` and `g` with `g < c`, of which a block uses nothing but `c * f + g`, are one loop over
that sum: `(f, g) -> c * f + g` is a bijection from their box to `0 ..< extent(f) * c`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TypeVar

from hwgen.polyhedral.tree.loop_tree import Block, Loop, Site
from hwgen.polyhedral.tree.terms import addends, total
from hwgen.spec.expression import Binary, Call, Expr, Name, Unary, names, walk

T = TypeVar("T")


def rejoined(site: Site, depth: int) -> Site:
    """The same instances of a block with fewer loops inside the outermost `depth` ones.

    Nothing changes where the block divides nothing, where threads store what they combined, or
    where a band of further loops says when it runs.
    """
    free = site.block.store_predicate is None and {*site.block.band} <= {*site.names[:depth]}
    divided = free and any(
        isinstance(n, Binary) and n.op in ("//", "%") for e in _used(site.block) for n in walk(e)
    )
    while divided:
        found = (_pair(site, f, g) for f, g in permutations(site.loops[depth:], 2))
        smaller = next((s for s in found if s is not None), None)
        if smaller is None:
            break
        site = smaller
    return site


def _used(block: Block) -> list[Expr]:
    """Everything that a block computes from its loops."""
    return [*(e for _, e in block.bindings), *block.predicate]


def _pair(site: Site, f: Loop, g: Loop) -> Site | None:
    """The site with one loop for two; None where it uses them apart."""
    name = f"{f.name}_{g.name}"
    if name in site.names:
        return None

    def one(expr: Expr) -> Expr:
        return _joined(expr, f.name, g.name, g.extent, name)

    block = replace(
        site.block,
        bindings=tuple((n, one(e)) for n, e in site.block.bindings),
        predicate=tuple(map(one, site.block.predicate)),
    )
    left = {n for e in _used(block) for n in names(e)}
    if name not in left or not left.isdisjoint((f.name, g.name)):
        return None
    first, second = sorted((site.loops.index(f), site.loops.index(g)))
    whole = replace(f, name=name, extent=f.extent * g.extent)
    loops = (*site.loops[:first], whole, *site.loops[first + 1 :])
    return Site(block, _without(loops, second), _without(site.places, second))


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return (*items[:place], *items[place + 1 :])


def _joined(expr: Expr, f: str, g: str, step: int, name: str) -> Expr:
    """The expression with a name for `step * f + g` in every sum that has both like that."""

    def inside(other: Expr) -> Expr:
        return _joined(other, f, g, step, name)

    match expr:
        case Binary("+" | "-", _, _) | Binary("*", _, _):
            parts = addends(expr)
            if parts == [(1, expr)]:
                return expr
            of_f = sum(c for c, t in parts if t == Name(f))
            of_g = sum(c for c, t in parts if t == Name(g))
            kept = [(c, t if t is None else inside(t)) for c, t in parts]
            if of_g and of_f == step * of_g:
                kept = [(c, t) for c, t in kept if t not in (Name(f), Name(g))]
                kept.append((of_g, Name(name)))
            return total(kept)
        case Binary(op, left, right):
            return Binary(op, inside(left), inside(right))
        case Unary(op, operand):
            return Unary(op, inside(operand))
        case Call(function, arguments):
            return Call(function, tuple(map(inside, arguments)))
        case _:
            return expr
