"""The name that was meant: by case, by what the same thing is called elsewhere, by likeness."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

_DTYPE = re.compile(r"(int|uint|[isu]|fp|float|f|bf|bfloat)_?(8|16|32|64)(_t)?")
_PART_OF_A_BYTE = re.compile(r"(?:u?int|float|fp)_?([124])")
_PREFIXES = {
    "i": "int", "s": "int", "u": "uint", "fp": "float", "f": "float", "bf": "bfloat"
}  # fmt: skip
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "char": ("int8",), "short": ("int16",), "int": ("int32",), "long": ("int64",),
    "half": ("float16",), "float": ("float32",), "double": ("float64",),
    "sram": ("scratchpad",), "spm": ("scratchpad",), "spad": ("scratchpad",),
    "local": ("scratchpad",), "buffer": ("scratchpad",),
    "dram": ("offchip",), "ddr": ("offchip",), "hbm": ("offchip",), "external": ("offchip",),
    "semaphore": ("events",), "semaphores": ("events",), "flags": ("events",),
    "bare-metal": ("firmware",), "baremetal": ("firmware",), "embedded": ("firmware",),
    "length": ("extent",), "count": ("extent",), "trips": ("extent",),
    "dtype": ("type",), "shape": ("type",), "width": ("entry",), "word": ("entry",),
    "latency": ("latency_cycles", "cycles"), "constraints": ("loops",),
    "maximum": ("max",), "minimum": ("min",), "fmax": ("max",), "fmin": ("min",),
    "where": ("select",), "clamp": ("clip",), "saturate": ("clip",),
}  # fmt: skip
"""Words of datasheets, C, NumPy and other compilers, and ours."""


def suggestion(name: str, known: Sequence[str]) -> str:
    """The known name that was most likely meant, as a repair; empty when none is near."""
    meant = nearest_name(name, known)
    if "int8" in known and (bits := _PART_OF_A_BYTE.fullmatch(name.lower())):
        return f"there is no type of {bits[1]} bits: keep such values in int8"
    return f"did you mean {meant!r}?" if meant else ""


def nearest_name(name: str, known: Sequence[str]) -> str:
    """The known name that was most likely meant, or nothing."""
    lower = name.lower()
    same = [k for k in known if k.lower() == lower]
    if same:
        return same[0]
    called = list(_ELSEWHERE.get(lower, ()))
    if matched := _DTYPE.fullmatch(lower):
        called.append(_PREFIXES.get(matched[1], matched[1]) + matched[2])
    for other in called:
        if other in known:
            return other
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return near[0] if near else ""
