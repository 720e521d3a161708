"""Compiles an emitted kernel against the header of a chip in this folder, and runs it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwgen.codegen.source import CSource
from hwgen.model.compiled import find_compiler

HERE = Path(__file__).parent
STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
ORDERS = (0, 1, 2, 3)
"""Which unit goes first: the first that can, the last, each in turn, drawn."""

Arrays = Mapping[str, NDArray[Any]]


class Shim:
    """A kernel on an executed chip."""

    def __init__(self, source: CSource, folder: Path) -> None:
        compiler = find_compiler()
        assert compiler is not None
        code, library = folder / f"{source.function}.c", folder / f"{source.function}.so"
        code.write_text(source.c, encoding="utf-8")
        command = [
            *compiler,
            *STRICT,
            "-shared",
            "-fPIC",
            f"-I{HERE}",
            str(code),
            "-o",
            str(library),
        ]
        done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.source = source
        self.library = ctypes.CDLL(str(library))
        self.library.shim_message.restype = ctypes.c_char_p
        self.library.shim_operations.restype = ctypes.c_long

    def run(self, inputs: Arrays, order: int = 0, seed: int = 1) -> dict[str, NDArray[Any]]:
        """Outputs of one run; they count only where `fault` is empty."""
        arrays = [np.ascontiguousarray(inputs[p.name]) for p in self.source.inputs]
        outputs = {p.name: np.zeros(p.shape, p.dtype) for p in self.source.outputs}
        self.library.shim_order(order, seed)
        function = getattr(self.library, self.source.function)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *outputs.values())]
        assert function(*pointers) == 0
        assert self.library.shim_buffers() == 0
        return outputs

    @property
    def fault(self) -> str:
        """The first fault of the last run."""
        if not self.library.shim_status():
            return ""
        return bytes(self.library.shim_message()).decode()
