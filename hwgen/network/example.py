"""`main.c` of a network's folder: one run on a sample, and on a host on files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwgen.codegen.c_names import C_TYPES
from hwgen.model.numeric import Array
from hwgen.network.graph import Tensor
from hwgen.network.steps import Plan

_MOST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Inputs of the network and the outputs that the reference computes from them, by name;
    `errors`: where floats come into them, how far rounding may bring each from that."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    errors: Mapping[str, Array]


def example(plan: Plan, sample: Sample, *, hosted: bool) -> str:
    """The text of the file; `hosted`: it also reads and writes files."""
    name, graph = plan.name, plan.graph
    inputs = [(f"input{n}", graph.tensor[t]) for n, t in enumerate(graph.inputs)]
    outputs = [(f"output{n}", graph.tensor[t]) for n, t in enumerate(graph.outputs)]
    arrays = [
        line
        for own, tensor in (*inputs, *outputs)
        for line in _array(own, tensor.dtype, {**sample.inputs, **sample.outputs}[tensor.name])
    ]

    def each(own: str, tensor: Tensor, action: str) -> list[str]:
        return [f"  for (int32_t i = 0; i < {tensor.elements}; ++i)", f"    {action.format(own)}"]

    def moved(function: str, own: str, tensor: Tensor) -> list[str]:
        call = f"{function}({name}_{own}(arena), 1, {tensor.bytes}, file)"
        return [f"  if ({call} != {tensor.bytes})", "    return 2;"]

    arrays += [
        line
        for own, tensor in outputs
        if tensor.name in sample.errors
        for line in _array(f"{own}_error", _error_type(tensor), sample.errors[tensor.name])
    ]
    files = [
        "static int from_file(const char *in, const char *out)",
        "{",
        '  FILE *file = fopen(in, "rb");',
        "  if (!file)",
        "    return 2;",
        *(line for own, tensor in inputs for line in moved("fread", own, tensor)),
        "  fclose(file);",
        f"  if ({name}(arena) != 0)",
        "    return 1;",
        '  file = fopen(out, "wb");',
        "  if (!file)",
        "    return 2;",
        *(line for own, tensor in outputs for line in moved("fwrite", own, tensor)),
        "  return fclose(file) != 0 ? 2 : 0;",
        "}",
        "",
    ]
    more = "\n * `host IN OUT` reads inputs from a file and writes the outputs." if hosted else ""
    lines = [
        f"/* Runs {name} once. Status 0: the outputs are those of hwgen's reference.{more} */",
        f'#include "{name}.h"',
        *(["#include <stdio.h>"] if hosted else []),
        "",
        f"{name}_ALIGNED static unsigned char arena[{name}_ARENA_BYTES];",
        *arrays,
        "",
        *(files if hosted else []),
        f"int main({'int count, char **words' if hosted else 'void'})",
        "{",
        "  int wrong = 0;",
        *(["  if (count == 3)", "    return from_file(words[1], words[2]);"] if hosted else []),
        *(
            line
            for own, tensor in inputs
            for line in each(own, tensor, f"{name}_{{0}}(arena)[i] = {{0}}[i];")
        ),
        f"  if ({name}(arena) != 0)",
        "    return 1;",
        *(
            line
            for own, tensor in outputs
            for line in each(own, tensor, f"wrong |= {_differs(name, tensor, sample)};")
        ),
        "  return wrong;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _differs(name: str, tensor: Tensor, sample: Sample) -> str:
    """Whether an element is not what the reference has; floats, as far as rounding explains."""
    found, wanted = f"{name}_{{0}}(arena)[i]", "{0}[i]"
    if tensor.name not in sample.errors:
        return f"{found} != {wanted}"
    one, other = f"{found} - {wanted} <= {{0}}_error[i]", f"{wanted} - {found} <= {{0}}_error[i]"
    return f"!({one} && {other})"


def _error_type(tensor: Tensor) -> str:
    return "float64" if tensor.dtype == "float64" else "float32"


def _number(value: float) -> str:
    """Of floats the nearest finite one."""
    return str(value) if isinstance(value, int) else repr(min(max(value, -_MOST), _MOST))


def _array(own: str, dtype: str, values: Array) -> list[str]:
    suffix = "f" if dtype == "float32" else ""
    flat = [f"{_number(v)}{suffix}" for v in values.ravel().tolist()]
    rows = ["  " + " ".join(f"{v}," for v in flat[n : n + 16]) for n in range(0, len(flat), 16)]
    declared = f"static const {C_TYPES[dtype]} {own}[{values.size}] = {{"
    return ["", declared, *rows, "};"]
