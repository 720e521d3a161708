"""Builds C text against the executing header and runs its functions in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hwgen.model.compiled import find_compiler

HERE = Path(__file__).resolve().parent
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
STATUS = 70
"""Exit status of a broken rule, as in machine.h."""
UNWRITTEN = 0xA5
"""What every byte of an output is before the kernel runs."""

_C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "float32": "float"}

Arrays = Mapping[str, NDArray[Any]]


class TensorLike(Protocol):
    """One pointer argument: `hwgen.codegen.emit_c.Parameter` is one."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Tensor:
    """One pointer argument of a kernel: a row-major array in DRAM."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A C function that takes pointers: the inputs', then the outputs'.

    `status`: it returns an int, 0 for success; otherwise what it returns is ignored.
    """

    function: str
    inputs: tuple[TensorLike, ...]
    outputs: tuple[TensorLike, ...]
    status: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """An executable that holds some functions."""

    path: Path
    signatures: Mapping[str, Signature]


@dataclass(frozen=True, slots=True)
class Run:
    """What one call did. `code` and `error` are empty where no rule was broken.

    `traffic`: bytes read and bytes written by moves, per tensor (rows read again count again).
    `code` is CRASH where the process ended otherwise (a sanitizer, a signal).
    """

    code: str
    error: str
    status: int = 0
    outputs: dict[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    instructions: dict[str, int] = field(default_factory=dict[str, int])
    traffic: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


@cache
def _scratch() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="hwgen-gemmini-")
    _kept.append(holder)
    return Path(holder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []

_HELPERS = r"""
static void *shim_main_buffer(const char *name, size_t bytes, int input)
{
  char path[400];
  void *data = malloc(bytes ? bytes : 1);
  shim_check(data != NULL, "HARNESS", "out of memory");
  memset(data, UNWRITTEN, bytes ? bytes : 1);
  if (input) {
    snprintf(path, sizeof path, "%s.in", name);
    FILE *file = fopen(path, "rb");
    shim_check(file && fread(data, 1, bytes, file) == bytes, "HARNESS", "cannot read %s", path);
    fclose(file);
  }
  shim_register(name, data, bytes, input, !input);
  return data;
}

static void shim_main_save(const char *name, const void *data, size_t bytes)
{
  char path[400];
  snprintf(path, sizeof path, "%s.out", name);
  FILE *file = fopen(path, "wb");
  shim_check(file && fwrite(data, 1, bytes, file) == bytes, "HARNESS", "cannot write %s", path);
  fclose(file);
}
"""


def _bytes(tensor: TensorLike) -> int:
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _case(signature: Signature) -> str:
    """The lines of `main` that call one function."""
    lines = [f'  if (!strcmp(arguments[1], "{signature.function}")) {{']
    names: list[str] = []
    for tensors, is_input in ((signature.inputs, 1), (signature.outputs, 0)):
        for tensor in tensors:
            names.append(f"p{len(names)}")
            lines.append(
                f"    {_C_TYPES[tensor.dtype]} *{names[-1]} = "
                f'shim_main_buffer("{tensor.name}", {_bytes(tensor)}, {is_input});'
            )
    call = f"{signature.function}({', '.join(names)});"
    lines.append(f"    status = {call}" if signature.status else f"    (void){call}")
    lines.append("    shim_finish();")
    for name, tensor in zip(names[len(signature.inputs) :], signature.outputs, strict=True):
        lines.append(f'    shim_main_save("{tensor.name}", {name}, {_bytes(tensor)});')
    return "\n".join([*lines, "    found = 1;", "  }"])


def _driver(signatures: Sequence[Signature], statics: Sequence[str]) -> str:
    """A `main` that runs the function named by its argument in the working directory."""
    register = [f'  shim_register("{s}", {s}, sizeof {s}, 1, 1);' for s in statics]
    return "\n".join(
        [
            '#include "include/gemmini.h"',
            _HELPERS.replace("UNWRITTEN", str(UNWRITTEN)),
            "int main(int count, char **arguments)",
            "{",
            "  int status = 0, found = 0;",
            '  shim_check(count == 2, "HARNESS", "one argument is needed");',
            *register,
            *(_case(signature) for signature in signatures),
            '  shim_check(found, "HARNESS", "no such function");',
            '  printf("%d\\n", status);',
            "  shim_report(stdout);",
            "  return 0;",
            "}",
            "",
        ]
    )


def build(
    source: str,
    signatures: Sequence[Signature],
    *,
    headers: Mapping[str, str] | None = None,
    statics: Sequence[str] = (),
    flags: Sequence[str] = ("-O2",),
    standard: str = "c99",
    heap: bool = False,
) -> Program:
    """Compile C text, one translation unit, with a `main` that can call each function.

    `headers`: further files by name. `statics`: arrays of file scope that moves may touch too.
    `heap`: moves may touch what the text allocates, and its copies are checked (`host.h`).

    Raises:
        AssertionError: no C compiler, or its complaints (every warning is an error).
    """
    compiler = find_compiler()
    assert compiler, "no C compiler"
    directory = Path(tempfile.mkdtemp(dir=_scratch()))
    for name, text in (headers or {}).items():
        (directory / name).write_text(text)
    file = directory / "kernel.c"
    if heap:
        undone = "\n".join(f"#undef {name}" for name in ("malloc", "free", "memcpy"))
        source = f'#include "host.h"\n{source}\n{undone}'
    file.write_text(f"{source}\n{_driver(signatures, statics)}")
    target = directory / "kernel"
    command = [*compiler, f"-std={standard}", *STRICT, *flags, f"-I{HERE}", file, "-o", target]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Program(target, {s.function: s for s in signatures})


def run(program: Program, function: str, inputs: Arrays) -> Run:
    """Call one function; a broken rule is reported in the result and raises nothing.

    Raises:
        AssertionError: an input of another shape or data type than the signature's.
    """
    signature = program.signatures[function]
    with tempfile.TemporaryDirectory(dir=_scratch()) as name:
        directory = Path(name)
        for tensor in signature.inputs:
            array = inputs[tensor.name]
            assert array.shape == tensor.shape, tensor.name
            assert array.dtype == np.dtype(tensor.dtype), tensor.name
            np.ascontiguousarray(array).tofile(directory / f"{tensor.name}.in")
        done = subprocess.run(
            [program.path, function],
            cwd=directory, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode != 0:
            broken = re.search(r"^shim error (\w+): (.*)$", done.stderr, re.MULTILINE)
            if done.returncode == STATUS and broken:
                return Run(broken[1], broken[2])
            return Run("CRASH", f"exit status {done.returncode}\n{done.stderr}")
        status, report = done.stdout.splitlines()[-2:]
        counts = json.loads(report)
        outputs = {
            tensor.name: np.reshape(
                np.fromfile(directory / f"{tensor.name}.out", tensor.dtype), tensor.shape
            )
            for tensor in signature.outputs
        }
    traffic = {name: (read, written) for name, (read, written) in counts["traffic"].items()}
    return Run("", "", int(status), outputs, counts["instructions"], traffic)
