"""A network, compiled layer by layer: equal to TFLite Micro, in Python and as a folder of C."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.c_compiler import find_compiler, have_compiler
from hwgen.network import compiled, kernels
from hwgen.network.compare import compare
from hwgen.network.compiled import Network, compile_model
from hwgen.network.graph import Graph
from hwgen.network.layers import network_name
from hwgen.network.report import layer_figures, report_record, report_text
from hwgen.network.tflite_reader import read_tflite
from hwgen.passes.compiled import Compiled
from tests.models import (
    WITH_READER,
    WITH_RUNTIME,
    OperatorOf,
    Runtime,
    TensorOf,
    drawn,
    fully_connected,
    model,
    number,
    scaled,
    small_network,
)

pytestmark = WITH_READER
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
CHIPS = ("cpu_generic", "npu_shared_buffer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    (made / "small.tflite").write_bytes(small_network())
    return made


@cache
def compiled_for(path: Path, chip: str) -> Network:
    return hwgen.compile(path, chip)


@WITH_RUNTIME
def test_a_network_is_the_interpreters(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    runtime = Runtime(small_network())
    for seed in range(12):
        ((name, x),) = net.draw(seed, extremes=seed >= 8).items()
        assert np.array_equal(net(x), runtime(x))
        assert np.array_equal(net(**{name: x}), runtime(x))


@WITH_RUNTIME
def test_layers_are_compared(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    assert str(compare(net, 2)) == "equal to tflite-micro: 6 layers on 2 inputs"


@WITH_RUNTIME
def test_an_operator_of_several_outputs(tmp_path: Path) -> None:
    """Halves of an image, of which one is gated by its own logistic function, put together again
    and padded; also an output in the middle."""
    image, half = (1, 4, 4, 6), (1, 4, 4, 3)
    tensors = [
        number(3),
        scaled(image, 0.05, 3),
        *(scaled(half, *s) for s in ((0.05, 3), (0.05, 3), (1 / 256, -128), (0.05, 3))),
        scaled(image, 0.05, 3),
        TensorOf((4, 2), "int32", data=np.array([[0, 0], [1, 0], [0, 2], [0, 0]], np.int32)),
        scaled((1, 5, 6, 6), 0.05, 3),
    ]
    operators = [
        OperatorOf("SPLIT", [0, 1], [2, 3], "SplitOptions", {"NumSplits": 2}),
        OperatorOf("LOGISTIC", [2], [4]),
        OperatorOf("MUL", [2, 4], [5], "MulOptions"),
        OperatorOf("CONCATENATION", [5, 3], [6], "ConcatenationOptions", {"Axis": -1}),
        OperatorOf("PAD", [6, 7], [8], "PadOptions"),
    ]
    path = tmp_path / "halves.tflite"
    path.write_bytes(model(tensors, operators, [1], [8, 3]))
    net = hwgen.compile(path, "cpu_generic")
    assert str(net.compare(2)) == "equal to tflite-micro: 6 layers on 2 inputs"
    assert [str(step.layer.operator) for step in net.layers[:2]] == ["split (operator 0)"] * 2


@WITH_RUNTIME
def test_the_first_layer_that_differs_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another bias of the depthwise layer, which the interpreter does not see."""

    def changed(path: Path, name: str) -> Graph:
        graph = read_tflite(path, name)
        bias = graph.tensor[graph.operators[1].inputs[2]]
        assert bias.data is not None
        bias.data[5] += 700
        return graph

    monkeypatch.setattr(compiled, "READERS", {".tflite": changed})
    net = compile_model(folder / "small.tflite", "cpu_generic")
    with pytest.raises(HwgenError) as told:
        net.compare(2)
    assert told.value.code == "H805"
    assert "layer 1, depthwise_conv2d (operator 1)" in told.value.diagnostic.found


def test_the_simulator_and_the_reference_agree(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    slow = compile_model(folder / "small.tflite", "cpu_generic", engine="python")
    assert (net.engine, slow.engine) == ("c", "python")
    sample = net.sample(3)
    for one in (net, slow):
        found = one.run(sample.inputs)
        assert all(np.array_equal(found[n], v) for n, v in sample.outputs.items())


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_the_folder_compiles_strictly_and_computes_the_sample(folder: Path, tmp_path: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    written = net.save(tmp_path / "out")
    out = tmp_path / "out"
    assert {p.name for p in written} >= {"small.c", "small.h", "small_weights.c", "main.c"}
    sources = sorted(p.name for p in out.glob("*.c"))
    compiler = find_compiler()
    assert compiler is not None
    build = [*compiler, "-std=c11", "-O1", *STRICT, *sources, "-lm", "-o", "host"]
    subprocess.run(build, cwd=out, check=True)
    assert subprocess.run(["./host"], cwd=out, check=False).returncode == 0
    sample = net.sample(5)
    (x,), (y,) = sample.inputs.values(), sample.outputs.values()
    (out / "in.bin").write_bytes(x.tobytes())
    subprocess.run(["./host", "in.bin", "out.bin"], cwd=out, check=True)
    assert (out / "out.bin").read_bytes() == y.tobytes()
    used = subprocess.run(["nm", "-u", "host"], cwd=out, capture_output=True, text=True, check=True)
    assert "malloc" not in used.stdout


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_a_sample_that_differs_is_noticed(folder: Path, tmp_path: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    net.save(tmp_path)
    main = (tmp_path / "main.c").read_text()
    head, _, values = main.partition("output0[4] = {\n  ")
    wrong = int(values.split(",")[0]) ^ 1
    (tmp_path / "main.c").write_text(f"{head}output0[4] = {{\n  {wrong},{values.partition(',')[2]}")
    subprocess.run(["make", "-s", "host"], cwd=tmp_path, check=True)
    assert subprocess.run(["./host"], cwd=tmp_path, check=False).returncode == 1


def test_the_same_model_gives_the_same_files(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    again = compile_model(folder / "small.tflite", "cpu_generic", jobs=2)
    assert again.files == net.files


def test_equal_layers_share_a_kernel(tmp_path: Path) -> None:
    """Three layers of one shape: the same text, other numbers."""
    rng = np.random.default_rng(0)
    tensors = [TensorOf((1, 16), scales=[0.1], zero=4)]
    operators: list[OperatorOf] = []
    for n in range(3):
        weights = drawn(rng, (16, 16), -127, 127, "int8")
        tensors += [
            TensorOf((16, 16), scales=[0.01 + n / 1000], data=weights),
            TensorOf((1, 16), scales=[0.1], zero=4),
        ]
        inputs, made = [2 * n, 2 * n + 1], 2 * n + 2
        operators.append(OperatorOf("FULLY_CONNECTED", inputs, [made], "FullyConnectedOptions"))
    content = model(tensors, operators, [0], [6])
    path = tmp_path / "three.tflite"
    path.write_bytes(content)
    net = compile_model(path, "cpu_generic")
    assert len(net.layers) == 3
    assert [k.name for k in net.kernels] == ["three_fully_connected_1_cpu_generic"]
    (x,) = net.draw(0).values()
    assert np.array_equal(net(x), net.sample(0).outputs["tensor_6"])


def test_figures(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    record = report_record(net)
    assert json.loads(json.dumps(record)) == record
    layers = record["layers"]
    assert isinstance(layers, list)
    products = 4 * 4 * 8 * 27 + 4 * 4 * 8 * 9 + 4 * 8
    total = record["total"]
    assert isinstance(total, dict)
    assert (total["macs"], total["macs_on_units"]) == (products, None)
    assert total["cycles"] == net.cycles == sum(k["cycles"] for k in layers)  # type: ignore[index,call-overload]
    text = report_text(net)
    assert f"arena: {net.plan.arena.bytes:,} bytes" in text
    assert str(net) == text
    assert repr(net).startswith("<Network small on cpu_generic: 6 layers, 6 kernels")


@WITH_RUNTIME
@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("chip", ["tpu_v1", "gemmini"])
def test_units(chip: str, tmp_path: Path) -> None:
    """On the chip's C model, its weights packed for its units; the folder compiles strictly."""
    content = fully_connected(np.random.default_rng(4), 1, 32, 16, activation=1)
    path = tmp_path / "dense.tflite"
    path.write_bytes(content)
    net, runtime = compile_model(path, chip), Runtime(content)
    for seed in range(4):
        (x,) = net.draw(seed, extremes=seed >= 2).values()
        assert np.array_equal(net(x), runtime(x))
    (figures,) = (layer_figures(net, step) for step in net.layers)
    assert figures.macs_on_units == 32 * 16
    assert "on units" in report_text(net)
    net.save(tmp_path / "out")
    flags = "CFLAGS=-O1 -Wall -Wextra -Werror"
    subprocess.run(["make", "-s", flags, "libkernels.a", "host"], cwd=tmp_path / "out", check=True)
    assert subprocess.run(["./host"], cwd=tmp_path / "out", check=False).returncode == 0


def test_a_layer_that_a_chip_cannot_compute(folder: Path) -> None:
    """The error is the compiler's, with the kernel's name."""
    chip = hwgen.load_hardware("tpu_v1")
    alone = kernels.replace(chip, processor=None)
    with pytest.raises(HwgenError) as told:
        compile_model(folder / "small.tflite", alone)
    assert told.value.code.startswith("H3")
    assert told.value.diagnostic.field.startswith("small_")


def test_workers_that_would_share_a_workspace(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is compiled again without workers."""
    real, refused = kernels._of_processor, list[int]()  # pyright: ignore[reportPrivateUsage]

    def once(made: Compiled) -> kernels.LayerKernel:
        refused.append(made.cycles)
        if len(refused) == 1:
            raise HwgenError("H042", "iterations that run at once would share one workspace")
        return real(made)

    monkeypatch.setattr(kernels, "_of_processor", once)
    net = compile_model(folder / "small.tflite", "cpu_generic")
    assert len(refused) == len(net.kernels) + 1
    assert "omp parallel" not in "".join(net.kernels[0].files.values())


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("kws", "kws"), ("My-Net", "my_net"), ("3d", "v3d"), ("main", "main_"), ("int", "int_"),
        ("printf", "printf_"), ("arena", "arena_"),
    ],
)  # fmt: skip
def test_names(file: str, name: str) -> None:
    graph = Graph(file, "", (), (), (), ())
    assert network_name(graph, hwgen.load_hardware("cpu_generic")) == name


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({"engine": "fast"}, "H050"), ({"model": "README.md"}, "H801"), ({"chip": 3}, "H050")],
)
def test_wrong_arguments(folder: Path, arguments: dict[str, object], code: str) -> None:
    given: dict[str, object] = {"model": folder / "small.tflite", "chip": "cpu_generic"}
    with pytest.raises(HwgenError) as told:
        hwgen.compile(**given | arguments)  # type: ignore[arg-type]
    assert told.value.code == code


def test_wrong_inputs(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    for given, code in (((), "H051"), ((np.zeros(4, np.int8),), "H053"), ((object(),), "H052")):
        with pytest.raises(HwgenError) as told:
            net(*given)
        assert told.value.code == code
