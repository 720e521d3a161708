"""Specs with a few fields dropped or changed, and what became of kernels for those that are valid.

What `check` passes, `generate` can use: a kernel, or a refusal that tells what the workload needs.
`python -m tests.unit.spec.mutants CHIP WORKLOAD FIRST COUNT` looks at many.
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
from hwgen.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_workload, parse_hardware
from hwgen.spec.source import read_document
from hwgen.verify.chips.examine import REFUSALS
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from hwgen.verify.examine_nest import examine_nest

ROOT = Path(__file__).parents[3]
NEST_REFUSALS = ("H410", "H411", "H412", "H413", "H417", "H513", "H620", "H621", "H624", "H625")
NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 64, 1000, "1..1", "0..0", "1..2", "1..16", "0..1023")
SMALL = {"M": 20, "N": 24, "K": 36, "H": 5, "W": 6}

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


def outcome(spec: dict[str, Data], workload: Path) -> str:
    """`unread`, `equal`, the code of a refusal; or what is wrong, which has a space in it."""
    try:
        hardware = parse_hardware(spec)
    except HwgenError:
        return "unread"
    sizes = cast("dict[str, Data]", cast("dict[str, Data]", read_document(workload).data)["sizes"])
    loaded = load_workload(workload, {n: v for n, v in SMALL.items() if n in sizes})
    allowed = REFUSALS if hardware.units else NEST_REFUSALS
    try:
        if hardware.units:
            made = compile_kernel(loaded, hardware)
            examine(made, draw_inputs(loaded, 0, "random"), "python")
        else:
            nest = compile_nest(loaded, hardware)
            examine_nest(nest, draw_inputs(loaded, 0, "random"), "python")
    except HwgenError as error:
        return error.code if error.code in allowed else f"wrong {error}"
    except Exception as error:
        return f"crash {type(error).__name__}: {error}"
    return "equal"


def chip(name: str) -> dict[str, Data]:
    """The plain data of a shipped chip."""
    return cast("dict[str, Data]", read_document(ROOT / "hw_specs" / f"{name}.yaml").data)


def main() -> None:
    """Print every mutant that is valid and ends otherwise than it may."""
    name, workload, first, count = sys.argv[1:5]
    spec = chip(name)
    for number in range(int(first), int(first) + int(count)):
        found = outcome(mutant(spec, number), ROOT / "workloads" / f"{workload}.yaml")
        sys.stdout.write(f"{number} {found}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
