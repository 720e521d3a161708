"""Cycles of a call of a kernel, timed on the machine that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hwgen.calibrate.counted import built, called
from hwgen.calibrate.tools import Tools
from hwgen.codegen.source import CSource
from hwgen.model.numeric import Array

FLAGS = ("-std=c11", "-O3", "-fopenmp", "-march=native")
LEAST = 5_000.0
"""Cycles below which a clock does not see a call well enough."""


def cycles(
    source: CSource, inputs: Mapping[str, Array], tools: Tools, folder: Path, cold_bytes: int
) -> float:
    """Cycles of the fastest of some calls. Before each of them other bytes go through the caches,
    since the model has a caller's arrays come from memory.

    Raises:
        HwgenError: H704 the compiler fails; H055 the program fails.
    """
    lines = [
        "double cycle = timed_cycle(), best = 1e9;",
        "for (int n = atoi(arguments[1]); n > 0; --n) {",
        "for (size_t i = 0; i < sizeof timed_cold; i += 32)", "timed_cold[i] += 1;",
        "double start = timed_seconds();", called(source), "start = timed_seconds() - start;",
        "best = start < best ? start : best;", "}", r'printf("%.9g\n", best / cycle);',
    ]  # fmt: skip
    timer = Path(__file__).with_name("timer.h").read_text(encoding="utf-8")
    text = f"{timer}static volatile char timed_cold[{cold_bytes}];\n{source.model or source.c}"
    program = built(text, source, inputs, tools, folder, lines)
    return float(tools.run(program, "7", folder / "inputs"))
