"""Constants as C arrays: what the chip reads, packed before the program is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwgen.codegen.c_constants import integer, number_text
from hwgen.codegen.c_names import comment
from hwgen.codegen.c_words import uses_math
from hwgen.codegen.host_plan import ALIGNMENT_BYTES, CompiledIn, HostPlan, alignment_macro
from hwgen.errors import HwgenError
from hwgen.model.images import pack, supplied
from hwgen.model.numeric import Array

_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class Constant:
    """An array that is compiled in. `declaration`: `const T NAME[N]`; `values`: of any shape,
    16-bit floats as their bits; `dtype`: the data type that they have on the chip."""

    declaration: str
    dtype: str
    values: Array


def weights_file(
    name: str, summary: str, constants: Sequence[Constant], alignment: int = ALIGNMENT_BYTES
) -> str:
    """A file that defines the arrays, each aligned to so many bytes; values and not bytes, so that
    it serves any byte order.

    Raises:
        HwgenError: H043 a value that no C constant has.
    """
    bodies = [_initializer(c) for c in constants]
    lines = [
        f"/* {comment(summary)}",
        " *",
        " * Constants as the chip reads them; on a machine with flash they stay there. */",
        *(["#include <math.h>"] if any(map(uses_math, bodies)) else []),
        "#include <stdint.h>",
        "",
        *alignment_macro(name, alignment),
    ]
    for constant, body in zip(constants, bodies, strict=True):
        lines += ["", f"extern {constant.declaration};"]
        lines += [f"{name}_ALIGNED {constant.declaration} = {{", body, "};"]
    return "\n".join(lines) + "\n"


def images_of(plan: HostPlan, arrays: Mapping[str, Array]) -> tuple[Constant, ...]:
    """What is compiled in, with the values of the tensors in `arrays`.

    Raises:
        HwgenError: H725, H726 a tensor does not fit its image.
    """
    dtypes = {t.name: t.dtype for t in plan.inputs}

    def values(made: CompiledIn) -> Constant:
        image = made.image
        if image is None:
            return Constant(made.declaration, dtypes[made.tensor], arrays[made.tensor])
        if image.supplied is not None:
            packed = pack(image, supplied(image), image.dtype)
        else:
            packed = pack(image, arrays[made.tensor], dtypes[made.tensor])
        return Constant(made.declaration, image.dtype, packed)

    return tuple(map(values, plan.constants()))


def _initializer(constant: Constant) -> str:
    flat = constant.values.ravel()
    if constant.dtype in ("float32", "float64"):
        if np.isnan(flat).any():
            raise HwgenError(
                "H043",
                "a constant that is compiled in has a value that C has no text for",
                field=constant.declaration,
                found=f"NaN, {int(np.isnan(flat).sum())} of {flat.size} elements",
                allowed="numbers and infinities",
                repair="leave out --weights for this tensor, and pack it when the program runs",
            )
        return _wrapped(flat, lambda value: number_text(value, constant.dtype))
    return _wrapped(flat, lambda value: integer(int(value)))


def _wrapped(flat: Array, text: Callable[[int | float], str]) -> str:
    """The values between commas, on lines of bounded length."""
    lines: list[str] = []
    line = " "
    for value in flat.tolist():
        word = f" {text(value)},"
        if len(line) + len(word) > _COLUMNS:
            lines.append(line)
            line = " "
        line += word
    return "\n".join([*lines, line])
