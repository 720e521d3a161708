"""Intrinsics as checked C functions of the generated model.

An intrinsic becomes a `step` (one application of its semantics at given addresses, with checks of
initialisation and last writers) and a function that checks fields and bounds once and runs the
hardware loops around the step; a micro-kernel becomes such a function with constant loops.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hwgen.codegen.c_constants import number_text
from hwgen.codegen.c_names import NameTable, immediate_type, indent
from hwgen.codegen.c_value import value_helpers
from hwgen.codegen.model_order import Order
from hwgen.codegen.model_step import Step
from hwgen.codegen.program import MicroKernelDef
from hwgen.spec.hardware import HardwareSpec, Immediate, Intrinsic, Operand
from hwgen.spec.ranges import Range

_LARGEST = {"float": float.fromhex("0x1.fffffep+127"), "double": sys.float_info.max}
"""The largest finite number of each C type."""


class IntrinsicFunctions:
    """The C functions of a spec's intrinsics; `helpers` collects what they call."""

    def __init__(
        self, prefix: str, hardware: HardwareSpec, intrinsics: Sequence[Intrinsic], order: Order
    ) -> None:
        self.prefix, self.hardware, self.order = prefix, hardware, order
        self.helpers = value_helpers(prefix)
        taken = NameTable()
        self._names = {
            (i.name, i.iterators): taken.fresh(f"{prefix}_op_{i.name}") for i in intrinsics
        }
        self._taken = taken
        self._kernels: dict[str, str] = {}

    def call_name(self, intrinsic: Intrinsic) -> str:
        return self._names[intrinsic.name, intrinsic.iterators]

    def _step_name(self, intrinsic: Intrinsic) -> str:
        return self.call_name(intrinsic).replace("_op_", "_step_", 1)

    def kernel_name(self, kernel: str) -> str:
        if kernel not in self._kernels:
            self._kernels[kernel] = self._taken.fresh(f"{self.prefix}_kernel_{kernel}")
        return self._kernels[kernel]

    def define(self, intrinsic: Intrinsic) -> list[str]:
        """The step and, where the intrinsic is no micro-kernel, the function that loops it."""
        name = self._step_name(intrinsic)
        step = Step(intrinsic, self.hardware, self.prefix, name, self.helpers).lines()
        return step if intrinsic.micro_kernel else [*step, *self._loops(intrinsic)]

    # --- hardware loops ---

    def _loops(self, intrinsic: Intrinsic) -> list[str]:
        depth = range(len(intrinsic.loops))
        parameters = [f"struct {self.prefix}_chip *chip"]
        steps: list[list[str]] = []
        for n, operand in enumerate(intrinsic.operands):
            kind = "image" if self._offchip(operand) else "buffer"
            parameters.append(f"const struct {self.prefix}_{kind} *{kind}{n}")
            parameters.append(f"int64_t at{n}")
            steps.append([f"step{n}_{level}" for level in depth])
            parameters += [f"int64_t {s}" for s in steps[-1]]
        extents = [f"extent{level}" for level in depth]
        parameters += [f"int64_t {e}" for e in extents]
        # Integers arrive wide, so that their range is checked before they are narrowed.
        parameters += [
            f"{immediate_type(i.dtype) if i.is_float else 'int64_t'} imm{n}"
            for n, i in enumerate(intrinsic.immediates)
        ]
        addresses = [f"at{n}" for n in range(len(intrinsic.operands))]
        inside = [list(s) for s in steps]
        checks = self._checks(intrinsic, addresses, inside, extents)
        checks += self._immediate_checks(
            intrinsic.immediates, [f"imm{n}" for n in range(len(intrinsic.immediates))]
        )
        ordered = self._ordered(
            intrinsic, addresses, [list(zip(s, extents, strict=True)) for s in inside]
        )
        body = self._nest(
            intrinsic, addresses, [list(column) for column in zip(*inside, strict=True)], extents
        )
        return [
            f"static int {self.call_name(intrinsic)}({', '.join(parameters)})",
            "{",
            *indent([*checks, *ordered, *body, "return 0;"]),
            "}",
            "",
        ]

    def define_kernel(self, kernel: MicroKernelDef) -> list[str]:
        """The function of a micro-kernel; its argument selects the variant."""
        intrinsic = self.hardware.intrinsic[kernel.intrinsic]
        count = len(intrinsic.operands)
        rows = ", ".join(f"{{{', '.join(map(str, base))}}}" for base in kernel.bases)
        addresses = [f"base[variant][{n}]" for n in range(count)]
        extents = [str(loop.extent) for loop in kernel.loops]
        steps = [[str(loop.strides[n]) for loop in kernel.loops] for n in range(count)]
        levels = [*kernel.loops, *kernel.sequence]
        immediates = dict(kernel.immediates)
        values = [number_text(immediates[i.name], i.dtype) for i in intrinsic.immediates]
        p = self.prefix
        extended = [
            [(str(loop.strides[n]), str(loop.extent)) for loop in kernel.sequence]
            for n in range(count)
        ]
        body = [
            f"static const int64_t base[{len(kernel.bases)}][{count}] = {{{rows}}};",
            self._within("variant", Range(0, len(kernel.bases) - 1), f"variant of {kernel.name}"),
            *self._checks(intrinsic, addresses, steps, extents, extended),
            *self._immediate_checks(intrinsic.immediates, values),
            *self._ordered(
                intrinsic,
                addresses,
                [
                    [*zip(s, extents, strict=True), *more]
                    for s, more in zip(steps, extended, strict=True)
                ],
            ),
            *self._nest(
                intrinsic,
                addresses,
                [[str(s) for s in loop.strides] for loop in levels],
                [str(loop.extent) for loop in levels],
                values,
            ),
            "return 0;",
        ]
        name = self.kernel_name(kernel.name)
        places = "".join(f", const struct {p}_buffer *buffer{n}" for n in range(count))
        return [
            f"static int {name}(struct {p}_chip *chip, int64_t variant{places})",
            "{",
            *indent(body),
            "}",
            "",
        ]

    def _offchip(self, operand: Operand) -> bool:
        return self.hardware.is_offchip(operand.memory)

    def _within(self, value: str, allowed: Range, what: str) -> str:
        p = self.prefix
        low, high = f"INT64_C({allowed.minimum})", f"INT64_C({allowed.maximum})"
        checks = f'{p}_TRY({p}_within({value}, {low}, {high}, "{what}"));'
        fits = f"({value} - {low}) % {allowed.step} == 0"
        if allowed.among:
            fits = " || ".join(f"{value} == {n}" for n in allowed.among)
        if allowed.gaps:
            checks += f' {p}_TRY({fits} ? 0 : {p}_fail(2, "{what}", {value}, {high}));'
        return checks

    def _immediate_checks(
        self, immediates: Sequence[Immediate], values: Sequence[str]
    ) -> list[str]:
        checks: list[str] = []
        for i, value in zip(immediates, values, strict=True):
            what = f"immediate {i.name}"
            if i.is_float or i.range is None:
                most = _LARGEST[immediate_type(i.dtype)]
                low, high = (i.range.minimum, i.range.maximum) if i.range else (-most, most)
                ends = (float(low).hex(), float(high).hex(), f'"{what}"')
                call = self.helpers.call("within_float", value, *ends)
                checks.append(f"{self.prefix}_TRY({call});")
            else:
                checks.append(self._within(value, i.range, what))
        return checks

    def _checks(
        self,
        intrinsic: Intrinsic,
        addresses: Sequence[str],
        steps: Sequence[Sequence[str]],
        extents: Sequence[str],
        sequence: Sequence[Sequence[tuple[str, str]]] = (),
    ) -> list[str]:
        """Fields within their limits, every address of the call within its memory."""
        lines: list[str] = []
        name = intrinsic.name
        for loop, extent in zip(intrinsic.loops, extents, strict=True):
            lines.append(self._within(extent, loop.extent, f"{name}: extent of {loop.name}"))
        for n, operand in enumerate(intrinsic.operands):
            what = f"{name}: address of {operand.name}"
            lines.append(self._within(addresses[n], operand.address, what))
            for level in range(len(intrinsic.loops)):
                lines += self._stride_check(intrinsic, operand, level, steps[n], extents)
            loops = [*zip(steps[n], extents, strict=True), *(sequence[n] if sequence else ())]
            lines += self._span_check(intrinsic, n, addresses[n], loops)
            if operand.same_as:
                other = next(m for m, o in enumerate(intrinsic.operands) if o is not operand
                             and o.name == operand.same_as)  # fmt: skip
                what = f"{name}: {operand.name}, the same as {operand.same_as}"
                lines.append(self._same(what, addresses[n], addresses[other]))
                theirs = [*steps[other], *(s for s, _ in (sequence[other] if sequence else ()))]
                # A loop that runs once has no step.
                for (mine, extent), step in zip(loops, theirs, strict=True):
                    lines += [f"if ({extent} > 1)", f"  {self._same(what, mine, step)}"]
        return lines

    def _same(self, what: str, mine: str, theirs: str) -> str:
        p = self.prefix
        return f'{p}_TRY({p}_within({mine}, {theirs}, {theirs}, "{what}"));'

    def _stride_check(
        self,
        intrinsic: Intrinsic,
        operand: Operand,
        level: int,
        steps: Sequence[str],
        extents: Sequence[str],
    ) -> list[str]:
        loop = intrinsic.loops[level]
        rule = loop.stride(operand.name)
        what = f"{intrinsic.name}: step of {operand.name} in {loop.name}"
        if rule.dense_after:
            inner = next(
                n for n, other in enumerate(intrinsic.loops) if other.name == rule.dense_after
            )
            dense = f"{steps[inner]} * {extents[inner]}"
            p = self.prefix
            check = f'{p}_TRY({p}_within({steps[level]}, {dense}, {dense}, "{what} (dense)"));'
            return [f"if ({extents[level]} > 1)", f"  {check}"]
        check = self._within(steps[level], rule.range, what)
        # A fixed step is no field of the call: it matters only where the loop moves.
        if rule.range.minimum == rule.range.maximum:
            return [f"if ({extents[level]} > 1)", f"  {check}"]
        return [check]

    def _span_check(
        self, intrinsic: Intrinsic, n: int, address: str, loops: Sequence[tuple[str, str]]
    ) -> list[str]:
        """All addresses of one operand, over loops given as (step, extent)."""
        operand = intrinsic.operands[n]
        memory = self.hardware.memory[operand.memory]
        offchip = memory.kind == "offchip"
        entries = operand.span_of(intrinsic.iterators)
        capacity = f"image{n}->entries" if offchip else str(memory.capacity_entries)
        grow = [f"{self.prefix}_span(&low, &high, {step}, {extent});" for step, extent in loops]
        what = f"{intrinsic.name}: entry of {operand.name}"
        code = 4 if offchip else 3
        inside: list[str] = []
        if not offchip:
            inside = [
                f"if (low < buffer{n}->base || high >= buffer{n}->end",
                f"    || (low - buffer{n}->base) % buffer{n}->stride + high - low "
                f">= buffer{n}->slot)",
                f'  return {self.prefix}_fail(13, "{what}", '
                f"low < buffer{n}->base ? low : high, buffer{n}->end - 1);",
            ]
        return [
            "{",
            *indent(
                [
                    f"int64_t low = {address}, high = low + {entries - 1};",
                    *grow,
                    f"if (low < 0 || high >= {capacity})",
                    f'  return {self.prefix}_fail({code}, "{what}", low < 0 ? low : high, '
                    f"{capacity} - 1);",
                    *inside,
                ]
            ),
            "}",
        ]

    def _ordered(
        self,
        intrinsic: Intrinsic,
        addresses: Sequence[str],
        loops: Sequence[Sequence[tuple[str, str]]],
    ) -> list[str]:
        """The call begins, and comes after all that it must; `loops`: of each operand, outermost
        first, (step, extent)."""
        lines = self.order.begin(intrinsic.unit)
        for n, operand in enumerate(intrinsic.operands) if self.order.rows else ():
            rows = f"image{n}->rows" if self._offchip(operand) else f"chip->{operand.memory}_rows"
            lines += self.order.access(
                rows,
                addresses[n],
                operand.span_of(intrinsic.iterators),
                intrinsic.unit,
                f"{intrinsic.name}: no order for {operand.name}, entry and the other unit",
                loops[n],
                writes=operand.access != "read",
            )
        return lines

    def _nest(
        self,
        intrinsic: Intrinsic,
        addresses: Sequence[str],
        steps: Sequence[Sequence[str]],
        extents: Sequence[str],
        immediates: Sequence[str] | None = None,
    ) -> list[str]:
        """The loops around the step; `steps[level][operand]`."""
        arguments = ["chip"]
        setup: list[str] = []
        for n, operand in enumerate(intrinsic.operands):
            terms = [addresses[n]]
            terms += [f"l{level} * {step[n]}" for level, step in enumerate(steps) if step[n] != "0"]
            setup.append(f"int64_t a{n} = {' + '.join(terms)};")
            if self._offchip(operand):
                arguments.append(f"image{n}")
            arguments.append(f"a{n}")
        count = len(intrinsic.immediates)
        arguments += immediates if immediates is not None else [f"imm{n}" for n in range(count)]
        p = self.prefix
        body = [
            *setup,
            *self._latency_check(intrinsic),
            f"{p}_TRY({self._step_name(intrinsic)}({', '.join(arguments)}));",
        ]
        for level in reversed(range(len(extents))):
            body = [
                f"for (int64_t l{level} = 0; l{level} < {extents[level]}; ++l{level}) {{",
                *indent(body),
                "}",
            ]
        return [*self._latency_state(intrinsic), *body]

    def _hazards(self, intrinsic: Intrinsic) -> list[tuple[int, int, int]]:
        """Pairs (written operand, touched operand, entries) in one memory."""
        if intrinsic.result_latency_iterations < 2:
            return []
        return [
            (w, t, written.span_of(intrinsic.iterators))
            for w, written in enumerate(intrinsic.operands)
            if written.access != "read"
            for t, touched in enumerate(intrinsic.operands)
            if touched.memory == written.memory
        ]

    def _latency_state(self, intrinsic: Intrinsic) -> list[str]:
        hazards = self._hazards(intrinsic)
        depth = intrinsic.result_latency_iterations - 1
        written = sorted({w for w, _, _ in hazards})
        return [
            *(f"int64_t recent{w}[{depth}] = {{0}};" for w in written),
            *(["int64_t done = 0;"] if hazards else []),
        ]

    def _latency_check(self, intrinsic: Intrinsic) -> list[str]:
        hazards = self._hazards(intrinsic)
        if not hazards:
            return []
        depth = intrinsic.result_latency_iterations - 1
        # Some loops of the nest can be absent; the array is filled before it is read.
        lines = [f"for (int64_t r = 0; r < {depth} && r < done; ++r) {{"]
        for w, t, entries in hazards:
            touched = intrinsic.operands[t].name
            lines += [
                f"  if (a{t} - recent{w}[r] < {entries} && recent{w}[r] - a{t} < {entries})",
                f'    return {self.prefix}_fail(7, "{intrinsic.name}: {touched} too soon", '
                f"a{t}, {intrinsic.result_latency_iterations});",
            ]
        lines += ["}"]
        lines += [f"recent{w}[done % {depth}] = a{w};" for w in sorted({w for w, _, _ in hazards})]
        return [*lines, "++done;"]
