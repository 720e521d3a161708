"""Many generated kernels in one C program: under the compiler's sanitizers, and as users compile.

A schedule's kernel must not only give the right numbers: it must not touch what is not its own,
overflow, or leave memory allocated. So kernels run in a process of their own, which may die. What
compilers make of them at higher levels is another matter: each kernel runs at one of those too.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hwgen.codegen.c_names import C_TYPES
from hwgen.codegen.nodes import Code
from hwgen.codegen.source import CSource, Parameter
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import need_compiler, user_builds
from hwgen.model.code import run_code
from hwgen.model.compiled import refuse_foreign
from hwgen.model.numeric import STORAGE, Array, load
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
_COMPILE_SECONDS = 600
_RUN_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Target:
    """How generated text becomes a program here. `compiler`: "" for the C compiler found here;
    `rewrite`: text as the compiler takes it; `message`: a C variable that holds what the runtime
    objects to, "" where there is none."""

    flags: tuple[str, ...] = ("-std=c11", "-O1", "-g0", "-fopenmp", "-w", *CHECKS)
    compiler: str = ""
    suffix: str = ".c"
    includes: tuple[str, ...] = ()
    rewrite: Callable[[str], str] = str
    message: str = ""


HOST = Target()
"""This machine's compiler with sanitizers; kernels are then run as users compile them as well."""
_MESSAGE_BYTES = 200


@dataclass(frozen=True)
class Kernel:
    """A program and the text made of it, with inputs and the outputs that they must give."""

    workload: Workload
    program: Code
    source: CSource
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]


def executed(kernel: Kernel, hardware: HardwareSpec) -> str:
    """What is wrong with a kernel's program; empty where nothing is."""
    try:
        found = run_code(kernel.program, hardware, kernel.inputs).outputs
    except HwgenError as error:
        return " ".join(str(error).split())
    dtypes = {t.name: t.dtype for t in kernel.workload.outputs}
    wrong = (
        difference(n, load(found[n], d).array, load(kernel.expected[n], d).array)
        for n, d in dtypes.items()
    )
    return "; ".join(filter(None, wrong))


def run_kernels(
    kernels: Sequence[Kernel], hardware: HardwareSpec, target: Target = HOST
) -> list[str]:
    """What is wrong with each kernel; empty where nothing is.

    The kernels' functions must have different names.

    Raises:
        HwgenError: H703 no C compiler; H707 a spec that is not trusted.
    """
    refuse_foreign(hardware.foreign)
    found = _run_kernels(kernels, hardware, target)
    for further in user_targets() if target is HOST else ():
        mine = [n for n, k in enumerate(kernels) if not found[n] and user_target(k) == further]
        messages = _run_kernels([kernels[n] for n in mine], hardware, further)
        for n, message in zip(mine, messages, strict=True):
            found[n] = message and f"{message} ({' '.join((further.compiler, *further.flags))})"
    return found


def user_targets() -> tuple[Target, ...]:
    """Targets without sanitizers, as users compile."""
    plain = ("-std=c11", "-fopenmp", "-w")
    return tuple(Target((*plain, *b.flags), compiler=b.compiler) for b in user_builds())


def user_target(kernel: Kernel) -> Target:
    """The one of them that a kernel has: by its name, which stays while a failure is reduced."""
    targets = user_targets()
    digest = hashlib.sha256(kernel.source.function.encode()).digest()
    return targets[digest[0] % len(targets)]  # A CRC of names that are alike has few remainders.


def _names(parameters: Sequence[Parameter]) -> list[str]:
    return [p.name for p in parameters]


def _run_kernels(kernels: Sequence[Kernel], hardware: HardwareSpec, target: Target) -> list[str]:
    if not kernels:
        return []
    compiler = need_compiler(target.compiler)
    with tempfile.TemporaryDirectory(prefix="hwgen-schedules-") as folder:
        return _Batch(Path(folder), compiler, tuple(kernels), hardware, target).run()


@dataclass(frozen=True)
class _Batch:
    folder: Path
    compiler: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    hardware: HardwareSpec
    target: Target

    def run(self) -> list[str]:
        program = self.folder / "program"
        message = self._compile(program)
        if not message:
            return self._results(program)
        if len(self.kernels) == 1:
            return [f"the compiler refuses the kernel: {message}"]
        # One of them is at fault: look for it by halves.
        middle = len(self.kernels) // 2
        halves = self.kernels[:middle], self.kernels[middle:]
        return [r for half in halves for r in replace(self, kernels=half).run()]

    def _compile(self, program: Path) -> str:
        code = program.with_suffix(self.target.suffix)
        code.write_text(self._text(), encoding="utf-8")
        done = subprocess.run(
            [*self.compiler, *self.target.flags, str(code), "-o", str(program), "-lm"],
            capture_output=True, text=True, check=False, timeout=_COMPILE_SECONDS,
        )  # fmt: skip
        return "" if done.returncode == 0 else (done.stderr.strip()[:2000] or "no message")

    # The program's text

    def _text(self) -> str:
        cplusplus = self.target.suffix != ".c"
        definitions = self.hardware.code.definitions.strip()
        includes = [*_INCLUDES, *self.target.includes]
        parts = [f"#include {x}" for x in includes]
        for n, kernel in enumerate(self.kernels):
            text = self.target.rewrite(kernel.source.c)
            if cplusplus:
                text = f"namespace case_{n}_text {{\n{text}\n}}\nusing case_{n}_text::"
                text += f"{kernel.source.function};"
            elif n and definitions:
                text = text.replace(definitions, "", 1)
            parts += [text, self._case(n)]
        calls = [f"    case {n}: case_{n}(in, out); break;" for n in range(len(self.kernels))]
        note = self.target.message
        ending = [f"    fwrite({note}, 1, {_MESSAGE_BYTES}, out);", f"    {note}[0] = 0;"]
        parts.append(
            "\n".join([_MAIN_START, *calls, "    }", *(ending if note else []), _MAIN_END])
        )
        return "\n".join(parts)

    def _case(self, n: int) -> str:
        kernel = self.kernels[n]
        lines = [f"static void case_{n}(FILE *in, FILE *out)", "{"]
        for name in _names(kernel.source.inputs):
            read = f"fread(a_{name}, 1, b_{name}, in) != b_{name}"
            lines += [*self._array(kernel, name), f"  if ({read}) abort();"]
        for name in _names(kernel.source.outputs):
            # What a kernel leaves out shows.
            lines += [*self._array(kernel, name), f"  memset(a_{name}, 0xA5, b_{name});"]
        names = _names((*kernel.source.inputs, *kernel.source.outputs))
        lines.append(f"  {kernel.source.function}({', '.join(f'a_{x}' for x in names)});")
        lines += [f"  fwrite(a_{x}, 1, b_{x}, out);" for x in _names(kernel.source.outputs)]
        lines += [f"  free(a_{x});" for x in names]
        return "\n".join([*lines, "}"])

    def _array(self, kernel: Kernel, name: str) -> list[str]:
        tensor = kernel.workload.tensor[name]
        size = STORAGE[tensor.dtype].itemsize * int(np.prod(tensor.shape))
        kind = C_TYPES[tensor.dtype]
        return [
            f"  const size_t b_{name} = {size};",
            f"  {kind} *a_{name} = ({kind} *)malloc(b_{name});",
        ]

    # Its runs

    def _results(self, program: Path) -> list[str]:
        found = [""] * len(self.kernels)
        left = list(range(len(self.kernels)))
        while left:
            died, message = self._run(program, left, found)
            if died is None:
                if message:
                    # Something that shows at the end only (a leak): each by itself.
                    if len(left) == 1:
                        found[left[0]] = found[left[0]] or message
                    else:
                        for n in left:
                            _, alone = self._run(program, [n], found)
                            found[n] = found[n] or alone
                break
            found[died] = message
            left = left[left.index(died) + 1 :]
        return found

    def _run(self, program: Path, numbers: list[int], found: list[str]) -> tuple[int | None, str]:
        """Run some kernels; which one ended the process, and how."""
        given, taken = self.folder / "in", self.folder / "out"
        with given.open("wb") as file:
            for n in numbers:
                for name in _names(self.kernels[n].source.inputs):
                    file.write(np.ascontiguousarray(self.kernels[n].inputs[name]).tobytes())
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0")
        try:
            done = subprocess.run(
                [str(program), str(given), str(taken), *map(str, numbers)],
                capture_output=True, check=False, timeout=_RUN_SECONDS, env=environment,
            )  # fmt: skip
            code, errors = done.returncode, done.stderr.decode(errors="replace")
        except subprocess.TimeoutExpired:
            code, errors = -1, "it does not end"
        results = taken.read_bytes() if taken.exists() else b""
        place = 0
        for n in numbers:
            kernel = self.kernels[n]
            size = 0
            for name in _names(kernel.source.outputs):
                tensor = kernel.workload.tensor[name]
                kind = STORAGE[tensor.dtype]
                count = int(np.prod(tensor.shape))
                part = results[place + size : place + size + count * kind.itemsize]
                if len(part) < count * kind.itemsize:
                    return n, f"it ends the process ({code}): {_first(errors)}"
                size += len(part)
                got = np.reshape(np.frombuffer(part, kind), tensor.shape)
                both = (load(a, tensor.dtype).array for a in (got, kernel.expected[name]))
                found[n] = found[n] or difference(name, *both)
            place += size
            if self.target.message:
                note = results[place : place + _MESSAGE_BYTES].split(b"\0")[0].decode()
                found[n] = found[n] or note
                place += _MESSAGE_BYTES
        return None, f"at the end ({code}): {_first(errors)}" if code else ""


def _first(errors: str) -> str:
    lines = [x.strip() for x in errors.splitlines() if "ERROR" in x or "runtime error" in x]
    return (lines[0] if lines else errors.strip()[:300]) or "no message"


def difference(name: str, got: Array, expected: Array) -> str:
    """The first element that differs (as a number: the sign of zero is no difference)."""
    wrong = np.argwhere(got != expected)
    if len(wrong) == 0:
        return ""
    at = tuple(int(x) for x in wrong[0])
    return (
        f"{name}[{', '.join(map(str, at))}] is {got[at]}, not {expected[at]} "
        f"({len(wrong)} of {got.size} elements differ)"
    )


_INCLUDES = ("<stdint.h>", "<stdio.h>", "<stdlib.h>", "<string.h>", "<math.h>")
_MAIN_START = """int main(int argc, char **argv)
{
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (!in || !out) return 1;
  for (int n = 3; n < argc; ++n) {
    switch (atoi(argv[n])) {"""
_MAIN_END = """    fflush(out);
  }
  fclose(in);
  fclose(out);
  return 0;
}"""
