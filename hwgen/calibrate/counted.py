"""Instructions that a kernel's C retires, counted as an emulator runs it.

A kernel is called twice in one run and once in another. The difference is one call, without what
the first call alone does to the heap and the loader.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from hwgen.calibrate.tools import Tools, output
from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.source import CSource
from hwgen.model.c_compiler import need_compiler, refused
from hwgen.model.numeric import Array

FLAGS = ("-O2", "-ffp-contract=off", "-static")

_scratch: list[tempfile.TemporaryDirectory[str]] = []


@dataclass(frozen=True, slots=True)
class Executed:
    """`times`: how often each address was executed; `inside`: instructions of each of the kernel's
    own functions, with what they call of the libraries."""

    times: Mapping[int, int]
    inside: Mapping[str, int]

    def matching(self, pattern: str) -> int:
        """Instructions of all functions whose names have a pattern."""
        return sum(n for name, n in self.inside.items() if re.search(pattern, name))


def executed(
    text: str, source: CSource, inputs: Mapping[str, Array], tools: Tools, folder: Path
) -> Executed:
    """One call of a kernel whose functions are in a text; the program is left in the folder.

    Raises:
        HwgenError: H703, H704 the compiler; H055 the emulator.
    """
    # Functions that are called once stay apart, to be told from each other.
    own = rf"^(static void (?=\w*(_code_|_fill_|_unpack_|_run))|(int|void) (?={source.function}\())"
    text = re.sub(own, r"__attribute__((noinline)) \1", text, flags=re.M)
    calls = ["for (int n = atoi(arguments[1]); n > 0; --n)", called(source)]
    program = built(text, source, inputs, tools, folder, calls)
    places = _functions(program, source.function, tools)
    twice, once = (_counted(program, places, folder, tools, n) for n in (2, 1))
    times, inside = Counter(twice.times), Counter(twice.inside)
    times.subtract(once.times)
    inside.subtract(once.inside)
    return Executed(times, inside)


def called(source: CSource) -> str:
    """The call of a kernel in `main`."""
    tensors = (*source.inputs, *source.outputs)
    return f"{source.function}({', '.join(f'own_{t.name}' for t in tensors)});"


def built(
    text: str,
    source: CSource,
    inputs: Mapping[str, Array],
    tools: Tools,
    folder: Path,
    lines: Sequence[str],
) -> Path:
    """A program that reads inputs from the file that its second argument names, then runs lines.

    Raises:
        HwgenError: H704 the compiler fails.
    """
    with (folder / "inputs").open("wb") as file:
        for tensor in source.inputs:
            file.write(inputs[tensor.name].tobytes())
    tensors = (*source.inputs, *source.outputs)
    arrays = [f"_Alignas(64) static {C_TYPES[t.dtype]} own_{t.name}[{prod(t.shape)}];"
              for t in tensors]  # fmt: skip
    reads = [f"fread(own_{t.name}, 1, sizeof own_{t.name}, file);" for t in source.inputs]
    main = [
        "#include <stdio.h>", "#include <stdlib.h>", *arrays,
        "int main(int count, char **arguments)", "{",
        'FILE *file = count == 3 ? fopen(arguments[2], "rb") : NULL;',
        "if (file == NULL)", "return 1;", *reads, "fclose(file);", *lines, "return 0;", "}",
    ]  # fmt: skip
    (folder / "main.c").write_text("\n".join([text, *main, ""]), encoding="utf-8")
    return tools.build(folder, source.function)


@cache
def counter() -> Path:
    """The emulator's plugin that counts, built for this machine.

    Raises:
        HwgenError: H703 no compiler; H704 it fails.
    """
    # $CC may be a compiler for another machine.
    compiler = need_compiler(next(filter(shutil.which, ("cc", "gcc", "clang")), ""))
    holder = tempfile.TemporaryDirectory(prefix="hwgen-counter-")
    _scratch.append(holder)
    text, plugin = Path(__file__).with_name("counter.c"), Path(holder.name) / "counter.so"
    done = output([*compiler, "-O2", "-shared", "-fPIC", str(text), "-o", str(plugin)])
    if done.returncode != 0:
        raise refused(done, text.name)
    return plugin


def _functions(program: Path, prefix: str, tools: Tools) -> dict[int, tuple[int, str]]:
    """Size and name of each of the kernel's functions, by address."""
    reader = output([*tools.compiler, "-print-prog-name=nm"]).stdout.strip()
    found: dict[int, tuple[int, str]] = {}
    for line in output([reader or "nm", "-S", str(program)]).stdout.splitlines():
        match line.split():
            case [at, size, "t" | "T", name] if name.startswith((prefix, "model_", "main")):
                found[int(at, 16)] = int(size, 16), name
            case _:
                pass
    return found


def _counted(
    program: Path, own: Mapping[int, tuple[int, str]], folder: Path, tools: Tools, calls: int
) -> Executed:
    counts, places = folder / "counts", folder / "places"
    places.write_text("".join(f"{at:x} {at + size:x}\n" for at, (size, _) in own.items()))
    plugin = f"{counter()},to={counts},of={places}"
    tools.run("-plugin", plugin, program, str(calls), folder / "inputs")
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
