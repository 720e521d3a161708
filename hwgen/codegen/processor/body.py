"""Nodes of a nest's program as lines of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, prod

from hwgen.codegen.c_constants import number_text
from hwgen.codegen.c_expr import HELPERS, Helpers, IndexText
from hwgen.codegen.c_names import C_TYPES, NameTable, indent
from hwgen.codegen.c_value import HALVES, Value, ValueText, value_helpers
from hwgen.codegen.nodes import (
    Allocate,
    Assign,
    Code,
    CombineAcrossThreads,
    If,
    IntrinsicCall,
    Keep,
    Launch,
    Loop,
    Node,
    PrefetchOf,
    Routine,
    ThreadBarrier,
    nodes,
)
from hwgen.codegen.processor.firmware import HEAP, INDEX, Room
from hwgen.codegen.processor.scopes import scope
from hwgen.codegen.templates import Fields, render
from hwgen.errors import HwgenError
from hwgen.spec.expression import (
    DTYPES,
    Access,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Name,
    UpdateOp,
    conjunction,
    walk,
)
from hwgen.spec.expression import Assign as Semantics
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from hwgen.spec.intervals import Interval
from hwgen.spec.typecheck import promoted


def helpers(prefix: str, index: str) -> Helpers:
    """A collector over the functions that index and value expressions need."""
    library = dict(value_helpers(prefix).library)
    own = {name: HELPERS[name].replace(INDEX, index) for name in ("min", "max")}
    return Helpers(prefix, {**library, **own})


_FUNCTION = re.compile(r"static inline (\w+) (\w+)\((.*)\)\n(\{.*\})", re.DOTALL)


def as_lambda(definition: str) -> list[str]:
    """A helper as a closure inside a function, which runs wherever that function does."""
    found = _FUNCTION.fullmatch(definition)
    assert found is not None, definition
    kind, name, parameters, body = found.groups()
    return f"auto {name} = []({parameters}) -> {kind} {body};".split("\n")


@dataclass(frozen=True, slots=True)
class Identifiers:
    """Identifiers of one file. Buffers, variables and functions may have the same name before."""

    table: NameTable
    given: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def _named(self, what: str, name: str) -> str:
        if (what, name) not in self.given:
            self.given[what, name] = self.table.fresh(name, own=what == "function")
        return self.given[what, name]

    def buffer(self, name: str) -> str:
        return self._named("buffer", name)

    def variable(self, name: str) -> str:
        return self._named("variable", name)

    def function(self, name: str) -> str:
        return self._named("function", name)

    def fresh(self, name: str) -> str:
        return self.table.fresh(name)


@dataclass(frozen=True, slots=True)
class _Row:
    """A statement whose values lie in a row, of a C type, before they are stored."""

    only: Assign
    value: Value
    kind: str
    name: str


@dataclass(slots=True)
class BodyText:
    """Writes nodes. `function`: defines a node's, and gives the lines that call it. `room`: where
    buffers lie that would come from an allocator; `lanes`: what is written now runs in lanes."""

    program: Code
    hardware: HardwareSpec
    names: Identifiers
    helpers: Helpers
    function: Callable[[BodyText, Launch | Routine], list[str]] | None = None
    ranges: dict[str, Interval] = field(default_factory=dict[str, Interval])
    kept: dict[Access, str] = field(default_factory=dict[Access, str])
    pointers: set[str] = field(default_factory=set[str])
    room: Room = HEAP
    lanes: bool = False

    def lines(self, body: tuple[Node, ...]) -> list[str]:
        return [line for node in body for line in self._node(node)]

    def _node(self, node: Node) -> list[str]:
        match node:
            case Loop():
                return self._for(node)
            case If(condition, then, otherwise):
                other = ["} else {", *indent(self.lines(otherwise))] if otherwise else []
                return [f"if ({self._index(condition)}) {{", *indent(self.lines(then)), *other, "}"]
            case Assign():
                return [self._assign(node)]
            case Allocate(name, body):
                return scope(self, self.program.array[name], body)
            case Keep(target, body):
                return self._keep(target, body)
            case ThreadBarrier():
                return self.template(self.hardware.machine.barrier, "processor.barrier")
            case PrefetchOf(access):
                address = {"address": self._pointer(access)}
                return self.template(self.hardware.machine.prefetch, "processor.prefetch", address)
            case IntrinsicCall():
                return self._call(node)
            case CombineAcrossThreads():
                return self._combine(node)
            case Launch() | Routine():
                assert self.function is not None
                return self.function(self, node)
            case _:
                raise AssertionError("code has no calls of units")

    def template(
        self, text: str, label: str, values: Mapping[str, object] | None = None
    ) -> list[str]:
        """The lines of one of the spec's templates."""
        if not text:
            return []
        known = {**dict(self.hardware.parameters), **(values or {})}
        lines = render(text, known, self.hardware.machine.location, label)
        return lines.split("\n") if lines else []

    # Loops

    def _for(self, node: Loop) -> list[str]:
        variable = self.names.variable(node.variable)
        bound = self._index(node.upper)
        self.ranges[node.variable] = (0, node.extent - 1)
        lines: list[str] = []
        for key, value in node.pragmas:
            pragma = self.hardware.machine.pragma[key]
            text = pragma.alone if value == "" else pragma.emit
            lines += self.template(text, f"processor.pragmas.{key}", {"value": value})
        kind = self.hardware.machine.loop.get(node.kind)
        if kind is not None:
            values: dict[str, object] = {"extent": node.extent, "variable": variable}
            text, name = kind.emit, "emit"
            if kind.kind == "vectorize" and (scalar := self._sum(node.body)):
                text, name, values["sum"] = kind.sum, "sum", scalar
            lines += self.template(text, f"processor.loops.{kind.name}.{name}", values)
        head = f"for ({self.room.index} {variable} = 0; {variable} < {bound}; ++{variable}) {{"
        before, self.lanes = self.lanes, kind is not None and kind.kind == "vectorize"
        row = self._row(node) if self.lanes else None
        parts = [self.lines(node.body)] if row is None else self._by_row(row, variable)
        self.lanes = before
        loops = [line for part in parts for line in (*lines, head, *indent(part), "}")]
        if row is None:
            return loops
        return ["{", *indent([f"{row.kind} {row.name}[{node.extent}];", *loops]), "}"]

    def _row(self, loop: Loop) -> _Row | None:
        """What the lanes of a loop compute from wider elements than they store, where they are too
        few for a vector of what they store: compilers would take as few lanes for all of it."""
        match loop.body:
            case (Assign(op="=") as only,) if only.target not in self.kept:
                pass
            case _:
                return None
        dtypes = {n: a.dtype for n, a in self.program.array.items()}
        stored = DTYPES[dtypes[only.target.tensor]]
        read = (DTYPES[dtypes[a.tensor]] for a in walk(only.value) if isinstance(a, Access))
        few = loop.extent * stored < self.hardware.machine.lanes_bytes
        if not few or max(read, default=0) <= stored:
            return None
        value = self._printed(only.value)
        return _Row(
            only,
            value,
            C_TYPES[value.dtype],
            self.names.fresh(f"{self.names.buffer(only.target.tensor)}_row"),
        )

    def _by_row(self, row: _Row, variable: str) -> list[list[str]]:
        """The bodies of two loops: one leaves a row of values, the other stores them."""
        place = f"{row.name}[{variable}]"
        held = replace(row.value, text=place)
        stored = self._printer().stored(held, self.program.array[row.only.target.tensor].dtype)
        return [
            [f"{place} = {_bare(row.value.text)};"],
            [f"{self._element(row.only.target)} = {_bare(stored)};"],
        ]

    def _sum(self, body: tuple[Node, ...]) -> str:
        """The variable that the lanes of a loop add up; "" where each has an element of its own."""
        targets = (n.target for n in nodes(body) if isinstance(n, Assign) and n.op == "+=")
        return next((self.kept[t] for t in targets if t in self.kept), "")

    # Statements

    def _index(self, expr: Expr) -> str:
        table = {name: self.names.variable(name) for name in self.ranges}
        return IndexText(self.helpers, table, self.ranges)(expr)

    def _element(self, access: Access) -> str:
        if access in self.kept:
            return self.kept[access]
        return f"{self.names.buffer(access.tensor)}[{self._index(access.indices[0])}]"

    def _pointer(self, access: Access) -> str:
        return f"&{self._element(access)}"

    def _dtype(self, access: Access) -> str:
        """The type in which an element is held: a kept one in that of its arithmetic."""
        dtype = self.program.array[access.tensor].dtype
        return promoted(dtype) if dtype in HALVES and access in self.kept else dtype

    def _load(self, access: Access) -> tuple[str, str]:
        return self._element(access), self._dtype(access)

    def _value(self, expr: Expr, dtype: str) -> str:
        match expr:
            case Const(float(value)) if not isfinite(value) and dtype in ("float32", "float64"):
                return number_text(value, dtype)
            case _:
                return self._printer().stored(self._printed(expr), dtype)

    def _printer(self) -> ValueText:
        scalars = {n: (f"(int32_t){self.names.variable(n)}", "int32", r)
                   for n, r in self.ranges.items()}  # fmt: skip
        intervals = dict(self.program.ranges)
        return ValueText(self.helpers, self._load, scalars, lanes=self.lanes, intervals=intervals)

    def _printed(self, expr: Expr) -> Value:
        return self._printer()(expr)

    def _assign(self, node: Assign) -> str:
        dtype = self.program.array[node.target.tensor].dtype
        value = node.value if node.op == "=" else updated(node.op, node.target, node.value, dtype)
        held = self._dtype(node.target)
        return f"{self._element(node.target)} = {_bare(self._value(value, held))};"

    def _keep(self, target: Access, body: tuple[Node, ...]) -> list[str]:
        place, dtype = self._element(target), self.program.array[target.tensor].dtype
        scalar = self.names.fresh(f"{self.names.buffer(target.tensor)}_sum")
        before = self._value(target, promoted(dtype)) if dtype in HALVES else place
        self.kept[target] = scalar
        kind = C_TYPES[self._dtype(target)]
        inside = self.lines(body)
        after = self._value(target, dtype) if dtype in HALVES else scalar
        del self.kept[target]
        return [
            "{",
            *indent([f"{kind} {scalar} = {before};", *inside, f"{place} = {after};"]),
            "}",
        ]

    def _call(self, node: IntrinsicCall) -> list[str]:
        intrinsic = self.hardware.intrinsic[node.intrinsic]
        loops = dict(node.iterators)
        values: dict[str, object] = {}
        rule = intrinsic.semantics[0]
        for operand in node.operands:
            steps = dict(operand.steps)
            strides = operand_strides(rule, operand.name, loops, steps)
            check_strides(intrinsic, operand.name, strides, loops)
            values[operand.name] = Fields(
                {"pointer": self._pointer(operand.access), "stride": strides}
            )
        return self.template(intrinsic.emit, f"intrinsics.{intrinsic.name}.emit", values)

    # Threads

    def _combine(self, node: CombineAcrossThreads) -> list[str]:
        """A tree over the threads of each group; every width is halved, rounded up."""
        count = prod(e for _, e in node.coordinates)
        rank = self.names.fresh("rank")
        place, width, half = (self.names.fresh(n) for n in ("place", "width", "half"))
        scratch = self.names.buffer(node.scratch)
        buffer = self.program.array[node.scratch]
        dtype = buffer.dtype
        own = f"{scratch}[{place}]"
        barrier = self.template(self.hardware.machine.barrier, "processor.barrier")
        takes = self._all(node.participates)
        stores = self._all((*node.participates, *node.stores))
        text = {"one": (own, dtype), "other": (f"{scratch}[{place} + {half}]", dtype)}
        printed = ValueText(self.helpers, lambda a: text[a.tensor], {})
        folded = updated(node.op, Access("one", ()), Access("other", ()), dtype)
        fold = f"{own} = {_bare(printed.stored(printed(folded), dtype))};"
        store = f"{self._element(node.target)} = {scratch}[{place} - {rank}];"
        return [
            "{",
            *indent(
                [
                    f"const {INDEX} {rank} = {self._linear(node.coordinates)};",
                    f"const {INDEX} {place} = {self._linear((*node.others, *node.coordinates))};",
                    *(barrier if node.leading else ()),
                    *_when(takes, f"{own} = {self._element(node.partial)};"),
                    *barrier,
                    f"for ({INDEX} {width} = {count}; {width} > 1; {width} = ({width} + 1) / 2) {{",
                    *indent(
                        [
                            f"const {INDEX} {half} = ({width} + 1) / 2;",
                            *_when(_and(takes, f"{rank} + {half} < {width}"), fold),
                            *barrier,
                        ]
                    ),
                    "}",
                    *_when(stores, store),
                ]
            ),
            "}",
        ]

    def _all(self, conditions: tuple[Expr, ...]) -> str:
        found = conjunction(conditions)
        return "" if found is None else self._index(found)

    def _linear(self, coordinates: tuple[tuple[str, int], ...]) -> str:
        text = "0"
        for name, extent in coordinates:
            own = self.names.variable(name)
            text = own if text == "0" else f"({text}) * {extent} + {own}"
        return text


def updated(op: UpdateOp, target: Access, value: Expr, dtype: str) -> Expr:
    """The target's new value after `target op value`; the value is converted first."""
    match op:
        case "+=":
            return Binary("+", target, Cast(dtype, value))
        case "max=":
            return Call("max", (target, Cast(dtype, value)))
        case "min=":
            return Call("min", (target, Cast(dtype, value)))
        case "=":
            return value


def operand_indices(rule: Semantics, name: str) -> tuple[Expr, ...]:
    """How an intrinsic's semantics index an operand."""
    accesses = (n for n in (rule.target, *walk(rule.value)) if isinstance(n, Access))
    return next((a.indices for a in accesses if a.tensor == name), rule.target.indices)


def operand_strides(
    rule: Semantics, name: str, loops: Mapping[str, str], steps: Mapping[str, int]
) -> list[int]:
    """Per dimension of an operand, by how many elements one step of its index moves."""
    strides: list[int] = []
    for index in operand_indices(rule, name):
        loop = loops.get(index.name, "") if isinstance(index, Name) else ""
        strides.append(steps.get(loop, 0))
    return strides


def check_strides(
    intrinsic: Intrinsic, name: str, strides: Sequence[int], loops: Mapping[str, str]
) -> None:
    """Raises:
    HwgenError: H623 where an operand moves otherwise than the intrinsic can.
    """
    indices = operand_indices(intrinsic.semantics[0], name)
    ranges = intrinsic.operand(name).strides
    for index, stride, allowed in zip(indices, strides, ranges, strict=False):
        if isinstance(index, Name) and loops.get(index.name) and stride not in allowed:
            raise HwgenError(
                "H623",
                f"{intrinsic.name} cannot reach operand {name}",
                found=f"{index.name} moves it by {stride} elements ({loops[index.name]})",
                allowed=f"steps of {allowed}",
                repair="another order of loops, or a copy of the operand that is stored so",
            )


def _bare(text: str) -> str:
    """The text without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for n, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[1:-1] if n == len(text) - 1 else text
    return text


def _when(condition: str, statement: str) -> list[str]:
    return [f"if ({condition})", f"  {statement}"] if condition else [statement]


def _and(left: str, right: str) -> str:
    return f"({left}) && {right}" if left else right
