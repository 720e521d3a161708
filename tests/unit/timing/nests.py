"""Double-buffered loop nests in the shape that a code generator gives them."""

from __future__ import annotations

from hwgen.codegen.nodes import Call, CallOperand, If, Loop, Node, Pop, Push
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.spec.expression import Binary, Const, Expr, Name, add, multiply
from hwgen.spec.expression import Call as Function

BLOCK = 16


def operand(name: str, buffer: str, address: Expr | int, *strides: Expr | int) -> CallOperand:
    """A call operand with constants given as integers."""
    steps = tuple(Const(s) if isinstance(s, int) else s for s in strides)
    return CallOperand(name, buffer, Const(address) if isinstance(address, int) else address, steps)


def sizes(*extents: int) -> tuple[Expr, ...]:
    """Constant extents."""
    return tuple(map(Const, extents))


def image(name: str, dtype: str, outer: tuple[int, ...], lanes: tuple[int, ...]) -> Image:
    """An image whose layout does not matter; `c` is the output."""
    index = tuple(Name(f"p{i}") for i in range(len(outer)))
    role = "output" if name == "c" else "input"
    return Image(name, name, role, dtype, outer, lanes, index, 0)


def when(condition: Expr, *nodes: Node) -> If:
    return If(condition, nodes)


def _less(left: Expr, right: int) -> Expr:
    return Binary("<", left, Const(right))


def _at_least(left: Expr, right: int) -> Expr:
    return Binary(">=", left, Const(right))


def gemm_nest(
    tiles: tuple[int, int, int],
    tile: tuple[int, int, int] = (16, 4, 4),
    *,
    bias: bool = True,
    slots: int = 2,
    tail_rows: int = 0,
) -> Program:
    """GEMM over `tiles` (rows, columns, depth) of `tile` (rows, column blocks, depth blocks).

    Inputs and sums have `slots` slots. Every row of tiles whose last has only `tail_rows` rows
    loads and stores fewer rows, through a `min` in the extent.
    """
    (mt, nt, kt), (tm, tn, tk) = tiles, tile
    m, n, k = Name("m"), Name("n"), Name("k")
    sums = add(multiply(m, Const(nt)), n)
    step = add(multiply(sums, Const(kt)), k)
    count, steps = mt * nt, mt * nt * kt
    slot, sums_slot = Binary("%", step, Const(slots)), Binary("%", sums, Const(slots))
    a_slot, b_slot, c_slot = tm * tk, tn * tk, tm * tn
    height = mt * tm - (tm - tail_rows if tail_rows else 0)
    rows: Expr = Const(tm)
    if tail_rows:
        left = Binary("-", Const(height), multiply(m, Const(tm)))
        rows = Function("min", (Const(tm), left))
    depth, width = kt * tk, nt * tn
    gemm_bases = tuple(
        (s * c_slot, i * a_slot, i * b_slot) for s in range(slots) for i in range(slots)
    )
    kernels = (
        MicroKernelDef(
            "reset_tile", "reset", (KernelLoop(tm, (tn,)), KernelLoop(tn, (1,))), (),
            tuple((s * c_slot,) for s in range(slots)), (),
        ),
        MicroKernelDef(
            "gemm_tile", "gemm",
            (KernelLoop(tm, (tn, tk, 0)), KernelLoop(tk, (0, 1, 1))),
            (KernelLoop(tn, (1, 0, tk)),), gemm_bases, (),
        ),
        MicroKernelDef(
            "shift_tile", "shr_imm", (KernelLoop(tm, (tn, tn)), KernelLoop(tn, (1, 1))), (),
            tuple((s * c_slot, s * c_slot) for s in range(slots)), (("imm", 8),),
        ),
    )  # fmt: skip
    a_from = add(multiply(m, Const(tm * depth)), multiply(k, Const(tk)))
    b_from = add(multiply(n, Const(tn * depth)), multiply(k, Const(tk)))
    c_to = add(multiply(m, Const(tm * width)), multiply(n, Const(tn)))
    a_at, b_at = multiply(slot, Const(a_slot)), multiply(slot, Const(b_slot))
    c_at = multiply(sums_slot, Const(c_slot))
    inner: tuple[Node, ...] = (
        when(_at_least(step, slots), Pop("compute", "load")),
        Call(
            1, "load_inp", "load",
            (
                operand("dst", "a_local", a_at, tk, 1),
                operand("src", "a", a_from, depth, 1),
            ),
            (rows, Const(tk)),
        ),
        Call(
            2, "load_wgt", "load",
            (
                operand("dst", "b_local", b_at, tk, 1),
                operand("src", "b", b_from, depth, 1),
            ),
            sizes(tn, tk),
        ),
        Push("load", "compute"),
        Pop("load", "compute"),
        Call(
            4, "gemm", "compute", (), sizes(tm, tk), (), "gemm_tile",
            add(multiply(sums_slot, Const(slots)), slot),
        ),
        when(_less(step, steps - slots), Push("compute", "load")),
    )  # fmt: skip
    if bias:
        start = Call(
            3, "load_acc", "compute",
            (
                operand("dst", "c_local", c_at, tn, 1),
                operand("src", "bias", multiply(n, Const(tn)), 0, 1),
            ),
            sizes(tm, tn),
        )  # fmt: skip
    else:
        start = Call(3, "reset", "compute", (), sizes(tm, tn), (), "reset_tile", sums_slot)
    body: tuple[Node, ...] = (
        when(_at_least(sums, slots), Pop("store", "compute")),
        start,
        Loop("k", Const(0), Const(kt), inner),
        Call(5, "shr_imm", "compute", (), sizes(tm, tn), (("imm", 8),), "shift_tile", sums_slot),
        Push("compute", "store"),
        Pop("compute", "store"),
        Call(
            6, "store_out", "store",
            (
                operand("dst", "c", c_to, width, 1),
                operand("src", "c_local", c_at, tn, 1),
            ),
            (rows, Const(tn)),
        ),
        when(_less(sums, count - slots), Push("store", "compute")),
    )  # fmt: skip
    nest = Loop("m", Const(0), Const(mt), (Loop("n", Const(0), Const(nt), body),))
    images = [
        image("a", "int8", (height, depth), (1, BLOCK)),
        image("b", "int8", (width, depth), (BLOCK, BLOCK)),
        image("c", "int8", (height, width), (1, BLOCK)),
    ]
    if bias:
        images.insert(2, image("bias", "int32", (width,), (1, BLOCK)))
    return Program(
        "nest", "vta", "gemm", ("a", "b"), ("c",), tuple(images),
        (
            Buffer("a_local", "inp", "a", 0, slots, a_slot),
            Buffer("b_local", "wgt", "b", 0, slots, b_slot),
            Buffer("c_local", "acc", "c", 0, slots, c_slot),
        ),
        kernels, (nest,),
    )  # fmt: skip
