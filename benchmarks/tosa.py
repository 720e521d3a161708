"""Positive tests of TOSA's integer profile, for the operators that hwgen has templates of.

python -m benchmarks.tosa FOLDER [--chip CHIP] [--operators WORD ...] [--every N]

`pip install tosa-tools` brings the generator of the tests, the schema's modules and the reference
model. A FOLDER that does not exist is filled first. Each test is compiled for the chip and run as
the C of its folder; the output must be the reference model's, bit for bit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.onnx_chips import RIGHT, where
from benchmarks.tosa_operators import ENTRIES
from hwgen.errors import HwgenError
from hwgen.network.compiled import Network
from hwgen.network.graph import Attribute, Graph, Operator, Tensor
from hwgen.network.kernels import compile_layers, untold
from hwgen.network.layers import kernel_names
from hwgen.network.operators.layer import UnsupportedError, need
from hwgen.network.operators.statements import Statements
from hwgen.network.steps import plan_network
from hwgen.passes.phase import DEFAULTS
from hwgen.spec.expression import DTYPES
from hwgen.spec.find import find_spec
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.table import Cell, table
from hwgen.verify.executors import Processes

PROFILE = ("--profile", "tosa-pro-int", "--extension", "none", "--test-type", "positive")
VECTORS = {
    "Stride": "strides", "Dilation": "dilations", "Kernel": "window", "Perms": "order",
    "MinVal": "least", "MaxVal": "most",
}  # fmt: skip
NUMBERS = {
    "Axis": "axis", "InputUnsigned": "unsigned_input", "OutputUnsigned": "unsigned_output",
    "Round": "round",
}  # fmt: skip
"""By the schema's words, the attributes of templates."""

# --- reading --------------------------------------------------------------------------------------


def _module(name: str) -> Any:
    return getattr(import_module(f"tosa.{name}"), name)


def _words(enumeration: str) -> dict[int, str]:
    members = cast("dict[str, object]", vars(_module(enumeration)))
    return {v: k for k, v in members.items() if isinstance(v, int)}


def _each(made: Any, name: str) -> list[Any]:
    """The elements of a vector of the schema."""
    return [getattr(made, name)(n) for n in range(getattr(made, f"{name}Length")())]


def _names(made: Any, name: str) -> tuple[str, ...]:
    return tuple(one.decode() for one in _each(made, name))


def read(folder: Path) -> Graph:
    """The graph of a test, without the operators that give constants."""
    root = _module("TosaGraph").GetRootAs((folder / "test.tosa").read_bytes())
    block, words, types = root.Regions(0).Blocks(0), _words("Op"), _words("DType")
    tensors: list[Tensor] = []
    for made in _each(block, "Shapes"):
        data = made.DataAsNumpy().view(np.int64) if made.DataLength() else None
        tensors.append(Tensor(made.Name().decode(), (made.Rank(),), "int64", 0, None, data))
    for made in _each(block, "Tensors"):
        shape, dtype, data = tuple(_each(made, "Shape")), types[made.Type()].lower(), None
        if made.DataLength() and dtype.startswith("int"):
            # The data may be padded at its end.
            data = np.reshape(made.DataAsNumpy().view(dtype)[: prod(shape)], shape)
        tensors.append(Tensor(made.Name().decode(), shape, dtype, 0, None, data))
    operators = tuple(
        Operator(words[o.Op()], n, inputs, _names(o, "Outputs"), _attributes(o))
        for n, o in enumerate(_each(block, "Operators"))
        if (inputs := _names(o, "Inputs"))
    )
    constants = {t.name for t in tensors if t.data is not None}
    given = dict.fromkeys(n for o in operators for n in o.inputs if n not in constants)
    results = _names(block, "Outputs")
    return Graph("one", str(folder), tuple(tensors), operators, tuple(given), results)


def _attributes(operator: Any) -> dict[str, Attribute]:
    """Those that the templates take. Padding is in the order of theirs: before all dimensions, then
    after them."""
    given = operator.Attribute()
    if given is None:
        return {}
    made = _module(_words("Attribute")[operator.AttributeType()])()
    made.Init(given.Bytes, given.Pos)
    found: dict[str, Attribute] = {}
    for name, ours in VECTORS.items():
        if hasattr(made, name):
            found[ours] = tuple(map(int, _each(made, name)))
    for name, ours in NUMBERS.items():
        if hasattr(made, name):
            found[ours] = int(getattr(made, name)())
    for name, sign in (("Pad", 1), ("OutPad", -1)):
        if hasattr(made, name):
            pad = [sign * int(n) for n in _each(made, name)]
            found["pads"] = (*pad[::2], *pad[1::2])
    return found


# --- running --------------------------------------------------------------------------------------


def outcome(folder: Path, hardware: HardwareSpec) -> str:
    """`on units` or `on the host core` of a test that is right; `wrong`; or the code of a refusal
    and what was found."""
    described = json.loads((folder / "desc.json").read_text())
    (result,) = described["ofm_file"]
    if not (folder / result).exists():
        command = [_program("tosa_reference_model"), "--test_desc", "desc.json"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    graph = read(folder)
    names = zip(described["ifm_name"], described["ifm_file"], strict=True)
    inputs = {n: np.load(folder / file) for n, file in names if n in graph.inputs}
    try:
        for tensor in graph.tensors:
            need(tensor.dtype in DTYPES, tensor.dtype)
        layers = tuple(ENTRIES[o.kind](Statements(graph, o)) for o in graph.operators)
        kernels = compile_layers(
            kernel_names("one", layers), hardware,
            workers=Processes(1), options=DEFAULTS, cached=False, progress=untold,
        )  # fmt: skip
    except UnsupportedError as refused:
        return f"H803 {refused}"
    except HwgenError as refused:
        return f"{refused.code} {refused.diagnostic.found}"
    net = Network(plan_network("one", graph, hardware, layers, kernels))
    (found,) = net.run(inputs).values()
    return where(net) if np.array_equal(found, np.load(folder / result)) else "wrong"


def _program(name: str) -> str:
    """Of the package, beside the interpreter."""
    return str(Path(sys.executable).with_name(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where a test is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chip", default="cpu_generic")
    parser.add_argument("--operators", nargs="+", default=sorted(ENTRIES))
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args(arguments)
    if not given.folder.exists():
        made = [_program("tosa_verif_build_tests"), *PROFILE, "-o", str(given.folder)]
        subprocess.run(made, check=True)
    hardware = load_hardware(find_spec(given.chip))
    counts = {word: Counter[str]() for word in given.operators}
    for path in sorted(given.folder.rglob("desc.json"))[:: given.every]:
        word = json.loads(path.read_text())["test_details"]["operator"]
        if word in counts:
            said = outcome(path.parent, hardware)
            counts[word][said] += 1
            print(f"{path.parent.name}: {said}", file=sys.stderr, flush=True)
    rows: list[list[Cell]] = []
    for word, found in counts.items():
        codes = [f"{n} {said}" for said, n in sorted(found.items()) if said.startswith("H")]
        rows.append([word, *(found[w] for w in RIGHT), "; ".join(codes) or "0", found["wrong"]])
    print(table(["operator", *RIGHT, "refused", "wrong"], rows))
    return int(any(found["wrong"] for found in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
