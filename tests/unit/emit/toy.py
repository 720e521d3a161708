"""A chip made up for these tests, whose vendor text is plain C: memories of single elements,
wide operands, floats, several units of one stage."""

from __future__ import annotations

from math import prod

from hwgen.codegen.nodes import Call, CallOperand, Loop, Node
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.errors import Location
from hwgen.spec.expression import Access, Assign, Binary, Const, Expr, Name, UpdateOp
from hwgen.spec.expression import Call as Function
from hwgen.spec.hardware import (
    CodeTemplates,
    HardwareLoop,
    HardwareSpec,
    Immediate,
    Intrinsic,
    Operand,
    StrideRule,
    Unit,
)
from hwgen.spec.memory import Access as Use
from hwgen.spec.memory import Memory
from hwgen.spec.ranges import Range
from hwgen.spec.workload import Role, Statement, Tensor, Workload

WIDTH = 8
NOWHERE = Location("toy.yaml", 1)
ANYWHERE = Range(0, 1 << 20)
I = Name("i")  # noqa: E741
LANE = (I,)


def operand(
    name: str, memory: str, access: Use, dtype: str = "float32", address: Range = ANYWHERE
) -> Operand:
    rows = 0 if memory == "dram" else 1
    return Operand(name, memory, dtype, access, (WIDTH,), address, indices=("i",), rows=rows)


def intrinsic(
    name: str,
    operands: tuple[Operand, ...],
    emit: str,
    *semantics: tuple[Access, UpdateOp, Expr],
    loops: tuple[HardwareLoop, ...] = (),
    immediates: tuple[Immediate, ...] = (),
) -> Intrinsic:
    statements = tuple(Assign(*s) for s in semantics)
    return Intrinsic(
        name, "core", (("i", WIDTH),), statements, operands, loops, immediates, Const(1), emit,
        NOWHERE,
    )  # fmt: skip


_ROWS = HardwareLoop(
    "r",
    Range(1, 16),
    (("dst", StrideRule(Range(0, 64))), ("src", StrideRule(Range(0, 64)))),
)
DST, SRC = Access("dst", LANE), Access("src", LANE)
_EACH = f"for (int i = 0; i < {WIDTH}; ++i) "
_LOAD = (
    "for (int r = 0; r < {{ r.extent }}; ++r) "
    + _EACH
    + "toy_local[{{ dst.address }} + r * {{ r.stride.dst }} + i] = "
    f"{{{{ src.buffer }}}}[({{{{ src.address }}}} + r * {{{{ r.stride.src }}}}) * {WIDTH} + i];"
)
_STORE = (
    _EACH + f"{{{{ dst.buffer }}}}[({{{{ dst.address }}}}) * {WIDTH} + i] = "
    "toy_local[{{ src.address }} + i];"
)

LOAD = intrinsic(
    "load",
    (operand("dst", "local", "write"), operand("src", "dram", "read")),
    _LOAD,
    (DST, "=", SRC),
    loops=(_ROWS,),
)
STORE = intrinsic(
    "store",
    (operand("dst", "dram", "write"), operand("src", "local", "read")),
    _STORE,
    (DST, "=", SRC),
)
MIRROR = intrinsic(
    "mirror",
    (operand("dst", "local", "update"), operand("src", "local", "read")),
    "{ float t[8]; "
    + _EACH
    + "t[i] = toy_local[{{ src.address }} + 7 - i]; "
    + _EACH
    + "toy_local[{{ dst.address }} + i] = sqrtf(fabsf(toy_local[{{ dst.address }} + i])) "
    "+ t[i] * {{ scale }}; }",
    (
        DST,
        "=",
        Binary(
            "+",
            Function("sqrt", (Function("abs", (DST,)),)),
            Binary("*", Access("src", (Binary("-", Const(7), I),)), Name("scale")),
        ),
    ),
    immediates=(Immediate("scale", "int32", Range(-4, 4)),),
)
TOP = intrinsic(
    "top",
    (operand("dst", "local", "update"), operand("src", "local", "read")),
    _EACH + "if (toy_local[{{ src.address }} + i] > toy_local[{{ dst.address }}]) "
    "toy_local[{{ dst.address }}] = toy_local[{{ src.address }} + i];",
    (Access("dst", (Const(0),)), "max=", SRC),
)
TOTAL = intrinsic(
    "total",
    (operand("dst", "local", "update"), operand("src", "local", "read")),
    _EACH + "toy_local[{{ dst.address }} + 1] += toy_local[{{ src.address }} + i];",
    (Access("dst", (Const(1),)), "+=", SRC),
)


def chip(*more: Intrinsic, load: Intrinsic = LOAD) -> HardwareSpec:
    """The chip, with further intrinsics."""
    code = CodeTemplates(
        ("<math.h>",), "static float toy_local[64];\n(void)toy_local;", "",
        "{{ buffer }} = malloc({{ bytes }});", "free({{ buffer }});",
        "memcpy({{ buffer }}, {{ host }}, {{ bytes }});",
        "memcpy({{ host }}, {{ buffer }}, {{ bytes }});", "float *",
    )  # fmt: skip
    memories = (
        Memory("dram", "offchip", NOWHERE),
        Memory("local", "scratchpad", NOWHERE, "float32", (), 64),
        Memory("words", "scratchpad", NOWHERE, "int32", (4,), 16),
    )
    return HardwareSpec(
        "toy", "", (("WIDTH", WIDTH),), memories, (), (Unit("core", NOWHERE),),
        (load, STORE, MIRROR, TOP, TOTAL, *more), None, None, None, code, NOWHERE,
    )  # fmt: skip


def tensor(name: str, shape: tuple[int, ...], role: Role, dtype: str = "float32") -> Tensor:
    return Tensor(name, dtype, shape, role, role == "input" and name.startswith("w"), NOWHERE)


def workload(*tensors: Tensor) -> Workload:
    return Workload("toy", (), tensors, tuple[Statement, ...](), NOWHERE)


def call(
    name: str,
    *operands: tuple[str, str, Expr],
    extents: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
    **immediates: int,
) -> Call:
    return Call(
        0, name, "core",
        tuple(CallOperand(o, b, at, tuple(map(Const, strides))) for o, b, at in operands),
        tuple(map(Const, extents)), tuple(immediates.items()), statement=name,
    )  # fmt: skip


LOCAL = Buffer("row", "local", "x", 0, 1, 64)


def program(body: tuple[Node, ...], *images: Image) -> Program:
    inputs = tuple(dict.fromkeys(i.tensor for i in images if i.role == "input"))
    outputs = tuple(dict.fromkeys(i.tensor for i in images if i.role == "output"))
    return Program("toy_kernel", "toy", "toy", inputs, outputs, images, (LOCAL,), (), body)


def copying(
    shape: tuple[int, ...], outer: tuple[int, ...], index: tuple[Expr, ...]
) -> tuple[Program, Workload]:
    """y = x, both through images of the same layout."""
    lanes = (WIDTH,)
    images = (
        Image("x_image", "x", "input", "float32", outer, lanes, index, 0.0),
        Image("y_image", "y", "output", "float32", outer, lanes, index, 0.0),
    )
    at = Name("e")
    body = (
        call("load", ("dst", "row", Const(16)), ("src", "x_image", at), extents=(1,), strides=(8,)),
        call("store", ("dst", "y_image", at), ("src", "row", Const(16))),
    )
    loop = Loop("e", Const(0), Const(prod(outer)), body)
    return program((loop,), *images), workload(
        tensor("x", shape, "input"), tensor("y", shape, "output")
    )
