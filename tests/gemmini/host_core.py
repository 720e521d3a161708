"""Instructions that a kernel's call retires on the host core, counted by running it there.

The emitted C is compiled for RISC-V and run by an emulator that reports every instruction. A core
that retires one a cycle at most takes no fewer cycles. Where there is only this machine's compiler,
the innermost loops of what it makes can be counted as text.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from platform import machine
from shutil import which

from hwgen.codegen.nodes import Call, SyncNode
from hwgen.codegen.program import Program
from hwgen.codegen.source import CSource
from hwgen.model.counting import total
from hwgen.model.issuing import issuing_cycles
from hwgen.spec.expression import evaluate
from hwgen.spec.hardware import HardwareSpec
from tests.gemmini.harness import HERE

COMPILER, EMULATOR, DISASSEMBLER = (
    "riscv64-linux-gnu-gcc", "qemu-riscv64", "riscv64-linux-gnu-objdump",
)  # fmt: skip
FLAGS = ("-O2", "-march=rv64gc", "-static", "-fno-inline-functions-called-once", f"-I{HERE}/riscv")
"""Those of the public library, but that functions stay apart, to be told from each other."""

_C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "float32": "float"}


def host_cycles(program: Program, hardware: HardwareSpec) -> int:
    """In which a host issues all calls of a program, one after the other."""

    def leaf(call: Call | SyncNode, values: Mapping[str, int]) -> Mapping[str, int]:
        assert isinstance(call, Call)
        extents = tuple(int(evaluate(e, values)) for e in call.extents)
        key = (id(call), extents)
        if key not in known:
            known[key] = issuing_cycles(call, extents, hardware)
        return {"cycles": known[key]}

    known: dict[tuple[int, tuple[int, ...]], int] = {}
    counted = total(program.body, lambda n: n.extents if isinstance(n, Call) else None, leaf)
    return counted["cycles"]


@dataclass(frozen=True, slots=True)
class Retired:
    """Instructions of one call: `issuing`, by the function that issues `macros` of them, and
    `packing`, by all else: what packs, pads, copies and allocates."""

    issuing: int
    macros: int
    packing: int

    @property
    def per_macro(self) -> float:
        return self.issuing / self.macros


def can_count() -> bool:
    """Whether this machine has a compiler and an emulator for the host core."""
    return all(which(tool) for tool in (COMPILER, EMULATOR, DISASSEMBLER))


def retired(source: CSource) -> Retired:
    """Count one call of a kernel.

    Raises:
        subprocess.CalledProcessError: the compiler's or the emulator's failure.
    """
    with tempfile.TemporaryDirectory(prefix="hwgen-riscv-") as name:
        directory = Path(name)
        (directory / "kernel.c").write_text(source.c + _main(source))
        program = directory / "kernel"
        command = [COMPILER, *FLAGS, str(directory / "kernel.c"), "-o", str(program)]
        subprocess.run(command, check=True)
        text = subprocess.run(
            [DISASSEMBLER, "-d", str(program)], check=True, capture_output=True, text=True
        ).stdout
        counts = _trace(program, "1")
        counts.subtract(_trace(program, "0"))
    function, issuing, macros = "", 0, 0
    for line in text.splitlines():
        if found := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = found[1]
        elif function == f"{source.function}_run" and (
            found := re.match(r" *([0-9a-f]+):\t\S+ +\t(\S+)\t?(\S*)", line)
        ):
            times = counts[int(found[1], 16)]
            issuing += times
            macros += times * (found[2] == "add" and found[3].startswith("zero,"))
    return Retired(issuing, macros, counts.total() - issuing)


def can_read_loops() -> bool:
    """Whether this machine is one whose compiled loops `innermost` reads, with the tools for it."""
    return machine() in ("x86_64", "AMD64") and all(which(tool) for tool in ("gcc", "objdump"))


def innermost(source: CSource) -> list[tuple[int, int]]:
    """Of each innermost loop of what this machine's compiler makes of a kernel: its macros, if it
    has any, and all its instructions.

    Raises:
        subprocess.CalledProcessError: the compiler's failure.
    """
    with tempfile.TemporaryDirectory(prefix="hwgen-loops-") as name:
        (Path(name) / "kernel.c").write_text(source.c)
        compiled = Path(name) / "kernel.o"
        command = ["gcc", "-O2", f"-I{HERE}/riscv", "-c", f"{name}/kernel.c", "-o", str(compiled)]
        subprocess.run(command, check=True)
        command = ["objdump", "-d", "--no-show-raw-insn", str(compiled)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [loop for loop in _loops(text) if loop[0]]


def _loops(text: str) -> Iterator[tuple[int, int]]:
    """Macros and instructions between a jump backwards and its target, no such pair inside."""
    found = re.findall(r"^ *([0-9a-f]+):\t(\S+) *(\S*)", text, re.M)
    place = {address: n for n, (address, _, _) in enumerate(found)}
    jumps = [
        (place[to], n)
        for n, (_, name, to) in enumerate(found)
        if name.startswith("j") and place.get(to, n + 1) <= n
    ]
    for first, last in jumps:
        inside = [x for x in jumps if x != (first, last) and first <= x[0] and x[1] <= last]
        if not inside:
            macros = sum(name.startswith("bt") for _, name, _ in found[first : last + 1])
            yield macros, last + 1 - first


def _main(source: CSource) -> str:
    """Calls the kernel as often as the argument says: the difference is the kernel's own."""
    tensors = (*source.inputs, *source.outputs)
    arrays = [f"static {_C_TYPES[t.dtype]} own_{t.name}[{prod(t.shape)}];" for t in tensors]
    given = ", ".join(f"own_{t.name}" for t in tensors)
    body = f"  return arguments[1][0] == '0' ? 0 : {source.function}({given});"
    lines = [*arrays, "int main(int count, char **arguments)", "{", "  (void)count;", body, "}"]
    return "\n".join(["", *lines, ""])


def _trace(program: Path, argument: str) -> Counter[int]:
    """How often each address was executed, one instruction at a time."""
    command = [EMULATOR, "-singlestep", "-d", "nochain,exec", "-D", "/dev/stdout"]
    counts: Counter[bytes] = Counter()
    with subprocess.Popen([*command, str(program), argument], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        counts.update(line.split(b"/", 2)[1] for line in process.stdout if b"/" in line)
    assert process.returncode == 0, process.returncode
    return Counter({int(address, 16): times for address, times in counts.items()})
