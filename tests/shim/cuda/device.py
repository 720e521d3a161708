"""Runs emitted text of blocks and threads on the host (see `cuda_runtime.h`)."""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hwgen.codegen.source import CSource
from hwgen.model.numeric import STORAGE, Array

HERE = Path(__file__).resolve().parent
HEADER = "cuda_runtime.h"
FLAGS = ("-std=c++17", "-O0", "-fPIC", "-w")
LAUNCH = re.compile(r"(\w+)<<<(dim3\([^)]*\)), (dim3\([^)]*\))>>>\((.*)\);")
LAUNCHED = r"shim_launch(\2, \3, [&] { \1(\4); });"


@dataclass(frozen=True)
class Run:
    """Outputs by name, what the shim objects to ("": nothing), and how often threads waited."""

    outputs: dict[str, Array]
    message: str
    barriers: int


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="hwgen-cuda-"))


@cache
def _headers() -> Path:
    """A folder with the header precompiled, which takes longer than most kernels."""
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    _compile("-x", "c++-header", str(shutil.copy(HERE / HEADER, folder)))
    return folder


def _compile(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["g++", *FLAGS, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[:3000]


def host_text(text: str) -> str:
    """The text with its launches as C++ that any compiler takes."""
    return LAUNCH.sub(LAUNCHED, text)


def build(text: str) -> Path:
    """The text, compiled for the host."""
    key = hashlib.sha256((text + (HERE / HEADER).read_text()).encode()).hexdigest()[:24]
    library = _folder() / f"{key}.so"
    if not library.exists():
        code = library.with_suffix(".cpp")
        code.write_text(host_text(text))
        # What is precompiled is taken where it comes first.
        first = (f"-I{_headers()}", "-include", HEADER)
        _compile("-shared", *first, str(code), "-o", str(library))
    return library


def run(source: CSource, inputs: Mapping[str, Array], seed: int = 0) -> Run:
    """One call of the function, threads in the order of a seed."""
    library = ctypes.CDLL(str(build(source.c)))
    arrays = [np.ascontiguousarray(inputs[p.name]) for p in source.inputs]
    outputs = {p.name: np.zeros(p.shape, STORAGE[p.dtype]) for p in source.outputs}
    ctypes.c_int.in_dll(library, "shim_seed").value = seed
    message = (ctypes.c_char * 200).in_dll(library, "shim_message")
    message.value = b""
    barriers = ctypes.c_int.in_dll(library, "shim_barriers")
    barriers.value = 0
    function = library[source.function]
    function.restype = None
    function(*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *outputs.values())))
    return Run(outputs, message.value.decode(), barriers.value)
