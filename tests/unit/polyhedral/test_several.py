"""Intrinsics with temporaries, numbers added to indices, and several written operands."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from hwgen.codegen.emit_c import emit
from hwgen.codegen.nodes import Call, CallOperand, calls
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.errors import HwgenError
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.model.functional import run
from hwgen.model.reference import random_inputs
from hwgen.model.sync_check import check_synchronisation
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.match.explain import explain
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.expression import Const, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_hardware, parse_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from hwgen.verify.examine import examine

ROOT = Path(__file__).parents[3]
SEVERAL = ROOT / "tests/specs/several.yaml"
CHIP = load_hardware(SEVERAL)
LANES = 8
ENTRIES = {"vec": 64, "acc": 32}


def changed(name: str, **fields: object) -> HardwareSpec:
    """The chip with other fields of one intrinsic; without it where there are none."""
    spec = cast("dict[str, Any]", read_document(SEVERAL).data)
    if fields:
        spec["intrinsics"][name] |= fields
    else:
        del spec["intrinsics"][name]
    return parse_hardware(spec)


def elementwise(value: str, *inputs: str) -> Workload:
    tensors = dict.fromkeys((*inputs, "y"), "int16[8, 24]")
    return parse_workload({"name": "w", "tensors": tensors, "compute": [f"y[m, n] = {value}"]})


BLEND = "int16(max(x[m, n] * z[m, n] >> 4, int16(x[m, n] * z[m, n] >> 4) + 3) >> 1)"


@pytest.mark.parametrize(
    ("workload", "without", "intrinsic"),
    [
        (elementwise(BLEND, "x", "z"), "store_rows", "blend"),
        (elementwise("max(x[m, n], -3)", "x"), "store_rows", "lift"),
        (elementwise("max(x[m, n], 0)", "x"), "store", "ramp"),
    ],
)
def test_the_compiler_uses_temporaries_and_offsets(
    workload: Workload, without: str, intrinsic: str
) -> None:
    compilation = compile_kernel(workload, changed(without))
    assert intrinsic in {c.intrinsic for c in calls(compilation.program.body)}
    examine(compilation, random_inputs(workload, 1), "both")


def test_an_address_field_holds_the_offset_less() -> None:
    """`src[k + 1, j]`: the first entry that is read is one past the field's, which is 4 or more."""
    compilation = compile_kernel(elementwise("max(x[m, n], 0)", "x"), changed("store"))
    ramp = next(c for c in calls(compilation.program.body) if c.intrinsic == "ramp")
    assert CHIP.intrinsic["ramp"].operand("src").address.minimum == 5
    assert ramp.operands[1].address == Const(5)
    assert "ramp(29, 4, 12, 2, 2);" in compilation.source.c


Memories = dict[str, list[list[int]]]
Step = Callable[[Memories, dict[str, int]], None]


def _wrapped(value: int, bits: int = 16) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def _ramp(m: Memories, at: dict[str, int]) -> None:
    rows = [[max(v, 0) for v in m["vec"][at["src"] + k]] for k in range(2)]
    m["vec"][at["dst"] : at["dst"] + 2] = rows


def _smooth(m: Memories, at: dict[str, int]) -> None:
    a, b, c = m["vec"][at["src"] : at["src"] + 3]
    m["vec"][at["dst"]] = [_wrapped((p + 2 * q + r) >> 2) for p, q, r in zip(a, b, c, strict=True)]


def _weigh(m: Memories, at: dict[str, int]) -> None:
    for k in range(2):
        a, b = m["vec"][at["src"] + k : at["src"] + k + 2]
        old = m["acc"][at["dst"]]
        sums = [_wrapped(s + p * q, 32) for s, p, q in zip(old, a, b, strict=True)]
        m["acc"][at["dst"]] = sums


def _butterfly(m: Memories, at: dict[str, int]) -> None:
    v = m["vec"]
    v[at["sum"]] = [_wrapped(p + q) for p, q in zip(v[at["a"]], v[at["b"]], strict=True)]
    v[at["diff"]] = [_wrapped(p - q) for p, q in zip(v[at["a"]], v[at["b"]], strict=True)]


def _drain(m: Memories, at: dict[str, int]) -> None:
    m["vec"][at["dst"]] = [_wrapped(s >> 3) for s in m["acc"][at["src"]]]
    m["acc"][at["src"]] = [0] * LANES


def _blend(m: Memories, at: dict[str, int]) -> None:
    t = [p * q >> 4 for p, q in zip(m["vec"][at["a"]], m["vec"][at["b"]], strict=True)]
    m["vec"][at["dst"]] = [_wrapped(max(v, _wrapped(v) + 3) >> 1) for v in t]


STEPS: dict[str, Step] = {
    "ramp": _ramp, "smooth": _smooth, "weigh": _weigh, "butterfly": _butterfly, "drain": _drain,
    "blend": _blend,
}  # fmt: skip


def _image(tensor: str, role: str, dtype: str, entries: int) -> Image:
    index = (Name("p0"), Name("p1"))
    return Image(
        f"{tensor}_image", tensor, cast("Any", role), dtype, (entries,), (LANES,), index, 0
    )


def _call(site: int, name: str, given: dict[str, tuple[str, int, int]], extent: int) -> Call:
    operands = tuple(
        CallOperand(n, buffer, Const(at), (Const(step),)) for n, (buffer, at, step) in given.items()
    )
    return Call(site, name, "core", operands, (Const(extent),), ())


def _program(body: list[Call]) -> Program:
    """All of both memories from inputs, the calls, all of both memories to outputs."""
    images = tuple(
        _image(t, role, dtype, ENTRIES[m])
        for t, role, dtype, m in (
            ("x", "input", "int16", "vec"), ("s", "input", "int32", "acc"),
            ("y", "output", "int16", "vec"), ("z", "output", "int32", "acc"),
        )
    )  # fmt: skip
    buffers = tuple(Buffer(m, m, t, 0, 1, ENTRIES[m]) for m, t in (("vec", "x"), ("acc", "s")))
    vec, acc = ("vec", 0, 1), ("acc", 0, 1)
    into = [
        _call(0, "load", {"dst": vec, "src": ("x_image", 0, 1)}, 64),
        _call(1, "load_acc", {"dst": acc, "src": ("s_image", 0, 1)}, 32),
    ]
    out = [
        _call(98, "store", {"dst": ("y_image", 0, 1), "src": vec}, 64),
        _call(99, "store_acc", {"dst": ("z_image", 0, 1), "src": acc}, 32),
    ]
    return Program(
        "several", "several", "w", ("x", "s"), ("y", "z"), images, buffers, (), (*into, *body, *out)
    )


WORKLOAD = parse_workload(
    {
        "name": "w",
        "tensors": {
            "x": "int16[64, 8]",
            "s": "int32[32, 8]",
            "y": "int16[64, 8]",
            "z": "int32[32, 8]",
        },
        "compute": ["y[i, j] = x[i, j]", "z[i, j] = s[i, j]"],
    }
)


def _random_calls(seed: int) -> tuple[list[Call], Memories]:
    """Calls that overlap each other and themselves as they may, and what they leave."""
    pick = random.Random(seed)
    values = np.random.default_rng(seed)
    start = {
        "vec": cast("list[list[int]]", values.integers(-999, 999, (64, LANES)).tolist()),
        "acc": cast("list[list[int]]", values.integers(-99999, 99999, (32, LANES)).tolist()),
    }
    memories = {name: [list(row) for row in rows] for name, rows in start.items()}
    body: list[Call] = []
    for number in range(24):
        name = pick.choice(list(STEPS))
        intrinsic = CHIP.intrinsic[name]
        extent = pick.choice((1, 2, 5))
        given: dict[str, tuple[str, int, int]] = {}
        known: list[tuple[int, int]] = []
        for operand in intrinsic.operands:
            step = pick.choice((0, 1, 1, 2, 3))
            low = operand.address.minimum
            room = ENTRIES[operand.memory] - operand.span - step * (extent - 1)
            near = pick.choice(known)[0] if known and pick.random() < 0.5 else room
            at = max(low, min(room, near + pick.choice((-1, 0, 0, 1)), operand.address.maximum))
            at = pick.randint(low, room) if near == room else at
            known.append((at, step))
            given[operand.name] = (operand.memory, at, step)
        body.append(_call(2 + number, name, given, extent))
        for n in range(extent):
            STEPS[name](memories, {o: at + n * step for o, (_, at, step) in given.items()})
    start_and_end = {
        "x": start["vec"],
        "s": start["acc"],
        "y": memories["vec"],
        "z": memories["acc"],
    }
    return body, start_and_end


@pytest.mark.parametrize("seed", range(6))
def test_simulator_and_c_execute_them_in_order(seed: int) -> None:
    body, ends = _random_calls(seed)
    program = _program(body)
    inputs = {"x": np.array(ends["x"], np.int16), "s": np.array(ends["s"], np.int32)}
    check_program(program, CHIP, WORKLOAD)
    check_synchronisation(program, CHIP)
    outputs = [run(program, CHIP, inputs).outputs]
    if have_compiler():
        outputs.append(compile_model(emit(program, CHIP, WORKLOAD)).run(inputs))
    for found in outputs:
        assert found["y"].tolist() == ends["y"]
        assert found["z"].tolist() == ends["z"]


def test_entries_past_the_iterators_are_read() -> None:
    """`src[k + 1, j]` and `src[k, j]`, k < 2: three entries, of which the last one is undefined, or
    not in memory."""
    given = {"dst": ("acc", 0, 1), "src": ("vec", 62, 1)}
    program = _program([_call(2, "weigh", given, 1)])
    inputs = {"x": np.zeros((64, LANES), np.int16), "s": np.zeros((32, LANES), np.int32)}
    with pytest.raises(HwgenError) as outside:
        run(program, CHIP, inputs)
    assert outside.value.code == "H711"
    given = {"dst": ("acc", 0, 1), "src": ("vec", 10, 1)}
    part = _call(0, "load", {"dst": ("vec", 0, 1), "src": ("x_image", 0, 1)}, 12)
    short = _program([_call(2, "weigh", given, 1)])
    short = Program(
        short.name, short.hardware, short.workload, short.inputs, short.outputs, short.images,
        short.buffers, (), (part, *short.body[1:]),
    )  # fmt: skip
    with pytest.raises(HwgenError) as undefined:
        run(short, CHIP, inputs)
    assert undefined.value.code == "H717"


@pytest.mark.parametrize(
    "value",
    ["int16(x[m, n] + 2 * x[m, n] + x[m, n] >> 2)", "int16(x[m, n] + z[m, n])"],
)
def test_what_reads_or_writes_several_elements_computes_nothing_else(value: str) -> None:
    """Indices of `smooth` tell its three elements apart; `butterfly` writes more than one value."""
    inputs = ("x", "z") if "z" in value else ("x",)
    with pytest.raises(HwgenError) as caught:
        compile_kernel(elementwise(value, *inputs), CHIP)
    assert caught.value.code == "H301"


def test_explain_says_why_they_match_nothing() -> None:
    found = explain(build_scop(elementwise("int16(x[m, n] >> 1)", "x")), CHIP, None)
    said = {e.intrinsic: e.reason for e in found}
    assert said["smooth"] == "it reads src at several indices"
    assert said["butterfly"] == "it writes several operands"


def test_a_processors_intrinsic_may_have_temporaries() -> None:
    spec = cast("dict[str, Any]", read_document(ROOT / "tests/specs/cpu_gemv.yaml").data)
    spec["intrinsics"]["gemv"] |= {
        "temporaries": {"t": "float32"},
        "semantics": ["t[k, i] = a[i, k] * x[k]", "y[i] += t[k, i]"],
    }
    workload = parse_workload(
        {
            "name": "gemv",
            "tensors": {"a": "float32[16, 64]", "x": "float32[64]", "y": "float32[16]"},
            "compute": ["y[i] += a[i, k] * x[k]"],
        }
    )
    script = "s.tensorize('i', 'gemv')"
    compilation = compile_nest(workload, parse_hardware(spec), script=script, auto=False)
    assert "gemv_16x64(" in compilation.source.c
    examine(compilation, random_inputs(workload, 1))


def test_an_operand_of_the_same_memory_may_be_written_where_a_temporary_is_read() -> None:
    """Unless iterations follow in which the value would be another one."""
    semantics = ["t[j] = a[j] * b[j]", "dst[j] = int16(dst[j] + t[j] >> 1)"]
    (only,) = (
        changed("blend", temporaries={"t": "int32"}, semantics=semantics)
        .intrinsic["blend"]
        .semantics
    )
    assert str(only) == "dst[j] = int16(dst[j] + a[j] * b[j] >> 1)"
    semantics = ["t[j] = a[j] * b[j]", "dst[j] = int16(dst[j] + t[j] * k >> 1)"]
    with pytest.raises(HwgenError) as caught:
        changed(
            "blend", temporaries={"t": "int32"}, semantics=semantics, iterators={"j": 8, "k": 2}
        )
    assert caught.value.code == "H156"


def test_temporaries_are_the_values_that_they_are_given() -> None:
    blend = CHIP.intrinsic["blend"]
    (only,) = blend.semantics
    assert str(only.value) == ("int16(max(a[j] * b[j] >> 4, int16(a[j] * b[j] >> 4) + 3) >> 1)")
