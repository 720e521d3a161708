"""A kernel as C against the vendor's runtime: the spec's templates over the program's calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hwgen.codegen.c_expr import IndexText
from hwgen.codegen.c_names import C_TYPES, indent, words
from hwgen.codegen.c_words import uses_math
from hwgen.codegen.call_values import immediate_values, loop_values
from hwgen.codegen.emit_body import BodyWriter, index_helpers, tables
from hwgen.codegen.emit_host import Execution, entry_points, run_function
from hwgen.codegen.emit_sync import FlagCounters, written
from hwgen.codegen.exported import Exported, exported
from hwgen.codegen.floating_point import floating_point_rules
from hwgen.codegen.host_plan import HostPlan, code_arguments, run_names
from hwgen.codegen.lower.literals import entries_used
from hwgen.codegen.nodes import (
    Call,
    Code,
    Configure,
    Loop,
    Signal,
    SyncNode,
    Wait,
    calls,
    own_calls,
)
from hwgen.codegen.once import derive_function
from hwgen.codegen.packing import packing, pads
from hwgen.codegen.program import KernelLoop, MicroKernelDef
from hwgen.codegen.software_loops import UNROLL
from hwgen.codegen.storages import Image
from hwgen.codegen.templates import Fields, argument, render
from hwgen.spec.expression import Binary, Const, Expr, add, displaced, evaluate
from hwgen.spec.hardware import CodeTemplates, HardwareSpec, Intrinsic
from hwgen.spec.memory import Memory


def emit_vendor(plan: HostPlan, hardware: HardwareSpec, summary: str) -> str:
    """The `.c` file: micro-kernels, packing, the device's part, entry points."""
    helpers = index_helpers(plan.name, plan.index)
    runs: list[list[str]] = []
    defined: list[list[str]] = []
    for part, name in zip(plan.program.parts, run_names(plan), strict=True):
        if isinstance(part, Code):
            from hwgen.codegen.processor.emit import emit_code

            runs.append(emit_code(part, hardware, name, plan.workspace is not None))
            continue
        of_part = _Vendor(replace(plan, program=part), hardware)
        body = BodyWriter(of_part, helpers, plan.identifiers).lines(part.body)
        used = {c.kernel for c in calls(part.body)}
        defined += [[of_part.define(k), ""] for k in part.kernels if k.name in used]
        runs.append([*of_part.run(name, body), ""])
    writer = _Vendor(plan, hardware)
    packs = packing(plan, helpers)
    standard = ["<stdint.h>", "<stdlib.h>", "<string.h>"]
    own: list[str] = []
    if plan.workspace is not None:
        own = [f'"{plan.name}.h"']
        standard = [h for h in standard if h != "<stdlib.h>" or writer.uses_the_heap]
    own_text = render(
        hardware.code.definitions, writer.parameters, hardware.location, "definitions"
    )
    lines = [own_text] if own_text else []
    for definition in helpers.definitions():
        lines += [definition, ""]
    lines += [line for definition in defined for line in definition]
    lines += packs
    lines += [line for run in runs for line in run]
    execution = writer.execution()
    if execution.whole:
        declared = run_signature(plan, hardware.code)
        lines += run_function(plan, execution, declared, _arrays_of_handles(plan))
    if plan.workspace is None:
        lines += derive_function(plan, hardware)
    lines += entry_points(plan, execution)
    text = "\n".join(lines) + "\n"
    standard += ["<math.h>"] if uses_math(text) else []
    head = [
        f"/* {summary}",
        " *",
        *tables(plan.program),
        " */",
        *floating_point_rules(plan.codes),
        *(f"#include {name}" for name in dict.fromkeys([*standard, *hardware.code.includes, *own])),
        "",
    ]
    return "\n".join([*head, text])


class _Vendor:
    """The spec's templates as a target."""

    def __init__(self, plan: HostPlan, hardware: HardwareSpec) -> None:
        self.plan, self.hardware = plan, hardware
        self.parameters: dict[str, object] = dict(hardware.parameters)
        identifiers = plan.identifiers
        self.handles = {i.name: handle(plan, i) for i in plan.program.images}
        self.exported: Exported | None = exported(plan)
        self.kernels = {
            k.name: identifiers.fresh(f"{plan.name}_{k.name}", own=True)
            for k in plan.program.kernels
        }
        self.flags = FlagCounters(plan.program, identifiers)
        self.units = {
            u.name: Fields({"name": u.name, **dict(u.identifiers)}) for u in hardware.units
        }

    # --- what the walk asks for ---

    def call(self, call: Call, text: IndexText) -> list[str]:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        values = dict(self.parameters)
        values["unit"] = self.units[call.unit]
        for number, operand in enumerate(call.operands):
            declared = intrinsic.operands[number]
            memory = self.hardware.memory[declared.memory]
            address = _before(operand.address, declared.offset)
            fields: dict[str, object] = {
                "address": address.value
                if memory.literal and isinstance(address, Const)
                else argument(text(address)),
                "memory": Fields({"name": memory.name, **dict(memory.identifiers)}),
                "buffer": self.handles.get(operand.buffer, operand.buffer),
            }
            if not memory.literal:
                base, displacement = displaced(address)
                fields |= {"base": argument(text(base)), "displacement": displacement}
            if intrinsic.stationary and intrinsic.stationary.operand == operand.name:
                assert call.fresh is not None, "its C loops are written out"
                fields["fresh"] = argument(text(call.fresh))
            values[operand.name] = Fields(fields)
        values |= loop_values(intrinsic, call, text)
        values |= immediate_values(intrinsic, call.immediates)
        for name, number in call.registers:
            values[name] = Fields(dict(self.hardware.configuration[name].registers[number]))
        if call.kernel:
            variant = argument(text(call.variant)) if call.variant is not None else 0
            name = self.kernels[call.kernel]
            values["kernel"] = Fields({"name": name, "variant": variant})
        if intrinsic.micro_kernel:
            values |= dict(intrinsic.micro_kernel.values)
        field = f"intrinsics.{intrinsic.name}.emit"
        return render(intrinsic.emit, values, intrinsic.location, field).split("\n")

    def sync(self, node: SyncNode) -> list[str]:
        if isinstance(node, Configure):
            return self._configure(node)
        given = written(self.hardware, node)
        values = dict(self.parameters)
        values |= {n: self.units[v] if isinstance(v, str) else v for n, v in given.values}
        after: list[str] = []
        if isinstance(node, Signal | Wait):
            values["event"] = self.flags.number(node)
            after = self.flags.step(node)
        text = self._render(given.template, values, f"synchronization.{given.field}")
        return [*text.split("\n"), *after]

    def around(self, loop: Loop, variable: str) -> tuple[list[str], list[str]]:
        issue = self.hardware.issue
        if issue is not None and issue.unroll is not None and UNROLL in dict(loop.pragmas):
            values: dict[str, object] = {**self.parameters, "extent": dict(loop.pragmas)[UNROLL]}
            return self._render(issue.unroll.emit, values, "issue.unroll.emit").split("\n"), []
        machine = self.hardware.processor
        assert machine is not None, "parallel loops are its"
        extent = int(evaluate(loop.upper, {})) - int(evaluate(loop.lower, {}))
        values = {**self.parameters, "extent": extent, "variable": variable}
        field = f"processor.loops.{loop.kind}.emit"
        before = self._render(machine.loop[loop.kind].emit, values, field).split("\n")
        return before, self._declared(own_calls(loop.body), parallel=True)

    def _configure(self, node: Configure) -> list[str]:
        configuration = self.hardware.configuration[node.configuration]
        values: dict[str, object] = {**self.parameters, **dict(node.values)}
        values["register"] = Fields(dict(configuration.registers[node.register]))
        field = f"configurations.{configuration.name}.emit"
        return self._render(configuration.emit, values, field).split("\n")

    def _render(self, template: str, values: Mapping[str, object], field: str) -> str:
        return render(template, values, self.hardware.location, field)

    # --- definitions ---

    def define(self, kernel: MicroKernelDef) -> str:
        """The micro-kernel's definition at file scope."""
        intrinsic = self.hardware.intrinsic[kernel.intrinsic]
        assert intrinsic.micro_kernel
        operands = [o.name for o in intrinsic.operands]

        def levels(loops: tuple[KernelLoop, ...]) -> list[Fields]:
            return [
                Fields(
                    {
                        "extent": loop.extent,
                        "stride": Fields(dict(zip(operands, loop.strides, strict=True))),
                    }
                )
                for loop in loops
            ]

        values: dict[str, object] = {
            **self.parameters,
            "name": self.kernels[kernel.name],
            "loops": levels(kernel.loops),
            "sequence": levels(kernel.sequence),
            "bases": [
                Fields({o.name: at - o.offset for o, at in zip(intrinsic.operands, b, strict=True)})
                for b in kernel.bases
            ],
            **dict(intrinsic.micro_kernel.values),
            **immediate_values(intrinsic, kernel.immediates),
        }
        field = f"micro_kernels.{intrinsic.micro_kernel.name}.define"
        text = render(intrinsic.micro_kernel.define, values, intrinsic.location, field)
        return f"/* {_serves(self.plan, kernel, intrinsic)} */\n{text}"

    def run(self, name: str, body: list[str]) -> list[str]:
        """The function that drives the chip."""
        code = self.hardware.code
        values = self.parameters
        used = {o.buffer for c in calls(self.plan.program.body) for o in c.operands}
        unused = [f"(void){handle};" for name, handle in self.handles.items() if name not in used]
        prologue = self._render(code.prologue, values, "code.prologue").split("\n")
        epilogue = self._render(code.epilogue, values, "code.epilogue").split("\n")
        declared = self._declared(own_calls(self.plan.program.body), parallel=False)
        exported = self.plan.workspace is not None and name == f"{self.plan.name}_run"
        return [
            f"{'' if exported else 'static '}{run_signature(self.plan, code, name)}",
            "{",
            *indent([*self.flags.declarations(), *unused]),
            *indent([*declared, *_nonempty(prologue), *body, *_nonempty(epilogue)]),
            "}",
        ]

    def _declared(self, own: Sequence[Call], *, parallel: bool) -> list[str]:
        """Declarations of the memories that calls use, by entries where these have names. Where a
        parallel loop begins, of those that each worker has; at the start, also of all that are
        shared, whoever uses them."""
        lines: list[str] = []
        for memory in self.hardware.memories:
            private = memory.shared_by == "thread"
            if not memory.declare or (parallel and not private):
                continue
            users = own if private else tuple(calls(self.plan.program.body))
            if any(self._is_in(o.buffer, memory) for c in users for o in c.operands):
                values: dict[str, object] = {**self.parameters, **dict(memory.identifiers)}
                if private:
                    values["parallel"] = int(parallel)
                if memory.literal:
                    values["entries"] = entries_used(users, self.hardware, memory)
                field = f"memories.{memory.name}.declare"
                lines += self._render(memory.declare, values, field).split("\n")
        return lines

    def _is_in(self, name: str, memory: Memory) -> bool:
        buffer = self.plan.program.buffer.get(name)
        return buffer is not None and buffer.memory == memory.name

    def _given(self, image: Image) -> str:
        """What the entry point gives to `run`: a handle, or the caller's own pointer."""
        if image.name not in self.plan.resident:
            return self.handles[image.name]
        constant, pointer = image.role == "input", self.plan.staging(image)
        kind = _kind(self.hardware.code, constant=constant)
        void = f"{'const ' if constant else ''}void *"
        return pointer if kind == void else f"({kind})({void}){pointer}"

    def execution(self) -> Execution:
        """Allocation of the images that have buffers of the device's, and the copies around the
        run."""
        code = self.hardware.code
        held = self.plan.on_device
        acquire = [f"{_declare(code, self.handles[i.name])} = 0;" for i in held]
        release: list[str] = []
        upload: list[tuple[str, tuple[str, ...]]] = []
        download: list[tuple[str, tuple[str, ...]]] = []
        for image in self.plan.program.images:
            zero = f"memset({self.plan.staging(image)}, 0, {image.bytes});"
            if image.name in self.plan.resident:
                if pads(image):
                    upload.append((image.name, (zero,)))
                continue
            buffer = self.handles[image.name]
            memory = self.hardware.off_chip(image.memory)
            values = {
                **self.parameters,
                "buffer": buffer,
                "memory": Fields({"name": memory.name, **dict(memory.identifiers)}),
                "bytes": image.bytes,
                "align": self.plan.aligns[image.name],
                "host": self.plan.staging(image),
            }
            acquire += self._render(code.allocate, values, "code.allocate").split("\n")
            free = self._render(code.free, values, "code.free").split("\n")
            release = [f"if ({buffer}) {{", *indent(free), "}", *release]
            if image.role == "input":
                lines = self._render(code.to_device, values, "code.to_device").split("\n")
                upload.append((image.name, tuple(lines)))
            elif pads(image):
                # What lies past the tensor's end comes from here, the rest is stored by the chip.
                lines = self._render(code.to_device, values, "code.to_device").split("\n")
                upload.append((image.name, (zero, *lines)))
            elif image.role == "output":
                lines = self._render(code.from_device, values, "code.from_device").split("\n")
                download.append((image.name, tuple(lines)))
        return Execution(
            tuple(acquire),
            " && ".join([*(self.handles[i.name] for i in held), *self._aligned(held)]),
            tuple(upload),
            tuple((line,) for line in self._calls()),
            tuple(download),
            tuple(release),
            False,
            unstaged(self.plan),
            self._whole(),
            self.exported.inside if self.exported else frozenset(),
        )

    def _aligned(self, held: Sequence[Image]) -> Iterator[str]:
        """C conditions that what `allocate` gave is aligned, where that can be seen."""
        for image in held if self.hardware.code.handles_are_pointers else ():
            if (align := self.plan.aligns[image.name]) > 1:
                yield f"(uintptr_t){self.handles[image.name]} % {align} == 0"

    def _whole(self) -> str:
        """The call of the exported function that runs the parts; "" where there is none."""
        if self.exported is None:
            return ""
        assert self.plan.workspace is not None
        given = [self._given(i) for i in self.exported.images]
        given += [self.plan.array(t.name) for t in self.exported.arrays]
        return f"{self.plan.name}_run({', '.join([*given, self.plan.workspace.pointer])});"

    def _calls(self) -> Iterator[str]:
        """The calls of the functions that run the parts."""
        ours = {i.name for i in self.exported.images} if self.exported else set[str]()
        for part, name in zip(self.plan.program.parts, run_names(self.plan), strict=True):
            if isinstance(part, Code):
                yield f"{name}({code_arguments(self.plan, part)});"
            else:
                given = (
                    self.handles[i.name] if i.name in ours else self._given(i) for i in part.images
                )
                yield f"{name}({', '.join(given)});"

    @property
    def uses_the_heap(self) -> bool:
        """Whether the spec's text names functions of <stdlib.h>, which it may take as included."""
        execution = self.execution()
        return not _HEAP.isdisjoint(words((*execution.acquire, *execution.release)))


_HEAP = frozenset(("malloc", "calloc", "aligned_alloc", "free", "abort", "exit"))


def handle(plan: HostPlan, image: Image) -> str:
    """The variable that stands for an image in calls."""
    return plan.identifiers.with_suffix(image.name, "dev")


def run_signature(plan: HostPlan, code: CodeTemplates, name: str = "") -> str:
    """Of the function that drives the chip, or a part of it: a handle per image; of the exported
    one with parts of a processor's, the arrays that these take and the workspace too."""
    taken = exported(plan) if not name else None
    declared = [
        _declare(code, handle(plan, i), constant=i.name in plan.resident and i.role == "input")
        for i in (taken.images if taken else plan.program.images)
    ]
    if taken:
        assert plan.workspace is not None
        declared += [*map(plan.parameter, taken.arrays), f"void *{plan.workspace.pointer}"]
    return f"void {name or f'{plan.name}_run'}({', '.join(declared) or 'void'})"


def _arrays_of_handles(plan: HostPlan) -> list[str]:
    """Declarations of the arrays that both the chip, by a handle, and a processor read."""
    taken = exported(plan)
    images = taken.of_arrays if taken else ()
    of = {t.name: t for t in plan.inputs}
    return [
        f"{plan.parameter(of[i.tensor])} = "
        f"(const {C_TYPES[of[i.tensor].dtype]} *)(const void *){handle(plan, i)};"
        for i in images
    ]


def unstaged(plan: HostPlan) -> frozenset[str]:
    """The images whose bytes the host never holds."""
    held = (i for i in plan.on_device if i.role == "temporary" and not pads(i))
    return frozenset(i.name for i in held)


def _declare(code: CodeTemplates, name: str, *, constant: bool = False) -> str:
    kind = _kind(code, constant=constant)
    return f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}"


def _kind(code: CodeTemplates, *, constant: bool) -> str:
    """The type of handles, or of those that point to what is not written."""
    kind = code.handle_type.strip()
    return f"const {kind}" if constant and "const" not in kind else kind


def _before(address: Expr, entries: int) -> Expr:
    """What the field of an address holds that begins so many entries earlier."""
    match address:
        case Binary("+", rest, Const(int(number))):
            return add(rest, Const(number - entries))
        case _:
            return add(address, Const(-entries))


def _nonempty(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def _serves(plan: HostPlan, kernel: MicroKernelDef, intrinsic: Intrinsic) -> str:
    statements = dict.fromkeys(
        c.statement for c in calls(plan.program.body) if c.kernel == kernel.name and c.statement
    )
    lanes = "; ".join(map(str, intrinsic.semantics))
    served = f" for {', '.join(statements)}" if statements else ""
    return f"{kernel.name}: {intrinsic.name}{served}, {lanes}".replace("*/", "* /")
