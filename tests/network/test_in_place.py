"""Outputs in the bytes of inputs: only where every read comes first, on every kind of chip."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hwgen.errors import HwgenError
from hwgen.model.c_compiler import have_compiler
from hwgen.network import kernels
from hwgen.network.compiled import Network, compile_model
from hwgen.network.in_place import overwritable
from hwgen.network.kernels import LayerKernel
from hwgen.network.steps import check_values
from hwgen.spec.load import parse_workload
from hwgen.spec.workload import Workload
from tests.models import (
    HAVE_READER,
    WITH_RUNTIME,
    OperatorOf,
    convolution,
    fully_connected,
    model,
    scaled,
)
from tests.sampling import tiered

C = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


def workload(
    *compute: str | dict[str, object],
    y: str = "float32[4, 6]",
    x: str = "float32[4, 6]",
    t: str = "",
) -> Workload:
    tensors = {"x": x, "b": "float32[4, 6]", **({"t": t} if t else {}), "y": y}
    return parse_workload(
        {"name": "one", "sizes": {}, "tensors": tensors, "compute": list(compute)}, file="<one>"
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (workload("y[i, j] = x[i, j] + b[i, j]"), "bx"),
        (workload("t[i, j] = x[i, j] * 3.0", "y[i, j] = t[i, j] - x[i, j] + b[i, j]",
                  t="float32[4, 6]"), "bx"),
        # Another element than that which is overwritten.
        (workload("y[i, j] = x[i, 5 - j] + b[i, j]"), "b"),
        (workload("t[i, j] = x[i, j]", "y[i, j] = t[3 - i, j] + b[i, j]", t="float32[4, 6]"), "b"),
        # Shapes and sizes.
        (workload("y[i, j] = x[i, j] + b[i, j]", x="float64[4, 6]", y="float64[4, 6]"), "x"),
        (workload("y[i, j] = x[j] + b[i, j]", x="float32[6]"), "b"),
        # A part of the input, in several statements.
        (workload({"do": "y[i, 2*j] = x[i, 2*j] + b[i, 2*j]", "loops": {"i": 4, "j": 3}},
                  {"do": "y[i, 2*j + 1] = x[i, 2*j + 1]", "loops": {"i": 4, "j": 3}}), ""),
        # Sums: what they begin with overwrites, or they are for many elements.
        (workload("y[i, j] += x[i, j] * b[i, j]"), ""),
        (workload("t[i] max= x[i, j]", "y[i, j] = x[i, j] - t[i] + b[i, j]", t="float32[4]"), "b"),
        # Two outputs.
        (workload("t[i, j] = x[i, j]", "y[i, j] = b[i, j] + x[i, j]", t="float32[4, 6]"), ""),
    ],
)  # fmt: skip
def test_elements_that_are_read_for_themselves(given: Workload, found: str) -> None:
    assert "".join(sorted(overwritable(given))) == found


def gated(path: Path) -> Path:
    """x * logistic(x), added to itself."""
    image = (1, 6, 5, 8)
    tensors = [scaled(image, 0.05, 3), scaled(image, 1 / 256, -128)]
    tensors += [scaled(image, 0.05, 3), scaled(image, 0.05, 3)]
    operators = [
        OperatorOf("LOGISTIC", [0], [1]),
        OperatorOf("MUL", [0, 1], [2], "MulOptions"),
        OperatorOf("ADD", [2, 2], [3], "AddOptions"),
    ]
    path.write_bytes(model(tensors, operators, [0], [3]))
    return path


@C
@WITH_RUNTIME
@pytest.mark.parametrize("chip", tiered(["cpu_generic", "gemmini", "vta"], ["cpu_generic"]))
def test_layers_write_over_their_inputs(chip: str, tmp_path: Path) -> None:
    net = compile_model(gated(tmp_path / "gated.tflite"), chip)
    (x,), (y,) = net.plan.graph.inputs, net.plan.graph.outputs
    assert net.plan.offset(x) == net.plan.offset(y)
    rooms = max(k.workspace_bytes for k in net.kernels)
    assert net.plan.arena.bytes <= 2 * 240 + -(-rooms // 64) * 64 + 64
    assert str(net.compare(4)) == "equal to tflite-micro: 3 layers on 4 inputs"
    for kernel in net.kernels[1:]:
        assert not re.search(r"\*restrict (a|y)\b", kernel.files[kernel.source])


@C
@WITH_RUNTIME
def test_packing_gives_bytes_back(tmp_path: Path) -> None:
    """Units have read the input when the host core writes the output."""
    path = tmp_path / "dense.tflite"
    path.write_bytes(fully_connected(np.random.default_rng(4), 1, 48, 33, activation=1))
    net = compile_model(path, "gemmini")
    (kernel,) = net.kernels
    assert kernel.early == {"x"}
    spans = [(p.offset, p.end) for p in net.plan.arena.places if "workspace" not in p.live.name]
    assert max(a for a, _ in spans) < min(b for _, b in spans)
    assert "1 layers" in str(net.compare(4))


def read_around(path: Path) -> Path:
    """A convolution whose outputs read neighbours."""
    path.write_bytes(convolution(np.random.default_rng(3), (9, 7, 5), (3, 3), 0, multiplier=1))
    return path


def all_inputs(given: Workload) -> frozenset[str]:
    return frozenset(t.name for t in given.inputs if not t.constant)


def over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "overwritable", all_inputs)


def early(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels._of_processor  # pyright: ignore[reportPrivateUsage]

    def wrong(*given: object) -> LayerKernel:
        made = right(*given)  # pyright: ignore[reportArgumentType]
        return replace(made, early=all_inputs(made.workload))

    monkeypatch.setattr(kernels, "_of_processor", wrong)


@C
@WITH_RUNTIME
@pytest.mark.parametrize("mistake", [over, early])
def test_a_wrong_proof_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = read_around(tmp_path / "net.tflite")
    assert "equal" in str(compile_model(path, "cpu_generic").compare(2))
    mistake(monkeypatch)
    net = compile_model(path, "cpu_generic")
    assert net.plan.arena.bytes == 9 * 7 * 5
    with pytest.raises(HwgenError) as told:
        net.compare(2)
    assert told.value.code == "H805"


@pytest.mark.skipif(not HAVE_READER, reason="no package tflite")
def test_a_wrong_plan_is_noticed(tmp_path: Path) -> None:
    """The layers' values in other places than the kernels are for."""
    net: Network = compile_model(gated(tmp_path / "gated.tflite"), "cpu_generic")
    plan = net.plan
    check_values(plan)
    x, gate, *_ = plan.place
    steps = [replace(s, kernel=replace(s.kernel, over=frozenset())) for s in plan.steps]
    wrong = [
        (replace(plan, place={**plan.place, gate: plan.place[x]}), "layer 1 does not find"),
        (replace(plan, steps=tuple(steps)), "layer 1 does not find"),
    ]
    for changed, said in wrong:
        with pytest.raises(HwgenError) as told:
            check_values(changed)
        assert told.value.code == "H804"
        assert said in told.value.diagnostic.found
