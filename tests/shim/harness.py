"""Builds emitted C with the shim of the runtime and runs it in a process of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.source import CSource
from hwgen.model.compiled import find_compiler

SHIM = Path(__file__).resolve().parent
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
ORDERS = ("compute_first", "load_first", "store_first", "round_robin", "random")
INTERLEAVINGS: tuple[str, ...] = (*ORDERS[:4], "random:1", "random:2", "random:3")
"""Every fixed order and three seeded ones, as `order` or `order:seed`."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ShimRun:
    """One run of a kernel through the shim; `trace` where it was asked for."""

    interleaving: str
    status: int
    error: int
    message: str
    live_buffers: int
    instructions: int
    outputs: dict[str, NDArray[Any]]
    trace: tuple[dict[str, Any], ...] = field(default=())


@cache
def scratch() -> Path:
    """A directory for this process's builds."""
    holder = tempfile.TemporaryDirectory(prefix="hwgen-shim-")
    _kept.append(holder)
    return Path(holder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def compile_c(arguments: Sequence[str | Path]) -> None:
    """Run the C compiler; its complaints are the assertion's message."""
    compiler = find_compiler()
    assert compiler, "no C compiler"
    done = subprocess.run(
        [*compiler, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@cache
def shim_objects(configuration: tuple[tuple[str, int], ...] = ()) -> tuple[Path, ...]:
    """The shim's object files for some of BATCH, BLOCK_IN and BLOCK_OUT."""
    directory = Path(tempfile.mkdtemp(dir=scratch()))
    defines = [f"-DVTA_{name}={value}" for name, value in configuration]
    for part in ("runtime", "chip"):
        target = directory / f"{part}.o"
        compile_c([*STRICT, "-O2", *defines, f"-I{SHIM}", "-c", SHIM / f"{part}.c", "-o", target])
    return (directory / "runtime.o", directory / "chip.o")


def driver(source: CSource) -> str:
    """A `main` that runs a kernel in the interleavings given as arguments.

    Inputs lie in files `NAME.in` of the working directory; run i leaves `NAME.i.out` and prints
    one JSON line. The first argument is `plain` or `prepacked`, the second whether to trace.
    """
    declare: list[str] = []
    read: list[str] = []
    plain: list[str] = []
    prepacked: list[str] = []
    for number, p in enumerate(source.inputs):
        count = int(np.prod(p.shape, dtype=np.int64))
        kind = C_TYPES[p.dtype]
        declare.append(f"static {kind} in{number}[{count}];")
        read.append(f'  get("{p.name}.in", in{number}, sizeof in{number});')
        plain.append(f"in{number}")
        if p.in_place or not p.packed:
            prepacked.append(f"in{number}")
        if p.packed:
            name = f"{source.function}_pack_{p.name}"
            bytes_ = f"{source.function}_packed_bytes_{p.name}()"
            read.append(f"  void *packed{number} = malloc({bytes_});")
            read.append(f"  {name}(in{number}, packed{number});")
            prepacked.append(f"packed{number}")
    write: list[str] = []
    poison: list[str] = []
    for number, p in enumerate(source.outputs):
        count = int(np.prod(p.shape, dtype=np.int64))
        declare.append(f"static {C_TYPES[p.dtype]} out{number}[{count}];")
        poison.append(f"    memset(out{number}, 0x5A, sizeof out{number});")
        write.append(f'    put("{p.name}", i, out{number}, sizeof out{number});')
        plain.append(f"out{number}")
        prepacked.append(f"out{number}")
    call = f"{source.function}({', '.join(plain)})"
    if any(p.packed for p in source.inputs):
        other = f"{source.function}_prepacked({', '.join(prepacked)})"
        call = f'strcmp(arguments[1], "plain") ? {other} : {call}'
    release = [f"  free(packed{n});" for n, p in enumerate(source.inputs) if p.packed]
    return "\n".join(
        [
            "#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>",
            "#include <vta/runtime/runtime.h>", f'#include "{source.function}.h"', "",
            *declare,
            "static void get(const char *name, void *data, size_t size)",
            "{",
            '  FILE *file = fopen(name, "rb");',
            "  if (!file || fread(data, 1, size, file) != size)",
            "    exit(2);",
            "  fclose(file);",
            "}",
            "static void put(const char *name, int i, const void *data, size_t size)",
            "{",
            "  char path[300];",
            '  snprintf(path, sizeof path, "%s.%d.out", name, i);',
            '  FILE *file = fopen(path, "wb");',
            "  if (!file || fwrite(data, 1, size, file) != size)",
            "    exit(2);",
            "  fclose(file);",
            "}",
            "int main(int count, char **arguments)",
            "{",
            *read,
            "  for (int i = 0; i < (count - 3) / 2; ++i) {",
            "    VTAShimReset(atoi(arguments[3 + 2 * i]), "
            "(uint32_t)atoi(arguments[4 + 2 * i]));",
            "    if (atoi(arguments[2])) {",
            "      char path[40];",
            '      snprintf(path, sizeof path, "trace.%d", i);',
            "      VTAShimTrace(path);",
            "    }",
            *poison,
            f"    int status = {call};",
            "    VTAShimTrace(NULL);",
            *write,
            '    printf("{\\"status\\": %d, \\"error\\": %d, \\"live_buffers\\": %lu, '
            '\\"instructions\\": %lu, \\"message\\": \\"%s\\"}\\n",',
            "           status, VTAShimStatus(), (unsigned long)VTAShimLiveBuffers(),",
            "           (unsigned long)VTAShimInstructions(), VTAShimMessage());",
            "  }",
            *release,
            "  return 0;",
            "}",
            "",
        ]
    )  # fmt: skip


@cache
def _built(
    key: str, configuration: tuple[tuple[str, int], ...], flags: tuple[str, ...]
) -> tuple[Path, Path]:
    source = _sources[key]
    directory = Path(tempfile.mkdtemp(dir=scratch()))
    (directory / f"{source.function}.c").write_text(source.c)
    (directory / f"{source.function}.h").write_text(source.header)
    (directory / "main.c").write_text(driver(source))
    program = directory / "program"
    compile_c(
        [
            *STRICT, "-O2", *flags, f"-I{SHIM}", f"-I{directory}",
            directory / f"{source.function}.c", directory / "main.c",
            *shim_objects(configuration), "-o", program,
        ]
    )  # fmt: skip
    return directory, program


_sources: dict[str, CSource] = {}


def run_shim(
    source: CSource,
    inputs: Arrays,
    interleavings: Sequence[str] = INTERLEAVINGS,
    *,
    configuration: Mapping[str, int] | None = None,
    prepacked: bool = False,
    trace: bool = False,
    flags: tuple[str, ...] = (),
) -> list[ShimRun]:
    """Run the emitted C once per interleaving, all in one process; errors are in the results.

    `configuration`: BATCH, BLOCK_IN, BLOCK_OUT where they are not the defaults 1, 16, 16.
    """
    key = hashlib.sha256((source.c + source.header).encode()).hexdigest()
    _sources[key] = source
    settings = tuple(sorted((configuration or {}).items()))
    directory, program = _built(key, settings, flags)
    for p in source.inputs:
        np.ascontiguousarray(inputs[p.name]).tofile(directory / f"{p.name}.in")
    chosen: list[str] = []
    for name in interleavings:
        order, _, seed = name.partition(":")
        chosen += [str(ORDERS.index(order)), seed or "0"]
    done = subprocess.run(
        [str(program), "prepacked" if prepacked else "plain", str(int(trace)), *chosen],
        cwd=directory, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    runs: list[ShimRun] = []
    for number, line in enumerate(done.stdout.splitlines()):
        outputs: dict[str, NDArray[Any]] = {}
        for p in source.outputs:
            flat = np.fromfile(directory / f"{p.name}.{number}.out", p.dtype)
            outputs[p.name] = np.reshape(flat, p.shape)
        steps: tuple[dict[str, Any], ...] = ()
        if trace:
            text = (directory / f"trace.{number}").read_text()
            steps = tuple(json.loads(step) for step in text.splitlines())
        report = json.loads(line)
        runs.append(ShimRun(interleavings[number], outputs=outputs, trace=steps, **report))
    return runs
