"""How near an intrinsic comes to a value, and what it differs in: data type, constant, form, or
the memory of an operand. The error H301 and `hwgen explain` both say what this finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hwgen.polyhedral.match.form import (
    Constant,
    alike,
    departure,
    other_casts,
    other_constants,
    outline,
    size,
)
from hwgen.polyhedral.match.retype import Change, Retyper, shown
from hwgen.polyhedral.match.selection import Selector
from hwgen.polyhedral.scop import ScopStatement
from hwgen.polyhedral.semantics import as_read, updates, widens, written
from hwgen.polyhedral.unify import Unification, as_immediate, unify
from hwgen.spec.expression import Access, Call, Cast, Const, Expr, Name, parts, walk
from hwgen.spec.hardware import Intrinsic
from hwgen.spec.typecheck import is_float

_OTHER_KIND = 10
_OTHER_FORM = 20
_NO_INTRINSIC = 40
"""Distances, to which the sizes of what differs are added; what else differs counts 1 to 6."""

_FLOAT_FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "round", "ceil", "floor")


@dataclass(frozen=True, slots=True)
class Miss:
    """What keeps an intrinsic from computing a value. `distance`: 1 is nearest. `inside`: the
    operand that nothing computes, where that alone is missing; `number`: whether the value has
    something else where an immediate is."""

    distance: int
    reason: str
    repair: str = ""
    inside: Expr | None = None
    number: bool = False


@dataclass(frozen=True, slots=True)
class Application:
    """An intrinsic against a part of a statement's value; `miss` is None where it computes it, or
    `sums` it up."""

    value: Expr
    miss: Miss | None
    sums: bool = False


class Diagnosis:
    """Misses at one point of a selection. `trial`: without repairs that change types."""

    def __init__(self, selector: Selector, *, trial: bool = False) -> None:
        self.selector = selector
        self.scop = selector.scop
        self.hardware = selector.hardware
        self.retyper = None if trial else Retyper(selector.scop, selector.hardware)
        self.known: dict[tuple[str, Expr], tuple[int, str, str]] = {}

    # -- a statement ------------------------------------------------------------------------

    def nearest_miss(self, statement: ScopStatement) -> tuple[str, str]:
        """What comes nearest to a statement that nothing computes: the reason and the repair."""
        by_place = next((n for n in self.parts(statement) if _by_place(n)), None)
        if by_place is not None:
            return _placed(by_place)
        if statement.accumulates:
            return self._accumulation(statement)
        value = statement.value
        leaf = isinstance(value, (Const, Name, Access))
        memories = [m.name for m in self.hardware.memories]
        if not leaf and not any(self.selector.cover(value, m, statement) for m in memories):
            return self._nearest(statement, value)[1:]
        tensor = statement.target.tensor
        declared = self.scop.workload.tensor.get(tensor)
        if declared is not None and declared.role == "intermediate":
            return (
                f"`{value}` is computed into off-chip memory only, but {tensor} is an intermediate",
                f"make {tensor} the output of a workload of its own",
            )
        if self.selector.cover(value, self.hardware.offchip.name, statement) is not None:
            return (
                f"a store writes {tensor} from `{value}`, but {tensor} is read again, and nothing "
                "leaves it in a memory of the chip, to be stored from there",
                f"read what {tensor} is computed from, or make a workload of what reads {tensor}",
            )
        stores = [
            f"`{w[0]}`"
            for i in self.hardware.intrinsics
            if (w := written(i)) is not None and self._offchip(i.operand(w[1]).memory)
        ]
        return (
            f"no store writes {tensor} as {self.scop.dtype[tensor]} from `{value}`; "
            f"the chip stores {', '.join(stores)}",
            "end the statement with what a store computes",
        )

    def application(self, statement: ScopStatement, intrinsic: Intrinsic) -> Application | None:
        """The part of a statement that an intrinsic comes nearest to; None where no part has its
        outermost operation."""
        found: list[Application] = []
        if statement.accumulates:
            value, real = statement.value, is_float(self.scop.dtype[statement.target.tensor])
            found += [
                Application(value, self._miss(statement, intrinsic, v, value, "", real), True)
                for op, v in updates(intrinsic)
                if op == statement.op
            ]
        only = written(intrinsic)
        if only is not None and only[0].op == "=":
            for node, real in self._nodes(statement):
                if alike(only[0].value, node):
                    miss = self._miss(statement, intrinsic, only[0].value, node, only[1], real)
                    found.append(Application(node, miss))
        return min(found, key=lambda a: a.miss.distance if a.miss else 0, default=None)

    def _accumulation(self, statement: ScopStatement) -> tuple[str, str]:
        found = [i for i in self.hardware.intrinsics for op, _ in updates(i) if op == statement.op]
        if not found:
            return (
                f"no intrinsic accumulates with `{statement.op}`{self._together(statement)}",
                f"an intrinsic with semantics `... {statement.op} {outline(statement.value)}`",
            )
        real = is_float(self.scop.dtype[statement.target.tensor])
        ways = [
            (i, self._miss(statement, i, v, statement.value, "", real))
            for i in found
            for op, v in updates(i)
            if op == statement.op
        ]
        served = next((i for i, miss in ways if miss is None), None)
        if served is not None:  # Its operands can all be supplied, but its sums not begun.
            memory = next(o.memory for o in served.operands if o.access == "update")
            left = statement.target.tensor
            return (
                f"{served.name} computes it, but no way leads on from {memory}, where it leaves "
                f"{left}",
                f"an intrinsic that reads {memory} and stores {left}, or what is computed from it",
            )
        return self._best(statement, statement.value, ways)[1:]

    def _together(self, statement: ScopStatement) -> str:
        """An intrinsic that accumulates so for several results at once, as text; "" for none."""
        for intrinsic in self.hardware.intrinsics:
            results = list(dict.fromkeys(a.target.tensor for a in intrinsic.semantics))
            sums = (a for a in intrinsic.semantics if a.op != "=" or a.running)
            if len(results) > 1 and any(a.op == statement.op for a in sums):
                both = f"{', '.join(results[:-1])} and {results[-1]}"
                return (
                    f"; {intrinsic.name} updates {both} in one walk, and statements walk one after "
                    "the other"
                )
        return ""

    # -- a part of its value ----------------------------------------------------------------

    def _nearest(self, statement: ScopStatement, value: Expr) -> tuple[int, str, str]:
        """The distance of what comes nearest to a value, the reason and the repair."""
        key = (statement.name, value)
        if key not in self.known:
            real = next((r for n, r in self._nodes(statement) if n == value), False)
            ways = [
                (i, self._miss(statement, i, w[0].value, value, w[1], real))
                for i in self.hardware.intrinsics
                if (w := written(i)) is not None and w[0].op == "=" and alike(w[0].value, value)
            ]
            self.known[key] = self._best(statement, value, ways)
        return self.known[key]

    def _best(
        self, statement: ScopStatement, value: Expr, ways: Iterable[tuple[Intrinsic, Miss | None]]
    ) -> tuple[int, str, str]:
        found: list[tuple[int, str, str]] = []
        every = [(i, miss) for i, miss in ways if miss is not None]
        # Where one lacks nothing but an operand, none that wants a number for it is nearer.
        nested = any(miss.inside is not None for _, miss in every)
        for intrinsic, miss in every:
            if nested and miss.number:
                continue
            if miss.inside is not None:
                distance, reason, repair = self._nearest(statement, miss.inside)
                found.append((max(miss.distance, distance), reason, repair))
                continue
            part = "" if value == statement.value else f" to `{value}`"
            told = f"{intrinsic.name} comes nearest{part}, but {miss.reason}"
            found.append((miss.distance, told, miss.repair))
        wanted = f"an intrinsic with semantics `... = {outline(value)}`"
        absent = (_NO_INTRINSIC + size(value), f"no intrinsic computes `{value}`", wanted)
        return min(found, key=lambda m: m[0], default=absent)

    def parts(self, statement: ScopStatement) -> Iterator[Expr]:
        """Every part of a statement's value, indices left out."""
        return (node for node, _ in self._nodes(statement))

    def _nodes(self, statement: ScopStatement) -> Iterator[tuple[Expr, bool]]:
        """Every part of a value, and whether it is a float."""
        whole = is_float(self.scop.dtype[statement.target.tensor])

        def nodes(node: Expr, context: bool) -> Iterator[tuple[Expr, bool]]:
            kind = self._kind(node)
            real = context if kind is None else kind
            yield node, real
            for child in parts(node):
                yield from nodes(child, real)

        yield from nodes(statement.value, whole)

    def _kind(self, node: Expr) -> bool | None:
        """Whether a value is a float; None for numbers, which take the type of what they meet."""
        match node:
            case Const() | Name():
                return None
            case Access(tensor, _):
                return is_float(self.scop.dtype[tensor])
            case Cast(dtype, _):
                return is_float(dtype)
            case Call(function, _) if function in _FLOAT_FUNCTIONS:
                return True
            case Call("select", (_, *inner)):
                pass
            case _:
                inner = parts(node)
        return next((k for p in inner if (k := self._kind(p)) is not None), None)

    # -- an intrinsic -----------------------------------------------------------------------

    def _miss(
        self,
        statement: ScopStatement,
        intrinsic: Intrinsic,
        pattern: Expr,
        value: Expr,
        target: str,
        real: bool,
    ) -> Miss | None:
        """What keeps an intrinsic from computing a value; None where nothing does."""
        fields = {i.name: i for i in intrinsic.immediates}
        stores = bool(target) and self._offchip(intrinsic.operand(target).memory)
        exact = list(unify(pattern, value, fields, self.scop.dtype, whole=stores))
        if exact:
            misses = [self._operands(statement, intrinsic, u, value, target) for u in exact]
            served = any(m is None for m in misses)
            found = [m for m in misses if m is not None]
            if not served:
                return min(found, key=lambda m: m.distance)
            return self._target(statement, intrinsic, value, target, real)
        casts = other_casts(pattern, value, fields)
        if casts is not None:
            return self._casts(statement, intrinsic, pattern, value, target, *casts)
        kept = (intrinsic.operand(target) if target else intrinsic.written).dtype
        if is_float(kept) != real:
            kind = "floats" if real else "integers"
            how = "=" if target else statement.op
            wanted = f"an intrinsic with semantics `... {how} {outline(value)}` on {kind}"
            told = f"it computes {kept}, and `{value}` is computed in {kind}"
            return Miss(_OTHER_KIND + size(value), told, wanted)
        constants = other_constants(pattern, value, fields)
        if constants is not None and constants[1]:
            unification, others = constants
            miss = self._operands(statement, intrinsic, unification, value, target)
            away = len(others) + (0 if miss is None else miss.distance)
            return replace(_constant(others[0]), distance=away)
        mine, theirs = departure(pattern, value, fields)
        if isinstance(mine, Name):
            repair = self._wanted(statement, value, target, [])
            if isinstance(theirs, Access):
                repair = f"write a number in place of `{theirs}`, or {repair}"
            told = f"it takes an immediate for {mine}, where `{theirs}` is no constant"
            return Miss(6, told, repair, number=True)
        away = _OTHER_FORM + size(mine) + size(theirs)
        wanted = f"an intrinsic that computes `{value}`"
        if (mine, theirs) == (pattern, value):
            return Miss(away, f"`{value}` does not have the form `{pattern}`", wanted)
        return Miss(away, f"it has `{mine}` where the statement has `{theirs}`", wanted)

    def _target(
        self,
        statement: ScopStatement,
        intrinsic: Intrinsic,
        value: Expr,
        target: str,
        real: bool,
    ) -> Miss | None:
        """The type of a result whose operands can all be supplied."""
        if not target:
            target = intrinsic.written.name
        operand = intrinsic.operand(target)
        if self._offchip(operand.memory):
            declared = self.selector.stored_dtype(statement)
            if operand.dtype == declared:
                return None
            tensor = statement.target.tensor
            change = Change(tensors=((tensor, operand.dtype),))
            repair = self._retyped(statement, intrinsic, change)
            either = f"{repair}, or add" if repair else "add"
            return Miss(
                1,
                f"it stores {operand.dtype}, and {tensor} is {declared}",
                f"{either} a store that writes {declared}",
            )
        if is_float(operand.dtype) == real:
            return None
        kind = "floats" if real else "integers"
        return Miss(2, f"it leaves {operand.dtype}, and `{value}` is computed in {kind}")

    def _casts(
        self,
        statement: ScopStatement,
        intrinsic: Intrinsic,
        pattern: Expr,
        value: Expr,
        target: str,
        found: Unification,
        instance: Expr,
    ) -> Miss:
        """A value that has other casts than the pattern: its operands are of other types."""
        change = Change(old=value, new=instance)
        wrong = self._wrong_types(statement, intrinsic, found)
        change = replace(change, tensors=self._declarations(intrinsic, found))
        repair = self._retyped(statement, intrinsic, change)
        wanted = repair or self._wanted(statement, value, target, wrong)
        if wrong:
            return Miss(4 + len(wrong), _types(wrong), wanted)
        return Miss(4, f"it computes `{pattern}`, with other casts than `{value}`", wanted)

    def _operands(
        self,
        statement: ScopStatement,
        intrinsic: Intrinsic,
        found: Unification,
        value: Expr,
        target: str,
    ) -> Miss | None:
        """Which operands cannot be supplied, those of another type first."""
        wrong = self._wrong_types(statement, intrinsic, found)
        misses = [
            m
            for name, part in found.operands
            if name not in {n for n, _, _, _ in wrong}
            and (m := self._operand(statement, intrinsic, name, part, name == target)) is not None
        ]
        away = 2 * len(wrong) + sum(m.distance for m in misses)
        if wrong:
            away += sum(self._absent(statement, dict(found.operands)[n]) for n, _, _, _ in wrong)
            change = Change(tensors=self._declarations(intrinsic, found))
            repair = self._retyped(statement, intrinsic, change)
            return Miss(
                away, _types(wrong), repair or self._wanted(statement, value, target, wrong)
            )
        first = next((m for m in misses if m.inside is None), None) or next(iter(misses), None)
        return None if first is None else replace(first, distance=away)

    @staticmethod
    def _wanted(
        statement: ScopStatement, value: Expr, target: str, wrong: list[tuple[str, str, str, str]]
    ) -> str:
        """The intrinsic that would compute a value, on the types that it has."""
        kinds = " and ".join(dict.fromkeys(d.removeprefix("in ") for _, _, d, _ in wrong))
        how = "=" if target else statement.op
        told = f"an intrinsic with semantics `... {how} {outline(value)}`"
        return f"{told} on {kinds}" if kinds else told

    def _absent(self, statement: ScopStatement, value: Expr) -> int:
        """How far the nearest intrinsic is from a value; 0 where one computes it."""
        if isinstance(value, (Const, Name, Access)):
            return 0
        if any(self.selector.cover(value, m.name, statement) for m in self.hardware.memories):
            return 0
        return self._nearest(statement, value)[0]

    def _wrong_types(
        self, statement: ScopStatement, intrinsic: Intrinsic, found: Unification
    ) -> list[tuple[str, str, str, str]]:
        """Operands whose values they do not take for their type: the operand, the value, its type,
        the operand's."""
        kinds = {str(n): real for n, real in self._nodes(statement)}
        wrong: list[tuple[str, str, str, str]] = []
        for name, part in found.operands:
            kept = intrinsic.operand(name).dtype
            if isinstance(part, Access):
                dtype = self.scop.dtype[part.tensor]
                known = self.selector.is_input(part.tensor)
                fits = is_float(dtype) == is_float(kept) and (not known or widens(dtype, kept))
                if not fits:
                    wrong.append((name, part.tensor, dtype, kept))
            elif kinds.get(str(part), is_float(kept)) != is_float(kept):
                kind = "in integers" if is_float(kept) else "in floats"
                wrong.append((name, f"`{part}`", kind, kept))
        return wrong

    def _declarations(
        self, intrinsic: Intrinsic, found: Unification
    ) -> tuple[tuple[str, str], ...]:
        """The inputs among an intrinsic's operands, as it takes them."""
        return tuple(
            (part.tensor, intrinsic.operand(name).dtype)
            for name, part in found.operands
            if isinstance(part, Access) and self.selector.is_input(part.tensor)
        )

    def _retyped(self, statement: ScopStatement, intrinsic: Intrinsic, change: Change) -> str:
        if self.retyper is None or self.selector.sharing.leaves or self.selector.sharing.takes:
            return ""
        if self.selector.sharing.fetches or self.selector.sharing.keeps:
            return ""
        target = intrinsic.written
        return self.retyper.repair(statement, change, target.dtype)

    def _operand(
        self,
        statement: ScopStatement,
        intrinsic: Intrinsic,
        name: str,
        value: Expr,
        overwritten: bool,
    ) -> Miss | None:
        """Why one operand of the right type cannot be supplied; None where it can."""
        selector, operand = self.selector, as_read(intrinsic, name)
        memory = operand.memory
        plan = selector.cover(value, memory, statement)
        if plan is not None:
            if selector.accepted(operand, value, statement) is None:
                writers = ", ".join(operand.written_by)
                return Miss(
                    1,
                    f"it reads {name} only after {writers}, and none of them leaves `{value}` "
                    "as it is",
                    f"write {memory} with {writers} last",
                )
            if overwritten and not selector.overwritable(operand, plan, value, statement):
                return Miss(
                    1,
                    f"it computes in place and would overwrite `{value}`, which is needed again",
                    f"add an intrinsic that copies {memory} to {memory}",
                )
            return None
        if isinstance(value, Const):
            return Miss(3, f"it takes no constant {value} for {name}", "pass it as a tensor")
        places = [m for m in selector.onchip if selector.cover(value, m, statement)]
        if isinstance(value, Access) and selector.is_input(value.tensor):
            return self._unloaded(value.tensor, memory, name)
        if places:
            return Miss(
                1,
                f"it reads {name} from {memory}, and `{value}` is left in {', '.join(places)}",
                f"add an intrinsic that copies {places[0]} to {memory}, or split the workload so "
                "that the value goes through off-chip memory",
            )
        if isinstance(value, Access):
            return Miss(3, f"it reads {name} from {memory}, where nothing leaves `{value}`")
        return Miss(
            3 + self._absent(statement, value),
            f"it reads {name} from {memory}, where nothing computes `{value}`",
            f"an intrinsic that computes `{outline(value)}` into {memory}",
            inside=value,
        )

    def _unloaded(self, tensor: str, memory: str, name: str) -> Miss:
        """An input that no copy brings to the memory of an operand."""
        dtype = self.scop.dtype[tensor]
        for intrinsic in self.hardware.intrinsics:
            only = written(intrinsic)
            if only is None or not isinstance(only[0].value, Access) or only[0].op != "=":
                continue
            source = intrinsic.operand(only[0].value.tensor)
            if intrinsic.operand(only[1]).memory != memory or not widens(dtype, source.dtype):
                continue
            if self._offchip(source.memory) and is_float(dtype) == is_float(source.dtype):
                computed = tensor in self.selector.sharing.fetches
                return Miss(
                    1,
                    f"it reads {name} from {memory}, and {intrinsic.name} brings constant tensors "
                    f"there, which {tensor} is not",
                    f"add an intrinsic that copies {dtype} from the memory that keeps {tensor}"
                    if computed
                    else f"declare {shown(self.scop, tensor)} with `constant: true`",
                )
        return Miss(
            1,
            f"nothing loads {tensor} ({dtype}) into {memory}, where {name} is",
            f"add an intrinsic that copies {dtype} from off-chip memory into {memory}",
        )

    def _offchip(self, memory: str) -> bool:
        return self.hardware.is_offchip(memory)


def _by_place(node: Expr) -> bool:
    """Whether a part of a value is one thing or another by where its loops stand."""
    match node:
        case Call("select", (condition, _, _)):
            return not any(isinstance(n, Access) for n in walk(condition))
        case _:
            return False


def _placed(node: Expr) -> tuple[str, str]:
    """The reason and the repair of a part that loops decide: no call does, but padding is laid out
    with a tensor."""
    told = f"`{node}` depends on where its loops stand, and a call computes all its elements alike"
    match node:
        case Call("select", (_, Access(tensor, _), Const())):
            return told, (
                f"write the padding as a statement of its own, {tensor}_padded[...] = select(..., "
                f"{tensor}[...], ...) over all that is read, and read {tensor}_padded here"
            )
        case _:
            return told, "write a statement for each case, over the loops for which it holds"


def _constant(other: Constant) -> Miss:
    found, field = other.found, other.field
    if field is None:
        return Miss(
            1,
            f"it has the constant {other.wanted} where the statement has {found}",
            f"write {other.wanted} there, or an intrinsic that computes with {found}",
        )
    if field.exact and as_immediate(replace(field, exact=False), found) is not None:
        return Miss(
            1,
            f"constant {found} is no {field.dtype}, which {field.name} holds",
            f"write a constant that is a {field.dtype}, or pass it as a tensor operand",
        )
    return Miss(
        1,
        f"constant {found} is outside the range {field.allowed} of {field.name}",
        "pass it as a tensor operand, or split it into steps within the range",
    )


def _types(wrong: list[tuple[str, str, str, str]]) -> str:
    """`x and w are float32, operands src and wgt are int8`."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for operand, value, dtype, kept in wrong:
        groups.setdefault((dtype, kept), []).append((operand, value))
    told: list[str] = []
    for (dtype, kept), pairs in groups.items():
        values = list(dict.fromkeys(v for _, v in pairs))
        operands = [o for o, _ in pairs]
        told.append(
            f"{' and '.join(values)} {'is' if len(values) == 1 else 'are'} {dtype}, "
            f"operand{'' if len(operands) == 1 else 's'} {' and '.join(operands)} "
            f"{'is' if len(operands) == 1 else 'are'} {kept}"
        )
    return "; ".join(told)
