"""Packing, both targets, and the model's checks, on a chip made up for the purpose."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hwgen.codegen.emit_c import emit
from hwgen.codegen.emit_host import MISALIGNED
from hwgen.codegen.emit_model import CODES
from hwgen.codegen.nodes import Call, Node, Signal
from hwgen.codegen.program import KernelLoop, Program
from hwgen.codegen.source import CSource
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.model.compiled import compile_model, have_compiler
from hwgen.spec.expression import Binary, BinaryOp, Cast, Const, Expr, Name, evaluate
from hwgen.spec.hardware import Events, HardwareSpec
from hwgen.spec.ranges import Range
from hwgen.spec.workload import Workload
from tests import samples
from tests.shim import harness
from tests.shim.mutations import MUTATIONS, Change, edit
from tests.unit.emit import toy

P = [Name(f"p{d}") for d in range(4)]
needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


def binary(op: BinaryOp, left: Expr, right: Expr | int) -> Expr:
    return Binary(op, left, Const(right) if isinstance(right, int) else right)


def blocked(outer: int, lane: int) -> Expr:
    return binary("+", binary("*", P[outer], 8), P[lane])


FLAT = blocked(0, 1)
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Expr, ...]]] = {
    "exact": ((4, 16), (4, 2), (P[0], blocked(1, 2))),
    "tail": ((7, 13), (7, 2), (P[0], blocked(1, 2))),
    "more rows than the tensor": ((5, 13), (7, 2), (P[0], blocked(1, 2))),
    "transposed": ((13, 7), (7, 2), (blocked(1, 2), P[0])),
    "shifted": ((5, 10), (7, 2), (binary("-", P[0], 1), binary("-", blocked(1, 2), 3))),
    "fused": ((5, 6), (4,), (binary("//", FLAT, 6), binary("%", FLAT, 6))),
    "one row": ((1, 9), (2,), (Const(0), FLAT)),
    "reversed": ((7, 8), (7, 1), (binary("-", Const(6), P[0]), P[2])),
    "every other": ((4, 16), (4, 2), (P[0], binary("+", P[1], binary("*", P[2], 2)))),
    "one entry": ((8,), (), (P[0],)),
    "one short entry": ((5,), (1,), (P[1],)),
    "negative numerator": (
        (3, 8), (5, 1),
        (binary("//", binary("-", binary("*", P[0], 2), 3), 2), P[2]),
    ),
}  # fmt: skip


def vendor(source: CSource, directory: Path) -> ctypes.CDLL:
    """The text for the chip's own runtime, which here is plain C."""
    path = directory / "kernel.c"
    path.write_text(source.c)
    library = directory / "kernel.so"
    harness.compile_c([*harness.STRICT, "-O1", "-shared", "-fPIC", path, "-o", library, "-lm"])
    return ctypes.CDLL(str(library))


def pointers(*arrays: NDArray[Any]) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


@needs_compiler
@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_survive_the_round_trip(name: str, tmp_path: Path) -> None:
    """Each element comes back, and what has no position is left alone."""
    shape, outer, index = LAYOUTS[name]
    program, workload = toy.copying(shape, outer, index)
    source = emit(program, toy.chip(), workload)
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    placed = np.zeros(shape, bool)
    for at in product(*(range(n) for n in (*outer, toy.WIDTH))):
        where = tuple(evaluate(e, {f"p{d}": p for d, p in enumerate(at)}) for e in index)
        if all(0 <= w < n for w, n in zip(where, shape, strict=True)):
            placed[tuple(int(w) for w in where)] = True
    assert placed.any()
    y = np.full(shape, 7, np.float32)
    assert vendor(source, tmp_path).toy_kernel(*pointers(x, y)) == 0
    np.testing.assert_array_equal(y, np.where(placed, x, 7))
    if name != "more rows than the tensor":
        y = compile_model(source).run({"x": x})["y"]
        np.testing.assert_array_equal(y, np.where(placed, x, 0))


@needs_compiler
@pytest.mark.parametrize("fill", [0, -3])
def test_packing_widens_and_fills(fill: int, tmp_path: Path) -> None:
    """Constants, whose packing is a function of its own, in two images of one tensor."""
    index = (P[0], blocked(1, 2))
    images = (
        Image("first", "w", "input", "int32", (3, 2), (8,), index, fill),
        Image("second", "w", "input", "int8", (2,), (8,), (P[0], P[1]), fill),
    )
    workload = toy.workload(toy.tensor("w", (3, 11), "input", "int8"))
    source = emit(toy.program((), *images), toy.chip(), workload)
    library = vendor(source, tmp_path)
    bytes_ = library.toy_kernel_packed_bytes_w()
    assert bytes_ == 192 + 64
    w = np.reshape(np.arange(-16, 17, dtype=np.int8), (3, 11))
    blob = np.zeros(bytes_, np.uint8)
    library.toy_kernel_pack_w(*pointers(w, blob))
    first = np.full((3, 16), fill, np.int32)
    first[:, :11] = w
    np.testing.assert_array_equal(np.frombuffer(blob.tobytes()[:192], np.int32), first.ravel())
    np.testing.assert_array_equal(
        np.frombuffer(blob.tobytes()[192:208], np.int8), w[:2, :8].ravel()
    )


def _in_place(program: Program, *names: str) -> Program:
    images = tuple(replace(i, in_place=i.name in names) for i in program.images)
    return replace(program, images=images)


@needs_compiler
@pytest.mark.parametrize("handle", ["float *", "char *", "void *"])
@pytest.mark.parametrize("names", [("x_image", "y_image"), ("x_image",), ("y_image",)])
def test_tensors_in_place_are_given_to_the_chip(
    handle: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """What is in place is neither allocated nor copied; inputs are pointers to constants. What has
    the tensor's own bytes is copied from and to it."""
    program, workload = toy.copying(*LAYOUTS["exact"])
    program = _in_place(program, *names)
    load, store = (
        replace(i, emit=re.sub(r"(\{\{ ...\.buffer \}\})", rf"(({kind} *)\1)", i.emit))
        for i, kind in ((toy.LOAD, "const float"), (toy.STORE, "float"))
    )
    chip = toy.chip()
    code = replace(chip.code, handle_type=handle)
    chip = replace(chip, code=code, intrinsics=(load, store, *chip.intrinsics[2:]))
    source = emit(program, chip, workload)
    const = "const " if "x_image" in names else ""
    assert f"toy_kernel_run({const}{handle}x_image_dev, {handle}y_image_dev)" in source.c
    copies = source.c.count("malloc(")
    assert copies == 2 - len(names)
    assert [p.in_place for p in (*source.inputs, *source.outputs)] == [
        i.name in names for i in program.images
    ]
    x = np.random.default_rng(4).standard_normal((4, 16)).astype(np.float32)
    y = np.zeros((4, 16), np.float32)
    assert vendor(source, tmp_path).toy_kernel(*pointers(x, y)) == 0
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(compile_model(source).run({"x": x})["y"], x)


@needs_compiler
def test_a_constant_in_place_and_packed(tmp_path: Path) -> None:
    """Two images of one tensor: the first is the tensor, the second is packed."""
    images = (
        Image("plain", "w", "input", "float32", (2, 2), (8,), (P[0], blocked(1, 2)), 0.0, True),
        Image("turned", "w", "input", "float32", (2, 2), (8,), (P[1], blocked(0, 2)), 0.0),
        Image("v_image", "wv", "input", "float32", (2,), (8,), (FLAT,), 0.0, True),
        Image("y_image", "y", "output", "float32", (3,), (8,), (FLAT,), 0.0),
    )
    body: list[Node] = []
    for n, (name, entry) in enumerate((("plain", 1), ("turned", 1), ("v_image", 0))):
        body += [
            toy.call(
                "load", ("dst", "row", Const(8)), ("src", name, Const(entry)),
                extents=(1,), strides=(8,),
            ),
            toy.call("store", ("dst", "y_image", Const(n)), ("src", "row", Const(8))),
        ]  # fmt: skip
    workload = toy.workload(
        toy.tensor("w", (2, 16), "input"),
        toy.tensor("wv", (16,), "input"),
        toy.tensor("y", (24,), "output"),
    )
    source = emit(toy.program(tuple(body), *images), toy.chip(), workload)
    assert [(p.in_place, p.packed) for p in source.inputs] == [(True, True), (True, False)]
    assert "_prepacked(const float *w, const void *w_packed, const float *wv, float *y)" in source.c
    assert "pack_wv" not in source.c + source.header
    library = vendor(source, tmp_path)
    w = np.reshape(np.arange(32, dtype=np.float32), (2, 16))
    wv = np.arange(100, 116, dtype=np.float32)
    expected = np.concatenate([w[0, 8:], w[1, :8], wv[:8]])
    y, z = np.zeros(24, np.float32), np.zeros(24, np.float32)
    assert library.toy_kernel(*pointers(w, wv, y)) == 0
    np.testing.assert_array_equal(y, expected)
    blob = np.zeros(library.toy_kernel_packed_bytes_w(), np.uint8)
    assert blob.size == 128
    library.toy_kernel_pack_w(*pointers(w, blob))
    assert library.toy_kernel_prepacked(*pointers(w, blob, wv, z)) == 0
    np.testing.assert_array_equal(z, expected)
    np.testing.assert_array_equal(compile_model(source).run({"w": w, "wv": wv})["y"], expected)


def _arithmetic(*loads: Call) -> tuple[Program, Workload]:
    """Loads, then operations whose operands overlap, then everything stored."""
    images = (
        Image("x_image", "x", "input", "float32", (2,), (8,), (FLAT,), 0.0),
        Image("y_image", "y", "output", "float32", (3,), (8,), (FLAT,), 0.0),
    )
    row = Const(8)
    body: tuple[Node, ...] = (
        *loads,
        toy.call("mirror", ("dst", "row", row), ("src", "row", row), scale=-3),
        toy.call("mirror", ("dst", "row", Const(12)), ("src", "row", row), scale=2),
        toy.call("top", ("dst", "row", Const(24)), ("src", "row", Const(10))),
        toy.call("total", ("dst", "row", Const(24)), ("src", "row", row)),
        *(
            toy.call("store", ("dst", "y_image", Const(n)), ("src", "row", Const(8 + 8 * n)))
            for n in range(3)
        ),
    )
    workload = toy.workload(toy.tensor("x", (16,), "input"), toy.tensor("y", (24,), "output"))
    return toy.program(body, *images), workload


def _load(address: int, entry: int) -> Call:
    return toy.call(
        "load",
        ("dst", "row", Const(address)),
        ("src", "x_image", Const(entry)),
        extents=(1,),
        strides=(8,),
    )


@needs_compiler
def test_floats_and_overlapping_operands(tmp_path: Path) -> None:
    """The model reads a whole operand before it writes one that overlaps it."""
    program, workload = _arithmetic(_load(8, 0), _load(16, 1), _load(24, 0))
    source = emit(program, toy.chip(), workload)
    x = np.linspace(-2, 3, 16, dtype=np.float32)
    y = np.zeros(24, np.float32)
    assert vendor(source, tmp_path).toy_kernel(*pointers(x, y)) == 0
    assert len(np.unique(y)) > 16
    np.testing.assert_allclose(compile_model(source).run({"x": x})["y"], y, rtol=1e-6)


@needs_compiler
def test_every_entry_of_an_operand_must_be_written() -> None:
    program, workload = _arithmetic(_load(8, 0), _load(20, 1), _load(28, 0))
    with pytest.raises(HwgenError) as caught:
        compile_model(emit(program, toy.chip(), workload)).run({"x": np.zeros(16, np.float32)})
    assert CODES[5] in str(caught.value)
    assert "dst never written: 16" in str(caught.value)


# --- the model's checks ---


def _tokens_lost() -> tuple[Program, Workload]:
    return _changed(MUTATIONS["dropped push"])


def _changed(change: Change) -> tuple[Program, Workload]:
    program = samples.tiled_gemm_requant(48, 80, 32)
    mutant = replace(program, body=edit(program.body, change))
    assert mutant.body != program.body
    return mutant, samples.gemm_requant_workload(48, 80, 32)


def _on(intrinsic: str, change: Callable[[Call], Call]) -> Change:
    return lambda node: (
        (change(node),) if isinstance(node, Call) and node.intrinsic == intrinsic else (node,)
    )


def _at(operand: int, address: Expr | int, buffer: str = "") -> Callable[[Call], Call]:
    where = Const(address) if isinstance(address, int) else address

    def change(call: Call) -> Call:
        operands = list(call.operands)
        old = operands[operand]
        operands[operand] = replace(old, address=where, buffer=buffer or old.buffer)
        return replace(call, operands=tuple(operands))

    return change


def _one_of_the_bias(call: Call) -> Call:
    return replace(_at(1, 0, "bias_local")(call), extents=(Const(1), Const(1)))


def _too_soon() -> tuple[Program, Workload]:
    program = samples.tiled_gemm_requant(48, 80, 32)
    kernels = tuple(
        replace(k, loops=(KernelLoop(2, (0, 0)), KernelLoop(1, (0, 0)))) if k.intrinsic == "max_imm"
        else k
        for k in program.kernels
    )  # fmt: skip
    return replace(program, kernels=kernels), samples.gemm_requant_workload(48, 80, 32)


def _flag_too_high() -> tuple[Program, Workload]:
    """A flag that is signalled twice before anyone waits for it."""
    twice = (Signal("load", "compute", 0, 1), Signal("load", "compute", 0, 1))
    program = samples.tiled_gemm_requant(48, 80, 32)
    return replace(program, body=twice), samples.gemm_requant_workload(48, 80, 32)


def _with_events(program: Program) -> HardwareSpec:
    """The sample's chip, with flags where the program uses them."""
    flags = any(isinstance(n, Signal) for n in program.body)
    kind = Events((("load", "compute"),), 1, False, 1, "", "", 0, 0)
    chip = samples.chip()
    return replace(chip, synchronization=kind, completion=None) if flags else chip


FAULTS: dict[str, tuple[int, Callable[[], tuple[Program, Workload]]]] = {
    "long extent": (
        2,
        lambda: _changed(_on("load_inp", lambda c: replace(c, extents=(Const(1), Const(70_000))))),
    ),
    "past on-chip memory": (3, lambda: _changed(_on("load_inp", _at(0, 2040)))),
    "past the image": (4, lambda: _changed(_on("load_inp", _at(1, 95)))),
    "missing load": (5, lambda: _changed(MUTATIONS["missing load"])),
    "missing reset": (5, lambda: _changed(MUTATIONS["missing reset"])),
    "store of a loaded entry": (6, lambda: _changed(_on("store_out", _one_of_the_bias))),
    "result used too soon": (7, _too_soon),
    "lost token": (9, _tokens_lost),
    "flag above its maximum": (11, _flag_too_high),
    "past its buffer": (13, lambda: _changed(_on("load_inp", _at(0, 100)))),
    "without an order": (14, lambda: _changed(MUTATIONS["dropped pop of a result"])),
    "missing store": (10, lambda: _changed(MUTATIONS["missing store"])),
    "wrong stride": (10, lambda: _changed(MUTATIONS["wrong stride"])),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_model_stops(fault: str) -> None:
    code, make = FAULTS[fault]
    program, workload = make()
    source = emit(program, _with_events(program), workload)
    inputs = {p.name: np.zeros(p.shape, p.dtype) for p in source.inputs}
    with pytest.raises(HwgenError) as caught:
        compile_model(source).run(inputs)
    assert caught.value.code == "H702"
    assert CODES[code] in str(caught.value)


@needs_compiler
@pytest.mark.parametrize(("amount", "good"), [(3.0, True), (-1.0, False), (40.0, False)])
def test_model_stops_outside_an_operations_domain(amount: float, good: bool) -> None:
    shift = toy.intrinsic(
        "shift",
        (toy.operand("dst", "local", "update"), toy.operand("src", "local", "read")),
        "(void)0;",
        (toy.DST, "=", Binary(">>", Const(1024), Cast("int32", toy.SRC))),
    )
    program, workload = toy.copying((8,), (1,), (P[1],))
    row = Const(16)
    shifted = toy.call("shift", ("dst", "row", row), ("src", "row", row))
    body = edit(
        program.body,
        lambda n: (n, shifted) if isinstance(n, Call) and n.intrinsic == "load" else (n,),
    )
    source = emit(replace(program, body=body), toy.chip(shift), workload)
    x = np.full(8, amount, np.float32)
    if good:
        np.testing.assert_array_equal(compile_model(source).run({"x": x})["y"], 128)
        return
    with pytest.raises(HwgenError) as caught:
        compile_model(source).run({"x": x})
    assert CODES[8] in str(caught.value)


def test_every_code_but_allocation_is_provoked() -> None:
    assert {code for code, _ in FAULTS.values()} | {1, 8, MISALIGNED} == set(CODES)


# --- errors ---


TEMPLATES = {
    "{{ nothing }}": "'nothing' is undefined",
    "{{ src.unknown }}": "no attribute 'unknown'",
    "{{ src.__class__ }}": "unsafe",
    "{% for i in range(1000000000) %}x{% endfor %}": "Range too big",
    "{{ 'x' * 1000000 }}": "integers only",
    "{{ 9 ** 9 ** 9 }}": "not available",
    "{% for i in range(9000) %}{% for j in range(200) %}x{% endfor %}{% endfor %}": "more text",
    "{{ src.": "expected name",
    "{{ 1 // 0 }}": "zero",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_cannot_do_harm(template: str) -> None:
    program, workload = toy.copying((8,), (1,), (P[1],))
    with pytest.raises(HwgenError) as caught:
        emit(program, toy.chip(load=replace(toy.LOAD, emit=template)), workload)
    assert caught.value.code == "H601"
    assert TEMPLATES[template] in str(caught.value)
    assert caught.value.diagnostic.field == "intrinsics.load.emit"
    assert caught.value.diagnostic.location == toy.NOWHERE


def test_arguments_lose_only_needless_parentheses() -> None:
    program, workload = toy.copying((16,), (2,), (FLAT,))
    emit_text = "f({{ src.address }}, 2 * {{ src.address }}, a[{{ dst.address }}]);"
    body = edit(program.body, _on("load", _at(1, 3)))
    hardware = toy.chip(load=replace(toy.LOAD, emit=emit_text))
    source = emit(replace(program, body=body), hardware, workload)
    assert "f(3, 2 * 3, a[16]);" in source.c
    next_entry = binary("+", Name("e"), 1)
    moving = edit(program.body, _on("load", _at(1, next_entry)))
    source = emit(replace(program, body=moving), hardware, workload)
    assert "f(e + 1, 2 * (e + 1), a[16]);" in source.c


def _in_no_buffer(call: Call) -> Call:
    return replace(call, operands=(replace(call.operands[0], buffer="z"), call.operands[1]))


def test_programs_that_do_not_fit_the_spec() -> None:
    program, workload = toy.copying((8,), (1,), (P[1],))
    chip = toy.chip()
    unknown = edit(program.body, _on("load", lambda c: replace(c, intrinsic="fetch")))
    wrong = edit(program.body, _on("load", lambda c: replace(c, operands=c.operands[::-1])))
    nowhere = edit(program.body, _on("load", _in_no_buffer))
    for body in (unknown, wrong, nowhere):
        with pytest.raises(HwgenError) as caught:
            emit(replace(program, body=body), chip, workload)
        assert caught.value.code == "H602"


@needs_compiler
def test_inputs_are_checked() -> None:
    program, workload = toy.copying((8,), (1,), (P[1],))
    kernel = compile_model(emit(program, toy.chip(), workload))
    for inputs in ({}, {"x": np.zeros(7, np.float32)}, {"x": np.zeros(8)}):
        with pytest.raises(HwgenError) as caught:
            kernel.run(inputs)
        assert caught.value.code == "H701"


def test_no_compiler_is_a_coded_error(monkeypatch: pytest.MonkeyPatch) -> None:
    program, workload = toy.copying((8,), (1,), (P[1],))
    source = emit(program, toy.chip(), workload)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert not have_compiler()
    with pytest.raises(HwgenError) as caught:
        compile_model(source)
    assert caught.value.code == "H703"


def test_wide_loops_use_wide_variables() -> None:
    program, workload = toy.copying((16,), (2,), (FLAT,))
    assert "for (int e" in emit(program, toy.chip(), workload).c
    huge = binary("//", binary("*", Name("e"), 1 << 40), 1 << 40)
    body = edit(program.body, _on("load", _at(1, huge)))
    text = emit(replace(program, body=body), toy.chip(), workload).c
    assert "for (int64_t e" in text
    assert "e * INT64_C(1099511627776) / INT64_C(1099511627776)" in text


def test_limits_come_from_the_spec() -> None:
    program, workload = toy.copying((8,), (1,), (P[1],))
    operands = (replace(toy.LOAD.operands[0], address=Range(0, 40)), toy.LOAD.operands[1])
    text = emit(program, toy.chip(load=replace(toy.LOAD, operands=operands)), workload).model
    assert 'INT64_C(0), INT64_C(40), "load: address of dst"' in text
