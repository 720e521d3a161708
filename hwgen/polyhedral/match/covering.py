"""The calls that compute what a block does: which intrinsics, on which accesses."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice, product

from hwgen.constants import COVER_TRIES
from hwgen.errors import HwgenError
from hwgen.polyhedral.match.beginnings import Harmless
from hwgen.polyhedral.match.lane_loops import misfit
from hwgen.polyhedral.match.repairs import recipe
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.semantics import adding, updates, widens, written
from hwgen.polyhedral.tree.copies import target_first
from hwgen.polyhedral.tree.loop_tree import LoopTree, Site, Stage
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.polyhedral.unify import unify
from hwgen.polyhedral.value_range import value_range
from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    names,
    walk,
)
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.intervals import within
from hwgen.spec.typecheck import integer_range, is_float, neutral


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


def steps_of(state: LoopTree, site: Site, hardware: HardwareSpec) -> list[Step]:
    """The calls that compute a block together, in order.

    Raises:
        HwgenError: H421 a block without intrinsics; H422 one that its intrinsics do not compute.
    """
    block, stage = site.block, state.stage[site.block.stage]
    if block.tensorized is None:
        raise HwgenError(
            "H421",
            f"no call computes {block.name}",
            field=f"blocks.{block.name}",
            allowed="an intrinsic for every block",
            told=lambda: (
                str(stage),
                to_call(state, site, hardware, named=True),
            ),
        )
    pool = [hardware.intrinsic[n] for n in block.tensorized.intrinsic.split()]
    every = _ways(_asked(state, site, hardware), tuple(pool))
    wanted = block.tensorized.stationary
    ways = (w for w in every if not wanted or _held(state, w) <= {*wanted})
    best: list[Step] | None = None
    least = (True, sys.maxsize)
    known: dict[_Form, int] = {}
    for found in ways:
        # Operands that commute are told apart by the lanes that they move with.
        fit = _overwrites(state, stage, found), _misfit(state, site, found, known)
        if fit < least:
            best, least = found, fit
        if not any(fit):
            break
    if best is not None:
        return best
    if held := sorted({t for w in every for t in _held(state, w)}):
        raise HwgenError(
            "H422",
            f"no calls that compute {block.name} hold {', '.join(wanted)}",
            field=f"blocks.{block.name}",
            found=f"stationary={', '.join(wanted)}",
            allowed=f"tensors that units may hold: {', '.join(held)}",
            repair=f"stationary={held[0]!r}, or none",
        )
    raise HwgenError(
        "H422",
        f"{', '.join(x.name for x in pool)} cannot compute {block.name}",
        field=f"blocks.{block.name}",
        allowed="; ".join(f"{x.name}: {x.semantics[0]}" for x in pool),
        told=lambda: _elsewhere(state, site, hardware, pool),
    )


def to_call(state: LoopTree, site: Site, hardware: HardwareSpec, *, named: bool = False) -> str:
    """The edits that make a block calls of the first intrinsic that computes it alone; "" where
    none does, or with `named` a call of one that does in other memories, or of an open name."""
    asked = _asked(state, site, hardware)
    memory = {name: memory for name, _, _, memory in asked.tensors}
    for where in (memory, {})[: 1 + named]:
        for intrinsic in (x for x in hardware.intrinsics if x.unit):
            search = _Search(asked)
            search.memory = where
            for (step,) in islice((w for w in _Ways(search, (intrinsic,)) if len(w) == 1), 1):
                return recipe(state, site, intrinsic, step.operands)[0]
    return f"tensorize({site.block.name!r}, ...)" if named else ""


def _elsewhere(
    state: LoopTree, site: Site, hardware: HardwareSpec, pool: Sequence[Intrinsic]
) -> tuple[str, str]:
    """The block that intrinsics do not compute, with what they take elsewhere or in another type,
    if that is the reason; and the nearest repair."""
    asked = _asked(state, site, hardware)
    search, anywhere = _Search(asked), _Search(asked)
    anywhere.memory = {}
    wrong: dict[str, str] = {}
    for step in next(iter(_Ways(anywhere, pool)), list[Step]()):
        for rule, access in zip(step.intrinsic.operands, step.operands, strict=True):
            if not search.holds(rule, access.tensor):
                name, memory = access.tensor, search.memory[access.tensor]
                verb = "reads" if rule.access == "read" else "writes"
                there, wanted = f"in {memory}" if memory else "off the chip", rule.memory
                if search.dtypes[name] != rule.dtype:
                    there, wanted = f"{search.dtypes[name]} {there}", f"{rule.dtype} in {wanted}"
                told = f"{step.intrinsic.name} {verb} {wanted}, and {name} is {there}"
                wrong[told] = wrong.get(told) or _moved(state, name, rule.memory, asked.offchip)
    repair = to_call(state, site, hardware) or next(filter(None, wrong.values()), "")
    otherwise = "other intrinsics, or tensors in the memories and of the types that these take"
    return "; ".join([search.shown(), *wrong]), repair or otherwise


def _moved(state: LoopTree, tensor: str, memory: str, offchip: Collection[str]) -> str:
    """The edit that brings a tensor to a memory; "" where that is off the chip."""
    if memory in offchip:
        return ""
    match state.tensor[tensor].role:
        case "input":
            return f"cache_read({tensor!r}, {memory!r})"
        case "intermediate":
            return f"set_scope({tensor!r}, {memory!r})"
        case "output":  # Of the kernel, or of a part of it.
            edit = f"set_scope({tensor!r}, {memory!r})"
            return f"{edit}, or cache_write of the same if {tensor} is an output"


_Form = tuple[str, tuple[tuple[str, tuple[Expr, ...]], ...], bool]
"""An intrinsic, its operands but for the names of what steps leave for others, and whether it is
the last step: what its lanes depend on."""


def _misfit(state: LoopTree, site: Site, steps: Sequence[Step], known: dict[_Form, int]) -> int:
    """How badly the calls of some steps take the block's loops as lanes, at worst; `known`: what
    has been found out about steps before."""
    everything = [n for n, _ in state.stage[site.block.stage].iterators]
    worst = 0
    for step in steps:
        last = step is steps[-1]
        named = (("" if o.tensor.startswith("<") else o.tensor, o.indices) for o in step.operands)
        form = (step.intrinsic.name, tuple(named), last)
        if form not in known:
            used = everything if last else [n for i in step.target.indices for n in names(i)]
            known[form] = misfit(state, site, step.intrinsic, step.operands, used)
        worst = max(worst, known[form])
    return worst


def _held(state: LoopTree, steps: Sequence[Step]) -> set[str]:
    """The tensors that units hold for several calls; of copies, what they are copies of."""
    found = set[str]()
    for step in steps:
        if step.intrinsic.stationary is not None:
            names_of = [o.name for o in step.intrinsic.operands]
            tensor = step.operands[names_of.index(step.intrinsic.stationary.operand)].tensor
            found.add(copy_source(state, tensor))
    return found


def held_by(state: LoopTree, block: str, hardware: HardwareSpec) -> set[str]:
    """The tensors that units hold for several calls of a block.

    Raises:
        HwgenError: as `steps_of`.
    """
    return _held(state, steps_of(state, state.site[block], hardware))


def copy_source(state: LoopTree, tensor: str) -> str:
    """What a tensor is a copy of, perhaps over other copies; else itself."""
    while (stage := state.stage.get(tensor)) is not None and stage.kind == "copy" and stage.reads:
        tensor = stage.reads[0].tensor
    return tensor


def _overwrites(state: LoopTree, stage: Stage, steps: Sequence[Step]) -> bool:
    """Whether a step writes where a later one, or a later stage, still reads what was there; inputs
    stay as they are."""
    later = state.stages[state.stages.index(stage) + 1 :]
    read = {r.tensor for s in later for r in s.reads_in("whole")}
    read |= {t.name for t in state.tensors if t.role == "input"}
    for n, step in enumerate(steps):
        rest = steps[n + 1 :]
        after = {a.tensor for x in rest for a in x.operands} | {x.in_place for x in rest}
        if step.in_place and step.in_place in read | after:
            return True
    return False


def _spelt(value: Expr) -> Iterator[Expr]:
    """A value, and how calls that add to what is there may copy it."""
    yield value
    if isinstance(value, Access) or (isinstance(value, Binary) and value.op == "*"):
        yield Binary("+", Const(0), value)


def _set(intrinsic: Intrinsic) -> Iterator[Expr]:
    """What an intrinsic makes an element, as a value of what was there before."""
    only, added = written(intrinsic), adding(intrinsic)
    if only is not None and only[0].op == "=":
        yield only[0].value
    if added is not None:
        yield added
    # Of several lanes those without an element hold nothing that leaves a maximum as it is.
    if only is not None and only[0].op in _EXTREMA and not _reduces(only[0]):
        yield Call(_EXTREMA[only[0].op], (only[0].target, only[0].value))


def _reduces(assign: Assign) -> bool:
    """Whether an intrinsic's lanes contribute to one element."""
    return not {*names(assign.value)} <= {*names(assign.target)}


_EXTREMA = {"max=": "max", "min=": "min"}
"""Updates that leave one of their operands, and the functions that do."""


@dataclass(frozen=True)
class _Asked:
    """All that the ways to compute a block depend on, which trees of the same stages have in
    common. `tensors`: that it reads and writes, with their types, whether the caller has them
    (`output`: as a result), and their memories; `shared`: those that something else reads, too."""

    stage: Stage
    part: str
    tensors: tuple[tuple[str, str, bool, str], ...]
    shared: frozenset[str]
    intrinsics: tuple[Intrinsic, ...]
    offchip: frozenset[str]


def _asked(state: LoopTree, site: Site, hardware: HardwareSpec) -> _Asked:
    stage = state.stage[site.block.stage]
    read = [n.tensor for n in walk(stage.value) if isinstance(n, Access)]
    starts = [n.tensor for n in walk(stage.seed) if isinstance(n, Access)] if stage.seed else []
    later = state.stages[state.stages.index(stage) + 1 :]
    mine = {stage.tensor, *read, *starts} & state.tensor.keys()
    shared = {t for t in mine if read.count(t) > 1}
    shared |= mine & {r.tensor for s in later for r in s.reads_in("whole")}
    tensors = (state.tensor[name] for name in sorted(mine))
    return _Asked(
        stage,
        site.block.part,
        tuple((t.name, t.dtype, t.role == "output", state.memory(t.name)) for t in tensors),
        frozenset(shared),
        hardware.intrinsics,
        frozenset(m.name for m in hardware.memories if m.kind == "offchip"),
    )


class _Ways:
    """Ways to compute a block, looked for as far as they are asked for."""

    def __init__(self, search: _Search, pool: Sequence[Intrinsic]) -> None:
        self.search = search
        self._more = (steps for steps, left in search.root(pool) if not left)
        self._found: list[list[Step]] = []

    def __iter__(self) -> Iterator[list[Step]]:
        for position in count():
            if position == len(self._found):
                following = next(self._more, None)
                if following is None:
                    return
                self._found.append(following)
            yield self._found[position]


@lru_cache(maxsize=1024)
def _ways(asked: _Asked, pool: tuple[Intrinsic, ...]) -> _Ways:
    return _Ways(_Search(asked), pool)


class _Search:
    def __init__(self, asked: _Asked) -> None:
        self.asked, self.stage = asked, asked.stage
        self.dtypes = {name: dtype for name, dtype, _, _ in asked.tensors}
        self.outputs = {name for name, _, output, _ in asked.tensors if output}
        self.memory = {name: memory for name, _, _, memory in asked.tensors}
        self.made = 0
        self.tries = 0
        self.strict = True

    def shown(self) -> str:
        if self.asked.part == "init":
            return f"{self.stage.target} = {self._start}"
        return str(self.stage)

    @property
    def _start(self) -> Expr:
        return beginning(self.stage, self.dtypes[self.stage.tensor])

    def root(self, pool: Sequence[Intrinsic]) -> Iterator[_Made]:
        """Every way to compute the block with some intrinsics: first those in which they run in the
        order in which the pool names them, then those whose outermost is any."""
        for strict in (True, False):
            self.strict, self.tries = strict, 0
            for n, intrinsic in self._different(pool):
                rest = [*pool[:n], *pool[n + 1 :]]
                for pattern in self._patterns(intrinsic):
                    for value in self._values():
                        yield from self._applied(intrinsic, pattern, value, self.stage.target, rest)

    def _different(self, pool: Sequence[Intrinsic]) -> Iterator[tuple[int, Intrinsic]]:
        """The intrinsics of a pool that may run last, with their numbers; of equal ones the last,
        as any other does the same."""
        seen: set[str] = set()
        for n, intrinsic in reversed([*enumerate(pool)]):
            if intrinsic.name not in seen:
                seen.add(intrinsic.name)
                yield n, intrinsic
            if self.strict:
                return

    def _values(self) -> Iterator[Expr]:
        """The block's value, also without an outermost cast that changes nothing."""
        if self.asked.part == "init":
            start = normalise(self._start, self.dtypes)
            yield from _spelt(start)
            if isinstance(start, Access) and self.stage.op in _EXTREMA:
                least = neutral(self.stage.op, self.dtypes[self.stage.tensor])
                yield Call(_EXTREMA[self.stage.op], (least, start))
            yield from self._harmless()
            return
        value = normalise(self.stage.spelt, self.dtypes)
        yield from _spelt(value)
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
        harmless = Harmless.of(stage.op, start.value, value_range(stage.value, self.dtypes))
        found = (written(i) for i in self.asked.intrinsics)
        numbers = (only[0].value for only in found if only is not None)
        different = dict.fromkeys(n.value for n in numbers if isinstance(n, Const))
        for number in different:
            if harmless.holds(number) and number != start.value:
                yield Const(number)
        for number in different:
            yield from (way for _, way in harmless.moved(number))

    def _patterns(self, intrinsic: Intrinsic) -> Iterator[Expr]:
        """The values that an intrinsic may put where the block does."""
        if self.asked.part == "init" or not self.stage.reduces:
            yield from _set(intrinsic)
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
        source: Access | None = None,
    ) -> Iterator[_Made]:
        """Every way to have an intrinsic compute a value of what others compute; `source`: what it
        is to copy, so not in its own place."""
        result = intrinsic.written
        self.tries += 1
        if self.tries > COVER_TRIES or not self.holds(result, target.tensor):
            return
        fields = {i.name: i for i in intrinsic.immediates}
        offchip = result.memory in self.asked.offchip
        for found in unify(pattern, value, fields, self.dtypes, whole=offchip):
            wanted = list(found.operands)
            if (result.name, source) in wanted:
                continue
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
        for n in range(len(wanted) if self.strict else 1):
            operand, value = wanted[n]
            others = [*wanted[:n], *wanted[n + 1 :]]
            rule = intrinsic.operand(operand)
            in_place = operand == intrinsic.written.name
            for steps, left, access in self._operand(rule, value, target, rest, in_place=in_place):
                for more, last, made in self._operands(intrinsic, others, target, left):
                    both = [*more, *steps] if self.strict else [*steps, *more]
                    yield both, last, {operand: access, **made}

    def _operand(
        self,
        rule: Operand,
        value: Expr,
        target: Access,
        rest: Sequence[Intrinsic],
        *,
        in_place: bool,
    ) -> Iterator[tuple[list[Step], list[Intrinsic], Access]]:
        """Every way to have one operand; `in_place`: the call writes its result there, which a
        copy is for where others read it."""
        there: list[tuple[list[Step], list[Intrinsic], Access]] = []
        if isinstance(value, Access) and self.holds(rule, value.tensor):
            there.append(([], list(rest), value))
        needed = in_place and isinstance(value, Access) and value.tensor in self.asked.shared
        yield from () if needed else there
        held = {n for i in target.indices for n in names(i)}
        used = [n for n in target_first(self.stage) if n in names(value)]
        every = (*target.indices, *(Name(n) for n in used if n not in held))
        forms = [every] if in_place or not used else [tuple(Name(n) for n in used), every]
        for indices in dict.fromkeys(forms):
            yield from self._between(rule, value, indices, rest)
        yield from there if needed else ()

    def _between(
        self, rule: Operand, value: Expr, indices: tuple[Expr, ...], rest: Sequence[Intrinsic]
    ) -> Iterator[tuple[list[Step], list[Intrinsic], Access]]:
        """Every way to compute what an operand stands for, as a tensor with these indices."""
        self.made += 1
        between = Access(f"<{self.made}>", indices)
        for n, other in self._different(rest):
            if not (patterns := [*_set(other)]) or other.written.memory != rule.memory:
                continue
            left = [*rest[:n], *rest[n + 1 :]]
            for pattern, spelt in product(patterns, [*_spelt(value)]):
                source = value if isinstance(value, Access) and spelt != value else None
                for steps, last in self._applied(other, pattern, spelt, between, left, source):
                    yield steps, last, between

    def holds(self, operand: Operand, tensor: str) -> bool:
        """Whether an operand may be where a tensor is; what has no name yet may be anywhere."""
        if tensor not in self.memory:
            return True
        if self.memory[tensor]:
            return operand.memory == self.memory[tensor]
        return operand.memory in self.asked.offchip and self._as_stored(operand, tensor)

    def _as_stored(self, operand: Operand, tensor: str) -> bool:
        """Whether an operand may stand for a tensor in off-chip memory: in its type, or of what the
        host lays out in one that holds all of its values."""
        dtype = self.dtypes[tensor]
        if tensor in self.outputs or operand.access != "read":
            return dtype == operand.dtype
        return widens(dtype, operand.dtype) and is_float(dtype) == is_float(operand.dtype)
