"""Files beside the kernels of a firmware folder: an example, a Makefile, a CMake file, stubs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.codegen.vendor_stub import compiler_headers, stub, vendor_headers
from hwgen.spec.hardware import HardwareSpec

STUB_FOLDER = "stub"
MODEL_FOLDER = "model"
"""Of empty headers, for the C model on machines that lack the instructions of others."""
NATIVE = "-march=native"


@dataclass(frozen=True, slots=True)
class Argument:
    """An array that a kernel takes. `size`: its elements, as C text; `aligned`: as a workspace."""

    name: str
    kind: str
    size: str
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel of the folder. `sources`: the files that a program compiles besides `source`;
    `model`: the file that takes the place of `source` on a host, "" where it is `source` itself.
    `workspace`: what it is called; `workspace_bytes`: 0 where it may be null. `status`: whether
    the kernel returns one."""

    name: str
    source: str
    sources: tuple[str, ...]
    model: str
    arguments: tuple[Argument, ...]
    workspace: str
    workspace_bytes: int
    status: bool


def example(parts: Sequence[Part]) -> str:
    """`main.c`: calls each kernel once, on zeros."""
    lines = [
        "/* Calls each kernel once, on zeros: where a program of your own begins. */",
        *(f'#include "{part.name}.h"' for part in parts),
        "",
    ]
    calls: list[str] = []
    for n, part in enumerate(parts):

        def own(name: str, before: str = f"k{n}_" if len(parts) > 1 else "") -> str:
            return f"{before}{name}"

        names: list[str] = []
        for argument in part.arguments:
            names.append(own(argument.name))
            before = f"{part.name}_ALIGNED static " if argument.aligned else "static "
            lines.append(f"{before}{argument.kind} {names[-1]}[{argument.size}];")
        room = "0"
        if part.workspace_bytes:
            room = own(part.workspace)
            size = f"{part.name}_WORKSPACE_BYTES"
            lines.append(f"{part.name}_ALIGNED static unsigned char {room}[{size}];")
        call = f"{part.name}({', '.join([*names, room])})"
        calls += [f"if ({call} != 0)", "  return 1;"] if part.status else [f"{call};"]
    calls.append("return 0;")
    body = [f"  {line}" for line in calls]
    return "\n".join([*lines, "", "int main(void)", "{", *body, "}", ""])


def build_files(
    parts: Sequence[Part], texts: Sequence[tuple[str, str]], hardware: HardwareSpec
) -> dict[str, str]:
    """The files that compile a folder; `texts`: of each kernel its name, and its header and C."""
    standard = _standard(hardware)
    machine = machine_flags(hardware)
    files = {
        "Makefile": makefile(parts, standard, machine),
        "CMakeLists.txt": cmake_file(parts, standard, machine),
    }
    for path in vendor_headers(hardware.code.includes):
        # A spec does not say which header has what: the first of them has all.
        files[f"{STUB_FOLDER}/{path}"] = stub(texts, path, hardware.name)
        texts = []
    for path in compiler_headers(hardware.code.includes):
        files[f"{MODEL_FOLDER}/{path}"] = "/* Empty: the C model names no instructions. */\n"
    return files


def firmware_flags(hardware: HardwareSpec) -> tuple[str, ...]:
    """Flags that the folder's files take, with any compiler."""
    return (f"-std=c{_standard(hardware)}", "-ffreestanding", "-I.", f"-I{STUB_FOLDER}")


def machine_flags(hardware: HardwareSpec) -> tuple[str, ...]:
    """What makes a compiler take all instructions of the machine that it runs on, where kernels
    name some; for another machine its own take their place."""
    return (NATIVE,) if compiler_headers(hardware.code.includes) else ()


def _standard(hardware: HardwareSpec) -> int:
    """The C that firmware kernels of a chip are: 99 or 11."""
    return 99 if hardware.units else 11


def makefile(parts: Sequence[Part], standard: int, machine: Sequence[str] = ()) -> str:
    """Objects and an archive with any compiler, the linked example, and the same on the host;
    `standard`: 99 or 11, the C that the kernels are; `machine`: as `machine_flags`."""
    sources = [s for part in parts for s in (part.source, *part.sources)]
    models = [s for part in parts for s in (part.model or part.source, *part.sources)]
    return f"""\
# make CC=arm-none-eabi-gcc CFLAGS="-O2 -mcpu=cortex-m33" VENDOR=path/of/the/vendors/headers
# make firmware.elf LDFLAGS="-T board.ld" LDLIBS=path/of/the/vendors/library.a
# make host && ./host     (on this machine, against the C model; status 0: every check held)
CFLAGS ?= {" ".join(["-O2", *machine])}
VENDOR ?= {STUB_FOLDER}
FIRMWARE_FLAGS = -std=c{standard} -ffreestanding -I. -I$(VENDOR)
SOURCES = {" ".join(sources)}
OBJECTS = $(SOURCES:.c=.o)

libkernels.a: $(OBJECTS)
\t$(AR) rcs $@ $^

%.o: %.c
\t$(CC) $(FIRMWARE_FLAGS) $(CFLAGS) -c $< -o $@

firmware.elf: main.o libkernels.a
\t$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

host: main.c {" ".join(dict.fromkeys(models))}
\t$(CC) -std=c{standard} -O2 -I. {f"-I{MODEL_FOLDER} " if machine else ""}-I$(VENDOR) $^ -lm -o $@

clean:
\trm -f *.o libkernels.a firmware.elf host

.PHONY: clean
"""


def cmake_file(parts: Sequence[Part], standard: int, machine: Sequence[str] = ()) -> str:
    """A library for `add_subdirectory`."""
    flags = ";".join(machine)
    option = f'set(HWGEN_MACHINE "{flags}" CACHE STRING "whose instructions")\n' if flags else ""
    own = " ${HWGEN_MACHINE}" if flags else ""
    sources = "\n".join(f"  {s}" for part in parts for s in (part.source, *part.sources))
    return f"""\
# In a project of yours:
#   add_subdirectory(this/folder)
#   target_link_libraries(program PRIVATE hwgen_kernels)
# with -DHWGEN_VENDOR=path/of/the/vendors/headers; left out: the stub.
cmake_minimum_required(VERSION 3.13)
project(hwgen_kernels C)
set(HWGEN_VENDOR ${{CMAKE_CURRENT_SOURCE_DIR}}/{STUB_FOLDER} CACHE PATH "the vendor's headers")
{option}add_library(hwgen_kernels STATIC
{sources}
)
target_include_directories(hwgen_kernels PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}} ${{HWGEN_VENDOR}})
set_target_properties(hwgen_kernels PROPERTIES C_STANDARD {standard} C_EXTENSIONS OFF)
target_compile_options(hwgen_kernels PRIVATE -ffreestanding{own})
"""
