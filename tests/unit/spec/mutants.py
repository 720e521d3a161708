"""Specs with a few fields dropped or changed, and what became of kernels for those that are valid.

What `check` passes, `generate` can use: a kernel, or a refusal that tells what the workload needs.
`python -m tests.unit.spec.mutants CHIP.yaml FIRST COUNT` looks at many.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, cast

from hwgen.errors import HwgenError
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import make_workload, parse_hardware
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.natural.campaign import REFUSALS

ROOT = Path(__file__).parents[3]
NEST_REFUSALS = ("H411", "H412", "H413", "H417", "H513", "H620", "H621", "H624", "H625")
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 64, 1000, "1..1", "0..0", "1..2", "1..16", "0..1023")
SUM = "s[m, n] += x[m, k] * w[n, k]"
SIZES = {"M": 4, "N": 12, "K": 24}

Data = Any
Place = tuple[Data, Any]


def places(data: Data) -> Iterator[Place]:
    """Every entry of every mapping and list: where it stands, and its key."""
    entries = cast("dict[Any, Data]", data).items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(entries):
        yield data, key
        if isinstance(value, dict | list):
            yield from places(cast("Data", value))


def mutant(spec: dict[str, Data], number: int) -> dict[str, Data]:
    """The spec with one to three changes, drawn from the number."""
    random, data = Random(number), deepcopy(spec)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        parent, key = random.choice(list(places(data)))
        value = parent[key]
        kind = random.randrange(4)
        if kind < 2 and len(data) > 3:
            del parent[key]
        elif isinstance(value, int | str) and re.fullmatch(r"[\d.]+", str(value)):
            parent[key] = random.choice(NUMBERS)
        elif isinstance(value, str):
            others = [p[k] for p, k in places(data) if k == key and isinstance(p[k], str)]
            words = re.findall(r"\w+", value)
            parent[key] = random.choice(others) if kind == 2 else value.replace(
                random.choice(words or [""]), random.choice(words or [""]), 1
            )  # fmt: skip
        elif isinstance(value, list):
            random.shuffle(cast("list[Data]", value))
    return data


def product(dtype: str) -> Workload:
    """A small product of matrices with elements of one type."""
    weights = {"type": f"{dtype}[N, K]", "constant": True}
    tensors: dict[str, Any] = {"x": f"{dtype}[M, K]", "w": weights}
    if dtype != "int8":
        tensors["s"] = f"{dtype}[M, N]"
        return make_workload("product", sizes=SIZES, tensors=tensors, compute=[SUM])
    tensors |= {"s": "int32[M, N]", "y": "int8[M, N]"}
    narrowed = "y[m, n] = int8(clip(s[m, n], -128, 127))"
    return make_workload("product", sizes=SIZES, tensors=tensors, compute=[SUM, narrowed])


def outcome(spec: dict[str, Data], workload: Workload) -> str:
    """`unread`, `equal`, the code of a refusal; or what is wrong, which has a space in it."""
    try:
        hardware = parse_hardware(spec)
    except HwgenError:
        return "unread"
    inputs = draw_inputs(workload, 0, "random")
    allowed = REFUSALS if hardware.units else NEST_REFUSALS
    try:
        if hardware.units:
            examine(compile_kernel(workload, hardware), inputs)
        else:
            examine(compile_nest(workload, hardware), inputs)
    except HwgenError as error:
        return error.code if error.code in allowed else f"wrong {error}"
    except Exception as error:
        return f"crash {type(error).__name__}: {error}"
    return "equal"


def chip(path: str) -> dict[str, Data]:
    """The plain data of a chip, by its path in the project."""
    return cast("dict[str, Data]", read_document(ROOT / path).data)


def main() -> None:
    """Print what becomes of mutants."""
    path, first, count = sys.argv[1:4]
    spec = chip(path)
    workload = product("int8" if "int8" in str(spec) else "float32")
    for number in range(int(first), int(first) + int(count)):
        sys.stdout.write(f"{number} {outcome(mutant(spec, number), workload)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
