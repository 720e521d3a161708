"""What templates of a call may name, as C text."""

from __future__ import annotations

from collections.abc import Callable

from hwgen.codegen.c_constants import number_text
from hwgen.codegen.nodes import Call
from hwgen.codegen.templates import Fields, argument
from hwgen.spec.expression import Expr
from hwgen.spec.hardware import Intrinsic


class FloatText(float):
    """A number to templates, whose text is a C literal."""

    _text: str

    def __new__(cls, value: float, dtype: str) -> FloatText:
        made = super().__new__(cls, value)
        made._text = number_text(value, dtype)
        return made

    def __str__(self) -> str:
        return argument(self._text) if self._text.startswith("-") else self._text


def loop_values(intrinsic: Intrinsic, call: Call, text: Callable[[Expr], str]) -> dict[str, object]:
    """Extent and strides of each loop of a call, and how many lanes of each iterator take part."""
    values: dict[str, object] = {
        name: Fields({"extent": extent})
        for name, extent in intrinsic.narrowed(call.lanes).iterators
    }
    for level, loop in enumerate(intrinsic.loops):
        strides = {o.name: argument(text(o.strides[level])) for o in call.operands if o.strides}
        extent = argument(text(call.extents[level]))
        values[loop.name] = Fields({"extent": extent, "stride": Fields(strides)})
    return values


def immediate_values(
    intrinsic: Intrinsic, given: tuple[tuple[str, int | float], ...]
) -> dict[str, int | float]:
    """Each immediate as a number with its C text."""
    fields = {i.name: i for i in intrinsic.immediates}
    return {
        name: FloatText(value, fields[name].dtype) if fields[name].is_float else value
        for name, value in given
    }
