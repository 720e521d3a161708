"""The C for the vector unit of a Hexagon DSP, compiled by Clang, executed by user-mode emulation.

Packets are counted as the emulator executes them: its instructions are packets. The wheel `ziglang`
has a Clang for them. The C library of its target is left out, as it takes a minute to compile.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from pathlib import Path
from shutil import which

import numpy as np
import pytest

import hwgen
from hwgen.calibrate.counted import counter
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.nodes import calls
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import parse_workload
from hwgen.verify.compare import unexplained
from hwgen.verify.data import Style, draw_inputs
from hwgen.verify.examine import examine
from tests.hexagon import COMPILER, WHEEL, have_compiler
from tests.sampling import QUICK

CHIP = "hexagon_hvx"
FLAGS = ("-std=c11", "-O2", "-w")
EMULATOR = "qemu-hexagon"
START = Path(__file__).resolve().parents[1] / "shim_hexagon" / "start.c"
PRODUCTS = {0x1C002040, 0x1C002020}
"""`Vx.w += vrmpy(Vu.ub, Vv.b)` and the same of signed bytes, without registers and parse bits."""
OPERATION = 0xFFE020E0
END_OF_PACKET = (0xC000, 0)
"""Parse bits of a packet's last instruction: one, or two short ones in a word."""
SYMBOLS = 2
"""Type of the section of an ELF file that has its symbols."""
COLUMNS, FOUR = 32, 4
"""Sums in a vector, and products of each."""

UNSIGNED = {"a": "uint8"}
TO_INT32 = {"OUT": "int32"}
LAYER: dict[str, object] = {
    "name": "layer",
    "tensors": {
        "x": "uint8[5, 40]",
        "w": {"type": "int8[40, 149]", "constant": True},
        "b": {"type": "int32[149]", "constant": True},
        "acc": "int32[5, 149]",
        "h": "int32[5, 149]",
        "y": "int8[5, 149]",
    },
    "compute": [
        "acc[m, n] += x[m, k] * w[k, n]",
        "h[m, n] = max(acc[m, n] + b[n], 0)",
        "y[m, n] = int8(clip(h[m, n] >> 8, -128, 127))",
    ],
}
LINEAR: dict[str, object] = {
    "name": "linear",
    "tensors": {
        "x": "uint8[4, 1024]",
        "w": {"type": "int8[1024, 768]", "constant": True},
        "y": "int32[4, 768]",
    },
    "compute": ["y[m, n] += x[m, k] * w[k, n]"],
}
Case = tuple[str | dict[str, object], dict[str, int], dict[str, str], str]
KERNELS: dict[str, Case] = {
    "whole tiles": ("gemm", {"M": 4, "N": 256, "K": 64}, UNSIGNED | TO_INT32, "dot"),
    "tails": ("gemm", {"M": 5, "N": 37, "K": 19}, UNSIGNED | TO_INT32, "dot"),
    "signed": ("gemm", {"M": 5, "N": 37, "K": 19}, TO_INT32, "signed_dot"),
    "low bytes": ("gemm", {"M": 3, "N": 149, "K": 20}, {}, "store_low"),
    "vector": ("matvec", {"M": 35, "K": 22}, TO_INT32, "signed_dot"),
    "requantised": ("gemm_requant", {"M": 7, "N": 149, "K": 40}, UNSIGNED, "store_shifted"),
    "layer": (LAYER, {}, {}, "relu"),
    "sum of bytes": ("add", {"M": 3, "N": 149}, {}, "add_bytes"),
    "maximum of bytes": ("relu", {"M": 3, "N": 149}, {}, "relu_bytes"),
}
"""Workloads, their sizes and types, and an intrinsic that the kernel must use."""


def missing() -> str:
    """What this machine lacks to compile and to execute."""
    needed = {WHEEL: have_compiler(), EMULATOR: which(EMULATOR)}
    return ", ".join(name for name, found in needed.items() if not found)


executes = pytest.mark.skipif(bool(missing()), reason=f"no {missing()}")


@dataclass(frozen=True, slots=True)
class Executed:
    """The output of a kernel; packets of the function that has its calls, as often as they were
    executed, and how many of them had a product."""

    output: Array
    packets: int
    products: int


@cache
def made(case: str) -> Kernel:
    workload, sizes, types, _ = KERNELS[case]
    return compiled(workload, sizes, types)


def compiled(
    workload: str | dict[str, object], sizes: dict[str, int], types: dict[str, str]
) -> Kernel:
    named = isinstance(workload, str)
    loaded = hwgen.load_workload(workload, sizes, types) if named else parse_workload(workload)
    return compile_workload(loaded, hwgen.load_hardware(CHIP), QUICK)


def least(m: int, n: int, k: int) -> int:
    """Products of whole vectors that a matrix product of these sizes takes."""
    return m * ceil(n / COLUMNS) * ceil(k / FOUR)


@pytest.mark.parametrize("case", KERNELS)
def test_units_compute_it(case: str) -> None:
    kernel = made(case)
    assert not kernel.program.codes
    assert KERNELS[case][-1] in {call.intrinsic for call in calls(kernel.program.body)}
    examine(kernel, draw_inputs(kernel.workload, 0), "python")


@executes
@pytest.mark.parametrize("case", KERNELS)
def test_executed_c_is_equal(case: str, tmp_path: Path) -> None:
    kernel = made(case)
    program = built(kernel, tmp_path)
    styles: tuple[Style, ...] = ("random", "extremes")
    for seed, style in enumerate(styles):
        inputs = draw_inputs(kernel.workload, seed, style)
        expected = run_reference(kernel.workload, inputs)
        outputs = dict.fromkeys(expected, executed(kernel, program, inputs).output)
        assert unexplained(kernel.workload, inputs, outputs, expected) is None


@executes
@pytest.mark.parametrize("case", ["whole tiles", "tails", "signed", "requantised"])
def test_no_product_is_wasted(case: str, tmp_path: Path) -> None:
    kernel = made(case)
    sizes = KERNELS[case][1]
    found = executed(kernel, built(kernel, tmp_path), draw_inputs(kernel.workload, 0))
    assert found.products == least(sizes["M"], sizes["N"], sizes["K"])


@executes
def test_nearly_every_packet_has_a_product(tmp_path: Path) -> None:
    kernel = compiled(LINEAR, {}, {})
    found = executed(kernel, built(kernel, tmp_path), draw_inputs(kernel.workload, 0))
    assert found.products == least(4, 768, 1024)
    assert found.packets <= 1.10 * found.products


@executes
def test_requantisation_stays_in_registers(tmp_path: Path) -> None:
    sizes, counts = {"M": 8, "N": 256, "K": 256}, dict[str, int]()
    for name, types in (("gemm", UNSIGNED | TO_INT32), ("gemm_requant", UNSIGNED)):
        kernel = compiled(name, sizes, types)
        (tmp_path / name).mkdir()
        inputs = draw_inputs(kernel.workload, 0)
        counts[name] = executed(kernel, built(kernel, tmp_path / name), inputs).packets
    assert counts["gemm_requant"] <= 1.02 * counts["gemm"]


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
