"""A nest's program as text in the processor's language: one function over the caller's arrays.

C gets loops as they are. Where a processor starts blocks, every launch becomes a function of its
own, and the caller's arrays are copied where the spec says how. All that is particular to a
processor comes from the templates of its spec.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hwgen.codegen.c_names import C_TYPES, NameTable, comment, indent, kernel_name
from hwgen.codegen.c_reserved import reserved_words
from hwgen.codegen.emit_host import framed
from hwgen.codegen.floating_point import floating_point_rules
from hwgen.codegen.names import allocated, touched, variables, written
from hwgen.codegen.nodes import Code, Launch, Routine
from hwgen.codegen.processor.body import BodyText, Identifiers, as_lambda, helpers
from hwgen.codegen.processor.firmware import HEAP, Room, firmware_header, room
from hwgen.codegen.processor.runs import in_runs
from hwgen.codegen.processor.scopes import pools
from hwgen.codegen.processor.workarounds import around_functions, may_join_reads
from hwgen.codegen.source import CSource, Parameter
from hwgen.codegen.storages import Array
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Level
from hwgen.spec.workload import Workload


@dataclass(frozen=True, slots=True)
class NestFirmware:
    """The generated file of a kernel that takes no memory from an allocator. `source`: its inputs
    are those that are not compiled in; `constants`: those that are, with their declarations;
    `parameters`: what tensors are called."""

    source: CSource
    room: Room
    constants: tuple[tuple[str, str], ...]
    parameters: Mapping[str, str]


def emit_nest(program: Code, hardware: HardwareSpec, workload: Workload) -> CSource:
    """The program as one file, and a header for it.

    Raises:
        HwgenError: H601 a template fails.
    """
    writer = _file(program, hardware, workload)
    summary = f"{writer.name}: {workload.name} on {hardware.name}."
    return writer.source(summary)


def emit_nest_firmware(
    program: Code,
    hardware: HardwareSpec,
    workload: Workload,
    compiled_in: frozenset[str] = frozenset(),
) -> NestFirmware:
    """The program as one file that works in a workspace of the caller's, and a header for it.

    Raises:
        HwgenError: H041, H042 where there is none; H601 a template fails.
    """
    writer = _file(program, hardware, workload)
    writer.work_in_workspace(compiled_in)
    summary = f"{writer.name}: {workload.name} on {hardware.name}, for firmware."
    parameters = {n: writer.identifiers.buffer(n) for n in writer.arrays}
    return NestFirmware(writer.source(summary), writer.room, writer.constants(), parameters)


def emit_code(program: Code, hardware: HardwareSpec, name: str, in_workspace: bool) -> list[str]:
    """The program as a function of a file that drives units: `name` is its own, and begins those of
    all that it needs. `in_workspace`: its last parameter is memory that the caller gives.

    Raises:
        HwgenError: H601 a template fails; H041, H042 where it cannot work in a workspace.
    """
    identifiers = Identifiers(NameTable(reserved_words(hardware)))
    writer = _File(program, hardware, identifiers, name)
    if in_workspace:
        writer.work_in_workspace()
    return writer.static()


def _file(program: Code, hardware: HardwareSpec, workload: Workload) -> _File:
    table = NameTable(reserved_words(hardware))
    name = table.function(kernel_name(workload, hardware))
    return _File(program, hardware, Identifiers(table), name)


class _File:
    """The pieces of one file. `handles`: the device's copies of the caller's arrays."""

    def __init__(
        self,
        program: Code,
        hardware: HardwareSpec,
        identifiers: Identifiers,
        name: str,
    ) -> None:
        self.processor = processor = hardware.machine
        if not processor.launch:
            program = replace(program, body=in_runs(program.body, program.array, processor))
        self.program, self.hardware = program, hardware
        self.identifiers, self.name = identifiers, name
        self.arrays = (*program.inputs, *program.outputs)
        for buffer in program.arrays:
            identifiers.buffer(buffer.name)
        self.handles: dict[str, str] = {}
        if processor.launch and hardware.code.to_device:
            self.handles = {
                n: identifiers.fresh(f"{identifiers.buffer(n)}_device") for n in self.arrays
            }
        self.functions: list[str] = []
        self.room = HEAP
        self.host = self.writer()

    def writer(self) -> BodyText:
        return BodyText(
            self.program, self.hardware, self.identifiers,
            helpers(self.name, self.room.index), self._function, room=self.room,
        )  # fmt: skip

    def work_in_workspace(self, compiled_in: frozenset[str] = frozenset()) -> None:
        """Take what the spec would allocate from memory that the caller gives."""
        pointer = self.identifiers.fresh("workspace")
        self.room = room(self.program, self.hardware, pointer, compiled_in)
        self.host = self.writer()

    def source(self, summary: str) -> CSource:
        def parameters(names: tuple[str, ...]) -> tuple[Parameter, ...]:
            given = (self.program.array[n] for n in names if n not in self.room.compiled_in)
            return tuple(Parameter(a.name, a.dtype, a.extents, False, True, False) for a in given)

        return CSource(
            self.name,
            parameters(self.program.inputs),
            parameters(self.program.outputs),
            self.text(summary),
            self.header(summary),
            suffix=self.processor.suffix,
            foreign=self.hardware.foreign,
        )

    def constants(self) -> tuple[tuple[str, str], ...]:
        """The inputs that are compiled in, each with its array's declaration."""
        inputs = (self.program.array[n] for n in self.program.inputs)
        return tuple(
            (b.name, f"const {C_TYPES[b.dtype]} {self._constant(b.name)}[{b.elements}]")
            for b in inputs
            if b.name in self.room.compiled_in
        )

    def _constant(self, name: str) -> str:
        return f"{self.name}_const_{self.identifiers.buffer(name)}"

    def text(self, summary: str) -> str:
        code = self.hardware.code
        body = self._host_body()
        own = [f'"{self.name}.h"'] if self.room.pointer else []
        includes = dict.fromkeys(["<math.h>", "<stdint.h>", *code.includes, *own])
        definitions = self.host.template(code.definitions, "code.definitions")
        # Where blocks run, another compiler than the host's vectorises nothing.
        before, after = ("", "") if self.processor.launch else around_functions(self.program)
        sections = [
            [
                f"/* {comment(summary)} */",
                *floating_point_rules((self.program,), language=self.processor.language),
                *(f"#include {i}" for i in includes),
            ],
            definitions,
            [before] if before else [],
            *([text] for text in self.host.helpers.definitions()),
            *self._functions(),
            [self._signature(own=True), "{", *indent(body), "}"],
            [after] if after else [],
        ]
        return "\n\n".join("\n".join(s) for s in sections if s) + "\n"

    def static(self) -> list[str]:
        """The function, and those before it, with nothing around them."""
        work = self._work()
        body = [*self._unused(work), *work]
        given = [self._parameter(self.program.array[n], restrict=True) for n in self.arrays]
        given += [f"void *{self.room.pointer}"] if self.room.pointer else []
        head = f"static void {self.name}({', '.join(given)})"
        own = "\n".join([head, "{", *indent(body), "}"])
        sections = (*self.host.helpers.definitions(), *self.functions, own)
        return [line for text in sections for line in (*text.split("\n"), "")]

    def _functions(self) -> list[list[str]]:
        return [[text] for text in self.functions]

    def header(self, summary: str) -> str:
        shown = ", ".join(
            self.identifiers.buffer(n) + "".join(f"[{e}]" for e in self.program.array[n].extents)
            for n in self.arrays
            if n not in self.room.compiled_in
        )
        if self.room.pointer:
            return firmware_header(
                self.name, summary, self.room, [d for _, d in self.constants()],
                f"{shown}: row-major, {self._overlaps()}", self._signature(own=False),
            )  # fmt: skip
        body = [f"/* {shown}: row-major, {self._overlaps()}. */"]
        body += [f"{self._signature(own=False)};"]
        return framed(self.name, [f"/* {comment(summary)} */"], ["<stdint.h>"], body)

    def _overlaps(self) -> str:
        shared = [self.program.array[n] for n in self.arrays if self.program.array[n].shared]
        if not shared:
            return "none overlaps another"
        names = " and ".join(self.identifiers.buffer(a.name) for a in shared)
        return f"none overlaps another, but {names} may be the same"

    # The function that the caller calls

    def _signature(self, *, own: bool) -> str:
        given = (n for n in self.arrays if n not in self.room.compiled_in)
        parameters = [self._parameter(self.program.array[n], restrict=own) for n in given]
        parameters += [f"void *{self.room.pointer}"] if self.room.pointer else []
        linkage = 'extern "C" ' if own and self.processor.language == "c++" else ""
        return f"{linkage}void {self.name}({', '.join(parameters)})"

    def _parameter(self, buffer: Array, *, restrict: bool, read: bool = False) -> str:
        word = "restrict " if self.processor.language == "c" else "__restrict__ "
        const = "const " if read or buffer.role == "input" else ""
        kind = C_TYPES[buffer.dtype]
        alone = restrict and not buffer.shared
        return f"{const}{kind} *{word if alone else ''}{self.identifiers.buffer(buffer.name)}"

    def _host_body(self) -> list[str]:
        code, host = self.hardware.code, self.host
        lines = [
            f"{self._parameter(self.program.array[n], restrict=True)} = {self._constant(n)};"
            for n in self.program.inputs
            if n in self.room.compiled_in
        ]
        work = self._work()
        lines += self._unused(work)
        if not self.processor.launch:
            prologue = self.processor.function_prologue
            lines += host.template(prologue, "processor.function_prologue")
            lines += host.template(code.prologue, "code.prologue")
        kind = code.handle_type.strip()
        space = "" if kind.endswith("*") else " "
        for name, handle in self.handles.items():
            values = self._copy(name)
            lines.append(f"{kind}{space}{handle} = 0;")
            lines += host.template(code.allocate, "code.allocate", values)
            if name in self.program.inputs:
                lines += host.template(code.to_device, "code.to_device", values)
        lines += work
        lines += host.template(code.epilogue, "code.epilogue")
        for name in self.program.outputs if self.handles else ():
            lines += host.template(code.from_device, "code.from_device", self._copy(name))
        for name in self.handles:
            lines += host.template(code.free, "code.free", self._copy(name))
        return lines

    def _unused(self, work: list[str]) -> list[str]:
        """What is given for nothing, also where an element's known values left it out."""
        given = [self.identifiers.buffer(n) for n in self.arrays]
        unused = [n for n in given if not _named(n, work)]
        if self.room.pointer and not self.room.places:
            unused.append(self.room.pointer)
        return [f"(void){name};" for name in unused]

    def _work(self) -> list[str]:
        """The nest, and the arrays that hold its buffers."""
        levels = ("kernel",) if self.processor.launch else _ALL
        body = self.program.body
        return [*pools(self.host, levels, body), *self.host.lines(body)]

    def _copy(self, name: str) -> dict[str, object]:
        host, handle = self.identifiers.buffer(name), self.handles[name]
        return {"buffer": handle, "bytes": self.program.array[name].bytes, "align": 1, "host": host}

    # Functions of their own

    def _function(self, caller: BodyText, node: Launch | Routine) -> list[str]:
        """Define the function of a node; the lines that start it."""
        return self._launch(node) if isinstance(node, Launch) else self._routine(caller, node)

    def _routine(self, caller: BodyText, routine: Routine) -> list[str]:
        name = self.identifiers.function(f"{self.name}_{routine.name}")
        own, body = allocated(routine.body), routine.body
        inside, writes, used = touched(body) - own, written(body), variables(body)
        passed = [b for b in self.program.arrays if b.name in inside]
        within = {self.program.array[n].within for n in own} - own
        rooms = [b for b in self.program.arrays if b.name in within]
        outer = [v for v in caller.ranges if v in used]
        writer = self.writer()
        writer.helpers, writer.ranges = caller.helpers, {v: caller.ranges[v] for v in outer}
        inner = [self.room.pointer] if not own.isdisjoint(self.room.places) else []
        lines = writer.lines(body)
        passed = [b for b in passed if _named(self.identifiers.buffer(b.name), lines)]
        parameters = [self._parameter(b, restrict=True, read=b.name not in writes) for b in passed]
        parameters += [self._parameter(b, restrict=False) for b in rooms]
        parameters += [f"{self.room.index} {self.identifiers.variable(v)}" for v in outer]
        parameters += [f"void *{pointer}" for pointer in inner]
        head = f"static void {name}({', '.join(parameters)})"
        self.functions.append("\n".join([head, "{", *indent(lines), "}"]))
        arguments = [self.identifiers.buffer(b.name) for b in (*passed, *rooms)]
        arguments += [*(self.identifiers.variable(v) for v in outer), *inner]
        return [f"{name}({', '.join(arguments)});"]

    def _launch(self, launch: Launch) -> list[str]:
        name = self.identifiers.function(launch.name)
        used = variables(launch.body)
        inside = touched(launch.body) - allocated(launch.body)
        passed = [b for b in self.program.arrays if b.name in inside]
        outer = [v for v in self.host.ranges if v in used]
        writer = self.writer()
        coordinates: list[str] = []
        for kind, variable, extent in launch.coordinates:
            label = f"processor.loops.{kind}.index"
            (index,) = writer.template(self.processor.loop[kind].index, label)
            writer.ranges[variable] = (0, extent - 1)
            if variable in used:
                own = self.identifiers.variable(variable)
                coordinates.append(f"const {self.room.index} {own} = {index};")
        writer.ranges |= {v: self.host.ranges[v] for v in outer}
        body = writer.lines(launch.body)
        # What other threads write is no thread's own: a compiler that is told so reads it before
        # they have written it, whatever waits for them.
        writes, joined = written(launch.body), may_join_reads(launch.body)
        parameters = [
            self._parameter(b, restrict=read and not joined, read=read)
            for b in passed
            for read in [b.name not in writes]
        ]
        parameters += [f"{self.room.index} {self.identifiers.variable(v)}" for v in outer]
        threads = self._extents(launch, "thread")
        values = {"name": name, "parameters": ", ".join(parameters), "threads": threads}
        prologue = self.processor.function_prologue
        inner = [
            *writer.template(prologue, "processor.function_prologue"),
            *coordinates,
            *pools(writer, ("block", "thread"), launch.body),
            *(line for text in writer.helpers.definitions() for line in as_lambda(text)),
            *body,
        ]
        head = writer.template(self.processor.function, "processor.function", values)
        self.functions.append("\n".join([*head, "{", *indent(inner), "}"]))
        return self._start(launch, name, [self._argument(b) for b in passed], outer)

    def _start(self, launch: Launch, name: str, arrays: list[str], outer: list[str]) -> list[str]:
        arguments = [*arrays, *(self.identifiers.variable(v) for v in outer)]
        values: dict[str, object] = {
            "name": name,
            "arguments": ", ".join(arguments),
            "blocks": self._extents(launch, "block"),
            "threads": self._extents(launch, "thread"),
        }
        return self.host.template(self.processor.launch, "processor.launch", values)

    def _extents(self, launch: Launch, level: Level) -> list[int]:
        """Of every bound loop of a level, 1 where the launch has none."""
        extents = {kind: extent for kind, _, extent in launch.coordinates}
        return [extents.get(k.name, 1) for k in self.processor.coordinates(level)]

    def _argument(self, buffer: Array) -> str:
        """A buffer as the host passes it to a launch."""
        if buffer.name not in self.handles:
            return self.identifiers.buffer(buffer.name)
        const = "const " if buffer.role == "input" else ""
        return f"({const}{C_TYPES[buffer.dtype]} *){self.handles[buffer.name]}"


_ALL = ("kernel", "block", "thread")


def _named(name: str, lines: list[str]) -> bool:
    """Whether lines of C name an identifier."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    return any(word.search(line) for line in lines)
