"""The C for the vector unit of a Hexagon DSP, compiled by Clang and executed by user-mode emulation.

Packets are counted as the emulator executes them: its instructions are packets. The wheel `ziglang`
has a Clang for them; the C library of its target is left out, as it takes a minute to compile.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from shutil import which

import numpy as np
import pytest

import hwgen
from hwgen.calibrate.counted import counter
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.nodes import calls
from hwgen.model.c_compiler import find_compiler
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.verify.compare import unexplained
from hwgen.verify.data import Style, draw_inputs
from tests.sampling import QUICK

CPU = "hexagonv66+hvxv66+hvx_length128b"
COMPILER = (
    *(sys.executable, "-m", "ziglang", "cc", "-target", "hexagon-linux-musl", f"-mcpu={CPU}"),
    *("-std=c11", "-O2", "-w"),
)
EMULATOR = "qemu-hexagon"
START = Path(__file__).resolve().parents[1] / "shim_hexagon" / "start.c"
PRODUCTS = {0x1C002040, 0x1C002020}
"""`Vx.w += vrmpy(Vu.ub, Vv.b)` and of signed bytes, without registers and parse bits."""
OPERATION = 0xFFE020E0
LAST = 0xC000
"""Parse bits of an instruction that ends its packet."""


def missing() -> str:
    """What this machine lacks to compile and to execute."""
    needed = {"ziglang": find_spec("ziglang"), EMULATOR: which(EMULATOR)}
    return ", ".join(name for name, found in needed.items() if not found)


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no {missing()}")


@dataclass(frozen=True, slots=True)
class Executed:
    """The first output of a kernel, and packets of the function that runs its calls: how many were
    executed, and how many products were in them."""

    output: Array
    packets: int
    products: int


def executed(kernel: Kernel, inputs: dict[str, Array], folder: Path) -> Executed:
    """Compile a kernel's C, execute it once and count."""
    source = kernel.source
    program = built(kernel, folder)
    counts, places = folder / "counts", folder / "places"
    start, end = function_of(program, f"{source.function}_run")
    places.write_text(f"{start:x} {end:x}\n")
    plugin = f"{counter()},to={counts},of={places}"
    sent = b"".join(inputs[t.name].tobytes() for t in source.inputs)
    command = [EMULATOR, "-plugin", plugin, str(program)]
    done = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (output,) = source.outputs
    found = np.frombuffer(done.stdout, output.dtype).reshape(output.shape)
    times = Counter[int]()
    for line in counts.read_text().splitlines():
        match line.split():
            case ["owner", _, _]:
                pass
            case [at, count]:
                if start <= int(at, 16) < end:
                    times[int(at, 16)] += int(count)
            case _:
                raise AssertionError(line)
    words = instructions(program, start, end)
    products = sum(n * products_in(words, at) for at, n in times.items())
    return Executed(found, sum(times.values()), products)


def built(kernel: Kernel, folder: Path) -> Path:
    """A program that takes a kernel's inputs from its own and gives the result as its output."""
    source = kernel.source
    tensors = (*source.inputs, *source.outputs)
    text = re.sub(r"^(static void (?=\w*_run\())", r"__attribute__((noinline)) \1", source.c, flags=re.M)
    lines = [
        text,
        "void take(void *, size_t), give(void *, size_t);",
        *(f"_Alignas(128) static {C_TYPES[t.dtype]} own_{t.name}[{prod(t.shape)}];" for t in tensors),
        "int main(void) {",
        *(f"take(own_{t.name}, sizeof own_{t.name});" for t in source.inputs),
        f"if ({source.function}({', '.join(f'own_{t.name}' for t in tensors)}) != 0) return 2;",
        *(f"give(own_{t.name}, sizeof own_{t.name});" for t in source.outputs),
        "return 0; }",
    ]
    (folder / "main.c").write_text("\n".join(lines), encoding="utf-8")
    objects = [str(folder / "main.o"), str(folder / "start.o")]
    compiled("-c", str(folder / "main.c"), "-o", objects[0])
    compiled("-c", "-fno-builtin", str(START), "-o", objects[1])
    compiled("-nostdlib", "-static", *objects, "-o", str(folder / "program"))
    return folder / "program"


def compiled(*words: str) -> None:
    """Run the compiler, which must not fail."""
    done = subprocess.run([*COMPILER, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def function_of(program: Path, name: str) -> tuple[int, int]:
    """First and last address of a function of a 32-bit ELF program, little end first."""
    data = program.read_bytes()
    for _, kind, offset, size, link, entry in sections(data):
        if kind != 2:
            continue
        strings = sections(data)[link][2]
        for at in range(offset, offset + size, entry):
            label, value, length = struct.unpack_from("<III", data, at)
            start = strings + label
            if data[start : data.index(0, start)].decode() == name:
                return value, value + length
    raise AssertionError(name)


def sections(data: bytes) -> list[tuple[int, int, int, int, int, int]]:
    """Address, type, offset, size, link and size of an entry of each section."""
    (table,) = struct.unpack_from("<I", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x2E)
    rows = [struct.unpack_from("<10I", data, table + i * size) for i in range(count)]
    return [(r[3], r[1], r[4], r[5], r[6], r[9]) for r in rows]


def instructions(program: Path, start: int, end: int) -> dict[int, int]:
    """The words of a function, by address."""
    data = program.read_bytes()
    for address, _, offset, size, _, _ in sections(data):
        if address and address <= start < address + size:
            at = offset + start - address
            return dict(zip(range(start, end, 4), struct.unpack_from(f"<{(end - start) // 4}I", data, at)))
    raise AssertionError(program)


def products_in(words: dict[int, int], at: int) -> int:
    """How many products the packet at an address has; the last instruction's parse bits are 3, or 0 if it is two short ones."""
    found = 0
    while True:
        found += words[at] & OPERATION in PRODUCTS
        if words[at] & LAST in (LAST, 0):
            return found
        at += 4
