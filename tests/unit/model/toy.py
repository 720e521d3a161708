"""A small chip with one memory that every operand shares, so that iterations may collide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hwgen.codegen.nodes import Call, CallOperand, Node
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.errors import Location
from hwgen.spec.expression import Const, Name
from hwgen.spec.grammar import parse_assign
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
from hwgen.spec.memory import Access, Memory
from hwgen.spec.ranges import Range

ENTRIES = 48
LANES = 2
HERE = Location("toy.py")
ANY = StrideRule(Range(-ENTRIES, ENTRIES))

SHAPES: dict[str, tuple[int, ...]] = {"dst": (LANES,), "src": (LANES,), "a": (2, LANES)}


def intrinsic(
    name: str, semantics: Sequence[str], latency: int = 0, dtype: str = "int32"
) -> Intrinsic:
    """Operands are those of SHAPES that occur; `imm` is an immediate; three hardware loops."""
    parsed = tuple(parse_assign(text) for text in semantics)
    text = " ".join(semantics)
    updates = any(s.op != "=" for s in parsed) or "dst" in " ".join(str(s.value) for s in parsed)
    first_writes = parsed[0].op == "=" and "dst" not in str(parsed[0].value)
    access: Access = "update" if updates and not first_writes else "write"
    operands = tuple(
        Operand(
            n,
            "local",
            dtype,
            access if n == "dst" else "read",
            shape,
            Range(0, ENTRIES - 1),
            indices=("i", "j")[2 - len(shape) :],
            rows=len(shape) - 1,
        )
        for n, shape in SHAPES.items()
        if f"{n}[" in text
    )
    loop = tuple((o.name, ANY) for o in operands)
    return Intrinsic(
        name,
        "core",
        (("i", 2), ("j", LANES)),
        parsed,
        operands,
        tuple(HardwareLoop(level, Range(1, 9), loop) for level in ("x", "y", "z")),
        (Immediate("imm", "int32", Range(-9, 9)),) if "imm" in text else (),
        Const(1),
        "",
        HERE,
        None,
        latency,
    )


def transfer(name: str, dtype: str, *, load: bool) -> Intrinsic:
    """A copy of consecutive entries between the off-chip and the local memory."""
    inner, outer = ("local", "global") if load else ("global", "local")
    field = Range(0, ENTRIES - 1)
    operands = (
        Operand("dst", inner, dtype, "write", (LANES,), field),
        Operand("src", outer, dtype, "read", (LANES,), field),
    )
    step = tuple((n, StrideRule(Range(1, 1))) for n in ("dst", "src"))
    loop = HardwareLoop("x", Range(1, ENTRIES), step)
    semantics = (parse_assign("dst[j] = src[j]"),)
    return Intrinsic(
        name, "core", (("j", LANES),), semantics, operands, (loop,), (), Const(1), "", HERE
    )  # fmt: skip


def chip(*intrinsics: Intrinsic, dtype: str = "int32") -> HardwareSpec:
    return HardwareSpec(
        "toy",
        "",
        (),
        (
            Memory("global", "offchip", HERE),
            Memory("local", "scratchpad", HERE, dtype, (LANES,), ENTRIES),
        ),
        (),
        (Unit("core", HERE),),
        (transfer("load", dtype, load=True), transfer("store", dtype, load=False), *intrinsics),
        None,
        None,
        None,
        CodeTemplates((), "", "", "", "", "", "", ""),
        HERE,
    )


def call(
    site: int,
    name: str,
    operands: Mapping[str, tuple[str, int, Sequence[int]]],
    extents: Sequence[int],
    immediates: Mapping[str, int] | None = None,
) -> Call:
    return Call(
        site,
        name,
        "core",
        tuple(
            CallOperand(n, buffer, Const(address), tuple(map(Const, strides)))
            for n, (buffer, address, strides) in operands.items()
        ),
        tuple(map(Const, extents)),
        tuple((immediates or {}).items()),
    )


def program(*nodes: Node, dtype: str = "int32") -> Program:
    """Load the whole memory from x, run the nodes, store the whole memory to y."""
    image = Image("x_image", "x", "input", dtype, (ENTRIES,), (LANES,), (Name("p0"), Name("p1")), 0)
    whole = {"dst": ("all", 0, (1,)), "src": ("x_image", 0, (1,))}
    back = {"dst": ("y_image", 0, (1,)), "src": ("all", 0, (1,))}
    return Program(
        "one_call",
        "toy",
        "none",
        ("x",),
        ("y",),
        (image, replace(image, name="y_image", tensor="y", role="output")),
        (Buffer("all", "local", "x", 0, 1, ENTRIES),),
        (),
        (call(0, "load", whole, (ENTRIES,)), *nodes, call(99, "store", back, (ENTRIES,))),
    )
