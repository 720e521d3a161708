"""A compiler for Hexagon DSPs with HVX: Clang of the wheel `ziglang`, where it is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

WHEEL = "ziglang"
COMPILER: tuple[str, ...] = (
    *(sys.executable, "-m", WHEEL, "cc", "-target", "hexagon-linux-musl"),
    # V66: the user-mode emulator of QEMU 7 takes no programs for V68.
    "-mcpu=hexagonv66+hvxv66+hvx_length128b",
)


def have_compiler() -> bool:
    return find_spec(WHEEL) is not None
