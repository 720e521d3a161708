"""The models that the package `onnx` tests backends with, compiled for chips with units.

python -m benchmarks.onnx_chips [CHIP ...] [--integers] [--light NAME ...]

Each model runs as the C of its folder, on the chip's C model, and its outputs are compared with
those that come with it: integers exactly, floats as near as the model's own tolerance says. A model
of an operator or of a type that hwgen does not have is not counted, as no chip comes into that.
`--integers` leaves out all models with floats. `--light` takes networks of the package instead, as
`squeezenet`, and compares each layer with onnx's evaluator; `vgg19` has 144 million weights.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.errors import HwgenError
from hwgen.network.compiled import Network, compile_model
from hwgen.spec.table import Cell, table
from hwgen.spec.typecheck import is_float
from tests.network.onnx_backend import Case, agrees, file_cases, node_cases, read

RIGHT = ("on units", "on the host core")
CHIPS = ("gemmini", "tpu_v1", "davinci_core", "npu_shared_buffer", "vta", "cpu_generic")


def outcome(case: Case, chip: str, folder: Path, *, integers: bool) -> str | None:
    """`on units` or `on the host core` of a model that is right, the code of a refusal, or `wrong`;
    None of a model that is not counted."""
    found = read(case, folder)
    if found.graph is None or not any(layer.computation for layer in found.layers):
        return None
    if integers and any(is_float(t.dtype) for t in found.graph.tensors):
        return None
    try:
        net = compile_model(folder / "one.onnx", chip)
    except HwgenError as refused:
        return refused.code
    try:
        right = agrees(case, net.run(found.inputs))
    except HwgenError as failed:
        print(f"{case.name} on {chip}: {failed}", file=sys.stderr)
        right = False
    return where(net) if right else "wrong"


def where(net: Network) -> str:
    """Who computes: units, where they compute part of a layer at least."""
    fallen = (step.kernel.figures.refused is not None for step in net.layers)
    return RIGHT[all(fallen) or not net.plan.hardware.units]


def counted(
    cases: Iterable[Case], chip: str, folder: Path, *, integers: bool
) -> tuple[Counter[str], list[str]]:
    """Outcomes, and the names of the models that are wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases:
        found = outcome(case, chip, folder, integers=integers)
        if found is not None:
            counts[found] += 1
        if found == "wrong":
            wrong.append(case.name)
    return counts, wrong


def light_outcome(name: str, chip: str) -> str:
    """The same of a network of the package, whose weights are constants of one value each."""
    package: Any = import_module("onnx.backend.test.data")
    path = Path(next(iter(package.__path__))) / "light" / f"light_{name}.onnx"
    try:
        net = compile_model(path, chip)
    except HwgenError as refused:
        return refused.code
    try:
        net.compare(1)
    except HwgenError as failed:
        print(f"{path.stem} on {chip}: {failed}", file=sys.stderr)
        return "wrong"
    return where(net)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a model is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("chips", nargs="*", default=CHIPS)
    parser.add_argument("--integers", action="store_true")
    parser.add_argument("--light", nargs="+", default=())
    given = parser.parse_args(arguments)
    rows: list[list[Cell]] = []
    failed = False
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        cases = [] if given.light else [*file_cases().values(), *node_cases().values()]
        for chip in given.chips:
            if given.light:
                counts = Counter(light_outcome(name, chip) for name in given.light)
                wrong: list[str] = []
            else:
                counts, wrong = counted(cases, chip, Path(folder), integers=given.integers)
            codes = ", ".join(f"{n} {c}" for c, n in sorted(counts.items()) if c.startswith("H"))
            rows.append([
                chip, *(counts[word] for word in RIGHT), codes or "0", counts["wrong"]
            ])  # fmt: skip
            failed |= counts["wrong"] > 0
            for name in wrong:
                print(f"wrong on {chip}: {name}", file=sys.stderr)
    header = ["chip", "right, on units", "right, on the host core", "refused", "wrong"]
    print(table(header, rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
