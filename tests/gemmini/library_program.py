"""The public library's stream as a program: the same simulators run it as hwgen's own kernels.

One call per move, and one per pair of a preload and a compute. A call of hwgen's moves blocks of
equally many columns, the library's moves end inside one: the product's columns and depth are
multiples of DIM here; its rows need not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hwgen.codegen.configuration import needed
from hwgen.codegen.program import (
    Buffer,
    Call,
    CallOperand,
    Configure,
    Image,
    KernelProgram,
    Node,
)
from hwgen.spec.expression import Const, Name
from hwgen.spec.hardware import HardwareSpec
from tests.gemmini.tiled_matmul_auto import (
    ACC_ROWS,
    ACCUMULATE,
    ACCUMULATOR,
    DIM,
    FULL,
    GARBAGE,
    SPAD_ROWS,
    Argument,
    Dram,
    Instruction,
    Problem,
    Tiles,
    matmul,
)

BUFFERS = (
    Buffer("local", "spad", "a", 0, 1, SPAD_ROWS),
    Buffer("sums", "acc", "acc", 0, 1, ACC_ROWS),
)
"""The memories as they are: the library's addresses are its own."""


def library_program(
    problem: Problem, hardware: HardwareSpec, tiles: Tiles | None = None
) -> KernelProgram:
    """The stream for a product of tensors `a`, `b` and perhaps `bias`, the result being `c`."""
    return _program(problem, hardware, matmul(problem, tiles))


def _program(
    problem: Problem, hardware: HardwareSpec, stream: Iterable[Instruction]
) -> KernelProgram:
    assert problem.n % DIM == 0, problem
    assert problem.k % DIM == 0, problem
    calls = tuple(_Calls(problem, hardware).of(stream))
    return KernelProgram(
        "library",
        hardware.name,
        "gemm",
        ("a", "b") if problem.bias == "none" else ("a", "b", "bias"),
        ("c",),
        _images(problem),
        BUFFERS,
        (),
        (*_configured(hardware, calls), *calls),
    )


def _images(p: Problem) -> tuple[Image, ...]:
    """The tensors as they are."""

    def image(name: str, dtype: str, rows: int, columns: int, *, output: bool = False) -> Image:
        outer: tuple[int, ...] = (rows, columns)
        if name == "bias" and p.bias == "repeating":
            outer = (columns,)
        index = tuple(Name(f"p{axis}") for axis in range(len(outer)))
        role = "output" if output else "input"
        return Image(f"{name}_image", name, role, dtype, outer, (), index, 0)

    found = [image("a", "int8", p.m, p.k), image("b", "int8", p.k, p.n)]
    if p.bias != "none":
        found.append(image("bias", "int32", p.m, p.n))
    return (*found, image("c", "int32" if p.full_c else "int8", p.m, p.n, output=True))


@dataclass(frozen=True, slots=True)
class _Moved:
    """An operand: where it starts, and its step in the intrinsic's own loops."""

    name: str
    buffer: str
    address: int
    steps: tuple[int, ...]


class _Calls:
    """Turns macros into calls, one after the other."""

    def __init__(self, problem: Problem, hardware: HardwareSpec) -> None:
        self.problem = problem
        self.hardware = hardware
        self.site = 0
        self.held = 0
        """The block of weights in the array."""

    def of(self, stream: Iterable[Instruction]) -> Iterator[Call]:
        """Calls in order; equal ones are one object, of one site."""
        preload: Instruction = ("", ())
        known: dict[tuple[Instruction, Instruction, int], Call] = {}
        for instruction in stream:
            name, arguments = instruction
            if "preload" in name and "compute" not in name:
                preload = instruction
                if isinstance(arguments[0], int) and arguments[0] != GARBAGE:
                    self.held = arguments[0]
                continue
            if "config" in name or name == "gemmini_fence":
                continue
            first = preload if "compute" in name else ("", ())
            key = (first, instruction, self.held if "compute" in name else 0)
            if key not in known:
                known[key] = self._made(name.removeprefix("gemmini_extended_"), first[1], arguments)
            yield known[key]

    def _made(
        self, macro: str, preload: tuple[Argument, ...], arguments: tuple[Argument, ...]
    ) -> Call:
        match macro:
            case "mvin":
                return self._load(0, self.problem.k, arguments)
            case "mvin2":
                return self._load(1, self.problem.n, arguments)
            case "mvin3":
                return self._load_sums(arguments)
            case "compute_preloaded" | "compute_accumulated":
                return self._product(preload, arguments)
            case _:
                assert macro == "mvout", macro
                return self._store(arguments)

    def _call(
        self,
        intrinsic: str,
        operands: Iterable[_Moved],
        extents: tuple[int, ...],
        register: tuple[str, int],
        *,
        fresh: bool | None = None,
        scale: float | None = None,
    ) -> Call:
        given = self.hardware.intrinsic[intrinsic]
        outside = given.software_loops
        self.site += 1
        return Call(
            self.site - 1,
            intrinsic,
            given.unit,
            tuple(
                CallOperand(
                    o.name,
                    o.buffer,
                    Const(o.address),
                    (*([Const(0)] * outside), *map(Const, o.steps)),
                )
                for o in operands
            ),
            (*([Const(1)] * outside), *map(Const, extents)),
            () if scale is None else (("scale", scale),),
            registers=(register,),
            fresh=None if fresh is None else Const(int(fresh)),
        )

    def _load(self, register: int, row: int, arguments: tuple[Argument, ...]) -> Call:
        source, address, columns, rows = _move(arguments)
        image = {"A": "a_image", "B": "b_image"}[source.tensor]
        operands = (
            _Moved("dst", "local", address, (1, DIM)),
            _Moved("src", image, source.offset_bytes, (row, DIM)),
        )
        return self._call("mvin", operands, (rows, columns // DIM), ("move_in", register))

    def _load_sums(self, arguments: tuple[Argument, ...]) -> Call:
        source, address, columns, rows = _move(arguments)
        assert columns == DIM
        row = 0 if self.problem.bias == "repeating" else self.problem.n
        operands = (
            _Moved("dst", "sums", address & ~ACCUMULATOR, (1,)),
            _Moved("src", "bias_image", _element(source.offset_bytes, 4), (row,)),
        )
        return self._call("mvin_acc", operands, (rows,), ("move_in", 2))

    def _product(self, preload: tuple[Argument, ...], compute: tuple[Argument, ...]) -> Call:
        weights, sums, first, rows = preload[0], preload[1], compute[0], compute[3]
        assert isinstance(weights, int)
        assert isinstance(sums, int)
        assert isinstance(first, int)
        assert isinstance(rows, int)
        operands = (
            _Moved("c", "sums", sums & ~(ACCUMULATOR | ACCUMULATE | FULL), (1,)),
            _Moved("a", "local", first, (1,)),
            _Moved("b", "local", self.held, (0,)),
        )
        name = "matmul" if sums & ACCUMULATE else "matmul_first"
        return self._call(name, operands, (rows,), ("array", 0), fresh=weights != GARBAGE)

    def _store(self, arguments: tuple[Argument, ...]) -> Call:
        p = self.problem
        target, address, columns, rows = _move(arguments)
        from_row = address & ~(ACCUMULATOR | ACCUMULATE | FULL)
        place = _element(target.offset_bytes, 4 if p.full_c else 1)
        register = ("move_out", 0)
        if p.full_c:
            operands = (
                _Moved("dst", "c_image", place, (p.n,)),
                _Moved("src", "sums", from_row, (1,)),
            )
            return self._call("mvout_full", operands, (rows,), register)
        operands = (
            _Moved("dst", "c_image", place, (p.n, DIM)),
            _Moved("src", "sums", from_row, (1, DIM)),
        )
        name = "mvout_relu" if p.relu else "mvout"
        return self._call(name, operands, (rows, columns // DIM), register, scale=p.scale)


def _move(arguments: tuple[Argument, ...]) -> tuple[Dram, int, int, int]:
    dram, address, columns, rows = arguments
    assert isinstance(dram, Dram)
    assert isinstance(address, int)
    assert isinstance(columns, int)
    assert isinstance(rows, int)
    return dram, address, columns, rows


def _element(offset_bytes: int, size: int) -> int:
    assert offset_bytes % size == 0
    return offset_bytes // size


def _configured(hardware: HardwareSpec, calls: tuple[Call, ...]) -> tuple[Node, ...]:
    """One write of each register, with what its first call needs."""
    first: dict[tuple[str, int], Call] = {}
    for call in calls:
        first.setdefault(call.registers[0], call)
    return tuple(
        Configure(name, number, needed(hardware, call)[name])
        for (name, number), call in sorted(first.items())
    )
