"""Statements of a processor's program, held against what blocks of the tree compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hwgen.codegen.instances.boxes import Condition, boxes, conditions_of
from hwgen.codegen.instances.forms import Form, Ranges, known_form, total, variable
from hwgen.codegen.instances.refuted import refuted
from hwgen.codegen.nodes import Assign, CombineAcrossThreads, IntrinsicCall, OperandOf
from hwgen.spec.expression import Access, Binary, Call, Cast, Expr, Name, Unary, children, walk

Statement = Assign | IntrinsicCall | CombineAcrossThreads


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a buffer, over the program's variables."""

    buffer: str
    index: Form


@dataclass(frozen=True)
class Wanted:
    """What statements of one name are to execute. `points`: what tells their instances apart, by
    coordinate; `values`: of iterators; `elements`: of the accesses of `value`; `operands`: of an
    intrinsic's call."""

    ranges: Ranges
    conditions: tuple[Condition, ...]
    points: Mapping[str, Form]
    target: Element
    op: str
    value: Expr
    values: Mapping[str, Form] = field(default_factory=dict[str, Form])
    elements: Mapping[Access, Element] = field(default_factory=dict[Access, Element])
    operands: tuple[tuple[str, Element], ...] = ()
    intrinsic: str = ""
    threads: tuple[tuple[str, int], ...] = ()

    @property
    def loops(self) -> tuple[str, ...]:
        """Variables that are coordinates themselves."""
        return tuple(n for n in self.ranges if n in self.points)


def check_statement(
    name: str,
    wanted: Wanted,
    node: Statement,
    ranges: Ranges,
    conditions: tuple[Condition, ...] = (),
) -> None:
    """Hold a statement against what its block computes, on the elements that it touches. `ranges`:
    of the variables around it; `conditions`: those under which it runs.

    Raises:
        HwgenError: H747 another operation, operand or element.
    """
    compared = _Compared(name, wanted, {**ranges, **wanted.ranges}, conditions)
    match node:
        case Assign():
            compared.assign(node)
            compared.alike("a statement", "", wanted.intrinsic)
        case IntrinsicCall(_, intrinsic, operands, _, meaning, _):
            compared.assign(meaning)
            compared.alike("an intrinsic", intrinsic, wanted.intrinsic)
            named = tuple(n for n, _ in wanted.operands)
            compared.alike("operands", tuple(o.name for o in operands), named)
            for operand, (_, element) in zip(operands, wanted.operands, strict=True):
                compared.operand(operand, element)
        case CombineAcrossThreads(_, coordinates, _, partial, _, op, target):
            # Whichever of them is the rank's slower digit, the same threads meet.
            compared.alike("threads", sorted(coordinates), sorted(wanted.threads))
            compared.alike("an operation", op, wanted.op)
            part = wanted.elements[wanted.value] if isinstance(wanted.value, Access) else None
            compared.alike("partial results", partial.tensor, part and part.buffer)
            compared.alike("a result", target.tensor, wanted.target.buffer)


@dataclass(frozen=True, slots=True)
class _Compared:
    """A statement against what it is to be. `ranges`: of all variables around it; `conditions`:
    under which it runs."""

    name: str
    wanted: Wanted
    ranges: Ranges
    conditions: tuple[Condition, ...]

    def alike(self, what: str, found: object, allowed: object) -> None:
        if found != allowed:
            raise refuted(f"{what} of {self.name} that is another", str(found), str(allowed))

    def assign(self, node: Assign) -> None:
        self.alike("an operation", node.op, self.wanted.op)
        if "#0" not in self.wanted.points:
            self.element(node.target, self.wanted.target)
            self.value(self.wanted.value, node.value)
            return
        self.alike("partial results", node.target.tensor, self.wanted.target.buffer)
        match self.wanted.value, node.value:
            case Access() as meant, Access(buffer):
                self.alike("a result", buffer, self.wanted.elements[meant].buffer)
            case meant, value:
                self.alike("a value", value, meant)

    def element(self, found: Access, meant: Element) -> None:
        self.alike("a buffer", found.tensor, meant.buffer)
        self.index(known_form(found.indices[0], {}, self.ranges), meant, str(found))

    def operand(self, found: OperandOf, meant: Element) -> None:
        first = known_form(found.access.indices[0], {}, self.ranges)
        steps = (variable(n).scaled(step) for n, step in found.steps)
        self.alike("a buffer", found.access.tensor, meant.buffer)
        self.index(total(first, *steps), meant, f"{found.access}, steps {dict(found.steps)}")

    def index(self, found: Form, meant: Element, shown: str) -> None:
        if found != meant.index:
            what = f"an element of {self.name} that is another"
            raise refuted(what, shown, f"{meant.buffer}[{meant.index}]")

    def value(self, meant: Expr, found: Expr) -> None:
        """Both are the same expression, over elements and iterators."""
        match meant, found:
            case Call("select", (condition, yes, no)), _ if _choices(found) < _choices(meant):
                holds = self.holds(condition)
                if holds is None:
                    raise refuted(f"a choice of {self.name} left out", str(found), str(meant))
                self.value(yes if holds else no, found)
            case Access(), Access():
                self.element(found, self.wanted.elements[meant])
            case Name(name), _ if name in self.wanted.values:
                form = known_form(found, {}, self.ranges)
                if form != self.wanted.values[name]:
                    self.alike("an iterator", found, self.wanted.values[name])
            case (Binary(), Binary()) | (Unary(), Unary()) | (Cast(), Cast()) | (Call(), Call()):
                self.alike("an operation", _head(found), _head(meant))
                for one, other in zip(children(meant), children(found), strict=True):
                    self.value(one, other)
            case _:
                self.alike("a value", found, meant)

    def holds(self, condition: Expr) -> bool | None:
        """Whether a condition holds wherever the statement runs, nowhere there, or neither."""
        for sign, answer in ((Unary("not", condition), True), (condition, False)):
            contrary = conditions_of(sign, self.wanted.values, self.ranges)
            if next(boxes(self.ranges, (*self.conditions, *contrary)), None) is None:
                return answer
        return None


def _choices(expr: Expr) -> int:
    return sum(isinstance(x, Call) and x.function == "select" for x in walk(expr))


def _head(expr: Expr) -> str:
    match expr:
        case Binary(op) | Unary(op):
            return op
        case Cast(dtype):
            return f"to {dtype}"
        case Call(function, arguments):
            return f"{function} of {len(arguments)}"
        case _:
            return ""
