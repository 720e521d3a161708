"""A kernel's text on the machine that hwgen runs on: of units on their C model, of a processor as
it is."""

from __future__ import annotations

from hwgen.codegen.source import CSource
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import AS_FOUND, Build, have_compiler, load_library
from hwgen.model.compiled import CompiledKernel, compile_model, refuse_foreign
from hwgen.spec.hardware import HardwareSpec

FLAGS = ("-std=c11", "-O2", "-fopenmp", "-march=native", "-w")
"""How the text for a processor is compiled."""


def runs_here(hardware: HardwareSpec) -> bool:
    """Whether the text of a chip's kernels can be compiled and run on this machine."""
    language = "c" if hardware.processor is None else hardware.processor.language
    return (bool(hardware.units) or language == "c") and have_compiler()


def compile_native(
    source: CSource, hardware: HardwareSpec, build: Build = AS_FOUND
) -> CompiledKernel:
    """Compile a kernel's text, or take it from the cache.

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
