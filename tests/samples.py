"""Hand-written programs for chips with a load, a compute and a store unit, as sure ground truth.

They fit the default configuration of `hw_specs/vta.yaml`: blocks of 16 x 16, one row per entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from hwgen.codegen.nodes import Call, CallOperand, If, Loop, Node, Pop, Push
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.errors import Location
from hwgen.spec.expression import Access, Binary, Cast, Const, Expr, Name, add, multiply, walk
from hwgen.spec.expression import Call as Function
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload
from hwgen.spec.workload import Role, Statement, Tensor, Workload

ROOT = Path(__file__).resolve().parent.parent
CHIPS_WITH_UNITS = tuple(
    path for path in sorted((ROOT / "hw_specs").glob("*.yaml")) if load_hardware(path).units
)
"""Shipped chips that `compile_kernel` finds intrinsics and tiles for."""
WORKLOADS = tuple(sorted((ROOT / "workloads").glob("*.yaml")))


def _carried(chip: HardwareSpec, *accesses: str) -> set[str]:
    """The data types that a chip reads from off-chip memory, or writes there."""
    return {
        operand.dtype
        for intrinsic in chip.intrinsics
        for operand in intrinsic.operands
        if chip.memory[operand.memory].kind == "offchip" and operand.access in accesses
    }


def _casts(values: Iterable[Expr]) -> set[str]:
    """The data types that elements are converted to."""
    return {
        node.dtype
        for value in values
        for node in walk(value)
        if isinstance(node, Cast) and any(isinstance(inner, Access) for inner in walk(node))
    }


def _of_its_kind(chip: HardwareSpec, workload: Workload) -> bool:
    inputs = {t.dtype for t in workload.inputs}
    outputs = {t.dtype for t in workload.outputs}
    computed = _casts(a.value for i in chip.intrinsics for a in i.semantics)
    return (
        inputs <= _carried(chip, "read")
        and outputs <= _carried(chip, "write")
        and _casts(s.value for s in workload.statements) <= computed
    )


REFUSED = (
    {
        # Their intrinsics multiply, add, shift and saturate alone, and narrow nothing else.
        (chip, name): "H301"
        for chip in ("arm_neon", "riscv_rvv")
        for name in ("attention", "conv2d", "layernorm", "relu")
    }
    # A layer that is stored by vectors is read by elements.
    | {(chip, "mlp"): "H503" for chip in ("apple_amx", "arm_neon", "riscv_rvv")}
    | {
        # What comes out of its accumulators is scaled and saturated, and nothing but products comes
        # in: what is added may be those with one.
        ("gemmini", name): "H301"
        for name in (
            "conv2d",
            "conv2d_requant",
            "depthwise_conv2d",
            "gemm",
            "gemm_requant",
            "matvec",
        )
    }
    | {
        # Their intrinsics multiply, add and cut off below zero alone.
        (chip, name): "H301"
        for chip in ("apple_amx", "x86_avx2", "x86_avx512")
        for name in ("attention", "layernorm")
    }
    | {
        # Its products are of bfloat16.
        ("x86_bf16", name): "H301"
        for name in ("attention", "layernorm", "linear_relu", "matmul", "mlp")
    }
    | {
        # Its sums are stored as 32 bits or clipped, and nothing cuts off below zero.
        ("x86_vnni", name): "H301"
        for name in ("conv2d", "relu")
    }
)
"""Workloads of a chip's kind of numbers that it has no calls for, with the error that says so."""
PAIRS = tuple(
    (chip, workload)
    for chip in CHIPS_WITH_UNITS
    for workload in WORKLOADS
    if _of_its_kind(load_hardware(chip), load_workload(workload))
    and (chip.stem, workload.stem) not in REFUSED
)
"""Shipped chips with units, each with the workloads of its kind of numbers that these compute."""
SMALLER = {
    ("apple_amx", "attention"): {"L": 8, "D": 16},
    ("apple_amx", "mlp"): {"M": 4, "K": 16, "H": 16, "G": 16, "N": 16},
    ("arm_neon", "conv2d_requant"): {"C": 4, "H": 6, "W": 6, "O": 8},
    ("arm_neon", "gemm_requant"): {"M": 12, "N": 24, "K": 20},
    ("arm_neon", "matmul"): {"M": 6, "N": 20, "K": 20},
    ("hexagon_hvx", "conv2d"): {"C": 4, "H": 6, "W": 6, "O": 8},
    ("hexagon_hvx", "conv2d_requant"): {"C": 4, "H": 6, "W": 6, "O": 8},
    ("hexagon_hvx", "depthwise_conv2d"): {"C": 8, "H": 6, "W": 6},
    ("hexagon_hvx", "gemm_requant"): {"M": 12, "N": 40, "K": 20},
    ("riscv_rvv", "conv2d_requant"): {"C": 4, "H": 6, "W": 6, "O": 8},
    ("riscv_rvv", "depthwise_conv2d"): {"C": 8, "H": 6, "W": 6},
    ("riscv_rvv", "gemm_requant"): {"M": 12, "N": 24, "K": 20},
    ("riscv_rvv", "matmul"): {"M": 6, "N": 20, "K": 20},
    ("x86_avx2", "matmul"): {"M": 6, "N": 20, "K": 20},
    ("x86_avx2", "attention"): {"L": 8, "D": 16},
    ("x86_avx512", "matmul"): {"M": 6, "N": 40, "K": 20},
    ("x86_avx512", "attention"): {"L": 8, "D": 16},
}
"""Sizes of pairs that would take long: a call is one vector there."""
BLOCK = 16
_NOWHERE = Location("samples.py")


@cache
def chip() -> HardwareSpec:
    """The chip that the samples are written for."""
    return load_hardware(ROOT / "hw_specs" / "vta.yaml")


def gemm_workload(m: int, n: int, k: int) -> Workload:
    """`c[m, n] = int8(sum_k a[m, k] * b[n, k])`, as `workloads/gemm.yaml`."""
    return _workload("gemm", m, n, k, with_bias=False)


def gemm_requant_workload(m: int, n: int, k: int) -> Workload:
    """`c = int8(clip((a . b^T + bias) >> 8, -128, 127))`, as `workloads/gemm_requant.yaml`."""
    return _workload("gemm_requant", m, n, k, with_bias=True)


def _workload(name: str, m: int, n: int, k: int, *, with_bias: bool) -> Workload:
    def tensor(label: str, dtype: str, shape: tuple[int, ...], role: Role) -> Tensor:
        return Tensor(label, dtype, shape, role, label in ("b", "bias"), _NOWHERE)

    row, column, depth = Name("m"), Name("n"), Name("k")
    sums = Access("acc", (row, column))
    value: Expr = sums
    tensors = [tensor("a", "int8", (m, k), "input"), tensor("b", "int8", (n, k), "input")]
    if with_bias:
        tensors.append(tensor("bias", "int32", (n,), "input"))
        shifted = Binary(">>", Binary("+", sums, Access("bias", (column,))), Const(8))
        value = Function("clip", (shifted, Const(-128), Const(127)))
    tensors.append(tensor("acc", "int32", (m, n), "intermediate"))
    tensors.append(tensor("c", "int8", (m, n), "output"))
    product = Binary("*", Access("a", (row, depth)), Access("b", (column, depth)))
    loops = (("m", m), ("n", n))
    return Workload(
        name,
        (("M", m), ("N", n), ("K", k)),
        tuple(tensors),
        (
            Statement("S0", (*loops, ("k", k)), sums, "+=", product, _NOWHERE),
            Statement("S1", loops, Access("c", (row, column)), "=", Cast("int8", value), _NOWHERE),
        ),
        _NOWHERE,
    )


def _blocked(position: str, lane: str, block: int = BLOCK) -> Expr:
    return Binary("+", Binary("*", Name(position), Const(block)), Name(lane))


def _images(m: int, n: int, k: int, *, with_bias: bool) -> tuple[Image, ...]:
    rows, columns, depth = m, n // BLOCK, k // BLOCK
    lanes = (1, BLOCK)
    by_row = (_blocked("p0", "p2", 1), _blocked("p1", "p3"))
    images = [
        Image("a_image", "a", "input", "int8", (rows, depth), lanes, by_row, 0),
        Image(
            "b_image", "b", "input", "int8", (columns, depth), (BLOCK, BLOCK),
            (_blocked("p0", "p2"), _blocked("p1", "p3")), 0,
        ),
    ]  # fmt: skip
    if with_bias:
        index = (_blocked("p0", "p2"),)
        images.append(Image("bias_image", "bias", "input", "int32", (columns,), lanes, index, 0))
    images.append(Image("c_image", "c", "output", "int8", (rows, columns), lanes, by_row, 0))
    return tuple(images)


def _operand(name: str, buffer: str, address: Expr | int, *strides: int) -> CallOperand:
    where = Const(address) if isinstance(address, int) else address
    return CallOperand(name, buffer, where, tuple(map(Const, strides)))


def _extents(*extents: int) -> tuple[Expr, ...]:
    return tuple(map(Const, extents))


def _when(condition: Expr, *nodes: Node) -> If:
    return If(condition, nodes)


def load_bound_gemm() -> Program:
    """1 x 256 x 256: the weights come in 4 pieces through 2 slots, each piece stored when done."""
    pieces, blocks, depth = 4, 4, 16
    piece = blocks * depth
    t = Name("t")
    slot = multiply(Binary("%", t, Const(2)), Const(piece))
    first = multiply(t, Const(blocks))
    kernels = (
        MicroKernelDef(
            "reset_piece", "reset",
            (KernelLoop(1, (0,)), KernelLoop(blocks, (1,))), (),
            tuple((i * blocks,) for i in range(pieces)), (),
        ),
        MicroKernelDef(
            "gemm_piece", "gemm",
            (KernelLoop(blocks, (1, 0, depth)), KernelLoop(depth, (0, 1, 1))), (),
            tuple((i * blocks, 0, i % 2 * piece) for i in range(pieces)), (),
        ),
    )  # fmt: skip
    loop = Loop(
        "t",
        Const(0),
        Const(pieces),
        (
            _when(Binary(">=", t, Const(2)), Pop("compute", "load")),
            Call(
                1, "load_wgt", "load",
                (
                    _operand("dst", "b_local", slot, piece, 1),
                    _operand("src", "b_image", multiply(t, Const(piece)), piece, 1),
                ),
                _extents(1, piece),
            ),
            Push("load", "compute"),
            Pop("load", "compute"),
            Call(
                2, "reset", "compute", (_operand("dst", "acc_local", first, 0, 1),),
                _extents(1, blocks), (), "reset_piece", t,
            ),
            Call(
                3, "gemm", "compute",
                (
                    _operand("dst", "acc_local", first, 1, 0),
                    _operand("src", "a_local", 0, 0, 1),
                    _operand("wgt", "b_local", slot, depth, 1),
                ),
                _extents(blocks, depth), (), "gemm_piece", t, "S0",
            ),
            _when(Binary("<", t, Const(pieces - 2)), Push("compute", "load")),
            Push("compute", "store"),
            Pop("compute", "store"),
            Call(
                4, "store_out", "store",
                (
                    _operand("dst", "c_image", first, blocks, 1),
                    _operand("src", "acc_local", first, blocks, 1),
                ),
                _extents(1, blocks), statement="S1",
            ),
        ),
    )  # fmt: skip
    load = Call(
        0, "load_inp", "load",
        (_operand("dst", "a_local", 0, depth, 1), _operand("src", "a_image", 0, depth, 1)),
        _extents(1, depth),
    )  # fmt: skip
    return Program(
        "gemm_1x256x256",
        "vta",
        "gemm",
        ("a", "b"),
        ("c",),
        _images(1, 256, 256, with_bias=False),
        (
            Buffer("a_local", "inp", "a", 0, 1, depth),
            Buffer("b_local", "wgt", "b", 0, 2, piece),
            Buffer("acc_local", "acc", "acc", 0, 1, pieces * blocks),
        ),
        kernels,
        (load, loop),
    )


def _tile(extent: int, limit: int) -> int:
    """The largest divisor of `extent` up to `limit`."""
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)


def tiled_gemm_requant(m: int, n: int, k: int) -> Program:
    """Tiles of rows x column blocks over the whole depth; every buffer but the bias in 2 slots.

    All sizes are positive multiples of 16, and k is at most 8192. Tile t = nt * rows + mt uses
    slot t % 2 of the inputs and sums; the weights of nt sit in slot nt % 2.
    """
    depth, columns = k // BLOCK, n // BLOCK
    tm = _tile(m, min(64, 1024 // depth))
    tn = _tile(columns, min(16, 512 // depth, (2048 - columns) // (2 * tm)))
    row_tiles, tiles = m // tm, (m // tm) * (columns // tn)
    a_slot, b_slot, sums_slot, sums_base = tm * depth, tn * depth, tm * tn, columns
    nt, mt = Name("nt"), Name("mt")
    t = add(multiply(nt, Const(row_tiles)), mt)
    parity, b_parity = Binary("%", t, Const(2)), Binary("%", nt, Const(2))
    a_at = multiply(parity, Const(a_slot))
    b_at = multiply(b_parity, Const(b_slot))
    sums_at = add(Const(sums_base), multiply(parity, Const(sums_slot)))
    bias_at = multiply(nt, Const(tn))
    sums = [sums_base + s * sums_slot for s in range(2)]

    def elementwise(name: str, intrinsic: str, *immediates: tuple[str, int]) -> MicroKernelDef:
        # With an immediate, src repeats dst.
        n = 2 if immediates else 1
        by_tile = KernelLoop(tm, (tn,) * n), KernelLoop(tn, (1,) * n)
        bases = tuple((s,) * n for s in sums)
        return MicroKernelDef(name, intrinsic, by_tile, (), bases, immediates)

    kernels = (
        elementwise("reset_tile", "reset"),
        MicroKernelDef(
            "gemm_tile", "gemm",
            (KernelLoop(tm, (tn, depth, 0)), KernelLoop(depth, (0, 1, 1))),
            (KernelLoop(tn, (1, 0, depth)),),
            tuple((s, p * a_slot, q * b_slot) for p, s in enumerate(sums) for q in range(2)), (),
        ),
        MicroKernelDef(
            "bias_tile", "add",
            (KernelLoop(tm, (tn, 0)), KernelLoop(tn, (1, 1))), (),
            tuple((s, b) for b in range(0, columns, tn) for s in sums), (),
        ),
        elementwise("shift_tile", "shr_imm", ("imm", 8)),
        elementwise("low_tile", "max_imm", ("imm", -128)),
        elementwise("high_tile", "min_imm", ("imm", 127)),
    )  # fmt: skip

    def update(site: int, kernel: str, intrinsic: str, *immediates: tuple[str, int]) -> Call:
        names = ("dst", "src") if immediates else ("dst",)
        return Call(
            site, intrinsic, "compute",
            tuple(_operand(name, "acc_local", sums_at, tn, 1) for name in names),
            _extents(tm, tn), immediates, kernel, parity, "S0" if intrinsic == "reset" else "S1",
        )  # fmt: skip

    body: tuple[Node, ...] = (
        _when(Binary(">=", t, Const(2)), Pop("compute", "load")),
        _when(
            Binary("==", mt, Const(0)),
            Call(
                1, "load_wgt", "load",
                (
                    _operand("dst", "b_local", b_at, b_slot, 1),
                    _operand("src", "b_image", multiply(nt, Const(b_slot)), b_slot, 1),
                ),
                _extents(1, b_slot),
            ),
        ),
        Call(
            2, "load_inp", "load",
            (
                _operand("dst", "a_local", a_at, a_slot, 1),
                _operand("src", "a_image", multiply(mt, Const(a_slot)), a_slot, 1),
            ),
            _extents(1, a_slot),
        ),
        Push("load", "compute"),
        _when(Binary(">=", t, Const(2)), Pop("store", "compute")),
        Pop("load", "compute"),
        update(3, "reset_tile", "reset"),
        Call(
            4, "gemm", "compute",
            (
                _operand("dst", "acc_local", sums_at, tn, 0),
                _operand("src", "a_local", a_at, depth, 1),
                _operand("wgt", "b_local", b_at, 0, 1),
            ),
            _extents(tm, depth), (), "gemm_tile",
            add(multiply(parity, Const(2)), b_parity), "S0",
        ),
        _when(Binary("<", t, Const(tiles - 2)), Push("compute", "load")),
        Call(
            5, "add", "compute",
            (
                _operand("dst", "acc_local", sums_at, tn, 1),
                _operand("src", "bias_local", bias_at, 0, 1),
            ),
            _extents(tm, tn), (), "bias_tile", add(multiply(nt, Const(2)), parity), "S1",
        ),
        update(6, "shift_tile", "shr_imm", ("imm", 8)),
        update(7, "low_tile", "max_imm", ("imm", -128)),
        update(8, "high_tile", "min_imm", ("imm", 127)),
        Push("compute", "store"),
        Pop("compute", "store"),
        Call(
            9, "store_out", "store",
            (
                _operand(
                    "dst", "c_image",
                    add(multiply(mt, Const(tm * columns)), multiply(nt, Const(tn))), columns, 1,
                ),
                _operand("src", "acc_local", sums_at, tn, 1),
            ),
            _extents(tm, tn), statement="S1",
        ),
        _when(Binary("<", t, Const(tiles - 2)), Push("store", "compute")),
    )  # fmt: skip
    bias = Call(
        0, "load_acc", "compute",
        (
            _operand("dst", "bias_local", 0, columns, 1),
            _operand("src", "bias_image", 0, columns, 1),
        ),
        _extents(1, columns),
    )  # fmt: skip
    return Program(
        f"gemm_requant_{m}x{n}x{k}",
        "vta",
        "gemm_requant",
        ("a", "b", "bias"),
        ("c",),
        _images(m, n, k, with_bias=True),
        (
            Buffer("a_local", "inp", "a", 0, 2, a_slot),
            Buffer("b_local", "wgt", "b", 0, 2, b_slot),
            Buffer("bias_local", "acc", "bias", 0, 1, columns),
            Buffer("acc_local", "acc", "acc", sums_base, 2, sums_slot),
        ),
        kernels,
        (
            bias,
            Loop(
                "nt",
                Const(0),
                Const(columns // tn),
                (Loop("mt", Const(0), Const(row_tiles), body),),
            ),
        ),
    )
