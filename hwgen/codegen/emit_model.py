"""A kernel as C against a model of the chip that is generated from the same spec.

Each memory is an array with its last writer per entry (0: never written); each intrinsic is a
function that checks field limits, bounds, initialisation and last writers before it computes its
semantics. A kernel returns 0, or one of `CODES` with a text in `NAME_message()`.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.c_constants import number_text
from hwgen.codegen.c_expr import IndexText
from hwgen.codegen.c_names import C_TYPES, NameTable, Reserved, comment, indent
from hwgen.codegen.c_reserved import MODEL_PREFIX
from hwgen.codegen.emit_body import BodyWriter, index_helpers, tables
from hwgen.codegen.emit_host import MISALIGNED, Execution, entry_points
from hwgen.codegen.emit_sync import FlagCounters
from hwgen.codegen.floating_point import floating_point_rules
from hwgen.codegen.host_plan import HostPlan, code_arguments, run_names
from hwgen.codegen.model_intrinsic import IntrinsicFunctions
from hwgen.codegen.model_order import Order
from hwgen.codegen.nodes import (
    SERIAL,
    Barrier,
    Call,
    Code,
    Configure,
    Loop,
    Pop,
    Push,
    Signal,
    SyncNode,
    Wait,
    calls,
)
from hwgen.codegen.once import derive_function
from hwgen.codegen.packing import (
    missing_entry,
    missing_entry_name,
    packing,
    pad_name,
    padding,
    pads,
)
from hwgen.codegen.storages import Image
from hwgen.spec.hardware import HardwareSpec

CODES: dict[int, str] = {
    1: "memory cannot be allocated",
    2: "field limit",
    3: "on-chip address out of bounds",
    4: "off-chip address out of bounds",
    5: "uninitialised read",
    6: "stale read: last written by an intrinsic whose results cannot be read so",
    7: "result used before it is ready",
    8: "operand outside the domain of the semantics",
    9: "tokens left over or missing",
    10: "output element never written",
    11: "signal of a flag that already counts to its maximum",
    MISALIGNED: "an array that is used in place is not aligned",
    13: "on-chip access outside of its buffer",
    14: "calls of two units touch one entry, one writes, and nothing orders them",
}
"""What a model's non-zero return values mean."""


def _is_result(plan: HostPlan, image: Image) -> bool:
    """Whether all of an image is to be written: of what a processor reads in between, no more than
    that need be."""
    return image.role == "output" and image.tensor in {t.name for t in plan.outputs}


def emit_model(plan: HostPlan, hardware: HardwareSpec, summary: str) -> str:
    """The standalone model file."""
    writer = _Model(plan, hardware)
    helpers = index_helpers(plan.name, plan.index)
    own = frozenset((*writer.images.values(), *writer.flags.names))
    names = NameTable(Reserved(own, (f"{MODEL_PREFIX}_", f"{plan.name}_")))
    runs: list[list[str]] = []
    for number, (part, name) in enumerate(zip(plan.program.parts, run_names(plan), strict=True)):
        if isinstance(part, Code):
            from hwgen.codegen.processor.emit import emit_code

            runs.append(emit_code(part, hardware, name, plan.workspace is not None))
            continue
        suffix = f"_{number}" if plan.program.codes else ""
        of_part = _Model(replace(plan, program=part), hardware, writer, suffix)
        runs.append([*of_part.run(BodyWriter(of_part, helpers, names).lines(part.body)), ""])
    packs = packing(plan, helpers)
    for image in plan.program.images:
        packs += padding(plan, image, helpers)
        if _is_result(plan, image):
            packs += [*missing_entry(plan, image, helpers), ""]
    functions = writer.intrinsics()
    lines = [
        f"/* {summary}",
        " *",
        " * Against a model of the chip: memories are arrays, intrinsics are checked functions.",
        *tables(plan.program),
        " */",
        *floating_point_rules(plan.codes, writer.used),
        *(f"#include <{h}.h>" for h in ("math", "stdint", "stdio", "stdlib", "string")),
        "",
        *writer.chip(),
    ]
    for definition in helpers.definitions():
        lines += [definition, ""]
    lines += functions
    lines += [f"extern {c.declaration};" for c in plan.constants()]
    lines += packs
    lines += [line for run in runs for line in run]
    if plan.workspace is None:
        lines += derive_function(plan, hardware)
    lines += entry_points(plan, writer.execution())
    return "\n".join(lines) + "\n"


class _Model:
    """The generated model as a target; of a part of a program, on the chip of the `whole` one."""

    def __init__(
        self,
        plan: HostPlan,
        hardware: HardwareSpec,
        whole: _Model | None = None,
        suffix: str = "",
    ) -> None:
        self.plan, self.hardware, self.suffix = plan, hardware, suffix
        self.prefix = MODEL_PREFIX
        sites = list(calls(plan.program.body))
        self.used = tuple(
            i.narrowed(lanes)
            for i in hardware.intrinsics
            for lanes in sorted({c.lanes for c in sites if c.intrinsic == i.name})
        )
        self.order = Order(MODEL_PREFIX, plan.program, hardware)
        self.functions = IntrinsicFunctions(MODEL_PREFIX, hardware, self.used, self.order)
        self.buffers = {b.name: f"buffer_{n}" for n, b in enumerate(plan.program.buffers)}
        touched = {o.memory for i in self.used for o in i.operands}
        self.memories = tuple(m for m in hardware.of_kind("scratchpad") if m.name in touched)
        if whole is not None:
            self.functions, self.memories = whole.functions, whole.memories
            self.order, self.buffers = whole.order, whole.buffers
        self.images = {i.name: f"image_{n}" for n, i in enumerate(plan.program.images)}
        self.flags = FlagCounters(plan.program, plan.identifiers)

    # --- what the walk asks for ---

    def call(self, call: Call, text: IndexText) -> list[str]:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        places = [
            f"&{self.prefix}_{self.buffers[o.buffer]}" if o.buffer in self.buffers else ""
            for o in call.operands
        ]
        if call.kernel:
            variant = text(call.variant) if call.variant is not None else "0"
            arguments = [variant, *filter(None, places)]
            function = self.functions.kernel_name(call.kernel)
        else:
            arguments: list[str] = []
            for number, operand in enumerate(call.operands):
                declared = intrinsic.operands[number]
                offchip = self.hardware.is_offchip(declared.memory)
                arguments.append(f"&{self.images[operand.buffer]}" if offchip else places[number])
                arguments.append(text(operand.address))
                arguments += [text(s) for s in operand.strides]
            arguments += [text(e) for e in call.extents]
            given = dict(call.immediates)
            arguments += [number_text(given[i.name], i.dtype) for i in intrinsic.immediates]
            function = self.functions.call_name(intrinsic.narrowed(call.lanes))
        return [f"{self.prefix}_TRY({function}({', '.join(['chip', *arguments])}));"]

    def sync(self, node: SyncNode) -> list[str]:
        order = self.order
        match node:
            case Push(source, target):
                return [order.exchange("push", order.queue(source, target), source)]
            case Pop(source, target):
                return [order.exchange("pop", order.queue(source, target), target)]
            case Barrier():
                waits = order.wait(node.unit, node.outstanding)
                return [f"/* wait for {node.awaited} */", *waits]
            case Configure() | Code():
                # Calls carry what the registers hold; code has a function of its own.
                return []
            case Signal(source, target):
                queue = order.queue(source, target, self.flags.number(node))
                return [order.exchange("push", queue, source), *self.flags.step(node)]
            case Wait(source, target):
                queue = order.queue(source, target, self.flags.number(node))
                return [order.exchange("pop", queue, target), *self.flags.step(node)]

    def around(self, loop: Loop, _: str) -> tuple[list[str], list[str]]:
        if loop.kind == SERIAL:
            return [], []
        return [f"/* {loop.kind}: one after another here */"], []

    # --- the chip ---

    def chip(self) -> list[str]:
        """Types, the memories, and the checks that all intrinsics share."""
        p = self.prefix
        used = {o.buffer for c in calls(self.plan.program.body) for o in c.operands}
        fields: list[str] = []
        for memory in self.memories:
            elements = memory.capacity_entries * memory.entry_elements
            fields += [
                f"{C_TYPES[memory.dtype]} {memory.name}_data[{elements}]; "
                f"/* {memory.capacity_entries} entries of {memory.entry_elements} */",
                f"unsigned char {memory.name}_writer[{memory.capacity_entries}];",
            ]
        fields += self.order.fields([m.name for m in self.memories])
        return [
            *self.order.types(),
            f"struct {p}_chip {{",
            *indent(fields or ["int nothing;"]),
            "};",
            "",
            "/* Off-chip memory of one tensor; `writer` is null where all entries hold data. */",
            f"struct {p}_image {{",
            "  void *data;",
            "  unsigned char *writer;",
            "  int64_t entries;",
            *(["  uint32_t *rows;"] if self.order.rows else []),
            "};",
            "",
            "/* Slots on the chip, of `slot` entries every `stride` ones. */",
            f"struct {p}_buffer {{",
            "  int64_t base, end, stride, slot;",
            "};",
            "",
            *(
                f"static const struct {p}_buffer {p}_{self.buffers[b.name]} = "
                f"{{{b.base}, {b.end}, {b.stride}, {b.slot_entries}}}; /* {comment(b.name)} */"
                for b in self.plan.program.buffers
                if b.name in used
            ),
            "",
            "/* Compiled by itself: inside of the loops around it, compilers lose its lanes. */",
            "#if defined(__GNUC__)",
            f"#define {p}_APART __attribute__((noinline))",
            "#else",
            f"#define {p}_APART",
            "#endif",
            "",
            f"static char {p}_text[256];",
            "",
            "/* Why the last run failed. */",
            f"const char *{self.plan.name}_message(void);",
            f"const char *{self.plan.name}_message(void)",
            "{",
            f"  return {p}_text;",
            "}",
            "",
            f"#define {p}_TRY(call) \\",
            "  do { \\",
            f"    int {p}_code = (call); \\",
            f"    if ({p}_code) \\",
            f"      return {p}_code; \\",
            "  } while (0)",
            "",
            f"static int {p}_fail(int code, const char *what, int64_t value, int64_t limit)",
            "{",
            f'  snprintf({p}_text, sizeof {p}_text, "%s: %lld (limit %lld)", what,',
            "           (long long)value, (long long)limit);",
            "  return code;",
            "}",
            "",
            f"static inline int {p}_within(int64_t value, int64_t low, int64_t high,",
            f"{' ' * len(p)}                          const char *what)",
            "{",
            "  if (value < low)",
            f"    return {p}_fail(2, what, value, low);",
            "  if (value > high)",
            f"    return {p}_fail(2, what, value, high);",
            "  return 0;",
            "}",
            "",
            f"static inline void {p}_span(int64_t *low, int64_t *high, int64_t step, "
            "int64_t extent)",
            "{",
            "  if (step < 0)",
            "    *low += (extent - 1) * step;",
            "  else",
            "    *high += (extent - 1) * step;",
            "}",
            "",
            *self.order.functions(),
        ]

    def intrinsics(self) -> list[str]:
        """The functions of every intrinsic and micro-kernel used."""
        lines: list[str] = []
        for intrinsic in self.used:
            lines += self.functions.define(intrinsic)
        for kernel in self.plan.program.kernels:
            if any(c.kernel == kernel.name for c in calls(self.plan.program.body)):
                lines += self.functions.define_kernel(kernel)
        return [*self.functions.helpers.definitions(), "", *lines]

    # --- running it ---

    def run(self, body: list[str]) -> list[str]:
        """`NAME_body`: the loops on a fresh chip; `NAME_run`: everything around them."""
        p = self.prefix
        names = [self.images[i.name] for i in self.plan.program.images]
        used = {o.buffer for c in calls(self.plan.program.body) for o in c.operands}
        unused = [f"(void){n};" for i, n in self.images.items() if i not in used]
        parameters = ", ".join(
            [f"struct {p}_chip *chip", *(f"struct {p}_image {n}" for n in names)]
        )
        lines = [
            f"static int {p}_body{self.suffix}({parameters})",
            "{",
            *indent([*self.flags.declarations(), *unused, *body]),
            *([] if body else ["  (void)chip;"]),
            "  return 0;",
            "}",
            "",
        ]
        arguments = ", ".join(
            f"{'const ' if i.role == 'input' else ''}{C_TYPES[i.dtype]} *{self.images[i.name]}_data"
            for i in self.plan.program.images
        )
        order = self.order
        acquired: list[str] = []
        made: list[str] = []
        kept = self.memories if order.rows else ()
        rows = [(f"{m.name}_rows", m.capacity_entries) for m in kept]
        for image in self.plan.program.images:
            name = self.images[image.name]
            if image.role != "input":
                acquired.append(f"unsigned char *{name}_writer = calloc({image.entries}, 1);")
                writer = f"{name}_writer"
                rows += [(f"{name}_rows", image.entries)] if order.rows else []
            else:
                writer = "0"
            touched = f", {name}_rows" if image.role != "input" else ", 0"
            made.append(
                f"struct {p}_image {name} = {{(void *)(uintptr_t){name}_data, {writer}, "
                f"{image.entries}{touched if order.rows else ''}}};"
            )
        written = [i for i in self.plan.program.images if i.role != "input"]
        acquired += [
            f"uint32_t *{name} = calloc({n}, {order.row} * sizeof(uint32_t));" for name, n in rows
        ]
        writers = [f"{self.images[i.name]}_writer" for i in written] + [name for name, _ in rows]
        ready = " && ".join(["chip", *writers])
        poison = ["memset(chip, 0xA5, sizeof *chip);"]
        poison += [
            f"memset(chip->{m.name}_writer, 0, sizeof chip->{m.name}_writer);"
            for m in self.memories
        ]
        poison += [f"chip->{name} = {name};" for name, _ in rows[: len(kept)]]
        poison += order.cleared()
        poison += [f"memset({self.images[i.name]}_data, 0xA5, {i.bytes});" for i in written]
        poison += [
            f"{pad_name(self.plan, i)}({self.images[i.name]}_data, {self.images[i.name]}_writer, "
            f"{self._storing(i)});"
            for i in written
            if pads(i)
        ]
        missing = order.left()
        for image in (i for i in self.plan.program.images if _is_result(self.plan, i)):
            name = self.images[image.name]
            missing += [
                "if (status == 0) {",
                f"  int64_t entry = {missing_entry_name(self.plan, image)}({name}_writer);",
                "  if (entry >= 0)",
                f'    status = {p}_fail(10, "entry of {image.name} never written", entry, '
                f"{image.entries});",
                "}",
            ]
        lines += [
            f"static int {p}_run{self.suffix}({arguments or 'void'})",
            "{",
            "  int status = 1;",
            f"  struct {p}_chip *chip = malloc(sizeof *chip);",
            *indent(acquired),
            f'  strcpy({p}_text, "memory cannot be allocated");',
            f"  if ({ready}) {{",
            *indent(made, 2),
            *indent(poison, 2),
            f"    status = {p}_body{self.suffix}({', '.join(['chip', *names])});",
            *indent(missing, 2),
            "  }",
            *(f"  free({w});" for w in reversed(writers)),
            "  free(chip);",
            "  return status;",
            "}",
        ]
        return lines

    def _storing(self, image: Image) -> int:
        """The number of the intrinsic that stores an image."""
        storing = next(
            call.intrinsic
            for call in calls(self.plan.program.body)
            for operand in call.operands
            if operand.buffer == image.name
            and self.hardware.intrinsic[call.intrinsic].operand(operand.name).access != "read"
        )
        return 1 + list(self.hardware.intrinsic).index(storing)

    def _outputs(self) -> tuple[Image, ...]:
        return tuple(i for i in self.plan.program.images if i.role == "output")

    def execution(self) -> Execution:
        """The run on the staged images. In a workspace an output's staging may be an input's, which
        the chip still reads: then the output has memory of its own until the run is over."""
        plan = self.plan
        places = frozenset(plan.workspace.offsets if plan.workspace else ())
        apart = {
            i.name: plan.identifiers.with_suffix(i.name, "chip")
            for i in self._outputs()
            if i.name in places and i.name not in plan.resident
        }
        calls: list[str] = []
        for number, part in enumerate(plan.program.parts):
            if isinstance(part, Code):
                name = run_names(plan)[number]
                calls.append(f"{name}({code_arguments(plan, part)});")
                continue
            given = ", ".join(apart.get(i.name, plan.staging(i)) for i in part.images)
            suffix = f"_{number}" if plan.program.codes else ""
            calls.append(f"status = {self.prefix}_run{suffix}({given});")
        images = [i for i in plan.program.images if i.name in apart]
        return Execution(
            tuple(f"{C_TYPES[i.dtype]} *{apart[i.name]} = malloc({i.bytes});" for i in images),
            " && ".join(apart.values()),
            (),
            tuple((call,) for call in calls),
            tuple(
                (i.name, (f"memcpy({plan.staging(i)}, {apart[i.name]}, {i.bytes});",))
                for i in images
            ),
            tuple(f"free({name});" for name in reversed(apart.values())),
            True,
        )
