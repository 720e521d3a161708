"""A kernel's text on the machine that hwgen runs on: of units on their C model, or as it is where
the machine has their instructions; of a processor as it is."""

from __future__ import annotations

from hwgen.codegen.source import CSource
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import AS_FOUND, Build, have_compiler, load_library, machine_macros
from hwgen.model.compiled import CompiledKernel, compile_model, refuse_foreign
from hwgen.spec.hardware import HardwareSpec

FLAGS = ("-std=c11", "-O2", "-fopenmp", "-march=native", "-w")
"""How the text for a processor is compiled."""


def runs_here(hardware: HardwareSpec) -> bool:
    """Whether the text of a chip's kernels can be compiled and run on this machine."""
    language = "c" if hardware.processor is None else hardware.processor.language
    return (bool(hardware.units) or language == "c") and have_compiler()


def lacking(hardware: HardwareSpec) -> list[str]:
    """What this machine lacks to run the C of a chip with units as it is: macros that its compiler
    does not define, or `code.requires` where the chip's file does not say which these are."""
    wanted = hardware.code.requires or ("code.requires",)
    return sorted({*wanted} - machine_macros())


def compile_native_units(
    source: CSource, hardware: HardwareSpec, build: Build = AS_FOUND
) -> CompiledKernel:
    """Compile the C of a chip with units for this machine, without the C model and its checks.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails; H705 this machine lacks the chip's
            instructions; H707 a spec that is not trusted.
    """
    if found := lacking(hardware):
        raise HwgenError(
            "H705",
            f"{source.function} does not run on this machine",
            location=hardware.location,
            found=f"no {', '.join(found)}",
            allowed="machines for which the compiler defines all macros of code.requires",
            repair='engine="c", which runs on the chip\'s C model',
        )
    refuse_foreign(hardware.foreign)
    loaded = load_library(source.c, source.function, (*FLAGS, "-O3"), build)
    return CompiledKernel(source, loaded, checked=False)


def compile_portable(
    source: CSource, hardware: HardwareSpec, build: Build = AS_FOUND
) -> CompiledKernel:
    """Compile the C of a kernel that runs on any machine, or take it from the cache: of a chip with
    units the C model, of a processor its own C.

    Raises:
        HwgenError: H703 no C compiler; H704 the compiler fails; H705 the file is not C; H707 a spec
            that is not trusted.
    """
    if source.model:
        return compile_model(source, build)
    processor = hardware.processor
    if processor is None or processor.language != "c":
        raise HwgenError(
            "H705",
            f"{source.function} does not run on this machine",
            found="no processor" if processor is None else processor.language,
            allowed="processors that are programmed in C",
            repair="compile the file with the chip's own tools",
        )
    refuse_foreign(source.foreign)
    return CompiledKernel(source, load_library(source.c, source.function, FLAGS, build))
