"""Tensors between layers that stay in the chip's layout: nothing is packed where both agree."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwgen.codegen.storages import Image
from hwgen.model.c_compiler import have_compiler
from hwgen.model.images import held, unpack
from hwgen.model.numeric import Array
from hwgen.network import runner
from hwgen.network.compiled import Network, compile_model
from hwgen.network.kept import kept_images
from tests.models import (
    WITH_READER,
    WITH_RUNTIME,
    OperatorOf,
    TensorOf,
    biases_of,
    model,
    scaled,
    weights_of,
)

pytestmark = [WITH_READER, pytest.mark.skipif(not have_compiler(), reason="no C compiler")]
CHIP = "tpu_v1"
"""A chip whose rows of 256 lanes are longer than those of the tensors."""


def convolutions(path: Path, *kernels: int) -> Path:
    """A chain of convolutions with windows of so many rows and columns."""
    rng, shape = np.random.default_rng(0), (1, 6, 6, 24)
    tensors: list[TensorOf] = [scaled(shape, 0.05)]
    operators: list[OperatorOf] = []
    options = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    for size in kernels:
        x = len(tensors) - 1
        scales = (0.01,) * 24
        tensors += [
            weights_of(rng, (24, size, size, 24), scales, 0, "int8"),
            biases_of(rng, scales, 24, "int32"),
            scaled(shape, 0.05),
        ]
        operators.append(
            OperatorOf("CONV_2D", [x, x + 1, x + 2], [x + 3], "Conv2DOptions", options)
        )
    path.write_bytes(model(tensors, operators, [0], [len(tensors) - 1]))
    return path


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Network:
    folder = tmp_path_factory.mktemp("kept")
    return compile_model(convolutions(folder / "chain.tflite", 1, 3, 1, 1), CHIP)


def text(net: Network, layer: int) -> str:
    kernel = net.layers[layer].kernel
    return kernel.files[kernel.source] + kernel.files[kernel.model]


@WITH_RUNTIME
def test_nothing_is_packed_between_layers(tmp_path: Path) -> None:
    net = compile_model(convolutions(tmp_path / "two.tflite", 3, 1), CHIP)
    (value,) = net.plan.kept
    assert value == net.layers[0].layer.output[1]
    assert "_fill_xp_image(" in text(net, 0)
    assert "_unpack_" not in text(net, 0)
    assert "_fill_" not in text(net, 1)
    assert "_unpack_y_image(" in text(net, 1)
    assert str(net.compare(4)) == "equal to tflite-micro: 2 layers on 4 inputs"
    assert str(replace(net, wanted="python").compare(1)).startswith("equal")
    net.save(tmp_path / "out")
    flags = "CFLAGS=-O1 -Wall -Wextra -Werror"
    subprocess.run(["make", "-s", flags, "libkernels.a", "host"], cwd=tmp_path / "out", check=True)
    assert subprocess.run(["./host"], cwd=tmp_path / "out", check=False).returncode == 0


def test_padding_and_the_callers_arrays_are_as_before(chain: Network) -> None:
    """The second layer surrounds its input, and the last one shares the third one's kernel."""
    graph, steps, buffer = chain.plan.graph, chain.layers, chain.plan.buffer
    assert not {buffer[n] for n in (*graph.inputs, *graph.outputs)} & chain.plan.kept.keys()
    assert steps[0].kernel is steps[2].kernel is steps[3].kernel
    assert not chain.plan.kept
    assert kept_images(graph, steps, buffer) == {}


def test_what_lies_outside_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C model fills images with other bytes before a call stores into them."""
    seen: list[tuple[Image, Array]] = []

    def spy(image: Image, packed: Array, shape: tuple[int, ...]) -> Array:
        seen.append((image, np.copy(packed)))
        return unpack(image, packed, shape)

    monkeypatch.setattr(runner, "unpack", spy)
    net = compile_model(convolutions(tmp_path / "two.tflite", 3, 1), CHIP)
    net.run(net.draw(0), lambda _, __: None)
    ((image, packed),) = seen
    shape = net.layers[0].kernel.workload.tensor[image.tensor].shape
    outside = held(image, shape) < 0
    assert outside.any()
    assert not packed.ravel()[outside].any()
    assert packed.any()


def test_images_agree_element_by_element(tmp_path: Path) -> None:
    net = compile_model(convolutions(tmp_path / "two.tflite", 3, 1), CHIP)
    first, second = net.layers
    graph, buffer = net.plan.graph, net.plan.buffer
    images = {i.tensor: i for i in second.kernel.program.images}
    stored = {i.tensor: i for i in first.kernel.program.images if i.tensor == "y"}
    before = replace(first, kernel=replace(first.kernel, images=stored))

    def kept(**changes: Any) -> dict[str, Image]:
        own = {"x": replace(images["x"], **changes)}
        after = replace(second, kernel=replace(second.kernel, images=own))
        return kept_images(graph, [before, after], buffer)

    assert kept() == {first.layer.output[1]: stored["y"]}
    assert not kept(fill=1)
    assert not kept(dtype="uint8")
    assert not kept(index=tuple(reversed(images["x"].index)))
