"""Instructions that a kernel's C retires on a RISC-V host core, where there are tools for that."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from shutil import which

from hwgen.calibrate import counted
from hwgen.calibrate.counted import Executed
from hwgen.calibrate.tools import Tools
from hwgen.codegen.source import CSource
from hwgen.errors import Tolerating
from hwgen.model.numeric import Array

COMPILER, EMULATOR = "riscv64-linux-gnu-gcc", "qemu-riscv64"
TOOLS = Tools((COMPILER,), (*counted.FLAGS, "-march=rv64gc"), (EMULATOR,))
MISSING = "no RISC-V compiler, no emulator for it, or none that loads the counter"


@cache
def can_count() -> bool:
    """Whether this machine has all that it takes."""
    if not which(COMPILER) or not which(EMULATOR):
        return False
    source = CSource("nothing", (), (), "static int nothing(void) { return 0; }\n", "")
    with Tolerating(("H055", "H703", "H704")):
        executed(source.c, source, {})
        return True
    return False


def executed(
    text: str,
    source: CSource,
    inputs: Mapping[str, Array],
    flags: Sequence[str] = (),
    folder: Path | None = None,
) -> Executed:
    """One call of a kernel whose functions are in a text; the program is left in a folder, if one
    is given.

    Raises:
        HwgenError: the compiler's or the emulator's failure.
    """
    tools = Tools(TOOLS.compiler, (*TOOLS.flags, *flags), TOOLS.runner)
    with tempfile.TemporaryDirectory(prefix="hwgen-count-") as name:
        return counted.executed(text, source, inputs, tools, folder or Path(name))
