"""Kernels for Hexagon DSPs with HVX, compiled by Clang and executed by user-mode emulation.

Packets are counted as the emulator executes them: its instructions are packets. The wheel `ziglang`
has a Clang for them. The C library of its target is left out, as it takes a minute to compile.
`python -m tests.hexagon` prints the packets of some kernels.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil, prod
from pathlib import Path
from shutil import which

import numpy as np

import hwgen
from hwgen.calibrate.counted import counter
from hwgen.codegen.c_names import C_TYPES
from hwgen.model.numeric import Array
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import SearchOptions, compile_workload
from hwgen.spec.load import parse_workload
from hwgen.verify.data import draw_inputs

CHIP = "hexagon_hvx"
WHEEL = "ziglang"
COMPILER: tuple[str, ...] = (
    *(sys.executable, "-m", WHEEL, "cc", "-target", "hexagon-linux-musl"),
    # V66: the user-mode emulator of QEMU 7 takes no programs for V68.
    "-mcpu=hexagonv66+hvxv66+hvx_length128b",
)
FLAGS = ("-std=c11", "-O2", "-w")
EMULATOR = "qemu-hexagon"
START = Path(__file__).resolve().parent / "shim_hexagon" / "start.c"
PRODUCTS = {0x1C002040, 0x1C002020}
"""`Vx.w += vrmpy(Vu.ub, Vv.b)` and the same of signed bytes, without registers and parse bits."""
OPERATION = 0xFFE020E0
END_OF_PACKET = (0xC000, 0)
"""Parse bits of a packet's last instruction: one, or two short ones in a word."""
SYMBOLS = 2
"""Type of the section of an ELF file that has its symbols."""
COLUMNS, FOUR = 32, 4
"""Sums in a vector, and products of each."""


def have_compiler() -> bool:
    return find_spec(WHEEL) is not None


def missing() -> str:
    """What this machine lacks to compile and to execute."""
    needed = {WHEEL: have_compiler(), EMULATOR: which(EMULATOR)}
    return ", ".join(name for name, found in needed.items() if not found)


@dataclass(frozen=True, slots=True)
class Executed:
    """The output of a kernel; packets of the function that has its calls, as often as they were
    executed, and how many of them had a product."""

    output: Array
    packets: int
    products: int


def linear(m: int, n: int, k: int) -> dict[str, object]:
    """A matrix product whose weights have a row for each value of the sum."""
    return {
        "name": "linear",
        "tensors": {
            "x": f"uint8[{m}, {k}]",
            "w": {"type": f"int8[{k}, {n}]", "constant": True},
            "y": f"int32[{m}, {n}]",
        },
        "compute": ["y[m, n] += x[m, k] * w[k, n]"],
    }


def least(m: int, n: int, k: int) -> int:
    """Products of whole vectors that a matrix product of these sizes takes."""
    return m * ceil(n / COLUMNS) * ceil(k / FOUR)


def compiled(
    workload: str | dict[str, object],
    sizes: dict[str, int],
    types: dict[str, str],
    options: SearchOptions | None = None,
) -> Kernel:
    named = isinstance(workload, str)
    loaded = hwgen.load_workload(workload, sizes, types) if named else parse_workload(workload)
    return compile_workload(loaded, hwgen.load_hardware(CHIP), options or SearchOptions())


def executed(kernel: Kernel, program: Path, inputs: Mapping[str, Array]) -> Executed:
    """Execute a kernel once."""
    source = kernel.source
    counts, places = program.with_name("counts"), program.with_name("places")
    data = program.read_bytes()
    start, end = function_of(data, f"{source.function}_run")
    places.write_text(f"{start:x} {end:x}\n")
    command = [EMULATOR, "-plugin", f"{counter()},to={counts},of={places}", str(program)]
    sent = b"".join(inputs[t.name].tobytes() for t in source.inputs)
    done = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    (output,) = source.outputs
    words = instructions(data, start, end)
    times = Counter[int]()
    for at, n in counted(counts.read_text()):
        if start <= at < end:
            times[at] += n
    found = np.empty(output.shape, output.dtype)
    found.data.cast("B")[:] = done.stdout
    return Executed(
        found,
        times.total(),
        sum(n for at, n in times.items() if has_product(words, at)),
    )


def counted(text: str) -> Iterator[tuple[int, int]]:
    """Addresses and how often they were executed, once for each block of code that has them."""
    for line in text.splitlines():
        match line.split():
            case [at, count]:
                yield int(at, 16), int(count)
            case _:
                pass


def built(kernel: Kernel, folder: Path) -> Path:
    """A program that reads a kernel's inputs from its own and writes the result to its output."""
    source = kernel.source
    tensors = (*source.inputs, *source.outputs)
    lines = [
        re.sub(
            r"^(static void (?=\w*_run\())", r"__attribute__((noinline)) \1", source.c, flags=re.M
        ),
        "void take(void *, size_t), give(void *, size_t);",
        *(f"_Alignas(4) static {C_TYPES[t.dtype]} own_{t.name}[{prod(t.shape)}];" for t in tensors),
        "int main(void) {",
        *(f"take(own_{t.name}, sizeof own_{t.name});" for t in source.inputs),
        f"if ({source.function}({', '.join(f'own_{t.name}' for t in tensors)}) != 0) return 2;",
        *(f"give(own_{t.name}, sizeof own_{t.name});" for t in source.outputs),
        "return 0; }",
    ]
    (folder / "main.c").write_text("\n".join([*lines, ""]), encoding="utf-8")
    objects = [str(folder / "main.o"), str(folder / "start.o")]
    compile_c("-c", str(folder / "main.c"), "-o", objects[0])
    compile_c("-c", "-fno-builtin", str(START), "-o", objects[1])
    compile_c("-nostdlib", "-static", *objects, "-o", str(folder / "program"))
    return folder / "program"


def compile_c(*words: str) -> None:
    done = subprocess.run([*COMPILER, *FLAGS, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def sections(data: bytes) -> list[tuple[int, ...]]:
    """Headers of a 32-bit ELF file: name, type, flags, address, offset, size, link and so on."""
    (table,) = struct.unpack_from("<I", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x2E)
    return [struct.unpack_from("<10I", data, table + i * size) for i in range(count)]


def function_of(data: bytes, name: str) -> tuple[int, int]:
    """First address of a function, and the one after its last."""
    headers = sections(data)
    for _, kind, _, _, offset, size, link, _, _, entry in headers:
        for at in range(offset, offset + size, entry) if kind == SYMBOLS else ():
            label, value, length = struct.unpack_from("<III", data, at)
            start = headers[link][4] + label
            if data[start : data.index(0, start)].decode() == name:
                return value, value + length
    raise AssertionError(name)


def instructions(data: bytes, start: int, end: int) -> dict[int, int]:
    """The words of a function, by address."""
    for _, _, _, address, offset, size, *_ in sections(data):
        if address and address <= start < address + size:
            words = struct.unpack_from(f"<{(end - start) // 4}I", data, offset + start - address)
            return dict(zip(range(start, end, 4), words, strict=True))
    raise AssertionError(start)


def has_product(words: Mapping[int, int], at: int) -> bool:
    """Whether the packet at an address multiplies vectors."""
    while words[at] & OPERATION not in PRODUCTS:
        if words[at] & 0xC000 in END_OF_PACKET:
            return False
        at += 4
    return True


def main() -> None:
    """Print products and packets of some kernels, and their ratios to the fewest products."""
    integers = {"a": "uint8", "OUT": "int32"}
    print("kernel         M    N    K    fewest products  packets   ratios")
    for name, m, n, k in (
        *(("linear", 4, 768, 1024), ("linear", 16, 256, 1024), ("linear", 4, 768, 256)),
        *(("gemm", 4, 768, 256), ("gemm", 64, 256, 256), ("gemm", 4, 768, 1024)),
        *(("gemm_requant", 64, 256, 256), ("gemm_requant", 8, 256, 256), ("gemm", 8, 256, 256)),
    ):
        sizes = {"M": m, "N": n, "K": k}
        types = integers if name == "gemm" else {"a": "uint8"}
        kernel = compiled(
            *((name, sizes, types) if name != "linear" else (linear(m, n, k), {}, {}))
        )
        with tempfile.TemporaryDirectory() as folder:
            found = executed(kernel, built(kernel, Path(folder)), draw_inputs(kernel.workload, 0))
        fewest = least(m, n, k)
        ratios = f"{found.products / fewest:.3f} {found.packets / fewest:.3f}"
        print(
            f"{name:12}{m:4} {n:4} {k:4} {fewest:9} {found.products:8} {found.packets:8}   {ratios}"
        )


if __name__ == "__main__":
    main()
