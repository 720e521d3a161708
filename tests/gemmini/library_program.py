"""The public library's streams as programs: the same simulators run them as hwgen's own kernels.

One call per move, and one per pair of a preload and a compute. A call of hwgen's moves blocks of
equally many columns, the library's moves end inside one: channels, a product's columns and its
depth are multiples of DIM here; its rows need not be.

`library_chip` is the chip as the library's loop instructions use it. They are unrolled beside the
host, an instruction a cycle, and no unit's full queue keeps those of another from being issued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hwgen.codegen.configuration import Values, needed
from hwgen.codegen.nodes import Call, CallOperand, Configure, Node
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Buffer, Image
from hwgen.spec.expression import Const, Name
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.source import read_document
from tests.gemmini.emitted import ROOT
from tests.gemmini.library_stream import (
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
    numbers,
)
from tests.gemmini.tiled_conv_auto import Convolution, ConvTiles, convolution
from tests.gemmini.tiled_matmul_auto import Problem, Tiles, matmul

EMPTY: dict[str, object] = {}
BUFFERS = (
    Buffer("local", "spad", "a", 0, 1, SPAD_ROWS),
    Buffer("sums", "acc", "acc", 0, 1, ACC_ROWS),
)
"""The memories as they are: the library's addresses are its own."""


def library_chip(parameters: Mapping[str, int] | None = None) -> HardwareSpec:
    """The chip, its instructions issued by its loop units, which can pad the scratchpad."""
    data = read_document(ROOT / "hw_specs" / "gemmini.yaml").data
    assert isinstance(data, dict)
    intrinsics = data["intrinsics"]
    assert isinstance(intrinsics, dict)
    padding: dict[str, object] = {
        "unit": "load",
        "iterators": {"c": "1..DIM"},
        "semantics": "dst[c] = 0",
        "operands": {"dst": {"memory": "spad"}},
        "loops": {
            "r": {"extent": "1..DIM", "strides": {"dst": 1}},
            "b": {"extent": "1..4", "lanes": "all", "strides": {"dst": "0..16383"}},
        },
        "cycles": "2 + r",
        "emit": "",
    }
    given: dict[str, object] = {
        **data,
        "units": dict.fromkeys(("load", "execute", "store"), EMPTY),
        "intrinsics": {**intrinsics, "pad": padding},
        "issue": {"cycles": 1},
    }
    return parse_hardware(given, parameters or {})


def library_program(
    problem: Problem, hardware: HardwareSpec, tiles: Tiles | None = None
) -> Program:
    """The stream for a product of tensors `a`, `b` and perhaps `bias`, the result being `c`."""
    p = problem
    assert p.n % DIM == 0, p
    assert p.k % DIM == 0, p
    images = [_image("a", "int8", p.m, p.k), _image("b", "int8", p.k, p.n)]
    if p.bias != "none":
        rows = () if p.bias == "repeating" else (p.m,)
        images.append(_image("bias", "int32", *rows, p.n))
    c = _image("c", "int32" if p.full_c else "int8", p.m, p.n, output=True)
    names = {"A": "a_image", "B": "b_image", "C": "c_image", "D": "bias_image"}
    return _program(hardware, "gemm", (*images, c), names, matmul(p, tiles))


def library_convolution(
    problem: Convolution, hardware: HardwareSpec, tiles: ConvTiles | None = None
) -> Program:
    """The stream for a convolution of tensors `x` and `w`, the result being `y`."""
    p = problem
    assert p.channels % DIM == 0, p
    assert p.outputs % DIM == 0, p
    images = (
        _image("x", "int8", p.batch, p.size, p.size, p.channels),
        _image("w", "int8", p.kernel, p.kernel, p.channels, p.outputs),
        _image("y", "int8", p.batch, p.out_size, p.out_size, p.outputs, output=True),
    )
    names = {"A": "x_image", "B": "w_image", "C": "y_image"}
    return _program(hardware, "conv", images, names, convolution(p, tiles))


def _program(
    hardware: HardwareSpec,
    workload: str,
    images: tuple[Image, ...],
    names: Mapping[str, str],
    stream: Iterable[Instruction],
) -> Program:
    body = tuple(_configured(hardware, _Calls(hardware, names).of(stream)))
    inputs = tuple(i.tensor for i in images if i.role == "input")
    outputs = tuple(i.tensor for i in images if i.role == "output")
    return Program("library", hardware.name, workload, inputs, outputs, images, BUFFERS, (), body)


def _image(name: str, dtype: str, *shape: int, output: bool = False) -> Image:
    """A tensor as it is."""
    index = tuple(Name(f"p{axis}") for axis in range(len(shape)))
    role = "output" if output else "input"
    return Image(f"{name}_image", name, role, dtype, shape, (), index, 0)


@dataclass(frozen=True, slots=True)
class _Moved:
    """An operand: where it starts, and its step in the intrinsic's own loops."""

    name: str
    buffer: str
    address: int
    steps: tuple[int, ...]


@dataclass
class _Calls:
    """Turns macros into calls, one after the other. `images`: by their names in the stream."""

    hardware: HardwareSpec
    images: Mapping[str, str]
    site: int = 0
    held: int = 0
    """The block of weights in the array."""
    loads: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """Of each set of load parameters, a row's bytes and the rows from block to block."""
    row: int = 0
    """Bytes of a row that is stored."""
    relu: bool = False
    scale: float = 1.0

    def of(self, stream: Iterable[Instruction]) -> Iterator[Call]:
        """Calls in order; equal ones are one object, of one site."""
        preload: Instruction = ("", ())
        known: dict[object, Call] = {}
        for instruction in stream:
            name, arguments = instruction
            match name.removeprefix("gemmini_extended_").removeprefix("gemmini_"):
                case "preload":
                    preload = instruction
                    if arguments[0] != GARBAGE:
                        (self.held,) = numbers(arguments[:1])
                case "extended3_config_ld" | "extended4_config_ld":
                    stride, *between, register = numbers((arguments[0], *arguments[3:]))
                    self.loads[register] = stride, between[0] if between else DIM
                case "config_st":
                    self.row, relu = numbers(arguments[:2])
                    self.relu, self.scale = bool(relu), float(str(arguments[2]))
                case "config_ex" | "fence":
                    pass
                case macro:
                    first, held = (preload, self.held) if "compute" in macro else (("", ()), 0)
                    key = first, instruction, held, tuple(self.loads.items())
                    if key not in known:
                        known[key] = self._made(macro, first[1], arguments)
                    yield known[key]

    def _made(
        self, macro: str, preload: tuple[Argument, ...], arguments: tuple[Argument, ...]
    ) -> Call:
        match macro:
            case "mvin":
                return self._load(0, arguments)
            case "mvin2":
                return self._load(1, arguments)
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
        register: tuple[str, int] | None,
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
            registers=() if register is None else (register,),
            fresh=None if fresh is None else Const(int(fresh)),
        )

    def _load(self, register: int, arguments: tuple[Argument, ...]) -> Call:
        source = arguments[0]
        address, columns, rows = numbers(arguments[1:])
        row, between = self.loads[register]
        blocks = -(-columns // DIM)
        operands = [_Moved("dst", "local", address, (1, between))]
        if not isinstance(source, Dram):
            return self._call("pad", operands, (rows, blocks), None)
        operands.append(_Moved("src", self.images[source.tensor], source.offset_bytes, (row, DIM)))
        return self._call("mvin", operands, (rows, blocks), ("move_in", register))

    def _load_sums(self, arguments: tuple[Argument, ...]) -> Call:
        source = arguments[0]
        address, columns, rows = numbers(arguments[1:])
        assert columns == DIM
        operands = [_Moved("dst", "sums", address & ~ACCUMULATOR, (1,))]
        if not isinstance(source, Dram):
            return self._call("zero", operands, (rows,), ("move_in", 2))
        row, _ = self.loads[2]
        place = _element(source.offset_bytes, 4)
        operands.append(_Moved("src", self.images[source.tensor], place, (_element(row, 4),)))
        return self._call("mvin_acc", operands, (rows,), ("move_in", 2))

    def _product(self, preload: tuple[Argument, ...], compute: tuple[Argument, ...]) -> Call:
        weights, sums, *_ = numbers(preload)
        first, _, _, rows, *_ = numbers(compute)
        operands = (
            _Moved("c", "sums", sums & ~(ACCUMULATOR | ACCUMULATE | FULL), (1,)),
            _Moved("a", "local", first, (1,)),
            _Moved("b", "local", self.held, (0,)),
        )
        name = "matmul" if sums & ACCUMULATE else "matmul_first"
        return self._call(name, operands, (rows,), ("array", 0), fresh=weights != GARBAGE)

    def _store(self, arguments: tuple[Argument, ...]) -> Call:
        target = arguments[0]
        assert isinstance(target, Dram)
        address, columns, rows = numbers(arguments[1:])
        from_row = address & ~(ACCUMULATOR | ACCUMULATE | FULL)
        image, full = self.images[target.tensor], bool(address & FULL)
        size = 4 if full else 1
        place, row = _element(target.offset_bytes, size), _element(self.row, size)
        register = ("move_out", 0)
        if full:
            operands = (_Moved("dst", image, place, (row,)), _Moved("src", "sums", from_row, (1,)))
            return self._call("mvout_full", operands, (rows,), register)
        operands = (
            _Moved("dst", image, place, (row, DIM)),
            _Moved("src", "sums", from_row, (1, DIM)),
        )
        name = "mvout_relu" if self.relu else "mvout"
        return self._call(name, operands, (rows, columns // DIM), register, scale=self.scale)


def _element(offset_bytes: int, size: int) -> int:
    assert offset_bytes % size == 0
    return offset_bytes // size


def _configured(hardware: HardwareSpec, calls: Iterable[Call]) -> Iterator[Node]:
    """The calls, and before them writes of the registers whose values they need changed."""
    state: dict[tuple[str, int], object] = {}
    known: dict[tuple[int, str], Values | None] = {}
    for call in calls:
        for name, number in call.registers:
            if (call.site, name) not in known:
                known[call.site, name] = needed(hardware, call, name)
            values = known[call.site, name]
            assert values is not None
            if state.get((name, number)) != values:
                state[name, number] = values
                yield Configure(name, number, values)
        yield call
