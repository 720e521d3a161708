"""The emitted C of random chips, run against functions that write down how they are called.

Expected is what the program says, call by call: a run of calls is counted out here, address by
address, and its stationary operand is new wherever its address is another one than before.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import permutations, product
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from hwgen.codegen.nodes import Configure
from hwgen.errors import HwgenError
from hwgen.model.compiled import find_compiler
from hwgen.model.trace import CallEvent, walk
from hwgen.passes.kernel import Kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware, parse_workload
from hwgen.spec.source import parse_document
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import compile_ranked
from hwgen.verify.natural.draws import Spec
from tests.fuzz.chips.draw import draw_of
from tests.fuzz.chips.used import features_used
from tests.sampling import examples

Record = tuple[str, tuple[float, ...]]
MOST_RECORDS = 100_000
HEADER = """
static double recorded[4000000];
static long records;
long record_count(void) { return records; }
const double *record_data(void) { return recorded; }
static void record(int which, int count, const double *values)
{
  recorded[records++] = which;
  recorded[records++] = count;
  for (int n = 0; n < count; ++n) recorded[records++] = values[n];
}
#define reserve(n) calloc(1, n)
#define release(buffer) free(buffer)
"""
SILENT = (
    "begin", "finish", "upload", "download", "signal", "wait", "fence", "wait_all",
)  # fmt: skip
NOT_A_NUMBER = re.compile(r"\.(?:buffer|memory\.name|word)$|^kernel\.name$")


def arguments(emit: str) -> list[str]:
    """The words of a drawn template, in order."""
    return re.findall(r"\{\{ (.+?) \}\}", emit)


def header(spec: Spec) -> tuple[str, list[str]]:
    """Functions that write down the numbers they get, and their names by number."""
    texts = {name: i["emit"] for name, i in spec["intrinsics"].items()}
    texts |= {f"write_{name}": s["emit"] for name, s in spec.get("configurations", {}).items()}
    names = [*SILENT, *(f"wait_{unit}" for unit in spec["units"])]
    names += [f"{do}_{a}_{b}" for do in ("push", "pop") for a, b in permutations(spec["units"], 2)]
    lines = [HEADER, *(f"#define {name}(...) ((void)0)" for name in names)]
    for number, (name, text) in enumerate(texts.items()):
        words = arguments(text)
        given = [f"(double)(a{n})" for n, w in enumerate(words) if not NOT_A_NUMBER.search(w)]
        parameters = ", ".join(f"a{n}" for n in range(len(words)))
        values = f"(const double[]){{{', '.join([*given, '0'])}}}"
        lines.append(f"#define {name}({parameters}) record({number}, {len(given)}, {values})")
    return "\n".join(lines) + "\n", list(texts)


def happened(compilation: Kernel, names: list[str], folder: Path, inputs: Spec) -> list[Record]:
    """What the emitted C calls."""
    source = compilation.source
    compiler = find_compiler()
    assert compiler is not None
    code, library = folder / "kernel.c", folder / "kernel.so"
    code.write_text(source.c, encoding="utf-8")
    command = [*compiler, "-std=c99", "-O0", "-w", "-shared", "-fPIC", f"-I{folder}"]
    done = subprocess.run(
        [*command, str(code), "-o", str(library), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(library))
    loaded.record_data.restype = ctypes.POINTER(ctypes.c_double)
    loaded.record_count.restype = ctypes.c_long
    arrays = [np.ascontiguousarray(inputs[p.name]) for p in source.inputs]
    arrays += [np.zeros(p.shape, p.dtype) for p in source.outputs]
    assert loaded[source.function](*(ctypes.c_void_p(a.ctypes.data) for a in arrays)) == 0
    data, count, at = loaded.record_data(), loaded.record_count(), 0
    result: list[Record] = []
    while at < count:
        size = int(data[at + 1])
        result.append((names[int(data[at])], tuple(data[at + 2 : at + 2 + size])))
        at += 2 + size
    return result


def expected(compilation: Kernel, hardware: HardwareSpec) -> Iterator[Record]:
    """What the program says."""
    for event in walk(compilation.program):
        if isinstance(event, CallEvent):
            yield from run(event, hardware)
        elif isinstance(event, Configure):
            known = hardware.configuration[event.configuration].registers[event.register]
            values = (value for word, value in known if word == "id")
            fields = (number(text) for _, text in event.values)
            yield f"write_{event.configuration}", (*map(float, values), *fields)


def number(text: str) -> float:
    """The value of a field's text: a product of numbers."""
    return float(np.prod([float(f.strip(" ()").rstrip("f")) for f in text.split("*")]))


def run(event: CallEvent, hardware: HardwareSpec) -> Iterator[Record]:
    """The calls of a run, the innermost C loop fastest."""
    call, intrinsic = event.call, hardware.intrinsic[event.call.intrinsic]
    count = intrinsic.software_loops
    values: dict[str, float] = {"kernel.variant": event.variant}
    for level, loop in enumerate(intrinsic.loops):
        values[f"{loop.name}.extent"] = event.extents[level]
        for operand, strides in zip(call.operands, event.strides, strict=True):
            values[f"{loop.name}.stride.{operand.name}"] = strides[level] if strides else 0
    for name, lanes in intrinsic.narrowed(call.lanes).iterators:
        values[f"{name}.extent"] = lanes
    types = {i.name: i.dtype for i in intrinsic.immediates}
    for name, value in call.immediates:
        values[name] = float(np.float32(value)) if types[name] == "float32" else value
    for name, register in call.registers:
        values[f"{name}.id"] = register
    before: dict[str, int] = {}
    for step in product(*(range(n) for n in event.extents[:count])):
        for n, operand in enumerate(call.operands):
            moved = sum(i * s for i, s in zip(step, event.strides[n], strict=False))
            address = event.addresses[n] + moved
            values[f"{operand.name}.address"] = address
            values[f"{operand.name}.fresh"] = before.get(operand.name) != address
            before[operand.name] = address
        words = arguments(intrinsic.emit)
        yield intrinsic.name, tuple(float(values[w]) for w in words if not NOT_A_NUMBER.search(w))


@pytest.mark.parametrize("first", [3000])
def test_the_emitted_calls_are_those_of_the_program(first: int, tmp_path: Path) -> None:
    if find_compiler() is None:
        pytest.skip("no C compiler")
    used: Counter[str] = Counter()
    for seed in range(first, first + examples(8)):
        draw = draw_of(seed)
        spec = cast(Spec, parse_document(draw.chip, "chip.yaml").data)
        workload = cast(Spec, parse_document(draw.workload, "workload.yaml").data)
        spec["code"]["includes"] = ['"recorder.h"']
        try:
            hardware = parse_hardware(spec)
            compilation = compile_ranked(parse_workload(workload), hardware, draw.rank)
        except HwgenError:
            continue
        wanted = list(expected(compilation, hardware))
        if len(wanted) > MOST_RECORDS:
            continue
        folder = tmp_path / str(seed)
        folder.mkdir()
        text, names = header(spec)
        (folder / "recorder.h").write_text(text, encoding="utf-8")
        inputs = draw_inputs(compilation.workload, 0, "small")
        assert happened(compilation, names, folder, dict(inputs)) == wanted, f"seed {seed}"
        used.update(features_used(compilation))
    assert min(used["C loops around calls"], used["configurations"]) >= 3, used
