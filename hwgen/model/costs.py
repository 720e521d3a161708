"""Duration of each call, from the spec's cycle expressions and the bursts of its accesses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import gcd, prod

from hwgen.codegen.nodes import Call, CallOperand
from hwgen.codegen.program import MicroKernelDef, Program
from hwgen.errors import HwgenError
from hwgen.spec.call_cycles import formula_names, run_cycles
from hwgen.spec.expression import DTYPES, Expr, evaluate
from hwgen.spec.hardware import Bus, HardwareSpec, Intrinsic, Operand
from hwgen.spec.memory import BANK_CYCLES, Banks

from .bank_cycles import banked_operands, served_cycles, touched_banks
from .bus import Bursts, ReadBus, split_rows, write_cycles
from .issuing import issuing_cycles
from .periodicity import Use, Watched
from .posted import posted_cycles
from .stream import NO_TENSOR, Operation


def entry_bytes(operand: Operand) -> int:
    """Bytes of one entry of an off-chip operand."""
    return operand.entry_elements * DTYPES[operand.dtype]


def call_span(intrinsic: Intrinsic, operand: Operand, call: Call) -> int:
    """Consecutive entries of an operand that one iteration of a call touches."""
    return operand.span_of(intrinsic.narrowed(call.lanes).iterators)


def iterations(call: Call, program: Program, extents: tuple[int, ...]) -> int:
    """Applications of the intrinsic's semantics in one call."""
    return program.kernel[call.kernel].iterations if call.kernel else prod(extents)


class CycleCosts:
    """`Costs` of the timing model: extents, and off-chip addresses modulo burst boundaries."""

    def __init__(self, program: Program, hardware: HardwareSpec) -> None:
        self.program = program
        self.hardware = hardware
        self._units = {unit.name: i for i, unit in enumerate(hardware.units)}
        self._buses = [bus.name for bus in hardware.buses]
        self._idle = {bus.name: ReadBus(bus) for bus in hardware.buses}
        # Tensors that somebody posts writes to may have to be waited for.
        self._tensors = {
            t: n for n, t in enumerate(dict.fromkeys(i.tensor for i in program.images))
        }
        self._identity = 0
        # What the formula of the last operation was given.
        self.given: Mapping[str, int] = {}
        # By the object, which the program keeps, and extents.
        self._issued: dict[tuple[int, tuple[int, ...]], int] = {}

    def watched(self, call: Call) -> tuple[Watched, ...]:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        if call.kernel:
            return ()
        found = [Watched(extent) for extent in call.extents]
        found += [Watched(step) for step in held_steps(call, intrinsic)]
        if call.fresh is not None:
            found.append(Watched(call.fresh))
        operand = self.hardware.offchip_operand(intrinsic)
        if operand is not None:
            boundary = self.hardware.bus_of(operand).burst_boundary_bytes
            size = entry_bytes(operand)
            source = next(o for o in call.operands if o.name == operand.name)
            found.append(Watched(source.address, boundary // gcd(boundary, size)))
            found += [Watched(stride) for stride in source.strides]
        for given, banks in self._banked(call, intrinsic):
            found.append(Watched(given.address, banks.turn))
            found += [Watched(stride) for stride in given.strides]
        return tuple(found)

    def touched(self, call: Call) -> tuple[Use, ...]:
        del call
        return ()

    def _banked(self, call: Call, intrinsic: Intrinsic) -> list[tuple[CallOperand, Banks]]:
        given = {o.name: o for o in call.operands}
        return [(given[o.name], banks) for o, banks, _ in banked_operands(intrinsic, self.hardware)]

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
        instructions = intrinsic.instructions * prod(extents[: intrinsic.software_loops])
        issuing = self._issuing(call, extents)
        steps = values[len(extents) : len(extents) + len(held_steps(call, intrinsic))]
        unit = self._units[intrinsic.unit]
        operand = self.hardware.offchip_operand(intrinsic)
        fixed = len(call.extents) + len(steps)
        fresh = call.fresh is None or bool(values[fixed])
        names |= self._served(intrinsic, extents, values)

        def cycles_of(transfer: Mapping[str, int]) -> int:
            self.given = formula_names(intrinsic, extents, {**names, **transfer})
            return _whole(run_cycles(intrinsic, extents, steps, self.given, fresh=fresh))

        def off_bus() -> Operation:
            return Operation(
                self._identity, unit, intrinsic.name, call.site, max(cycles_of({}), issuing),
                instructions=instructions, issuing=issuing,
            )  # fmt: skip

        if operand is None:
            return off_bus()
        bus = self.hardware.bus_of(operand)
        start = fixed + (call.fresh is not None)
        address, *strides = values[start : start + 1 + len(extents)]
        span = call_span(intrinsic, operand, call)
        bursts = split_operand(bus, entry_bytes(operand), span, address, extents, tuple(strides))
        names |= {"bursts": bursts.count, "beats": bursts.total_beats}
        tensor = NO_TENSOR
        if bus.write.posted_bursts:
            buffer = next(o.buffer for o in call.operands if o.name == operand.name)
            tensor = self._tensors[self.program.image[buffer].tensor]
        if operand.access == "write" and bus.write.posted_bursts:
            handed = posted_cycles(bus.write, bursts)
            cycles = max(cycles_of({"transfer": 0}), issuing - handed)
            # They lie around the transfer, as the fixed cycles of a read do.
            return Operation(
                self._identity, unit, intrinsic.name, call.site, cycles, bursts,
                self._buses.index(bus.name), lead=cycles // 2, instructions=instructions,
                issuing=issuing, posts=True, tensor=tensor,
            )  # fmt: skip
        if operand.access == "write":
            names["transfer"] = write_cycles(bus.write, bursts)
            return off_bus()
        # What is updated is written once it is read.
        updates = operand.access == "update"
        posts = updates and bus.write.posted_bursts > 0
        after = write_cycles(bus.write, bursts) if updates and not posts else 0
        read = self._read(intrinsic.name, unit, call.site, cycles_of, bus, bursts, after)
        return replace(read, instructions=instructions, issuing=issuing, tensor=tensor, posts=posts)

    def _issuing(self, call: Call, extents: tuple[int, ...]) -> int:
        """Cycles in which a host issues a call."""
        if self.hardware.issue is None:
            return 0
        key = (id(call), extents)
        if key not in self._issued:
            self._issued[key] = issuing_cycles(call, extents, self.hardware)
        return self._issued[key]

    def alone(self, operation: Operation) -> int:
        """Cycles that an operation keeps its unit busy for while nobody else is on its bus and all
        that was posted before is written."""
        if operation.bursts is None:
            return operation.cycles
        bus = self.hardware.buses[operation.bus]
        posted = posted_cycles(bus.write, operation.bursts) if operation.posts else 0
        read = self._idle[bus.name].read_cycles(operation.bursts) if operation.reads else 0
        return operation.cycles + posted + read

    def _served(
        self, intrinsic: Intrinsic, extents: tuple[int, ...], values: tuple[int, ...]
    ) -> dict[str, int]:
        """`bank_cycles`, from the last of the watched values."""
        operands = list(banked_operands(intrinsic, self.hardware))
        if not operands:
            return {}
        touched = touched_banks(operands, values[-len(operands) * (1 + len(extents)) :])
        cycles = served_cycles(intrinsic.iterations_per_cycle, extents, touched)
        return {BANK_CYCLES: cycles}

    def kernel_load(self, call: Call, kernel: MicroKernelDef, first: int) -> Operation:
        intrinsic = self.hardware.intrinsic[call.intrinsic]
        micro = intrinsic.micro_kernel
        assert micro is not None
        bus, size = self.hardware.bus[micro.bus], micro.operation_bytes
        bursts = split_rows(bus, first * size, kernel.operations * size, (), (), size)
        names = {"operations": kernel.operations, "bursts": bursts.count}
        names["beats"] = bursts.total_beats
        self._identity += 1
        unit = self._units[intrinsic.unit]

        def cycles_of(transfer: Mapping[str, int]) -> int:
            self.given = {**names, **transfer}
            return _whole(evaluate(micro.load_cycles, self.given))

        return self._read(micro.load_name, unit, call.site, cycles_of, bus, bursts)

    def _read(
        self,
        name: str,
        unit: int,
        site: int,
        cycles_of: Callable[[Mapping[str, int]], int],
        bus: Bus,
        bursts: Bursts,
        after: int = 0,
    ) -> Operation:
        """`after`: cycles of the transfer that follow what is read."""
        fixed = cycles_of({"transfer": 0})
        alone = self._idle[bus.name].read_cycles(bursts) + after
        if cycles_of({"transfer": alone}) != fixed + alone:
            raise HwgenError(
                "H769",
                f"the cycles of {name} are not a constant plus its transfer",
                location=self.hardware.location,
                field=f"intrinsics.{name}.cycles",
                found=f"{fixed} cycles without it, {cycles_of({'transfer': alone})} with {alone}",
                allowed="an expression of the form `fixed + transfer`",
                repair="state what does not overlap the transfer as the fixed part",
            )
        order = bus.priority
        return Operation(
            self._identity,
            unit,
            name,
            site,
            fixed + after,
            bursts,
            self._buses.index(bus.name),
            order.index(name) if name in order else len(order),
            # The fixed cycles lie around the transfer; half of them, rounded down, before it.
            fixed // 2,
            reads=True,
        )


def split_operand(
    bus: Bus,
    size: int,
    span: int,
    address: int,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
) -> Bursts:
    """Bursts of an off-chip operand of `span` entries of `size` bytes: a row is the innermost loop
    where that is dense."""
    outer, steps = list(extents), list(strides)
    width = span
    if outer and steps[-1] == span:
        width *= outer.pop()
        steps.pop()
    in_bytes = tuple(step * size for step in steps)
    return split_rows(bus, address * size, width * size, tuple(outer), in_bytes, size)


def held_steps(call: Call, intrinsic: Intrinsic) -> tuple[Expr, ...]:
    """How the stationary operand moves in each loop, where there is one."""
    held = intrinsic.stationary
    if held is None:
        return ()
    return next(o.strides for o in call.operands if o.name == held.operand)


def _whole(cycles: float) -> int:
    return int(-(-cycles // 1))
