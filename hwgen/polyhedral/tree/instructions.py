"""Instructions that the scalar code of a tree retires, block by block, as a compiler makes it.

Each value is computed once, and in the innermost loop that moves it. An element is loaded there and
stored where its indices move last, so that sums stay in registers. In every iteration a loop takes
a branch, a step of each address that it moves, and the start of each that the loop inside moves.
Loops that copy elements in a row, or set them to zero, become calls of the C library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, prod

from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Site, Stage
from hwgen.polyhedral.tree.terms import addends, interval, simplify
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    Unary,
    children,
    evaluate,
    names,
    rewrite,
    substitute,
    walk,
)
from hwgen.spec.intervals import compared
from hwgen.spec.processor import Instructions
from hwgen.spec.typecheck import integer_range, is_float

Address = tuple[str, tuple[str, ...]]
"""An array, and its indices without constants: what differs by these alone is one register."""

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_ARITHMETIC = ("+", "-", "*", "<<", ">>", "//", "%")


def retired(state: LoopTree, costs: Instructions) -> Mapping[str, float]:
    """Instructions of each block, all its instances one after another. The branch of a loop counts
    for its first block."""
    seen: set[str] = set()
    found: dict[str, float] = {}
    for site in state.sites:
        found[site.block.name] = _Block(state, site, costs).retired(seen)
        seen.update(site.names)
    return found


@dataclass
class _Block:
    """`count`: instructions of what is computed or moved so far; `known`: the values among it;
    `addresses`: of the arrays accessed, which of the `loops` move them, from 1 on."""

    state: LoopTree
    site: Site
    costs: Instructions
    count: float = 0.0
    known: set[Expr] = field(default_factory=set[Expr])
    addresses: dict[Address, frozenset[int]] = field(default_factory=dict[Address, frozenset[int]])

    def __post_init__(self) -> None:
        # A loop of one iteration is none.
        self.loops = [x for x in self.site.loops if x.extent > 1]
        self.place = {x.name: n for n, x in enumerate(self.loops, 1)}

    @property
    def stage(self) -> Stage:
        return self.state.stage[self.site.block.stage]

    def retired(self, seen: set[str]) -> float:
        """All of them; loops that were `seen` have their branches."""
        stage, part = self.stage, self.site.block.part
        self._add(self.costs.block, 0)
        target = self._bound(stage.target)
        assert isinstance(target, Access)
        moved = self._at_once(target)
        if moved is not None:
            return self.count + moved
        kept, every = self._depth(target), len(self.loops)
        for condition in self.site.block.predicate:
            self._value(self._bound(condition))
        if part == "init":
            self._begun(kept)
        else:
            self._stored(self._bound(stage.value))
            if stage.op != "=":
                sums = stage.op == "+="
                each = self.costs.operation if sums else self._choice(stage.target, stage.value)
                self._add(each, every)
                # It is set where the sum begins, or read again.
                self._add(self.costs.memory if part == "update" else self.costs.operation, kept)
        self._address(target)
        self._add(self.costs.memory, kept if stage.reduces else every)
        return self.count + self._loops(seen)

    def _begun(self, kept: int) -> None:
        """Count what a sum starts from."""
        if self.stage.seed is None:
            self._add(self.costs.operation, kept)
        else:
            self._value(self._bound(self.stage.seed))

    def _stored(self, value: Expr) -> None:
        """Count a value of which memory takes the low bits."""
        while isinstance(value, Cast) and not self._floats(value.operand):
            value = value.operand
        self._value(value)

    def _loops(self, seen: set[str]) -> float:
        """Branches, and steps of addresses."""
        found = 0.0
        for depth, loop in enumerate(self.loops, 1):
            moved = sum(depth in places for places in self.addresses.values())
            begun = sum(depth + 1 in places for places in self.addresses.values())
            branch = 0.0 if loop.name in seen else self.costs.branch
            counter = 0 if moved else 1
            found += (branch + self.costs.address * (moved + begun + counter)) * self._times(depth)
        return found

    def _times(self, depth: int) -> int:
        """How often what is inside of so many loops runs."""
        return prod(x.extent for x in self.loops[:depth])

    def _depth(self, value: Expr) -> int:
        """The innermost loop that moves a value; 0: none."""
        return max((self.place.get(n, 0) for n in names(value)), default=0)

    def _add(self, instructions: float, depth: int) -> None:
        self.count += instructions * self._times(depth)

    def _type(self, tensor: str) -> str:
        return self.state.tensor[tensor].dtype

    # Copies and fills

    def _at_once(self, target: Access) -> float | None:
        """Instructions of a block that becomes calls of the C library; None where it does not."""
        block, stage = self.site.block, self.stage
        if not self.loops or block.predicate or (stage.reduces and block.part != "init"):
            return None
        if sum(self.loops[-1].name in s.names for s in self.state.sites) > 1:
            return None
        value = stage.seed or Const(0) if block.part == "init" else self._bound(stage.value)
        arrays = [target]
        match value:
            case Access(tensor, _) if self._type(tensor) == self._type(target.tensor):
                each = self.costs.copied_byte
                arrays.append(value)
            case Const(0):
                each = self.costs.filled_byte
            case _:
                return None
        joined, elements = 0, 1
        for loop in reversed(self.loops[-2:]):
            if any(self._step(a, loop.name) != elements for a in arrays):
                break
            joined, elements = joined + 1, elements * loop.extent
        if not joined:
            return None
        calls = self._times(len(self.loops) - joined)
        size = elements * DTYPES[self._type(target.tensor)]
        return calls * self.costs.rows(size, each)

    def _step(self, access: Access, loop: str) -> int | None:
        """Elements from one iteration of a loop to the next, row-major; None where that varies."""
        found, width = 0, 1
        shape = self.state.tensor[access.tensor].shape
        for index, extent in zip(reversed(access.indices), reversed(shape), strict=True):
            for factor, term in addends(index):
                if term == Name(loop):
                    found += factor * width
                elif term is not None and loop in names(term):
                    return None
            width *= extent
        return found

    # Values

    def _bound(self, value: Expr) -> Expr:
        """A value over the loops, without what a compiler computes or finds decided."""
        return rewrite(substitute(value, self.site.block.binding), self._folded)

    def _folded(self, value: Expr) -> Expr:
        match value:
            case Cast(dtype, Const() as number) if not is_float(dtype):
                return number
            case Const() | Name() | Cast():
                return value
            case Access(tensor, indices):
                extents = self.site.extents
                return Access(tensor, tuple([simplify(i, extents) for i in indices]))
            case Call("select", (condition, yes, no)):
                holds = self._holds(condition)
                return value if holds is None and yes != no else yes if holds else no
            case Binary() | Unary() | Call("min" | "max", _) if all(
                isinstance(x, Const) and isinstance(x.value, int) for x in children(value)
            ):
                return Const(evaluate(value, {}))
            case Binary(
                "%", Binary("+", Cast(_, Access() as read), Const(int(more))), Const(size)
            ) if size == 1 << 8 * DTYPES[self._type(read.tensor)] and more % size == 0:
                return Cast(f"u{self._type(read.tensor).lstrip('u')}", read)  # It is loaded so.
            case Binary(op, left, right) if op in _ARITHMETIC and right == _NEUTRAL.get(op, ZERO):
                return left
            case _:
                return value

    def _holds(self, condition: Expr) -> bool | None:
        """Whether a condition holds in all iterations, or in none; None: in some, or not known."""
        match condition:
            case Const(number):
                return bool(number)
            case Binary("and" | "or" as op, left, right):
                sides = self._holds(left), self._holds(right)
                decisive = op == "or"
                if decisive in sides:
                    return decisive
                return None if None in sides else not decisive
            case Unary("not", operand):
                holds = self._holds(operand)
                return None if holds is None else not holds
            case Binary(op, left, right) if op in _COMPARISONS and not any(
                isinstance(x, Access | Call | Cast) for x in walk(condition)
            ):
                return compared(op, interval(Binary("-", left, right), self.site.extents))
            case _:
                return None

    def _value(self, value: Expr) -> None:
        """Count a value and what it is made of, but what is known."""
        if value in self.known or value == RUNNING:
            return
        self.known.add(value)
        depth = self._depth(value)
        match value:
            case Const() | Name():
                return
            case Access():
                self._address(value)
                self._add(self.costs.memory, depth)
                return
            case Call("select", (condition, Const(0 | 1), Const(0 | 1))):
                self._value(condition)
                return
            case Call("select", (condition, yes, no)):
                self._value(condition)
                self._either(yes, no)
            case _:
                for part in children(value):
                    self._value(part)
        if depth:
            self._add(self._each(value), depth)

    def _either(self, yes: Expr, no: Expr) -> None:
        """Count what both of two values take, and half of what one of them takes alone."""
        both = {*walk(yes)} & {*walk(no)}
        for part in (p for side in (yes, no) for p in walk(side) if p in both):
            self._value(part)
        before = self.count
        self._value(yes)
        self._value(no)
        self.count -= (self.count - before) / 2

    def _address(self, access: Access) -> None:
        """Note an array's address, and count what its indices take beside steps."""
        terms = [t for i in access.indices for _, t in addends(i) if t is not None]
        for term in terms:
            if not isinstance(term, Name):
                self._value(term)
        moves = frozenset(self.place[n] for n in names(access) if n in self.place)
        self.addresses[access.tensor, tuple(map(str, terms))] = moves

    def _each(self, value: Expr) -> float:
        """Instructions of one operation."""
        costs = self.costs
        match value:
            case Cast(dtype, operand):
                return self._conversion(dtype, operand)
            case Binary("//" | "%", left, right) if not self._floats(left):
                plain = _power_of_two(right) and self._least(left) >= 0
                return costs.operation if plain else costs.division
            case Binary() | Unary():
                return costs.operation
            case Call("select" | "abs", _):
                return costs.choice
            case Call("min" | "max", (first, *rest)):
                return sum(self._choice(first, x) for x in rest)
            case Call("clip", (first, low, high)):
                return self._choice(first, low) + self._choice(first, high)
            case Call(function, _):
                return costs.of(function)
            case _:
                return 0.0

    def _choice(self, value: Expr, other: Expr) -> float:
        """Of the smaller or larger of two; what is compared with zero is masked."""
        if self._floats(value):
            return self.costs.float_choice
        if other != ZERO:
            return self.costs.choice
        narrow = isinstance(value, Access) and DTYPES[self._type(value.tensor)] < 4
        return self.costs.choice + self.costs.operation + self.costs.narrowing * narrow

    def _conversion(self, dtype: str, operand: Expr) -> float:
        if is_float(dtype) != self._floats(operand):
            return self.costs.operation
        if isinstance(operand, Access) and DTYPES[self._type(operand.tensor)] == DTYPES[dtype]:
            return 0.0
        return self.costs.narrowing if DTYPES[dtype] < 4 and not is_float(dtype) else 0.0

    def _least(self, value: Expr) -> float:
        """What an integer is at least, as far as its form says."""
        match value:
            case Const(number):
                return number
            case Name():
                return 0
            case Access() if not self._floats(value):
                return integer_range(self._type(value.tensor))[0]
            case Cast(dtype, operand) if not is_float(dtype):
                return max(integer_range(dtype)[0], self._least(operand))
            case Binary("+", left, right):
                return self._least(left) + self._least(right)
            case Binary("%", _, Const(number)):
                return 0 if number > 0 else -inf
            case _:
                return -inf

    def _floats(self, value: Expr) -> bool:
        """Whether a value is a float's."""
        match value:
            case Cast(dtype, _):
                return is_float(dtype)
            case Access():
                return is_float(self._type(value.tensor))
            case Const(number):
                return isinstance(number, float)
            case Binary(op, _, _) if op in (*_COMPARISONS, "and", "or"):
                return False
            case Call("select", (_, yes, no)):
                return self._floats(yes) or self._floats(no)
            case _:
                return any(self._floats(x) for x in children(value))


ZERO = Const(0)
_NEUTRAL = {"*": Const(1), "//": Const(1), "%": None}
"""On the right of an operation that changes nothing; of others it is zero."""


def _power_of_two(value: Expr) -> bool:
    match value:
        case Const(int(number)):
            return number > 0 and number & (number - 1) == 0
        case _:
            return False
