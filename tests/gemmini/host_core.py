"""Instructions that a kernel's call retires on the host core, counted by running it there.

The emitted C is compiled for RISC-V and run by an emulator that counts every instruction. A core
that retires one a cycle at most takes no fewer cycles. Where there is only this machine's compiler,
the innermost loops of what it makes can be counted as text.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from platform import machine
from shutil import which

import numpy as np

from hwgen.codegen.nodes import Call
from hwgen.codegen.program import Program
from hwgen.codegen.source import CSource
from hwgen.model import tally
from hwgen.model.issuing import issuing_cycles
from hwgen.model.numeric import STORAGE
from hwgen.spec.hardware import HardwareSpec
from tests.gemmini.harness import HERE
from tests.host.retired import can_count, executed

__all__ = [
    "Retired", "can_count", "can_read_loops", "host_cycles", "innermost", "retired",
]  # fmt: skip

DISASSEMBLER = "riscv64-linux-gnu-objdump"
INCLUDES = (f"-I{HERE}/riscv",)


def host_cycles(program: Program, hardware: HardwareSpec) -> int:
    """In which a host issues all calls of a program, one after the other."""
    return sum(
        run.times * issuing_cycles(run.node, run.values, hardware)
        for run in tally.executed(program, hardware, Call, lambda call: call.extents)
    )


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


def retired(source: CSource) -> Retired:
    """Count one call of a kernel.

    Raises:
        HwgenError: the compiler's or the emulator's failure.
    """
    inputs = {p.name: np.zeros(p.shape, STORAGE[p.dtype]) for p in source.inputs}
    run = f"{source.function}_run"
    with tempfile.TemporaryDirectory(prefix="hwgen-count-") as name:
        done = executed(source.c, source, inputs, INCLUDES, Path(name))
        macros = sum(
            done.times.get(at, 0)
            for at, text in _instructions(Path(name) / "program", run)
            if text.startswith("add") and "zero," in text.split()[1]
        )
    issuing = done.inside[run]
    return Retired(issuing, macros, sum(done.inside.values()) - issuing)


def _instructions(program: Path, function: str) -> Iterator[tuple[int, str]]:
    """Address and text of each instruction of a function."""
    command = [DISASSEMBLER, "-d", str(program)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    name = ""
    for line in text.splitlines():
        if found := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            name = found[1]
        elif name == function and (found := re.match(r" *([0-9a-f]+):\t\S+ +\t(.*)", line)):
            yield int(found[1], 16), found[2]


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
