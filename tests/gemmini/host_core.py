"""Instructions that a kernel's call retires on the host core, counted by running it there.

The emitted C is compiled for RISC-V and run by an emulator that reports every instruction. A core
that retires one a cycle at most takes no fewer cycles.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from shutil import which

from hwgen.codegen.source import CSource
from tests.gemmini.harness import HERE

COMPILER, EMULATOR, DISASSEMBLER = (
    "riscv64-linux-gnu-gcc", "qemu-riscv64", "riscv64-linux-gnu-objdump",
)  # fmt: skip
FLAGS = ("-O2", "-march=rv64gc", "-static", "-fno-inline-functions-called-once", f"-I{HERE}/riscv")
"""Those of the public library, but that functions stay apart, to be told from each other."""

_C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "float32": "float"}


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
