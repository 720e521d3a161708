"""Products of bytes and of bfloat16 without a script, against ONNX Runtime and NumPy.

OPENBLAS_NUM_THREADS=1 python -m benchmarks.cpu [vnni bf16]
python -m benchmarks.cpu calls  # what a call costs: benchmarks/cpu_calls.py

It needs `pip install onnxruntime`, and a core with these extensions. One process and one core, in
turn, medians. Weights are packed before on our side and by ONNX Runtime, whose `MatMulInteger`
takes uint8 by int8 as `x86_vnni` does; NumPy multiplies float32 by its OpenBLAS. All are called
from Python, which is most of the time of the smallest products. A ratio above one: the other takes
longer. `cpu` is the same by the thread's CPU time, which other processes disturb less. `seconds`:
CPU time of the search, without the C compiler.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from importlib import metadata
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.cpu_calls import calls
from benchmarks.mkl import FLAGS
from benchmarks.onednn import Run, ratios
from hwgen.model.c_compiler import load_library
from hwgen.model.numeric import Array
from hwgen.model.reference import run_reference
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.table import Cell, table
from hwgen.spec.workload import Workload
from hwgen.verify.compare import unexplained
from hwgen.verify.data import draw_inputs

TYPES = {
    "vnni": {"a": "uint8", "OUT": "int32"},
    "bf16": {"T": "bfloat16", "ACC": "float32", "OUT": "float32"},
}
PRODUCTS = ((64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (127, 513, 255),
            (1, 1024, 1024))  # fmt: skip
"""M, N and K."""


def ours(chip: str, workload: Workload, inputs: dict[str, Array]) -> tuple[Run, float]:
    """Runs the emitted code on weights that it has packed; CPU seconds of the search."""
    start = process_time()
    source = compile_workload(workload, load_hardware(chip)).source
    took = process_time() - start
    library = load_library(source.c, source.function, (*FLAGS, "-lm"))
    size = getattr(library, f"{source.function}_packed_bytes_b")
    size.restype = ctypes.c_size_t
    room = np.empty(size() + 64, np.uint8)
    packed = room[-room.ctypes.data % 64 :]
    ((name, expected),) = run_reference(workload, inputs).items()
    found = np.zeros_like(expected)
    # These pointers keep their arrays.
    a, b, weights, c = (
        x.ctypes.data_as(ctypes.c_void_p) for x in (inputs["a"], inputs["b"], packed, found)
    )
    getattr(library, f"{source.function}_pack_b")(b, weights)
    function = getattr(library, f"{source.function}_prepacked")

    def run() -> None:
        if function(a, weights, c) != 0:
            raise SystemExit("no memory")

    run()
    assert unexplained(workload, inputs, {name: found}, {name: expected}) is None
    return run, took


def runtime(onnxruntime: Any, a: Array, b: Array) -> Run:
    """ONNX Runtime's product of bytes; its weights are a constant, which it packs before."""
    left = helper.make_tensor_value_info("a", TensorProto.UINT8, a.shape)
    right = helper.make_tensor("b", TensorProto.INT8, b.shape[::-1], b.tobytes("F"), raw=True)
    out = helper.make_tensor_value_info("c", TensorProto.INT32, (len(a), len(b)))
    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"])
    graph = helper.make_graph([node], "product", [left], [out], [right])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda: session.run(None, {"a": a})


def floats(m: int, n: int, k: int) -> Run:
    """NumPy's product in float32."""
    a, b, c = (np.ones(shape, np.float32) for shape in ((m, k), (k, n), (m, n)))
    return lambda: np.matmul(a, b, out=c)


def main(kinds: list[str]) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    name = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    if kinds == ["calls"]:
        print(f"{name}, numpy {metadata.version('numpy')}\n{calls()}")
        return
    onnxruntime: Any = importlib.import_module("onnxruntime")
    rows: list[list[Cell]] = []
    for kind in kinds:
        for m, n, k in PRODUCTS:
            workload = load_workload("gemm", {"M": m, "N": n, "K": k}, TYPES[kind])
            inputs = draw_inputs(workload, 0)
            run, took = ours(f"x86_{kind}", workload, inputs)
            rivals = {"NumPy float32": floats(m, n, k)}
            if kind == "vnni":
                rivals["ONNX Runtime"] = runtime(onnxruntime, inputs["a"], inputs["b"])
            for rival, other in rivals.items():
                _, clock, cpu = ratios(run, other)
                rows.append(
                    [kind, f"{m}x{n}x{k}", rival, f"{clock:.2f}", f"{cpu:.2f}", f"{took:.1f}"]
                )
    print(f"{name}, onnxruntime {onnxruntime.__version__}, numpy {metadata.version('numpy')}")
    print(table(["chip", "product", "against", "ratio", "cpu", "seconds"], rows))


if __name__ == "__main__":
    main(sys.argv[1:] or [*TYPES])
