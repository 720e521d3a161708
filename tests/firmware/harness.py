"""Firmware kernels on this machine: a workspace of garbage between guard bytes."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwgen.codegen.emit_c import FirmwareSource
from hwgen.codegen.host_plan import ALIGNMENT_BYTES
from hwgen.codegen.source import CSource
from hwgen.model.images import pack
from hwgen.model.numeric import STORAGE
from hwgen.model.weights import images_of, weights_file
from tests.shim.harness import compile_c

Arrays = Mapping[str, NDArray[Any]]
GUARD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Ran:
    """One call. `guarded`: whether no byte around the workspace changed."""

    status: int
    outputs: dict[str, NDArray[Any]]
    guarded: bool


@cache
def _scratch() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="hwgen-firmware-")
    _kept.append(holder)
    return Path(holder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


def folder(files: Mapping[str, str]) -> Path:
    """A new folder with these files."""
    made = Path(tempfile.mkdtemp(dir=_scratch()))
    for name, text in files.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


def library(files: Mapping[str, str], *flags: str) -> ctypes.CDLL:
    """The C files as one shared library."""
    made = folder(files)
    sources = [made / name for name in files if name.endswith(".c")]
    target = made / "kernel.so"
    compile_c(["-std=c11", "-O0", "-w", *flags, "-shared", "-fPIC", *sources, "-o", target, "-lm"])
    return ctypes.CDLL(str(target))


def macro(header: str, name: str) -> int:
    """The number that a header gives."""
    found = re.search(rf"^#define {name} (\w+?)u?$", header, re.MULTILINE)
    assert found is not None, name
    return int(found[1], 0)


def run_host(source: CSource, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """The outputs of a host target's kernel on the chip's model."""
    outputs = {p.name: np.zeros(p.shape, STORAGE[p.dtype]) for p in source.outputs}
    function = library({"model.c": source.model})[source.function]
    assert (
        function(*map(pointer, [*(inputs[p.name] for p in source.inputs), *outputs.values()])) == 0
    )
    return outputs


def model(made: FirmwareSource, inputs: Arrays) -> ctypes.CDLL:
    """The model of a firmware kernel, with the constants that are compiled in."""
    return library({"model.c": made.source.model, "weights.c": constants(made, inputs)})


def constants(made: FirmwareSource, inputs: Arrays) -> str:
    """The file of what is compiled in."""
    return weights_file(made.source.function, "constants", images_of(made.plan, inputs))


def arguments(made: FirmwareSource, inputs: Arrays) -> list[NDArray[Any]]:
    """What the kernel takes before its outputs: tensors, and constants as they are packed."""
    found: list[NDArray[Any]] = []
    for p in made.source.inputs:
        if p.in_place or not p.packed:
            found.append(inputs[p.name])
        if p.packed:
            blob = aligned(made.plan.blob_bytes(p.name))
            for image in made.plan.staged_of(p.name):
                content = pack(image, inputs[p.name], p.dtype).tobytes()
                start = made.plan.blob_offset(image)
                blob[start : start + len(content)] = np.frombuffer(content, np.uint8)
            found.append(blob)
    return found


def run(
    made: FirmwareSource,
    loaded: ctypes.CDLL,
    inputs: Arrays,
    seed: int = 0,
    missing_bytes: int = 0,
) -> Ran:
    """Call a kernel with a workspace that its header asks for, without the last `missing_bytes`."""
    source = made.source
    outputs = {p.name: np.zeros(p.shape, STORAGE[p.dtype]) for p in source.outputs}
    size = macro(source.header, f"{source.function}_WORKSPACE_BYTES") - missing_bytes
    given = [*arguments(made, inputs), *outputs.values()]
    status, guarded = call(loaded[source.function], given, size, seed)
    return Ran(status, outputs, guarded)


def call(
    function: Any, arrays: list[NDArray[Any]], workspace_bytes: int, seed: int
) -> tuple[int, bool]:
    """What a function returns, and whether the bytes around its workspace are as they were."""
    room = aligned(workspace_bytes + 2 * GUARD_BYTES)
    before = np.random.default_rng(seed).integers(0, 256, room.size, np.uint8)
    room[:] = before
    workspace = room[GUARD_BYTES:]
    status = int(function(*map(pointer, arrays), pointer(workspace)) or 0)
    end = GUARD_BYTES + workspace_bytes
    changed = np.flatnonzero(room != before)
    return status, bool(np.all((changed >= GUARD_BYTES) & (changed < end)))


def aligned(size: int) -> NDArray[np.uint8]:
    """So many bytes, aligned as a workspace is."""
    whole = np.zeros(size + ALIGNMENT_BYTES, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT_BYTES
    return whole[start : start + size]


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    """As a C function takes it."""
    return ctypes.c_void_p(array.ctypes.data)


def draw(
    parameters: Mapping[str, tuple[str, tuple[int, ...]]], seed: int
) -> dict[str, NDArray[Any]]:
    """Random tensors, by name: data type and shape."""
    random = np.random.default_rng(seed)
    return {
        name: np.reshape(
            random.standard_normal(prod(shape)) if "float" in dtype
            else random.integers(-128, 128, prod(shape)),
            shape,
        ).astype(dtype)
        for name, (dtype, shape) in parameters.items()
    }  # fmt: skip


def undefined(objects: Path) -> set[str]:
    """The symbols that an object file or archive wants from elsewhere."""
    done = subprocess.run(["nm", "-u", objects], capture_output=True, text=True, check=True)
    return {line.split()[1] for line in done.stdout.splitlines() if line.strip().startswith("U ")}
