"""One kernel of a processor checked in every way there is; what `simulate` and `verify` both do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import AS_FOUND, Build
from hwgen.model.numeric import Array
from hwgen.spec.shown import Brief
from hwgen.verify.examine import Engine, check_outputs, passed_brief

if TYPE_CHECKING:
    from hwgen.model.code import CodeRun
    from hwgen.nest_pipeline import NestCompilation
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload

CHECKED_STEPS = 10_000
"""Steps of the program that are run thread by thread, up to a second; compiling runs fewer."""


@dataclass(frozen=True, slots=True, repr=False)
class NestExamination(Brief):
    """A kernel that passed; `run` is None where the compiled text ran instead of the simulator,
    `ran_c` says whether it ran."""

    outputs: dict[str, Array]
    ran_c: bool
    run: CodeRun | None

    def brief(self) -> str:
        return passed_brief(self.outputs, self.run is not None, self.ran_c)


def served_by_loops(hardware: HardwareSpec) -> bool:
    """Whether kernels of a chip are loops on its processor, and not calls of its units."""
    return hardware.processor is not None and not hardware.units


def runs_natively(hardware: HardwareSpec) -> bool:
    """Whether the text of a chip can be compiled and run on this machine."""
    from hwgen.model.compiled import have_compiler

    processor = hardware.processor
    return processor is not None and processor.language == "c" and have_compiler()


def examine_nest(
    compilation: NestCompilation,
    inputs: Mapping[str, Array],
    engine: Engine = "python",
    build: Build = AS_FOUND,
) -> NestExamination:
    """Run a kernel, its program thread by thread too, and compare every result with the reference;
    `build`: how the C is compiled.

    Raises:
        HwgenError: H757 a program that is wrong; H729 the simulator's own checks; H790 a result
            that differs from the reference; H791 modelled cycles below the lower bound; H70x where
            C cannot be compiled or run; H792 buffers too large to be run.
    """
    from hwgen.codegen.processor.races import check
    from hwgen.model.reference import run_reference
    from hwgen.verify.room import check_buffers

    c = compilation
    check_buffers(c.workload, c.program.buffers)
    check(c.program, c.hardware, CHECKED_STEPS)
    run: CodeRun | None = None
    expected = run_reference(c.workload, inputs)
    outputs: dict[str, Array] = {}
    if engine != "c":
        from hwgen.model.code import run_code

        run = run_code(c.program, c.hardware, inputs)
        outputs = run.outputs
        check_outputs(c.workload, inputs, outputs, expected, "the kernel")
    ran_c = engine == "c" or (engine == "both" and runs_natively(c.hardware))
    if ran_c:
        from hwgen.model.native import run_native

        outputs = run_native(c.source, c.workload, inputs, c.hardware, build)
        check_outputs(c.workload, inputs, outputs, expected, "the emitted C")
    if c.cycles < c.bound:
        raise HwgenError(
            "H791",
            "the modelled cycles are below their lower bound",
            found=f"{c.cycles:,} cycles",
            allowed=f"at least {c.bound:,}",
            repair="report this command: the cost model or the bound is wrong",
        )
    return NestExamination(outputs, ran_c, run)


def compile_nest_ranked(workload: Workload, hardware: HardwareSpec, rank: int) -> NestCompilation:
    """Compile with the schedule of a rank: 0 the best, odd ranks none at all, others the best with
    workers started however little there is to do.

    Raises:
        HwgenError: as `compile_nest`.
    """
    from hwgen.autoschedule import Options
    from hwgen.nest_pipeline import compile_nest

    options = Options() if rank == 0 else Options(parallel_cycles=0.0)
    return compile_nest(workload, hardware, auto=rank % 2 == 0, options=options)
