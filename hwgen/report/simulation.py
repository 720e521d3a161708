"""A run of a compiled kernel: what it took and what was checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwgen.report.table import Cell, table
from hwgen.report.text import Measured, cut_short, describe_cycles, title

if TYPE_CHECKING:
    from hwgen.compiled import Compiled
    from hwgen.verify.examine import Engine, Examination


def simulation_text(compilation: Compiled, passed: Examination) -> str:
    """Cycles, units, and, where the simulator ran, traffic and executed iterations."""
    lines = [
        title(compilation),
        "",
        *describe_cycles(Measured(compilation, passed.timing, passed.bound)),
        "",
    ]
    result = passed.functional
    if result is not None:
        moved: list[tuple[Cell, ...]] = [
            (t.memory, t.tensor, t.direction, t.bytes) for t in result.traffic
        ]
        executed: list[tuple[Cell, ...]] = list(result.iterations.items())
        lines += [
            table(("memory", "tensor", "direction", "bytes"), moved),
            "",
            table(("intrinsic", "iterations"), executed),
            "",
            f"calls       {result.calls:,}",
        ]
        used = ", ".join(f"{count:,} {name}" for name, count in result.micro_operations.items())
        if used:
            lines.append(f"operations  {used}")
    hardware = compilation.hardware
    used = "; no token missing or left over" if hardware.tokens else ""
    used = "; no signal or wait missing or left over" if hardware.events else used
    lines.append(f"conflicts   none between units{used}")
    lines += [f"search      {line}" for line in cut_short([compilation])]
    return "\n".join(lines)


def run_by(runners: Sequence[str], engine: Engine, without: str, seconds: float) -> str:
    """The line that says who ran; `without`: why the C did not where it was to."""
    text = f"run by      {' and '.join(runners)}, with all checks in {seconds:.2f} s"
    left_out = engine == "both" and len(runners) == 1
    return f"{text} (not by the emitted C: {without})" if left_out else text
