"""ONNX models as graphs, by the `onnx` package: it checks and converts them, infers shapes, and
computes what depends on constants alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from hwgen.errors import HwgenError
from hwgen.model.numeric import Array
from hwgen.network.graph import Attribute, Graph, Operator, Tensor, damaged
from hwgen.network.onnx_rewrites import rewritten
from hwgen.packages import needed

R = TypeVar("R")

_UNREAD = "this ONNX model cannot be read"
OPSET = 21
"""Older models are converted to this version of the operators."""
_SMALL = 1024
"""Elements of a computed constant that shapes may follow from, at most."""
_UNFOLDED = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial", "If", "Loop", "Scan",
})  # fmt: skip
"""Operators that are not computed here: they draw numbers, or contain graphs."""


def read_onnx(path: Path, name: str) -> Graph:
    """The graph of an `.onnx` file.

    Raises:
        HwgenError: H801 no such model, a damaged one, or one of unknown shapes; H046 without the
            package `onnx`.
    """
    model = converted(path)
    graph = _checked(path, lambda: _read(load_package(), model, path, name))
    graph.check()
    return rewritten(graph)


def _read(onnx: Any, model: Any, path: Path, name: str) -> Graph:
    values: dict[str, Array] = {
        t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer
    }
    shapes = _shapes(onnx, model)
    while _folded(onnx, model, values, shapes) and _unknown(model, values, shapes):
        # Values that were computed may say what shapes are.
        _keep_small(onnx, model, values)
        model = onnx.shape_inference.infer_shapes(model)
        shapes = _shapes(onnx, model)
    unknown = _unknown(model, values, shapes)
    if unknown:
        repair = "fix the shapes of its inputs"
        raise damaged(path, _UNREAD, "\n".join(unknown), "shapes of numbers", repair)
    return _graph(onnx, model, values, shapes, path, name)


def load_package() -> Any:
    """The package.

    Raises:
        HwgenError: H046 where it is not installed.
    """
    for part in ("onnx.version_converter", "onnx.reference"):
        needed(part, "reads ONNX models", "onnx")
    return needed("onnx", "reads ONNX models", "onnx")


def converted(path: Path) -> Any:
    """The model of a file, checked, of this version of the operators or a newer one, with shapes.

    Raises:
        HwgenError: H801 where the package refuses it.
    """
    onnx = load_package()

    def made() -> Any:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
        version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
        if 0 < version < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)

    with path.open("rb"):  # An error of the file itself.
        return _checked(path, made)


def _checked(path: Path, made: Callable[[], R]) -> R:
    """The result of a call of the package; its errors as hwgen's."""
    onnx = load_package()
    message = needed("google.protobuf.message", "reads ONNX models", "onnx")
    refusals = (
        message.EncodeError, onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError, onnx.version_converter.ConvertError,
        RuntimeError, ValueError, TypeError, LookupError, AttributeError,
    )  # fmt: skip
    try:
        return made()
    except message.DecodeError as error:
        raise _damaged(path, "bytes that are no protocol buffer") from error
    except refusals as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise _damaged(path, said) from error


def _damaged(path: Path, found: str) -> HwgenError:
    allowed = "a model that onnx's checker, converter and shape inference take"
    return damaged(path, _UNREAD, found, allowed)


def _shapes(onnx: Any, model: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Data type and shape of each tensor of which both are known."""
    graph = model.graph
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        if info.type.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
            continue
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        if min(dims, default=0) >= 0 and kind.elem_type:
            found[info.name] = (_dtype(onnx, kind.elem_type), tuple(dims))
    return found


def _dtype(onnx: Any, number: int) -> str:
    word: str = onnx.TensorProto.DataType.Name(number).lower()
    return {"float": "float32", "double": "float64"}.get(word, word)


def _unknown(model: Any, values: Mapping[str, Array], shapes: Mapping[str, Any]) -> list[str]:
    """The tensors of unknown shape that operators read or write, or the caller does."""
    graph = model.graph
    names = [i.name for i in graph.input]
    for node in graph.node:
        names += [n for n in (*node.input, *node.output[:1]) if n]
    return [f"{n}: no shape" for n in dict.fromkeys(names) if n not in shapes and n not in values]


def _folded(
    onnx: Any, model: Any, values: dict[str, Array], shapes: Mapping[str, tuple[str, Any]]
) -> bool:
    """Compute the results of constants that are not known yet; whether there were any."""
    more = False
    for node in model.graph.node:
        given = [n for n in node.input if n]
        if node.output[0] in values or node.op_type in _UNFOLDED:
            continue
        if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
            given = [node.input[0]]
            feeds = {given[0]: np.zeros(shapes[given[0]][1], np.int8)}
        elif all(n in values for n in given):
            feeds = {n: values[n] for n in given}
        else:
            continue
        made = evaluated(onnx, model, [node], feeds, list(node.output))
        values |= made
        more = True
    return more


def evaluated(
    onnx: Any, model: Any, nodes: Sequence[Any], feeds: Mapping[str, Array], wanted: Sequence[str]
) -> dict[str, Array]:
    """Results of nodes of a model, by onnx's reference evaluator."""
    names = [n for n in wanted if n]
    make = onnx.helper.make_tensor_value_info
    number = onnx.helper.np_dtype_to_tensor_dtype
    typed = [make(n, number(v.dtype), v.shape) for n, v in feeds.items()]
    made = [onnx.helper.make_empty_tensor_value_info(n) for n in names]
    graph = onnx.helper.make_graph(nodes, "part", typed, made)
    part = onnx.helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions
    )
    results = onnx.reference.ReferenceEvaluator(part).run(names, dict(feeds))
    return dict(zip(names, map(np.asarray, results), strict=True))


def _keep_small(onnx: Any, model: Any, values: Mapping[str, Array]) -> None:
    """Write small computed constants into the model, for the inference of shapes."""
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        found = [(n, values[n]) for n in node.output if n in values]
        if found and all(v.size <= _SMALL for _, v in found):
            model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in found)
        else:
            model.graph.node.append(node)


def _graph(
    onnx: Any,
    model: Any,
    values: Mapping[str, Array],
    shapes: Mapping[str, tuple[str, tuple[int, ...]]],
    path: Path,
    name: str,
) -> Graph:
    operators: list[Operator] = []
    given = model.graph
    read = Counter(n for node in given.node for n in node.input)
    read.update(o.name for o in given.output)
    for number, node in enumerate(given.node):
        if node.output[0] in values:
            continue
        # Further results count only where something reads them, but for their places.
        outputs = list(node.output)
        while len(outputs) > 1 and not read[outputs[-1]]:
            outputs.pop()
        kind = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        attributes = {a.name: v for a in node.attribute if (v := _attribute(onnx, a)) is not None}
        said = node.name or node.output[0]
        inputs = tuple(node.input)
        operators.append(Operator(kind, number, inputs, tuple(outputs), attributes, said))
    constants = {t.name for t in given.initializer}
    inputs = tuple(i.name for i in given.input if i.name not in constants)
    outputs = tuple(o.name for o in given.output)
    used = dict.fromkeys([*inputs, *outputs])
    used |= dict.fromkeys(n for o in operators for n in (*o.inputs, *o.outputs) if n)
    tensors: list[Tensor] = []
    for number, n in enumerate(used):
        data = values.get(n)
        if data is not None:
            dtype = _dtype(onnx, onnx.helper.np_dtype_to_tensor_dtype(data.dtype))
            tensors.append(Tensor(n, data.shape, dtype, number, None, data))
        else:
            dtype, shape = shapes.get(n, ("unknown", ()))
            tensors.append(Tensor(n, shape, dtype, number))
    return Graph(name, str(path), tuple(tensors), tuple(operators), inputs, outputs, "onnx")


def _attribute(onnx: Any, given: Any) -> Attribute | None:
    """A number, a word or whole numbers; of another kind None."""
    value: object = onnx.helper.get_attribute_value(given)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, int | float):
        return value
    if given.type == onnx.AttributeProto.INTS:
        return tuple(cast("list[int]", value))
    return None
