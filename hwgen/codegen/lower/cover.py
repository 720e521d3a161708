"""The calls that compute what a block does: which intrinsics, on which accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.polyhedral.nest.reductions import beginning
from hwgen.polyhedral.nest.state import Block, Site, Stage, State
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.semantics import updates, widens, written
from hwgen.polyhedral.unify import unify
from hwgen.polyhedral.value_range import value_range, within
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, names
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.typecheck import integer_range, is_float


@dataclass(frozen=True, slots=True)
class Step:
    """One call of several: what it writes, and by which of its intrinsic's patterns. `in_place`:
    the tensor whose place that is, as the intrinsic reads it there; "" for none. What one step
    leaves for another has a name in angle brackets."""

    target: Access
    pattern: Expr
    intrinsic: Intrinsic
    operands: tuple[Access, ...]
    immediates: tuple[tuple[str, int | float], ...]
    in_place: str = ""


_Made = tuple[list[Step], list[Intrinsic]]
"""Steps, and the intrinsics that are left."""


def steps_of(state: State, site: Site, hardware: HardwareSpec) -> list[Step]:
    """The calls that compute a block together, in order.

    Raises:
        HwgenError: H421 a block without intrinsics; H422 one that its intrinsics do not compute.
    """
    block, stage = site.block, state.stage[site.block.stage]
    if block.tensorized is None:
        raise HwgenError(
            "H421",
            f"no call computes {block.name}",
            found=str(stage),
            allowed="an intrinsic for every block",
            repair=f"tensorize({(site.names or (block.name,))[-1]!r}, ...)",
        )
    pool = [hardware.intrinsic[n] for n in block.tensorized.intrinsic.split()]
    if stage.ordered:
        raise HwgenError(
            "H422",
            f"{block.name} takes each value from the last one, in order",
            found=str(stage),
            allowed="stages whose contributions may come in any order",
            repair="a schedule as the automatic scheduler makes it",
        )
    search = _Search(state, stage, block, hardware)
    for found, left in search.root(pool):
        if not left:
            return found
    raise HwgenError(
        "H422",
        f"{', '.join(x.name for x in pool)} cannot compute {block.name}",
        found=search.shown(),
        allowed="; ".join(f"{x.name}: {x.semantics[0]}" for x in pool),
        repair="other intrinsics, or tensors in the memories and of the types that these take",
    )


@dataclass
class _Search:
    state: State
    stage: Stage
    block: Block
    hardware: HardwareSpec

    def __post_init__(self) -> None:
        self.dtypes = {t.name: t.dtype for t in self.state.tensors}
        self.made = 0

    def shown(self) -> str:
        if self.block.part == "init":
            return f"{self.stage.target} = {self._start}"
        return str(self.stage)

    @property
    def _start(self) -> Expr:
        return beginning(self.stage, self.dtypes[self.stage.tensor])

    def root(self, pool: Sequence[Intrinsic]) -> Iterator[_Made]:
        """Every way to compute the block with some intrinsics, the outermost of which is any."""
        for n, intrinsic in enumerate(pool):
            rest = [*pool[:n], *pool[n + 1 :]]
            for pattern in self._patterns(intrinsic):
                for value in self._values():
                    yield from self._applied(intrinsic, pattern, value, self.stage.target, rest)

    def _values(self) -> Iterator[Expr]:
        """The block's value, also without an outermost cast that changes nothing."""
        if self.block.part == "init":
            yield self._start
            yield from self._harmless()
            return
        value = normalise(self.stage.value, self.dtypes)
        yield value
        match value:
            case Cast(dtype, inner) if not is_float(dtype):
                held = value_range(inner, self.dtypes)
                if held is not None and within(held, integer_range(dtype)):
                    yield inner
            case _:
                pass

    def _harmless(self) -> Iterator[Expr]:
        """Other numbers that sums may start from, as no term is beyond them; and what makes one of
        them from a number that an intrinsic sets."""
        start, stage = self._start, self.stage
        if not isinstance(start, Const):
            return
        last = start.value
        terms = value_range(stage.value, self.dtypes)
        if stage.op in ("max=", "min=") and terms is not None and isinstance(last, int):
            last = terms[0] if stage.op == "max=" else terms[1]
        low, high = sorted((start.value, last))
        numbers = [
            only[0].value.value
            for i in self.hardware.intrinsics
            if (only := written(i)) is not None and isinstance(only[0].value, Const)
        ]
        for number in dict.fromkeys(numbers):
            if low <= number <= high and number != start.value:
                yield Const(number)
        for number in dict.fromkeys(numbers):
            for goal in dict.fromkeys((start.value, last)):
                if isinstance(number, int) and isinstance(goal, int):
                    yield Binary("+", Const(number), Const(goal - number))
                    yield Call("max", (Const(number), Const(goal)))
                    yield Call("min", (Const(number), Const(goal)))

    def _patterns(self, intrinsic: Intrinsic) -> Iterator[Expr]:
        """The values that an intrinsic may put where the block does."""
        only = written(intrinsic)
        if only is None:
            return
        if self.block.part == "init" or not self.stage.reduces:
            if only[0].op == "=":
                yield only[0].value
            return
        for op, value in updates(intrinsic):
            if op == self.stage.op:
                yield value

    def _applied(
        self,
        intrinsic: Intrinsic,
        pattern: Expr,
        value: Expr,
        target: Access,
        rest: Sequence[Intrinsic],
    ) -> Iterator[_Made]:
        """Every way to have an intrinsic compute a value of what others compute."""
        result = written_operand(intrinsic)
        if not self._holds(result, target.tensor):
            return
        fields = {i.name: i for i in intrinsic.immediates}
        offchip = self.hardware.memory[result.memory].kind == "offchip"
        for found in unify(pattern, value, fields, self.dtypes, whole=offchip):
            wanted = list(found.operands)
            for before, left, made in self._operands(intrinsic, wanted, target, rest):
                own = made.get(result.name)
                if own is not None and own.indices != target.indices:
                    continue
                operands = made | {result.name: target}
                step = Step(
                    target,
                    pattern,
                    intrinsic,
                    tuple(operands[o.same_as or o.name] for o in intrinsic.operands),
                    found.immediates,
                    own.tensor if own is not None and own.tensor != target.tensor else "",
                )
                yield [*before, step], left

    def _operands(
        self,
        intrinsic: Intrinsic,
        wanted: Sequence[tuple[str, Expr]],
        target: Access,
        rest: Sequence[Intrinsic],
    ) -> Iterator[tuple[list[Step], list[Intrinsic], dict[str, Access]]]:
        """Every way to have an intrinsic's operands: where they are, or computed by others."""
        if not wanted:
            yield [], list(rest), {}
            return
        (operand, value), *others = wanted
        rule = intrinsic.operand(operand)
        for steps, left, access in self._operand(rule, value, target, rest):
            for more, last, made in self._operands(intrinsic, others, target, left):
                yield [*steps, *more], last, {operand: access, **made}

    def _operand(
        self, rule: Operand, value: Expr, target: Access, rest: Sequence[Intrinsic]
    ) -> Iterator[tuple[list[Step], list[Intrinsic], Access]]:
        if isinstance(value, Access):
            if self._holds(rule, value.tensor):
                yield [], list(rest), value
            return
        held = {n for i in target.indices for n in names(i)}
        used = [n for n, _ in self.stage.iterators if n in names(value)]
        indices = target.indices if set(used) == held else tuple(Name(n) for n in used)
        self.made += 1
        between = Access(f"<{self.made}>", indices)
        for n, other in enumerate(rest):
            only = written(other)
            if only is None or only[0].op != "=":
                continue
            if other.operand(only[1]).memory != rule.memory:
                continue
            left = [*rest[:n], *rest[n + 1 :]]
            for steps, last in self._applied(other, only[0].value, value, between, left):
                yield steps, last, between

    def _holds(self, operand: Operand, tensor: str) -> bool:
        """Whether an operand may be where a tensor is; what has no name yet may be anywhere."""
        if tensor not in self.state.tensor:
            return True
        memory = self.state.storage[tensor].memory if tensor in self.state.storage else ""
        if memory:
            return operand.memory == memory
        offchip = self.hardware.memory[operand.memory].kind == "offchip"
        return offchip and self._as_stored(operand, tensor)

    def _as_stored(self, operand: Operand, tensor: str) -> bool:
        """Whether an operand may stand for a tensor in off-chip memory: in its type, or of what the
        host lays out in one that holds all of its values."""
        dtype = self.dtypes[tensor]
        if self.state.tensor[tensor].role == "output" or operand.access != "read":
            return dtype == operand.dtype
        return widens(dtype, operand.dtype) and is_float(dtype) == is_float(operand.dtype)


def written_operand(intrinsic: Intrinsic) -> Operand:
    """The operand that an intrinsic writes."""
    only = written(intrinsic)
    assert only is not None
    return intrinsic.operand(only[1])
