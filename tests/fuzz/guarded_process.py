"""The process that `guard_pages.py` starts: calls on arrays between pages that nobody may touch.

It imports NumPy alone: `python tests/fuzz/guarded_process.py FOLDER`.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PAGE = mmap.PAGESIZE
CANARY = 0xA5
"""What every byte is before a call: an output that is not written is told from one of zeros."""

SIDES = ("after", "before")
"""Where the page directly next to an array is."""

NONE, READ = 0, mmap.PROT_READ


def save(file: Path, arrays: Any) -> None:
    """Write arrays by name."""
    np.savez(file, **arrays)


class Pages:
    """An array at the end or the start of pages of its own, between two that nobody may touch."""

    def __init__(self, name: str, room: Mapping[str, Any], side: str) -> None:
        kind = np.dtype(room["dtype"])
        shape = tuple(room["shape"])
        self.name, self._bytes = name, int(np.prod(shape)) * kind.itemsize
        self._size = -(-self._bytes // PAGE) * PAGE
        self._map = mmap.mmap(-1, self._size + 2 * PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        slack = self._size - self._bytes if side == "after" else 0
        self._start = PAGE + slack - slack % max(room["align"], kind.itemsize)
        self.array: Array = np.ndarray(shape, kind, self._map, self._start)
        self.address = self._base + self._start
        self._pages = np.frombuffer(self._map, np.uint8)
        self._pages[:] = CANARY
        self._protect(0, PAGE, NONE)
        self._protect(PAGE + self._size, PAGE, NONE)

    def freeze(self) -> None:
        """Let nobody write it any more."""
        self._protect(PAGE, self._size, READ)

    def check(self) -> None:
        """Exit where the rest of its pages has been written."""
        end = self._start + self._bytes
        inside = (self._pages[PAGE : self._start], self._pages[end : PAGE + self._size])
        if any((part != CANARY).any() for part in inside):
            sys.exit(f"bytes next to {self.name} are written")

    def _protect(self, start: int, size: int, how: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._base + start), ctypes.c_size_t(size), how):
            sys.exit(f"mprotect: error {ctypes.get_errno()}")


def main(folder: Path) -> None:
    """Run what a folder asks for; the outputs of each run are files of it."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    inputs = dict(np.load(folder / "inputs.npz"))
    heap = ctypes.CDLL(job["allocator"], ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(job["library"])
    for run, calls in job["runs"].items():
        for side in SIDES:
            sys.stdout.write(f"{run}, pages {side} arrays\n")
            sys.stdout.flush()
            ctypes.c_int.in_dll(heap, "guarded_before").value = side == "before"
            pages = {name: Pages(name, room, side) for name, room in job["rooms"].items()}
            for name, values in inputs.items():
                pages[name].array[...] = values
                pages[name].freeze()
            for call in calls:
                function = library[call["function"]]
                places = (ctypes.c_void_p(pages[name].address) for name in call["arguments"])
                if function(*places) != 0 and call["status"]:
                    sys.exit("a status other than 0")
            for page in pages.values():
                page.check()
            if left := heap.guarded_left():
                sys.exit(f"{left} allocations are not freed")
            made = {name: pages[name].array for name in job["outputs"]}
            save(folder / f"{run}-{side}.npz", made)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
