"""Duration of each call, from the spec's cycle expressions and the bursts of its accesses."""

from __future__ import annotations

from math import gcd, prod

from hwgen.codegen.program import Call, KernelProgram, MicroKernelDef
from hwgen.errors import HwgenError
from hwgen.spec.expression import DTYPES, Const, Expr, evaluate
from hwgen.spec.hardware import Bus, HardwareSpec, Intrinsic, Operand

from .bus import Bursts, ReadBus, split_access, write_cycles
from .periodicity import Watched
from .stream import Operation


def offchip_operand(intrinsic: Intrinsic, hardware: HardwareSpec) -> Operand | None:
    """The operand of an intrinsic that is off chip, if any."""
    for operand in intrinsic.operands:
        if hardware.memory[operand.memory].kind == "offchip":
            return operand
    return None


def entry_bytes(operand: Operand) -> int:
    """Bytes of one entry of an off-chip operand."""
    return prod(operand.shape) * DTYPES[operand.dtype]


def operand_bus(operand: Operand, hardware: HardwareSpec) -> Bus:
    return hardware.bus[hardware.memory[operand.memory].bus]


def iterations(call: Call, program: KernelProgram, extents: tuple[int, ...]) -> int:
    """Applications of the intrinsic's semantics in one call."""
    return program.kernel[call.kernel].iterations if call.kernel else prod(extents)


class CycleCosts:
    """`Costs` of the timing model: extents, and off-chip addresses modulo burst boundaries."""

    def __init__(self, program: KernelProgram, hardware: HardwareSpec) -> None:
        self.program = program
        self.hardware = hardware
        self._units = {unit.name: i for i, unit in enumerate(hardware.units)}
        self._buses = [bus.name for bus in hardware.buses]
        self._idle = {bus.name: ReadBus(bus) for bus in hardware.buses}
        self._loads: dict[str, int] = {}
        self._identity = 0

    def watched(self, call: Call) -> tuple[Watched, ...]:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        if call.kernel:
            return ()
        found = [Watched(extent) for extent in call.extents]
        operand = offchip_operand(intrinsic, self.hardware)
        if operand is not None:
            boundary = operand_bus(operand, self.hardware).burst_boundary_bytes
            size = entry_bytes(operand)
            source = next(o for o in call.operands if o.name == operand.name)
            found.append(Watched(source.address, boundary // gcd(boundary, size)))
            found += [Watched(stride) for stride in source.strides]
        return tuple(found)

    def operation(self, call: Call, values: tuple[int, ...]) -> Operation:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        self._identity += 1
        if call.kernel:
            kernel = self.program.kernel[call.kernel]
            extents = tuple(loop.extent for loop in kernel.loops)
            names = {"iterations": kernel.iterations, "operations": kernel.operations}
        else:
            extents = values[: len(call.extents)]
            names = {"iterations": prod(extents)}
        for loop, extent in zip(intrinsic.loops, extents, strict=False):
            names[loop.name] = extent
        unit = self._units[intrinsic.unit]
        operand = offchip_operand(intrinsic, self.hardware)
        if operand is None:
            cycles = _cycles(intrinsic.cycles, names)
            return Operation(self._identity, unit, intrinsic.name, call.site, cycles)
        bus = operand_bus(operand, self.hardware)
        address, *strides = values[len(call.extents) :]
        bursts = split_operand(bus, entry_bytes(operand), address, extents, tuple(strides))
        names |= {"bursts": bursts.count, "beats": bursts.total_beats}
        if operand.access == "write":
            names["transfer"] = write_cycles(bus.write, bursts)
            cycles = _cycles(intrinsic.cycles, names)
            return Operation(self._identity, unit, intrinsic.name, call.site, cycles)
        return self._read(intrinsic.name, unit, call.site, intrinsic.cycles, names, bus, bursts)

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        micro = intrinsic.micro_kernel
        assert micro is not None
        bus, size = self.hardware.bus[micro.bus], micro.operation_bytes
        bursts = split_access(bus, first * size, kernel.operations * size, 1, 0, size)
        names = {"operations": kernel.operations, "bursts": bursts.count}
        names["beats"] = bursts.total_beats
        self._identity += 1
        unit = self._units[intrinsic.unit]
        return self._read(micro.load_name, unit, call.site, micro.load_cycles, names, bus, bursts)

    def _read(
        self,
        name: str,
        unit: int,
        site: int,
        cycles: Expr,
        names: dict[str, int],
        bus: Bus,
        bursts: Bursts,
    ) -> Operation:
        fixed = _cycles(cycles, {**names, "transfer": 0})
        alone = self._idle[bus.name].read_cycles(bursts)
        if _cycles(cycles, {**names, "transfer": alone}) != fixed + alone:
            raise HwgenError(
                "H769",
                f"the cycles of {name} are not a constant plus its transfer",
                location=self.hardware.location,
                field=f"intrinsics.{name}.cycles",
                found=str(cycles),
                allowed="an expression of the form `fixed + transfer`",
                repair="state what does not overlap the transfer as the fixed part",
            )
        order = bus.priority
        return Operation(
            self._identity,
            unit,
            name,
            site,
            fixed,
            bursts,
            self._buses.index(bus.name),
            order.index(name) if name in order else len(order),
            # The fixed cycles lie around the transfer; half of them, rounded down, before it.
            fixed // 2,
        )


def split_operand(
    bus: Bus, size: int, address: int, extents: tuple[int, ...], strides: tuple[int, ...]
) -> Bursts:
    """Bursts of an off-chip operand: a row is the innermost loop where that is dense."""
    if not extents:
        return split_access(bus, address * size, size, 1, 0, size)
    *outer, inner = extents
    *steps, step = strides
    width = inner if step == 1 else 1
    if step != 1:
        outer, steps = [*outer, inner], [*steps, step]
    if len(outer) <= 1:
        rows, stride = (outer[0], steps[0]) if outer else (1, 0)
        return split_access(bus, address * size, width * size, rows, stride * size, size)
    parts: list[Bursts] = []
    for i in range(outer[0]):
        inner_extents = (*outer[1:], width)
        inner_strides = (*steps[1:], 1)
        parts.append(split_operand(bus, size, address + i * steps[0], inner_extents, inner_strides))
    return Bursts(
        tuple(b for part in parts for b in part.beats),
        tuple(e for part in parts for e in part.entries),
    )


def _cycles(expr: Expr, names: dict[str, int]) -> int:
    if isinstance(expr, Const):
        return int(expr.value)
    exact = evaluate(expr, names)
    return int(-(-exact // 1))
