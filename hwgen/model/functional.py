"""Functional simulation: a program executed call by call from what its intrinsics mean.

It knows memories, intrinsics and calls, and nothing of schedules. Calls run in stream order, as
if each finished before the next began; whether the real overlap may differ is for the
synchronisation check to say. On-chip memories start poisoned and nothing undefined is ever read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from hwgen.codegen.nodes import Code
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.intervals import interval

from .callsite import CallSite, Plan
from .code import run_code
from .geometry import Dims
from .images import outside, pack, supplied, unpack
from .numeric import Array
from .state import NOBODY, State, call_error
from .trace import CallEvent, TracedCall, calls
from .workers import Workers


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that calls move between a memory and their units.

    `tensor`: the tensor that the image or buffer holds; `direction`: read or write.
    """

    tensor: str
    direction: str
    memory: str
    bytes: int


@dataclass(frozen=True, slots=True)
class FunctionalResult:
    """What a program computes, and what it takes.

    `outputs`: row-major arrays by tensor name. `micro_operations`: distinct ones in use, by
    micro-kernel memory. `iterations`: executed, by intrinsic. `instances`, `read_elements`: of the
    statements that a processor ran.
    """

    outputs: dict[str, Array]
    traffic: tuple[Traffic, ...]
    calls: int
    iterations: dict[str, int]
    micro_operations: dict[str, int]
    instances: int = 0
    read_elements: int = 0

    def traffic_bytes(self, memory: str, tensor: str = "", direction: str = "") -> int:
        """Bytes in and out of a memory, perhaps of one tensor or in one direction only."""
        return sum(
            t.bytes
            for t in self.traffic
            if t.memory == memory and tensor in ("", t.tensor) and direction in ("", t.direction)
        )


@np.errstate(all="ignore")
def run(
    program: Program,
    hardware: HardwareSpec,
    inputs: Mapping[str, Array],
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    check: bool = True,
) -> FunctionalResult:
    """Execute a program on row-major input tensors.

    Args:
        program: what to execute.
        hardware: the chip that it is for.
        inputs: a tensor for every name in `program.inputs`; bfloat16 as its 16 bits.
        shapes: the outputs' shapes; without it, as far as their images' indices reach.
        check: whether to look for undefined reads and hazards too. Bounds are always checked.

    Raises:
        HwgenError: H711 outside a memory, H712 outside the operand's buffer or slot, H713
            address field, H714 extent, H715 stride, H716 immediate, H717 undefined read,
            H718 last writer, H719 micro-operation capacity, H720 rewrite distance, H721 result
            latency, H722 variant, H723 a call that does not restate its micro-kernel, H724
            output not written, H725 image, H726 input tensor, H727 undefined arithmetic, H728
            malformed call, H751 iterations that run at once and touch the same.
    """
    machine = _Machine(program, hardware, check, dict(shapes or {}))
    machine.load(inputs)
    count = 0
    for part in program.parts:
        if isinstance(part, Code):
            machine.code(part)
            continue
        machine.enter(part)
        for event in calls(part):
            machine.step(event)
            count += 1
    return machine.result(count)


class _Machine:
    """The state of all memories; one per run. `arrays`: the tensors that the host has."""

    def __init__(
        self,
        program: Program,
        hardware: HardwareSpec,
        check: bool,
        shapes: dict[str, tuple[int, ...]],
    ) -> None:
        self.state = State(program, hardware)
        self.workers = Workers(self.state)
        self.hardware = hardware
        self.arrays: dict[str, Array] = {}
        self.instances = self.read_elements = 0
        self.shapes = shapes | {a.name: a.extents for a in program.between}
        self.check = check
        self.sites: dict[int, CallSite] = {}
        self.variants: dict[tuple[str, int], int] = {}
        self.micro_operations: dict[str, int] = {}

    def load(self, inputs: Mapping[str, Array]) -> None:
        """Take the inputs."""
        missing = [name for name in self.state.program.inputs if name not in inputs]
        if missing:
            raise HwgenError(
                "H726",
                "an input tensor is missing",
                found=", ".join(inputs) or "none",
                allowed=", ".join(self.state.program.inputs),
                repair=f"give {', '.join(missing)}",
            )
        for name in self.state.program.inputs:
            self.arrays[name] = np.asarray(inputs[name])
        for image in self.state.program.images:
            if image.supplied is not None:
                self.arrays[image.tensor] = supplied(image)

    def enter(self, part: Program) -> None:
        """Begin a run of units: nothing of an earlier one is on the chip, and its images are as the
        host leaves them."""
        if self.sites:
            self.state.forget()
        for image in part.images:
            if image.role != "input":
                self.state.place(image, None)
                if image.role == "temporary":
                    self.state.pad(image, outside(image))
                continue
            if image.supplied is not None:  # Another image of the same may have another type.
                self.state.place(image, pack(image, supplied(image), image.dtype))
                continue
            dtype = image.tensor_dtype or image.dtype
            self.state.place(image, pack(image, self.tensor(image.tensor), dtype))

    def code(self, code: Code) -> None:
        """What the processor runs."""
        given = {name: self.tensor(name) for name in code.inputs}
        made = run_code(code, self.hardware, given)
        self.arrays |= made.outputs
        self.instances += made.instances
        self.read_elements += made.read_elements

    def tensor(self, name: str) -> Array:
        """A tensor as the host has it: given, computed by the processor, or stored by calls."""
        if name not in self.arrays:
            image = next(
                (i for i in self.state.program.images if (i.role, i.tensor) == ("output", name)),
                None,
            )
            if image is None or image.name not in self.state.images:
                raise HwgenError(
                    "H724",
                    f"{name} is read before anything has stored it",
                    field=name,
                    found="no part of the program that stores it before",
                    allowed="tensors that are given, or stored by an earlier part",
                    repair="report the workload, the spec and this message",
                )
            store = self.state.images[image.name]
            # Of what lies in between, others may read a part alone, and no more may be written.
            final = name in self.state.program.outputs
            written = np.repeat(store.writer != NOBODY, store.entry_elements) if final else None
            shape = self.shapes.get(name) or _reach(image)
            self.arrays[name] = unpack(image, store.elements, shape, written)
        return self.arrays[name]

    def step(self, event: CallEvent) -> None:
        """Check and execute one call."""
        self.workers.enter(event)
        site = self._site(event.site)
        plan = site.plan(event)
        if site.kernel is not None:
            self._variant(site, event)
        site.check_addresses(plan, event)
        plan.calls += 1
        try:
            if plan.independent:
                self._execute(site, plan.dims, event.addresses, event, plan)
            else:
                self._in_order(site, plan.dims, event.addresses, event)
        except HwgenError as error:
            if error.diagnostic.field:
                raise
            found = error.diagnostic
            raise call_error(
                found.code, found.message, event, found=found.found, allowed=found.allowed
            ) from error

    def _site(self, where: TracedCall) -> CallSite:
        known = self.sites.get(id(where))
        if known is None:
            known = CallSite(where, self.state)
            self.sites[id(where)] = known
        return known

    def _variant(self, site: CallSite, event: CallEvent) -> None:
        """Check the micro-kernel's variant and count its micro-operations once."""
        kernel, micro = site.kernel, site.intrinsic.micro_kernel
        assert kernel is not None
        assert micro is not None
        key = (kernel.name, event.variant)
        if key not in self.variants:
            site.check_variant(event)
            self.variants[key] = kernel.operations
            used = self.micro_operations.get(micro.name, 0) + kernel.operations
            self.micro_operations[micro.name] = used
            if used > micro.capacity_operations:
                raise call_error(
                    "H719",
                    "the micro-kernels of the program do not fit their memory",
                    event,
                    found=f"{used} micro-operations in {len(self.variants)} variants so far",
                    allowed=f"{micro.capacity_operations} in {micro.name}",
                    repair="use fewer variants, or hardware loops in place of micro-operations",
                )
        if event.addresses != kernel.bases[event.variant]:
            raise call_error(
                "H723",
                "a call does not restate the addresses of its micro-kernel",
                event,
                found=str(list(event.addresses)),
                allowed=f"{list(kernel.bases[event.variant])}, as in variant {event.variant}",
            )

    def _in_order(
        self, site: CallSite, dims: Dims, addresses: tuple[int, ...], event: CallEvent
    ) -> None:
        """Execute iterations one after the other as far down as one depends on another."""
        if not dims or site.independent(dims, addresses):
            self._execute(site, dims, addresses, event, None)
            return
        if site.apart(dims, addresses):
            (written,) = site.semantics.written
            again = tuple(d for d in dims if not d.strides[written])
            rest = tuple(d for d in dims if d.strides[written])
            for point in product(*(range(d.extent) for d in again)):
                moves = zip(*(d.strides for d in again), strict=True)
                steps = (sum(i * k for i, k in zip(point, s, strict=True)) for s in moves)
                moved = tuple(a + s for a, s in zip(addresses, steps, strict=True))
                self._execute(site, rest, moved, event, None)
            return
        outer = dims[0]
        for i in range(outer.extent):
            moved = tuple(a + i * k for a, k in zip(addresses, outer.strides, strict=True))
            self._in_order(site, dims[1:], moved, event)

    def _execute(
        self,
        site: CallSite,
        dims: Dims,
        addresses: tuple[int, ...],
        event: CallEvent,
        plan: Plan | None,
    ) -> None:
        regions = plan.regions if plan else site.regions(dims)
        if self.check:
            for i in site.reads:
                site.operands[i].check_defined(regions[i], addresses[i], event, self.state.writers)
            if self.workers.inside:
                for operand, where, address in zip(site.operands, regions, addresses, strict=True):
                    self.workers.touch(operand, where, address, event)
        site.executor.apply(dims, addresses)
        for written in site.semantics.written:
            site.operands[written].mark(regions[written], addresses[written], site.writer)

    def result(self, count: int) -> FunctionalResult:
        """Unpack the outputs and add up the traffic."""
        stored = {i.tensor for i in self.state.program.images if i.role == "output"}
        held = stored.union(self.arrays)
        traffic: dict[tuple[str, str, str], int] = {}
        iterations: dict[str, int] = {}
        for site in self.sites.values():
            done = site.iterations()
            name = site.intrinsic.name
            iterations[name] = iterations.get(name, 0) + done
            for operand in site.operands:
                for direction in operand.directions:
                    key = (operand.tensor, direction, operand.rule.memory)
                    moved = done * operand.span * operand.store.entry_bytes
                    traffic[key] = traffic.get(key, 0) + moved
        return FunctionalResult(
            {name: self.tensor(name) for name in self.state.program.outputs if name in held},
            tuple(Traffic(*key, total) for key, total in sorted(traffic.items())),
            count,
            dict(sorted(iterations.items())),
            dict(sorted(self.micro_operations.items())),
            self.instances,
            self.read_elements,
        )


def _reach(image: Image) -> tuple[int, ...]:
    ranges = {f"p{a}": (0, extent - 1) for a, extent in enumerate(image.outer + image.lanes)}
    return tuple(interval(index, ranges)[1] + 1 for index in image.index)
