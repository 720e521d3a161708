"""A run of a compiled kernel: what it took and what was checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwgen.model.native import runs_here
from hwgen.report.text import Measured, cut_short, describe_cycles, title
from hwgen.spec.table import Cell, table

if TYPE_CHECKING:
    from hwgen.passes.kernel import Kernel
    from hwgen.verify.examine import Engine, Examination


def simulation_text(compilation: Kernel, passed: Examination) -> str:
    """Cycles, units, and, where the simulator ran, traffic and executed iterations."""
    cycles, *units = describe_cycles(Measured(compilation, passed.timing, passed.bound))
    if compilation.speed:
        units[0] = f"time        {units[0]}"
    lines = [title(compilation), "", f"cycles      {cycles}", *units, ""]
    result = passed.functional
    if compilation.nest:
        if result is not None:
            read = f"{result.read_elements:,} elements read"
            lines.append(f"instances   {result.instances:,}, {read}")
        return "\n".join(lines)
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


def run_by(compilation: Kernel, passed: Examination, engine: Engine, seconds: float) -> str:
    """The line that says who ran, and why the C did not where it was to."""
    hardware = compilation.hardware
    text, without = "the emitted C on the C model", "no C compiler"
    if not hardware.units and hardware.processor is not None:
        text, language = "the compiled text on this machine", hardware.processor.language
        without = without if language == "c" else f"it is {language}, for another machine"
    if compilation.source.foreign and runs_here(hardware):
        without = f"it has text of {compilation.source.foreign}, which --trust lets run here"
    runners = ["the simulator"] * (passed.functional is not None) + [text] * passed.ran_c
    line = f"run by      {' and '.join(runners)}, with all checks in {seconds:.2f} s"
    left_out = engine == "both" and len(runners) == 1
    return f"{line} (not by the emitted C: {without})" if left_out else line
