"""Compiled functions called on arrays with no memory next to them.

A page that may be neither read nor written lies directly after each array's end, or directly before
its start, and the pages of inputs may not be written: a kernel that touches what is not its own
dies. What it allocates lies so too (`guarded_malloc.c`). It runs in a process of its own
(`guarded_process.py`).
"""

from __future__ import annotations

import atexit
import ctypes
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwgen.model.c_compiler import need_compiler, refused
from tests.fuzz.guarded_process import SIDES, save

Array = npt.NDArray[Any]

SECONDS = 120
"""Time of a process."""

PROCESS = Path(__file__).with_name("guarded_process.py")

ALLOCATING = tuple(f"-D{name}=guarded_{name}" for name in ("malloc", "aligned_alloc", "free"))
"""Flags with which a kernel is compiled: its own functions are those of `guarded_malloc.c`."""


def compiled(text: str, name: str, flags: Sequence[str], folder: Path) -> Path:
    """A library of a C text, in a folder.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler refuses the text.
    """
    source, made = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text, encoding="utf-8")
    words = [*need_compiler(""), *flags, "-shared", "-fPIC", str(source), "-o", str(made), "-lm"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise refused(done, name)
    return made


@cache
def allocator() -> Path:
    """The library in which kernels allocate, loaded, so that they find it."""
    folder = Path(tempfile.mkdtemp(prefix="hwgen-guarded-"))
    atexit.register(shutil.rmtree, folder)
    text = Path(__file__).with_name("guarded_malloc.c").read_text(encoding="utf-8")
    made = compiled(text, "guarded_malloc", ("-std=gnu11", "-O1"), folder)
    ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)
    return made


@dataclass(frozen=True)
class Guarded:
    """The outputs of each run by name, or what went wrong."""

    outputs: Mapping[str, Mapping[str, Array]]
    wrong: str = ""


def run_guarded(
    library: Path,
    rooms: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, Sequence[Mapping[str, Any]]],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
) -> Guarded:
    """Run lists of calls, each on arrays of its own, first with pages after them and then before.

    `rooms`: the arrays' `shape`, `dtype` and `align`. A call has a `function`, `arguments` by name
    and a `status`, as `tests.native_calls` has them.
    """
    with tempfile.TemporaryDirectory(prefix="hwgen-guarded-") as name:
        folder = Path(name)
        job: dict[str, object] = {"allocator": str(allocator()), "library": str(library)}
        job |= {"rooms": rooms, "runs": runs, "outputs": outputs}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        save(folder / "inputs.npz", inputs)
        words = [sys.executable, str(PROCESS), name]
        try:
            done = subprocess.run(
                words, check=False, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return Guarded({}, f"not done after {SECONDS} seconds")
        if done.returncode:
            return Guarded({}, _death(done))
        return Guarded(
            {
                f"{run}, pages {side} arrays": dict(np.load(folder / f"{run}-{side}.npz"))
                for run in runs
                for side in SIDES
            }
        )


def _death(done: subprocess.CompletedProcess[str]) -> str:
    """How a process ended, and in which run."""
    where = (done.stdout.split("\n")[-2:-1] or ["the start"])[0]
    if done.returncode < 0:
        return f"{signal.Signals(-done.returncode).name} in {where}"
    return f"{where}: {done.stderr.strip()[-400:]}"
