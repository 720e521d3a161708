"""A compiled workload as Python people use it: built in one call, called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from hwgen.autoschedule.options import Options
from hwgen.completing import compile_scripted
from hwgen.model.compiled import CompiledKernel
from hwgen.model.direct_call import DirectCall, direct_call
from hwgen.model.inputs import bind_inputs
from hwgen.model.native import compile_native_units, compile_portable, lacking, runs_here
from hwgen.model.numeric import Array
from hwgen.passes import kernel as compiled
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_workload
from hwgen.polyhedral.schedule.requested import find_chip, find_computation, script_text, unfit
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.search.objective import OBJECTIVES, Objective, check_objective
from hwgen.polyhedral.search.search import NEAR
from hwgen.spec.find import nearest
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import Brief
from hwgen.spec.workload import Workload
from hwgen.verify.check_instances import check_compiled
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Examination, examine
from hwgen.verify.room import check_room

Engine = Literal["auto", "c", "native", "python"]
"""Who computes: the emitted C, compiled here (`c`, of chips with units on their C model; `native`,
on this machine's own units), or the simulator; `auto`: the first of native, C and simulator that
this machine can run."""

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


def build(
    workload: Workload | Path | str,
    chip: HardwareSpec | Path | str,
    *,
    script: Schedule | Path | str | None = None,
    auto: bool = True,
    engine: Engine = "auto",
    sizes: Mapping[str, int] | None = None,
    dtypes: Mapping[str, str] | None = None,
    options: SearchOptions | Options | None = None,
    objective: Objective | None = None,
    trust: bool = False,
) -> Kernel:
    """Compile a workload for a chip, whatever kind of chip it is.

    Args:
        workload: what to compute; a text is a path or a bare name, a `Path` always a path.
        chip: for what, the same way.
        script: a schedule to start from: one made by hand, a file, or (a text) a script itself.
        auto: whether the schedule is completed automatically.
        engine: who computes when the kernel is called.
        sizes: in place of those of the workload's file.
        dtypes: data types in place of the file's, by the names that it gives them or by tensors.
        options: of the search: `SearchOptions` for units, `autoschedule.Options` for a processor.
        objective: what the search looks for, in place of that of the options: `cycles`, `traffic`
            (off-chip bytes) or `energy`, which takes a chip whose file has energies.
        trust: whether C with text of the chip's templates may run on this machine, where the chip
            is, or has, a processor and does not come with hwgen (SECURITY.md).

    Raises:
        HwgenError: H050 another argument than these; H426 where the chip has nothing of the
            objective; what `load_hardware` and `load_workload`
            raise; what `compile_workload`, `complete_script` and `compile_nest` raise; H731 to
            H747 a program that does not fit its chip or its schedule, a defect of hwgen.
    """
    _known("engine", engine, get_args(Engine))
    _known("objective", objective or OBJECTIVES[0], OBJECTIVES)
    hardware, beside = find_chip(chip, trust=trust)
    wanted = find_computation(workload, sizes, beside, dtypes)
    text, file = script_text(script, wanted, hardware)
    loops = not hardware.units
    given = options or (Options() if loops else SearchOptions())
    if objective is not None:
        check_objective(hardware, objective)
    if isinstance(given, SearchOptions):
        given = replace(given, objective=objective or given.objective)
        if given.slack is not None and not 0 <= given.slack <= NEAR - 1:
            raise unfit("options", f"slack={given.slack}", f"slack from 0 to {NEAR - 1:.2f}")
    if loops and isinstance(given, Options):
        made: compiled.Kernel = compile_nest(wanted, hardware, text, auto, file, given)
    elif not loops and isinstance(given, SearchOptions):
        made = _compile_units(wanted, hardware, text, auto, file, given)
    else:
        kind = "autoschedule.Options" if loops else "SearchOptions"
        raise unfit("options", type(given).__name__, f"{kind} for {hardware.name}")
    return Kernel(made, engine)


def _known(argument: str, given: object, allowed: Sequence[str]) -> None:
    """Refuse a word that is not one of those allowed.

    Raises:
        HwgenError: H050.
    """
    if given not in allowed:
        close = nearest(str(given), allowed)
        repair = f"did you mean {close}?" if close else ""
        raise unfit(argument, repr(given), ", ".join(allowed), repair)


def _compile_units(
    workload: Workload,
    hardware: HardwareSpec,
    script: str | None,
    auto: bool,
    file: str,
    options: SearchOptions,
) -> compiled.Kernel:
    if script is None and auto:
        made = compile_workload(workload, hardware, options)
    else:
        made = compile_scripted(workload, hardware, script or "", file, options, auto=auto)
    check_compiled(made)
    return made


@dataclass(frozen=True, repr=False, eq=False)
class Kernel(Brief):
    """A workload compiled for a chip: a function of arrays, with figures, C and a script.

    >>> kernel = hwgen.build("gemm", "my_chip")
    >>> c = kernel(a, b)
    """

    compilation: compiled.Kernel
    """Every artefact that led to it."""
    wanted: Engine = "auto"

    @property
    def workload(self) -> Workload:
        """What it computes."""
        return self.compilation.workload

    @property
    def hardware(self) -> HardwareSpec:
        """The chip that it is for."""
        return self.compilation.hardware

    @property
    def name(self) -> str:
        """The C function's name."""
        return self.compilation.source.function

    @cached_property
    def engine(self) -> Literal["c", "native", "python"]:
        """Who computes."""
        if self.wanted != "auto":
            return self.wanted
        if not (lacking(self.hardware) or self.hardware.foreign):
            return "native"
        return "c" if runs_here(self.hardware) else "python"

    @property
    def cycles(self) -> int:
        """Modelled cycles."""
        return self.compilation.cycles

    @property
    def seconds(self) -> float | None:
        """The cycles by the chip's clock; None where its file has no `clock`."""
        return self.compilation.seconds

    @property
    def bound(self) -> int:
        """Cycles below which no schedule gets."""
        return self.compilation.bound.cycles

    @property
    def c(self) -> str:
        """The text for the chip: C, or the processor's own language."""
        return self.compilation.source.c

    @property
    def script(self) -> str:
        """The edits that make its schedule, as `build` takes them."""
        return self.compilation.script

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not as one might expect, as that the processor computes a part."""
        return self.compilation.notes

    def __call__(self, /, *places: object, **named: object) -> Array | tuple[Array, ...]:
        """The output, or all of them in the workload's order, as new arrays.

        Inputs come in the workload's order, then by name: NumPy arrays, or what has `__dlpack__`
        or `__array__`, in the tensor's data type and shape. They are never changed.

        Raises:
            HwgenError: H051, H052, H053 other inputs; H703, H704, H705 where the C cannot be
                compiled, or this machine lacks its instructions; H707 where it has text of a spec
                that is not trusted; H792 too large to be run; H7xx a defect, told by the checks of
                a run.
            MemoryError: `native`, there is none for images of tensors.
        """
        if (direct := self._direct) is not None and (made := direct(places, named)) is not None:
            return made
        found = self._run(bind_inputs(self.workload, places, named))
        outputs = tuple(
            np.reshape(found[t.name], ()) if t.scalar else found[t.name]
            for t in self.workload.outputs
        )
        return outputs[0] if len(outputs) == 1 else outputs

    @cached_property
    def _compiled(self) -> CompiledKernel | None:
        """The engine's library, loaded: what is compiled once serves every call; None: the engine
        is the simulator."""
        c = self.compilation
        check_room(c.workload, c.program)
        if self.engine == "native":
            return compile_native_units(c.source, c.hardware)
        return compile_portable(c.source, c.hardware) if self.engine == "c" else None

    @cached_property
    def _direct(self) -> DirectCall | None:
        return direct_call(self._compiled, self.workload) if self._compiled else None

    @cached_property
    def _run(self) -> Run:
        if self._compiled is not None:
            return self._compiled.run
        from hwgen.model.functional import run

        c = self.compilation
        shapes = {t.name: t.shape for t in c.workload.outputs}
        return lambda inputs: run(c.program, c.hardware, inputs, shapes=shapes).outputs

    def check(self, seed: int = 0) -> Examination:
        """Run it on inputs drawn from a seed, in the simulator and, unless the engine is `python`,
        as C where it can be compiled and is trusted; hold every check and compare with the
        reference.

        Raises:
            HwgenError: as `examine`.
        """
        who = "python" if self.engine == "python" else "both"
        return examine(self.compilation, draw_inputs(self.workload, seed), who)

    def save(self, folder: Path | str) -> list[Path]:
        """Write what `hwgen generate -o FOLDER` writes, all files or none; returns their paths.

        Raises:
            HwgenError: H009 where something cannot be written.
        """
        from hwgen.report.output import write_files

        return write_files(Path(folder), self.compilation.files)

    def report(self, path: Path | str | None = None) -> str:
        """The page with its figures as HTML text; with a path (a file `*.html`, or a folder) it is
        written too.

        Raises:
            HwgenError: H009 where it cannot be written.
        """
        from hwgen.report.html import page

        text = page(self.compilation)
        if path is not None:
            from hwgen.report.output import write_files

            place = Path(path)
            is_file = place.suffix.lower() == ".html"
            folder, name = (place.parent, place.name) if is_file else (place, f"{self.name}.html")
            write_files(folder, {name: text})
        return text

    def brief(self) -> str:
        return self.compilation.brief()

    def __str__(self) -> str:
        from hwgen.report.kernels import kernel_text

        return kernel_text(self.compilation)

    def _repr_html_(self) -> str:
        from hwgen.report.kernels import kernel_html

        return kernel_html(self.compilation)
