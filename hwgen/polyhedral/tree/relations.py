"""Relations between the instances of a state's blocks, as isl text.

An instance of a block is a point of the loops around it. The two sides of a relation use their
loops' names with primes behind them, which user's names and isl's words never have, so that one
text can speak of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from hwgen.polyhedral import isl
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Site, Stage
from hwgen.polyhedral.tree.rejoin import rejoined
from hwgen.polyhedral.tree.terms import isl_text
from hwgen.spec.affine import Affine, affine
from hwgen.spec.expression import Access, Expr, Name, names, substitute

Elements = dict[int, tuple[Access, list[str]]]
Functions = dict[int, tuple[Access, list[Affine | None]]]


@dataclass(frozen=True, eq=False)
class Side:
    """A block's instances under renamed loops. Its texts are kept, as each is part of many
    questions; `_elements` and `_functions` by the identity of accesses, which they hold: to hash
    one takes long."""

    state: LoopTree
    site: Site
    suffix: str
    _elements: Elements = field(default_factory=Elements, init=False)
    _functions: Functions = field(default_factory=Functions, init=False)
    _rejoined: dict[int, Side] = field(default_factory=dict[int, "Side"], init=False)

    @property
    def block(self) -> Block:
        return self.site.block

    @cached_property
    def stage(self) -> Stage:
        return self.state.stage[self.block.stage]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{n}{self.suffix}" for n in self.site.names)

    @cached_property
    def renamed(self) -> dict[str, Expr]:
        """This side's names, by those of the loops."""
        return {n: Name(mine) for n, mine in zip(self.site.names, self.names, strict=True)}

    @cached_property
    def times(self) -> tuple[str, ...]:
        """When an instance runs, by loop: iterations of it."""
        pairs = zip(self.names, self.site.delays, strict=True)
        return tuple(f"{n} + {later}" if later else n for n, later in pairs)

    def band(self, start: int) -> tuple[int, int]:
        """Where the loops end that are one in time, from one on, and how many iterations of the
        last of them an instance runs later than its own."""
        if self.site.start == start:
            return start + len(self.block.band), self.block.lag
        return start + 1, self.site.delays[start]

    def time(self, start: int, stop: int) -> str:
        """When an instance runs in the loops from one to before another, as one number: iterations
        of the last of them."""
        end, _ = self.band(start)
        inside = [x.extent for x in self.site.loops[start : max(end, stop)]]
        terms = [
            f"{prod(inside[n + 1 :])}*{name}"
            for n, name in enumerate(self.names[start : max(end, stop)])
        ]
        linear = f"{' + '.join(terms)} + {self.later(start, stop)}"
        further = prod(inside[stop - start :])
        return f"floor(({linear})/{further})" if further > 1 else f"({linear})"

    def later(self, start: int, stop: int) -> int:
        """By how much the band from a loop on makes an instance run later, in iterations of the
        last loop before `stop`, or of the band's last one."""
        end, lag = self.band(start)
        return lag * prod(x.extent for x in self.site.loops[end : max(end, stop)])

    def span(self, stop: int, tile: int) -> tuple[int, int]:
        """When the first and the last instance may run of a tile that begins at zero, of so many
        iterations of the last loop before `stop`, in these as `time` has it."""
        end, _ = self.band(0)
        further, later = prod(x.extent for x in self.site.loops[stop:end]), self.later(0, stop)
        return later // further, (tile * further - 1 + later) // further

    @cached_property
    def tuple(self) -> str:
        return f"{self.block.name}[{', '.join(self.names)}]"

    def own(self, expr: Expr) -> str:
        """An expression over loops, as text over this side's names."""
        return isl_text(substitute(expr, self.renamed))

    @cached_property
    def domain(self) -> list[str]:
        """Conditions under which an instance runs."""
        result = [
            f"0 <= {n} < {x.extent}" for n, x in zip(self.names, self.site.loops, strict=True)
        ]
        return result + [self.own(c) for c in self.conditions]

    @cached_property
    def conditions(self) -> tuple[Expr, ...]:
        """Those of them that are not ranges of loops, over loops."""
        block = self.block
        if block.store_predicate is None or combining(self.state, self.site):
            return block.predicate
        return (*block.predicate, block.store_predicate)

    @cached_property
    def makes(self) -> dict[str, Affine | None]:
        """The stage's iterators, over loops; None where one is not affine."""
        return {n: affine(e) for n, e in self.block.bindings}

    def element(self, access: Access) -> list[str]:
        """Indices of an access at an instance."""
        kept = self._elements.get(id(access))
        if kept is None:
            binding = self.block.binding
            kept = access, [self.own(substitute(i, binding)) for i in access.indices]
            self._elements[id(access)] = kept
        return kept[1]

    def functions(self, access: Access) -> list[Affine | None]:
        """Indices of an access at an instance, over loops; None where one is not affine."""
        kept = self._functions.get(id(access))
        if kept is None:
            binding = self.block.binding
            kept = access, [affine(substitute(i, binding)) for i in access.indices]
            self._functions[id(access)] = kept
        return kept[1]

    def rejoined(self, depth: int) -> Side:
        """The same instances with split loops as one, from a depth inwards, under divisions.

        To project two loops out of `floor((8 f + g) / 15)` takes isl very long; one loop `x` in
        their place, of which nothing but `8 f + g` is ever used, takes no time.
        """
        if depth not in self._rejoined:
            self._rejoined[depth] = Side(self.state, rejoined(self.site, depth), self.suffix)
        return self._rejoined[depth]


def side_of(state: LoopTree, site: Site, suffix: str) -> Side:
    """A block's instances, the same object whenever it is asked for of a state."""
    known = state.sides.get((site.block.name, suffix))
    if known is None:
        known = state.sides[site.block.name, suffix] = Side(state, site, suffix)
    return known


def combining(state: LoopTree, site: Site) -> tuple[Loop, ...]:
    """Loops that are run by threads although they carry the block's own reduction."""
    if site.block.part == "init" or state.stage[site.block.stage].ordered:
        return ()
    carriers = carried(state, site)
    return tuple(x for x in site.loops if x.name in carriers and x.combines)


def added_in_lanes(state: LoopTree, site: Site, loop: Loop) -> bool:
    """Whether a loop's lanes do nothing but add to one element of the block's target, each to a
    part of its own."""
    stage = state.stage[site.block.stage]
    if not loop.sums or site.block.part == "init" or stage.op != "+=" or len(loop.body) != 1:
        return False
    spatial = {n for n, _ in stage.spatial}
    moves = any(loop.name in names(e) for i, e in site.block.bindings if i in spatial)
    return loop.name in carried(state, site) and not moves


SEQUENTIAL = ("serial", "unroll")
"""Kinds of loops whose iterations run one after the other."""


def carried(state: LoopTree, site: Site) -> frozenset[str]:
    """Names of the loops that a block's reduction iterators depend on."""

    stage = state.stage[site.block.stage]
    inside = dict(site.block.bindings)
    return frozenset(n for i, _ in stage.reduction if i in inside for n in names(inside[i]))


def shared(a: Site, b: Site) -> int:
    """How many loops two blocks have in common."""
    count = 0
    for x, y, p, q in zip(a.loops, b.loops, a.places, b.places, strict=False):
        if x.name != y.name or p != q:
            break
        count += 1
    return count


def same(a: Side, b: Side, depth: int) -> list[str]:
    """Both instances lie in the same iteration of the outermost `depth` loops."""
    return [f"{x} = {y}" for x, y in zip(a.names[:depth], b.names[:depth], strict=True)]


def before(a: Side, b: Side, depth: int = 0) -> str:
    """Condition: an instance of `a` runs before one of `b`, the outermost `depth` loops equal."""
    return _compared(a, b, depth, "<<", "<<=")


def not_before(a: Side, b: Side, depth: int = 0) -> str:
    """Condition: it does not."""
    return _compared(a, b, depth, ">>=", ">>")


ALWAYS, NEVER = "0 = 0", "0 = 1"

_SELF_EVIDENT = {"<<": NEVER, "<<=": ALWAYS, ">>": NEVER, ">>=": ALWAYS}
"""Lexicographic comparisons of nothing with nothing."""


def _compared(a: Side, b: Side, depth: int, apart: str, tied: str) -> str:
    """When two instances run, compared lexicographically, which isl reads sooner than it does the
    ways that there are. `tied`: the comparison where they stand one after the other in one
    iteration of all loops that they share."""
    common = shared(a.site, b.site)
    starts = [x.site.start for x in (a, b) if x.site.start is not None]
    start = min([common, *starts])
    outside = min(depth, start)
    for mine, other in zip(a.site.delays[:outside], b.site.delays[:outside], strict=True):
        if mine != other:
            return ALWAYS if (mine < other) == (apart == "<<") else NEVER
    mine, other = (list(x.times[outside:start]) for x in (a, b))
    if start < common:
        mine.append(a.time(start, common))
        other.append(b.time(start, common))
    if depth >= common > start and all(s.band(start)[0] <= common for s in (a, b)):
        # In the same iteration of all of these loops, one only runs so much later.
        one, two = (s.later(start, common) for s in (a, b))
        if one != two:
            return ALWAYS if (one < two) == (apart == "<<") else NEVER
        mine, other = [], []
    how = tied if a.site.places[common] < b.site.places[common] else apart
    if not mine:
        return _SELF_EVIDENT[how]
    return f"({', '.join(mine)} {how} {', '.join(other)})"


def some_pair(a: Side, b: Side, when: str, *conditions: Sequence[str]) -> isl.Pair | None:
    """Two instances of which all conditions hold, among them one on when they run.

    Raises:
        HwgenError: H407, as `isl.some_pair`.
    """
    if when == NEVER:
        return None
    holds = conjoin(a.domain, b.domain, *conditions)
    return isl.some_pair(f"{{ {a.tuple} -> {b.tuple} : {holds} and {when} }}")


def equal(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Each is what the other side's is, as far as both go."""
    return [f"{a} = {b}" for a, b in zip(left, right, strict=False)]


def conjoin(*parts: Sequence[str]) -> str:
    """Conditions joined; a true one where there is none."""
    return " and ".join(c for part in parts for c in part) or "0 = 0"
