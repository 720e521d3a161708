"""The tests of single operators that the `onnx` package brings along, as models for hwgen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hwgen.errors import HwgenError
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.network.graph import Graph
from hwgen.network.onnx_reader import read_onnx
from hwgen.network.operators.from_onnx import ONNX
from hwgen.network.operators.layer import Layer
from hwgen.network.operators.table import layers_of


@dataclass(frozen=True, eq=False)
class Case:
    """A model of one operator, with inputs and outputs by name."""

    name: str
    operator: str
    model: Any
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    rtol: float
    atol: float


@cache
def node_cases() -> dict[str, Case]:
    """Models of one operator that hwgen has, by name; drawn when the package's modules are
    imported, which takes a while."""
    node: Any = import_module("onnx.backend.test.case.node")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = node.collect_testcases(None)
    return _cases(
        (one, one.model, one.data_sets[0]) for one in made if len(one.model.graph.node) == 1
    )


@cache
def file_cases() -> dict[str, Case]:
    """Models that PyTorch wrote, most of one layer with weights, by name."""
    onnx: Any = import_module("onnx")
    loader: Any = import_module("onnx.backend.test.loader")
    found: list[tuple[Any, Any, Any]] = []
    for kind in ("pytorch-converted", "pytorch-operator"):
        for one in loader.load_model_tests(kind=kind):
            folder = Path(one.model_dir)
            data = [
                [
                    onnx.numpy_helper.to_array(onnx.load_tensor(str(p)))
                    for p in sorted((folder / "test_data_set_0").glob(f"{side}_*.pb"))
                ]
                for side in ("input", "output")
            ]
            found.append((one, onnx.load(str(folder / "model.onnx")), data))
    return _cases(found)


def _cases(made: Iterable[tuple[Any, Any, Any]]) -> dict[str, Case]:
    found: dict[str, Case] = {}
    for one, model, (given, wanted) in made:
        graph = model.graph
        operators = {n.op_type for n in graph.node if n.domain in ("", "ai.onnx")}
        if not operators or not operators <= {*ONNX, "Constant"}:
            continue
        constants = {t.name for t in graph.initializer}
        names = [i.name for i in graph.input if i.name not in constants]
        inputs = dict(zip(names, map(_array, given), strict=False))
        outputs = dict(zip((o.name for o in graph.output), map(_array, wanted), strict=True))
        words = ", ".join(sorted(operators - {"Constant"}))
        found[one.name] = Case(one.name, words, model, inputs, outputs, one.rtol, one.atol)
    return found


def _array(given: Any) -> Array:
    helper: Any = import_module("onnx.numpy_helper")
    return (
        helper.to_array(given)
        if hasattr(given, "HasField")
        else np.asarray(given, object if given is None else None)
    )


def forms(case: Case) -> Iterator[tuple[Any, dict[str, Array]]]:
    """The model, with what is left of its inputs: as it is; with conditions as constants; with
    numbers and integers beside the first input; with all beside the first."""
    onnx: Any = import_module("onnx")
    names = list(case.inputs)
    small = [n for n in names[1:] if case.inputs[n].dtype.kind != "f" or case.inputs[n].size == 1]
    words = [n for n in names if case.inputs[n].dtype.kind == "b"]
    for constants in dict.fromkeys([(), tuple(words), tuple(small), tuple(names[1:])]):
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        model.ir_version = max(model.ir_version, 4)  # Constants that are no inputs.
        kept = [i for i in model.graph.input if i.name not in constants]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(case.inputs[n], n) for n in constants
        )
        yield model, {n: v for n, v in case.inputs.items() if n not in constants}


@dataclass(frozen=True)
class Read:
    """A case in a form that hwgen takes, or the last error."""

    graph: Graph | None
    layers: tuple[Layer, ...]
    inputs: Mapping[str, Array]
    error: HwgenError | None


def read(case: Case, folder: Path) -> Read:
    """The first form that is not refused, in the file `one.onnx` of the folder."""
    onnx: Any = import_module("onnx")
    error: HwgenError | None = None
    for model, inputs in forms(case):
        path = folder / "one.onnx"
        onnx.save(model, str(path))
        try:
            graph = read_onnx(path, "one")
            return Read(graph, layers_of(graph), inputs, None)
        except HwgenError as refused:
            error = refused
    return Read(None, (), {}, error)


def computed(found: Read) -> dict[str, Array]:
    """The outputs by the layers' statements, without any chip."""
    assert found.graph is not None
    held = dict(found.inputs)
    for layer in found.layers:
        name = layer.output[1]
        shape = found.graph.tensor[name].shape
        if layer.computation is None:
            held[name] = np.reshape(held[layer.inputs[0][1]], shape)
            continue
        workload = layer.computation.workload("one")
        assert [t.name for t in workload.outputs] == [layer.output[0]]
        given = {n: np.reshape(held[t], workload.tensor[n].shape) for n, t in layer.inputs}
        made = run_reference(workload, {**given, **layer.constants})
        held[name] = np.reshape(made[layer.output[0]], shape)
    return {n: held[n] for n in found.graph.outputs}


def agrees(case: Case, found: Mapping[str, Array]) -> bool:
    """Whether outputs are those of the case, as near as its own tolerance for floats says."""
    return all(
        found[n].dtype == wanted.dtype
        and found[n].shape == wanted.shape
        and (
            np.allclose(found[n], wanted, case.rtol, case.atol, equal_nan=True)
            if wanted.dtype.kind == "f"
            else np.array_equal(found[n], wanted)
        )
        for n, wanted in case.outputs.items()
    )
