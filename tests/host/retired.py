"""Instructions that a kernel's C retires on a host core, counted by running it in an emulator.

The C is compiled for RISC-V. A kernel runs twice and then once: the difference is one call, with
what the first call alone does to the heap and the loader left out.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from shutil import which

from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.source import CSource
from hwgen.model.numeric import Array

HERE = Path(__file__).resolve().parent
COMPILER, EMULATOR = "riscv64-linux-gnu-gcc", "qemu-riscv64"
SYMBOLS, DISASSEMBLER = "riscv64-linux-gnu-nm", "riscv64-linux-gnu-objdump"
FLAGS = ("-O2", "-march=rv64gc", "-ffp-contract=off", "-static", "-w")
MISSING = "no RISC-V compiler, no emulator for it, or none that loads the counter"

_scratch: list[tempfile.TemporaryDirectory[str]] = []


@dataclass(frozen=True, slots=True)
class Executed:
    """`times`: how often each address was executed; `inside`: instructions of each of the kernel's
    own functions, with what they call of the libraries; `listing`: the whole program's, as text."""

    times: Mapping[int, int]
    inside: Mapping[str, int]
    listing: str = ""

    def instructions(self, function: str) -> Iterator[tuple[int, str]]:
        """Address and text of each instruction of a function."""
        name = ""
        for line in self.listing.splitlines():
            if found := re.match(r"[0-9a-f]+ <(.*)>:$", line):
                name = found[1]
            elif name == function and (found := re.match(r" *([0-9a-f]+):\t\S+ +\t(.*)", line)):
                yield int(found[1], 16), found[2]

    def matching(self, pattern: str) -> int:
        """Instructions of all functions whose names have a pattern."""
        return sum(n for name, n in self.inside.items() if re.search(pattern, name))


@cache
def counter() -> Path | None:
    """The counter, built; None where there is no compiler for this machine."""
    if which("gcc") is None:
        return None
    holder = tempfile.TemporaryDirectory(prefix="hwgen-counter-")
    _scratch.append(holder)
    built = Path(holder.name) / "counter.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", str(HERE / "counter.c"), "-o", str(built)]
    return built if subprocess.run(command, check=False).returncode == 0 else None


@cache
def can_count() -> bool:
    """Whether this machine has all that it takes."""
    if (
        not all(which(tool) for tool in (COMPILER, EMULATOR, SYMBOLS, DISASSEMBLER))
        or counter() is None
    ):
        return False
    with tempfile.TemporaryDirectory(prefix="hwgen-count-") as name:
        (Path(name) / "main.c").write_text("int main(void) { return 0; }\n")
        program = build(Path(name), ())
        return _run(program, {}, Path(name), []) is not None


def build(directory: Path, flags: Sequence[str]) -> Path:
    """Compile a folder's `main.c`.

    Raises:
        subprocess.CalledProcessError: the compiler's failure.
    """
    program = directory / "program"
    command = [COMPILER, *FLAGS, *flags, str(directory / "main.c"), "-o", str(program), "-lm"]
    subprocess.run(command, check=True)
    return program


def executed(
    text: str, source: CSource, inputs: Mapping[str, Array], flags: Sequence[str] = ()
) -> Executed:
    """One call of a kernel whose functions are in a text.

    Raises:
        subprocess.CalledProcessError: the compiler's or the emulator's failure.
    """
    with tempfile.TemporaryDirectory(prefix="hwgen-count-") as name:
        directory = Path(name)
        # Functions that are called once stay apart, to be told from each other.
        parts = re.sub(
            r"^static void (?=\w*(_code_|_fill_|_unpack_|_run))",
            "__attribute__((noinline)) static void ", text, flags=re.M,
        )  # fmt: skip
        (directory / "main.c").write_text(parts + _main(source))
        with (directory / "inputs").open("wb") as file:
            for tensor in source.inputs:
                file.write(inputs[tensor.name].tobytes())
        program = build(directory, flags)
        own = _functions(program, source.function)
        listing = subprocess.run(
            [DISASSEMBLER, "-d", str(program)], check=True, capture_output=True, text=True
        ).stdout
        twice, once = (
            _run(program, own, directory, [str(n), str(directory / "inputs")]) for n in (2, 1)
        )
    assert twice is not None, "the emulator failed"
    assert once is not None, "the emulator failed"
    times, inside = Counter(twice.times), Counter(twice.inside)
    times.subtract(once.times)
    inside.subtract(once.inside)
    return Executed(times, inside, listing)


def _functions(program: Path, prefix: str) -> dict[int, tuple[int, str]]:
    """Size and name of each of the kernel's functions, by address."""
    done = subprocess.run([SYMBOLS, "-S", str(program)], check=True, capture_output=True, text=True)
    found: dict[int, tuple[int, str]] = {}
    for line in done.stdout.splitlines():
        match line.split():
            case [at, size, "t" | "T", name] if name.startswith((prefix, "model_", "main")):
                found[int(at, 16)] = int(size, 16), name
            case _:
                pass
    return found


def _run(
    program: Path,
    own: Mapping[int, tuple[int, str]],
    directory: Path,
    arguments: Sequence[str],
) -> Executed | None:
    """Run a program; None where it fails."""
    counts, places = directory / "counts", directory / "places"
    places.write_text("".join(f"{at:x} {at + size:x}\n" for at, (size, _) in own.items()))
    plugin = f"{counter()},to={counts},of={places}"
    command = [EMULATOR, "-plugin", plugin, str(program), *arguments]
    if subprocess.run(command, check=False).returncode:
        return None
    times, inside = Counter[int](), Counter[str]()
    for line in counts.read_text().splitlines():
        match line.split():
            case ["owner", at, count]:
                inside[own[int(at, 16)][1]] += int(count)
            case [at, count]:
                times[int(at, 16)] += int(count)
            case _:
                raise AssertionError(line)
    return Executed(times, inside)


def _main(source: CSource) -> str:
    """Calls the kernel as often as the first argument says, on inputs from the second."""
    tensors = (*source.inputs, *source.outputs)
    arrays = [f"static {C_TYPES[t.dtype]} own_{t.name}[{prod(t.shape)}];" for t in tensors]
    given = ", ".join(f"own_{t.name}" for t in tensors)
    reads = [f"  read += fread(own_{t.name}, 1, sizeof own_{t.name}, file);" for t in source.inputs]
    lines = [
        "#include <stdio.h>", "#include <stdlib.h>", *arrays,
        "int main(int count, char **arguments)", "{",
        '  FILE *file = count == 3 ? fopen(arguments[2], "rb") : NULL;', "  size_t read = 0;",
        "  if (file == NULL)", "    return 1;", *reads, "  fclose(file);",
        "  for (int n = atoi(arguments[1]); n > 0; --n)", f"    {source.function}({given});",
        "  return read == 0;", "}",
    ]  # fmt: skip
    return "\n".join(["", *lines, ""])
