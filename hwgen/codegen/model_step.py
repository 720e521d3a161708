"""One application of an intrinsic's semantics as a checked C function of the generated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hwgen.codegen.c_expr import HELPERS, Helpers, IndexText
from hwgen.codegen.c_names import C_TYPES, comment, immediate_type, indent
from hwgen.codegen.c_value import FLOATS, HALVES, Value, ValueText, dtype_interval
from hwgen.spec.expression import (
    Access,
    Assign,
    Binary,
    Call,
    Const,
    Expr,
    Name,
    add,
    multiply,
    names,
    replace_part,
    walk,
)
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.intervals import Interval
from hwgen.spec.memory import Memory
from hwgen.spec.typecheck import promoted


@dataclass(frozen=True, slots=True)
class _StepOperand:
    """One operand inside a step."""

    operand: Operand
    memory: Memory
    pointer: str
    at: str
    entries: int


class Step:
    """One application of the semantics."""

    def __init__(
        self,
        intrinsic: Intrinsic,
        hardware: HardwareSpec,
        prefix: str,
        name: str,
        helpers: Helpers,
    ) -> None:
        self.intrinsic, self.prefix, self.name, self.helpers = intrinsic, prefix, name, helpers
        self.writers = {i.name: n + 1 for n, i in enumerate(hardware.intrinsics)}
        memory = hardware.memory
        self.operands = {
            o.name: _StepOperand(
                o, memory[o.memory], f"p{n}", f"a{n}", o.span_of(intrinsic.iterators)
            )
            for n, o in enumerate(intrinsic.operands)
        }
        self.iterators = {name: f"i_{n}" for n, (name, _) in enumerate(intrinsic.iterators)}
        self.ranges: dict[str, Interval] = {
            name: (0, extent - 1) for name, extent in intrinsic.iterators
        }
        self.scalars = {
            name: (self.iterators[name], "int32", self.ranges[name]) for name in self.iterators
        }
        for n, immediate in enumerate(intrinsic.immediates):
            limits = dtype_interval(immediate.dtype)
            if immediate.range is not None and not immediate.is_float:
                limits = (immediate.range.minimum, immediate.range.maximum)
            self.scalars[immediate.name] = (f"imm{n}", immediate.dtype, limits)
        written = {self.operands[s.target.tensor].memory.name for s in intrinsic.semantics}
        self.shared = {name for name, used in self.operands.items() if used.memory.name in written}

    def lines(self) -> list[str]:
        p = self.prefix
        parameters = [f"struct {p}_chip *chip"]
        checks: list[str] = []
        pointers: list[str] = []
        marks: list[str] = []
        for n, used in enumerate(self.operands.values()):
            offchip = used.memory.kind == "offchip"
            if offchip:
                parameters.append(f"const struct {p}_image *image{n}")
            parameters.append(f"int64_t a{n}")
            writer = f"image{n}->writer" if offchip else f"chip->{used.memory.name}_writer"
            if used.operand.access != "write":
                checks += self._initialised(used, writer, offchip)
            if used.operand.access != "read":
                if offchip:
                    checks += [
                        f"if (!{writer})",
                        f'  return {p}_fail(4, "{self.intrinsic.name}: write to an input", '
                        f"{used.at}, 0);",
                    ]
                marks += self._mark(used, writer)
            pointers.append(self._pointer(n, used, offchip))
        for n, immediate in enumerate(self.intrinsic.immediates):
            parameters.append(f"{immediate_type(immediate.dtype)} imm{n}")
        body: list[str] = []
        for statement in self.intrinsic.semantics:
            body += self._statement(statement)
        semantics = "; ".join(map(str, self.intrinsic.semantics))
        return [
            f"/* {comment(f'{self.intrinsic.name}: {semantics}')} */",
            f"static inline int {self.name}({', '.join(parameters)})",
            "{",
            *indent([*checks, *pointers, *body, *marks, "return 0;"]),
            "}",
            "",
        ]

    def _pointer(self, n: int, used: _StepOperand, offchip: bool) -> str:
        element = C_TYPES[used.operand.dtype]
        const = "const " if used.operand.access == "read" else ""
        restrict = "" if used.operand.name in self.shared else "restrict "
        if offchip:
            size = used.operand.entry_elements
            start = f"({const}{element} *)image{n}->data + {used.at} * {size}"
        else:
            start = f"chip->{used.memory.name}_data + {used.at} * {used.memory.entry_elements}"
        return f"{const}{element} *{restrict}{used.pointer} = {start};"

    def _initialised(self, used: _StepOperand, writer: str, offchip: bool) -> list[str]:
        p, operand = self.prefix, used.operand
        what = f"{self.intrinsic.name}: {operand.name}"
        entry = used.at if used.entries == 1 else "e"
        loop = (
            []
            if used.entries == 1
            else [f"for (int64_t e = {used.at}; e < {used.at} + {used.entries}; ++e) {{"]
        )
        guard = f"{writer} && " if offchip else ""
        lines = [
            f"if ({guard}!{writer}[{entry}])",
            f'  return {p}_fail(5, "{what} never written", {entry}, 0);',
        ]
        if operand.written_by:
            allowed = {self.writers[w] for w in operand.written_by}
            table = ", ".join("1" if n in allowed else "0" for n in range(len(self.writers) + 1))
            lines = [
                f"static const unsigned char allowed_{used.pointer}[] = {{{table}}};",
                *lines,
                f"if ({guard}!allowed_{used.pointer}[{writer}[{entry}]])",
                f'  return {p}_fail(6, "{what} last written by a call it cannot follow", '
                f"{entry}, 0);",
            ]
        return [*loop, *indent(lines), "}"] if loop else lines

    def _mark(self, used: _StepOperand, writer: str) -> list[str]:
        number = self.writers[self.intrinsic.name]
        if used.entries == 1:
            return [f"{writer}[{used.at}] = {number};"]
        return [
            f"for (int64_t e = {used.at}; e < {used.at} + {used.entries}; ++e)",
            f"  {writer}[e] = {number};",
        ]

    # --- statements ---

    def _offset(self, access: Access) -> str:
        shape = self.operands[access.tensor].operand.shape
        total: Expr = Const(0)
        for d, index in enumerate(access.indices):
            total = add(total, multiply(index, Const(prod(shape[d + 1 :]))))
        return IndexText(Helpers(self.prefix, HELPERS), self.iterators, self.ranges)(total)

    def _load(self, access: Access) -> tuple[str, str]:
        used = self.operands[access.tensor]
        return (f"{used.pointer}[{self._offset(access)}]", used.operand.dtype)

    def _loops(self, wanted: Sequence[str], body: list[str]) -> list[str]:
        for name, extent in reversed(self.intrinsic.iterators):
            if name in wanted:
                i = self.iterators[name]
                body = [f"for (int {i} = 0; {i} < {extent}; ++{i}) {{", *indent(body), "}"]
        return body

    def _statement(self, statement: Assign) -> list[str]:
        used = {n for e in (statement.target, statement.value) for n in names(e)}
        spatial = [n for n in self.iterators if n in names(statement.target)]
        reduced = [n for n in self.iterators if n in used and n not in spatial]
        if statement.running and reduced:
            return self._running(statement, spatial, reduced)
        text = ValueText(self.helpers, self._load, self.scalars)
        value = text(statement.value)
        lines: list[str] = []
        if text.checks:
            bad = " || ".join(f"!({c})" for c in text.checks)
            lines += [
                "{",
                "  int bad = 0;",
                *indent(self._loops([*spatial, *reduced], [f"bad |= {bad};"])),
                "  if (bad)",
                f"  {self._outside_domain()}",
                "}",
            ]
        target, dtype = self._load(statement.target)
        if statement.op == "+=" and not value.is_float and dtype not in FLOATS:
            return [*lines, *self._sum(statement, value, spatial, reduced)]
        used = self.operands[statement.target.tensor]
        detour = self._aliases(statement, used)
        result = f"result[{self._offset(statement.target)}]" if detour else target
        if statement.op == "=":
            stored = f"{result} = {text.stored(value, dtype)};"
            inner = self._loops(reduced, [stored])
        else:
            inner = self._update(statement, target, result, reduced)
        nest = self._loops(spatial, inner)
        if detour:
            size = prod(used.operand.shape)
            copy = self._loops(spatial, [f"{target} = {result};"])
            nest = ["{", f"  {C_TYPES[dtype]} result[{size}];", *indent([*nest, *copy]), "}"]
        return [*lines, *nest]

    def _aliases(self, statement: Assign, used: _StepOperand) -> bool:
        """Whether an element read could be one that an earlier lane has written."""
        reads = [e for e in walk(statement.value) if isinstance(e, Access)]
        return any(
            self.operands[r.tensor].memory.name == used.memory.name and r != statement.target
            for r in reads
        )

    def _running(
        self, statement: Assign, spatial: Sequence[str], reduced: Sequence[str]
    ) -> list[str]:
        """Values made from the last ones, in order, each element by itself."""
        target, dtype = self._load(statement.target)
        wide = promoted(dtype)
        scalars = {**self.scalars, " so far": ("so_far", wide, dtype_interval(wide))}
        text = ValueText(self.helpers, self._load, scalars)
        value = replace_part(statement.value, statement.target, Name(" so far"))
        step = text.cast(text(value), dtype)
        detour = self._aliases(statement, self.operands[statement.target.tensor])
        result = f"result[{self._offset(statement.target)}]" if detour else target
        checks = " || ".join(f"!({c})" for c in text.checks)
        last = Value("so_far", wide, dtype_interval(wide))
        nest = self._loops(
            spatial,
            [
                f"{'float' if dtype == 'float16' else C_TYPES[dtype]} so_far = "
                f"{text.loaded(target, dtype).text};",
                *self._loops(
                    reduced,
                    [*([f"bad |= {checks};"] if checks else []), f"so_far = {step.text};"],
                ),
                f"{result} = {text.stored(last, dtype) if dtype == 'float16' else 'so_far'};",
            ],
        )
        if checks:
            nest = ["int bad = 0;", *nest, "if (bad)", self._outside_domain()]
        if detour:
            size = prod(self.operands[statement.target.tensor].operand.shape)
            copy = self._loops(spatial, [f"{target} = {result};"])
            nest = [f"{C_TYPES[dtype]} result[{size}];", *nest, *copy]
        return ["{", *indent(nest), "}"]

    def _outside_domain(self) -> str:
        return (
            f'  return {self.prefix}_fail(8, "{self.intrinsic.name}: operand outside the '
            "operation's domain\", 0, 0);"
        )

    def _sum(
        self, statement: Assign, value: Value, spatial: Sequence[str], reduced: Sequence[str]
    ) -> list[str]:
        """An integer `+=`: sums that wrap around are computed without sign, in local variables;
        the reduction's loops stand outside, which compilers vectorise better."""
        target, dtype = self._load(statement.target)
        unsigned = "uint64_t" if "int64" in (promoted(dtype), value.dtype) else "uint32_t"
        element = f"sums[{self._offset(statement.target)}]"
        size = prod(self.operands[statement.target.tensor].operand.shape)
        body = [
            f"{unsigned} sums[{size}];",
            *self._loops(spatial, [f"{element} = ({unsigned}){target};"]),
            *self._loops(
                reduced, self._loops(spatial, [f"{element} += ({unsigned}){value.text};"])
            ),
            *self._loops(spatial, [f"{target} = ({C_TYPES[dtype]}){element};"]),
        ]
        return ["{", *indent(body), "}"]

    def _update(
        self, statement: Assign, target: str, result: str, reduced: Sequence[str]
    ) -> list[str]:
        """`+=` of floats, `max=` or `min=`, over the reduction's iterators, in a local variable."""
        dtype = self.operands[statement.target.tensor].operand.dtype
        wide = promoted(dtype)
        scalars = {**self.scalars, " so far": ("so_far", wide, dtype_interval(wide))}
        local = ValueText(self.helpers, self._load, scalars)
        so_far = Name(" so far")
        match statement.op:
            case "+=":
                expr: Expr = Binary("+", so_far, statement.value)
            case "max=":
                expr = Call("max", (so_far, statement.value))
            case _:
                expr = Call("min", (so_far, statement.value))
        step = local.cast(local(expr), dtype)
        element = "float" if dtype in HALVES else C_TYPES[dtype]
        last = Value("so_far", wide, dtype_interval(wide))
        return [
            f"{element} so_far = {local.loaded(target, dtype).text};",
            *self._loops(reduced, [f"so_far = {step.text};"]),
            f"{result} = {local.stored(last, dtype) if dtype in HALVES else 'so_far'};",
        ]
