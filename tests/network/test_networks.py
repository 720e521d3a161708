"""A network, compiled layer by layer: equal to TFLite Micro, in Python and as a folder of C."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen.autoschedule.options import Options
from hwgen.cli import main
from hwgen.codegen.processor.emit import emit_nest_firmware
from hwgen.errors import HwgenError
from hwgen.model import c_compiler
from hwgen.model.c_compiler import find_compiler, have_compiler
from hwgen.network import compiled, kernels
from hwgen.network.compare import compare
from hwgen.network.compiled import Network, compile_model
from hwgen.network.graph import Graph
from hwgen.network.layers import network_name
from hwgen.network.page import network_page
from hwgen.network.report import layer_figures, report_record, report_text
from hwgen.network.runner import reference
from hwgen.network.tflite_reader import read_tflite
from hwgen.passes.nest_pipeline import compile_nest
from tests.models import (
    WITH_READER,
    WITH_RUNTIME,
    Array,
    OperatorOf,
    Runtime,
    TensorOf,
    biases_of,
    drawn,
    fully_connected,
    model,
    number,
    scaled,
    small_network,
    softmax,
    weights_of,
)
from tests.sampling import tiered
from tests.unit.report.test_html import Elements

pytestmark = WITH_READER
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
Text = pytest.CaptureFixture[str]


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
def test_floats_are_compared_but_for_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution and its gate; then another bias, by more than rounding explains."""
    path = tmp_path / "floats.tflite"
    tensors = [
        TensorOf((1, 6, 6, 3), "float32"),
        weights_of(np.random.default_rng(0), (4, 3, 3, 3), (), 0, "float32"),
        biases_of(np.random.default_rng(1), (), 4, "float32"),
        *(TensorOf((1, 6, 6, 4), "float32") for _ in range(3)),
        scaled((1, 6, 6, 4), 0.05, 3),
    ]
    window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    operators = [
        OperatorOf("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", window),
        OperatorOf("LOGISTIC", [3], [4]),
        OperatorOf("MUL", [3, 4], [5], "MulOptions"),
        OperatorOf("QUANTIZE", [5], [6], "QuantizeOptions"),
    ]
    path.write_bytes(model(tensors, operators, [0], [6, 5]))
    net = hwgen.compile(path, "cpu_generic")
    # Halves that rounding may bring to either integer count as not compared.
    compared = net.compare(4)
    assert str(compared).startswith("equal to tflite-micro: 4 layers on 4 inputs; ")
    assert 0 < compared.unbounded < 4 * 144 / 10

    def changed(path: Path, name: str) -> Graph:
        graph = read_tflite(path, name)
        bias = graph.tensor[graph.operators[0].inputs[2]]
        assert bias.data is not None
        bias.data[1] += 1e-3
        return graph

    monkeypatch.setattr(compiled, "READERS", {".tflite": changed})
    with pytest.raises(HwgenError) as told:
        hwgen.compile(path, "cpu_generic").compare(2)
    assert told.value.code == "H805"
    assert "layer 0, conv2d (operator 0)" in told.value.diagnostic.found


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


def undefined(objects: Path) -> set[str]:
    """Symbols that an archive or program takes from elsewhere, without their versions."""
    done = subprocess.run(["nm", "-u", objects], capture_output=True, text=True, check=True)
    rows = (line.split() for line in done.stdout.splitlines())
    return {row[1].partition("@")[0] for row in rows if row[:1] == ["U"]}


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("chip", tiered(("cpu_generic", "vta", "gemmini"), ("cpu_generic",)))
def test_firmware_stands_without_a_c_library(chip: str, folder: Path, tmp_path: Path) -> None:
    """Its archive takes two functions of memory, what <math.h> declares and the vendor's calls; on
    the chip's model the whole folder gives the sample, its example with no C library either."""
    hosted = compiled_for(folder / "small.tflite", chip)
    net = replace(hosted, target="firmware")
    net.save(tmp_path)
    flags = "CFLAGS=-O1 -Wall -Wextra -Werror -Wno-unknown-pragmas"
    subprocess.run(
        ["make", "-s", flags, "libkernels.a", "main.o", "host"], cwd=tmp_path, check=True
    )
    assert subprocess.run(["./host"], cwd=tmp_path, check=False).returncode == 0
    stubs = "".join(p.read_text() for p in (tmp_path / "stub").glob("**/*.h"))
    own = {net.name, *(k.name for k in net.kernels)}
    wanted = undefined(tmp_path / "libkernels.a") | undefined(tmp_path / "main.o")
    foreign = {w for w in wanted - own if not w.startswith(f"{net.name}_")}
    assert {w for w in foreign if f"{w}(" not in stubs} <= {"memcpy", "memset"}
    hosted.save(tmp_path)
    subprocess.run(["make", "-s", "main.o"], cwd=tmp_path, check=True)
    assert "fopen" in undefined(tmp_path / "main.o")  # The host's example: the check can fail.


@WITH_RUNTIME
@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("chip", ["tpu_v1", "gemmini", "x86_vnni"])
def test_units(chip: str, tmp_path: Path) -> None:
    """On the chip's C model, its weights packed for its units; the folder compiles strictly.

    A layer of fewer products is left to the core beside them, which takes less time."""
    content = fully_connected(np.random.default_rng(4), 8, 256, 128, activation=1)
    path = tmp_path / "dense.tflite"
    path.write_bytes(content)
    net, runtime = compile_model(path, chip), Runtime(content)
    for seed in range(4):
        (x,) = net.draw(seed, extremes=seed >= 2).values()
        assert np.array_equal(net(x), runtime(x))
    (figures,) = (layer_figures(net, step) for step in net.layers)
    assert figures.macs_on_units == 8 * 256 * 128
    assert "on units" in report_text(net)
    net.save(tmp_path / "out")
    flags = "CFLAGS=-O1 -Wall -Wextra -Werror -Wno-unknown-pragmas"
    flags += " -mavx512f -mavx512bw -mavx512vnni" if chip == "x86_vnni" else ""
    subprocess.run(["make", "-s", flags, "libkernels.a", "host"], cwd=tmp_path / "out", check=True)
    assert subprocess.run(["./host"], cwd=tmp_path / "out", check=False).returncode == 0


@WITH_RUNTIME
@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("chip", ["arm_neon", "riscv_rvv", "hexagon_hvx"])
def test_instructions_of_another_machine(chip: str, tmp_path: Path) -> None:
    """Compiled, run and saved where the compiler has none of the chip's instructions: only the size
    of its code is not known, and no stub stands in front of its compiler's headers."""
    content = fully_connected(np.random.default_rng(4), 8, 64, 32, activation=1)
    path = tmp_path / "dense.tflite"
    path.write_bytes(content)
    net, runtime = compile_model(path, chip), Runtime(content)
    (x,) = net.draw(0).values()
    assert np.array_equal(net(x), runtime(x))
    assert net.code_bytes is None
    net.save(tmp_path / "out")
    assert not (tmp_path / "out" / "stub").exists()
    subprocess.run(["make", "-s", "host"], cwd=tmp_path / "out", check=True)
    assert subprocess.run(["./host"], cwd=tmp_path / "out", check=False).returncode == 0


def test_a_layer_on_the_host_core_says_why(tmp_path: Path) -> None:
    """The reason and the repair are those of `explain`; where units compute it, there is none."""
    path = tmp_path / "soft.tflite"
    path.write_bytes(softmax(1, 12, 0.1, 1.0))
    net = compile_model(path, "gemmini")
    (step,) = net.layers
    with pytest.raises(HwgenError) as told:
        hwgen.compile_kernel(step.kernel.workload, net.plan.hardware)
    reason, repair = told.value.diagnostic.found, told.value.diagnostic.repair
    assert "max=" in reason
    text, record = report_text(net), report_record(net)
    assert f"warning: the host core computes layer 0, softmax, in {net.cycles:,} cycles" in text
    assert f"  reason: {reason}\n  repair: {repair}" in text
    assert record["host_layers"] == [0]
    layers = record["layers"]
    assert isinstance(layers, list)
    assert (layers[0]["host_reason"], layers[0]["host_repair"]) == (reason, repair)  # type: ignore[index,call-overload]
    assert reason in Elements(network_page(net)).text


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
def test_code_bytes_are_those_of_the_objects(folder: Path, tmp_path: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    net.save(tmp_path)
    flags = f"CFLAGS=-Os {' '.join(c_compiler.user_flags())}"
    subprocess.run(["make", "-s", flags, "libkernels.a"], cwd=tmp_path, check=True)
    command = ["size", *(f"{k.name}.o" for k in net.kernels), f"{net.name}.o"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    sizes = [int(line.split()[0]) for line in done.stdout.splitlines()[1:]]
    assert net.code_bytes is not None
    assert sum(net.code_bytes.values()) == sum(sizes)
    total = report_record(net)["total"]
    assert isinstance(total, dict)
    assert total["code_bytes"] == sum(sizes)


def test_without_a_compiler_code_is_not_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_compiler, "find_compiler", lambda: None)
    net = compile_model(folder / "small.tflite", "cpu_generic")
    assert net.code_bytes is None
    assert "code:" not in report_text(net)


def test_the_page(folder: Path) -> None:
    """Self-contained, the same every time, with every layer and buffer."""
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    made = network_page(net)
    assert made == network_page(net)
    page = Elements(made)
    assert not [v for _, a in page.elements for k, v in a.items() if k == "src"]
    for step in net.layers:
        assert step.kernel.name in page.text
    figures = json.loads(next(s for s in page.scripts if s.startswith('{"layers"')))
    boxes = list(figures["arena"]["data"])
    drawn = sorted(
        (x + 0.5, width, base, size)
        for t in boxes
        for x, width, base, size in zip(t["x"], t["width"], t["base"], t["y"], strict=True)
    )
    assert drawn == sorted(
        (p.live.first / 2, (p.live.last - p.live.first + 1) / 2, p.offset, p.live.bytes)
        for p in net.plan.arena.places
    )
    bars = [line.split()[-1] for line in report_text(net).split("\n\n")[2].splitlines()[2:]]
    lives = [p.live.steps for p in net.plan.arena.places]
    assert [(b.index("#"), b.rindex("#")) for b in bars] == lives


def test_the_command_sets_parameters_and_writes_a_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["compile", str(folder / "small.tflite"), "--spec", "cpu_generic", "--jobs", "1"]
    pages = ["--report", "page.html", "-o", "out"]
    assert main([*command, "--set", "CORES=1", *pages]) == 0
    assert "wrote page.html to ." in capsys.readouterr().out
    assert "CORES = 1" in Elements(Path("page.html").read_text()).text
    assert "omp parallel" not in "".join(p.read_text() for p in Path("out").glob("*.c"))
    for wrong, code in ((["--set", "CORS=1"], "H005"), (["--report", "page.svg"], "H009")):
        assert main([*command, *wrong]) == 1
        assert f"error[{code}]" in capsys.readouterr().err


@WITH_RUNTIME
def test_another_runtime(folder: Path) -> None:
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    made = net.layers[3].layer.output[1]

    def right(inputs: Mapping[str, Array]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        reference(net.plan).run(inputs, lambda n, a: found.update({str(n): a}))
        return {made: found["3"]}

    assert str(net.compare(2, right)) == "equal to the runtime: 1 layers on 2 inputs"
    with pytest.raises(HwgenError) as told:
        net.compare(2, lambda inputs: {n: a + 1 for n, a in right(inputs).items()})
    assert told.value.code == "H805"
    assert "layer 3" in told.value.diagnostic.found
    with pytest.raises(HwgenError) as told:
        net.compare(2, lambda _: {})
    assert told.value.code == "H050"


def test_a_layer_that_a_chip_cannot_compute(folder: Path) -> None:
    """The error is the compiler's, with the kernel's name."""
    chip = hwgen.load_hardware("tpu_v1")
    alone = kernels.replace(chip, processor=None)
    with pytest.raises(HwgenError) as told:
        compile_model(folder / "small.tflite", alone)
    assert told.value.code.startswith("H3")
    assert told.value.diagnostic.field.startswith("small_")


def test_workers_do_not_share_a_workspace() -> None:
    """Each would take a buffer of its own from an allocator, and an arena is none."""
    chip, workload = hwgen.load_hardware("cpu_generic"), hwgen.load_workload("depthwise_conv2d")
    (code,) = compile_nest(workload, chip).program.codes
    with pytest.raises(HwgenError) as told:
        emit_nest_firmware(code, chip, workload)
    assert told.value.code == "H042"
    made = compile_nest(workload, chip, options=Options(one_workspace=True))
    (code,) = made.program.codes
    assert emit_nest_firmware(code, chip, workload).room.bytes


def test_padding_takes_no_room(folder: Path) -> None:
    """Convolutions read their input in place: no kernel has a workspace for padding, and layers
    that fill the arena leave no gap."""
    net = compiled_for(folder / "small.tflite", "cpu_generic")
    padded = [k for k in net.kernels if "conv2d" in k.name]
    assert len(padded) == 2
    assert [k.workspace_bytes for k in padded] == [0, 0]
    assert net.plan.arena.gap == 0


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
    [
        ({"engine": "fast"}, "H050"),
        ({"target": "board"}, "H050"),
        ({"model": "README.md"}, "H801"),
        ({"chip": 3}, "H050"),
    ],
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
