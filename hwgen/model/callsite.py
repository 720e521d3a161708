"""A call site against its intrinsic: names resolved once, numbers checked once per combination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwgen.codegen.program import KernelLoop, MicroKernelDef
from hwgen.errors import HwgenError
from hwgen.spec.hardware import Intrinsic
from hwgen.spec.ranges import Range

from .execution import Executor, Semantics, semantics
from .geometry import (
    Dims,
    Region,
    independent,
    injective,
    iterations,
    normalised,
    overlap,
    reach,
    region,
    rewritten_operation,
    stale_iteration,
)
from .numeric import Value, cast
from .state import SiteOperand, State, call_error
from .trace import CallEvent, TracedCall


@dataclass(slots=True)
class Plan:
    """What one combination of extents, strides and relative addresses comes to.

    `fields`: lowest and highest offset that an address field holds, per operand. `reaches`:
    lowest and highest entry touched. `calls`: how often it was executed.
    """

    dims: Dims
    fields: tuple[tuple[int, int], ...]
    reaches: tuple[tuple[int, int], ...]
    regions: tuple[Region, ...]
    independent: bool
    calls: int = 0


PlanKey = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]


class CallSite:
    """One call site of a program, resolved."""

    def __init__(self, site: TracedCall, state: State) -> None:
        call = site.call
        program, hardware = state.program, state.hardware
        self.site = site
        if call.intrinsic not in hardware.intrinsic:
            raise self.malformed("unknown intrinsic", call.intrinsic, ", ".join(hardware.intrinsic))
        self.intrinsic: Intrinsic = hardware.intrinsic[call.intrinsic]
        if call.unit != self.intrinsic.unit:
            raise self.malformed("wrong unit", call.unit, self.intrinsic.unit)
        expected = [o.name for o in self.intrinsic.operands]
        if [o.name for o in call.operands] != expected:
            found = ", ".join(o.name for o in call.operands)
            raise self.malformed("wrong operands", found, ", ".join(expected))
        loops = len(self.intrinsic.loops)
        if {len(call.extents), *(len(o.strides) for o in call.operands)} != {loops}:
            raise self.malformed(
                "wrong number of extents or strides", str(len(call.extents)), str(loops)
            )
        self._check_lanes(call.lanes)
        self.intrinsic = self.intrinsic.narrowed(call.lanes)
        self.kernel: MicroKernelDef | None = None
        if call.kernel or self.intrinsic.micro_kernel is not None:
            self.kernel = program.kernel.get(call.kernel)
            if self.kernel is None or self.kernel.intrinsic != call.intrinsic:
                named = ", ".join(k.name for k in program.kernels if k.intrinsic == call.intrinsic)
                raise self.malformed("wrong micro-kernel", call.kernel or "none", named or "none")
        stated = self.kernel.immediates if self.kernel else call.immediates
        if self.kernel and dict(call.immediates) != dict(stated):
            raise HwgenError(
                "H723",
                "a call does not restate the immediates of its micro-kernel",
                field=self.text(),
                found=str(dict(call.immediates)),
                allowed=str(dict(stated)),
            )
        self.immediates = self._immediates(dict(stated))
        self.semantics: Semantics = semantics(self.intrinsic)
        self.operands: tuple[SiteOperand, ...] = tuple(
            state.operand(given, rule, rule.span_of(self.intrinsic.iterators), self.text())
            for given, rule in zip(call.operands, self.intrinsic.operands, strict=True)
        )
        self.sharing = tuple(
            (w, i)
            for w in self.semantics.written
            for i, o in enumerate(self.operands)
            if i != w and o.store is self.operands[w].store
        )
        self.spans = tuple(o.span for o in self.operands)
        places = tuple(o.place for o in self.operands)
        self.executor = Executor(self.semantics, places, self.immediates)
        self.reads = tuple(i for i, o in enumerate(self.operands) if o.is_read)
        self.writer = state.writers[self.intrinsic.name]
        self._plans: dict[PlanKey, Plan] = {}
        self._regions: dict[Dims, tuple[Region, ...]] = {}
        self._independent: dict[tuple[Dims, tuple[int, ...]], bool] = {}

    def text(self) -> str:
        return f"site {self.site.call.site}: {self.site.call.intrinsic}"

    def malformed(self, what: str, found: str, allowed: str) -> HwgenError:
        return HwgenError(
            "H728", f"a malformed call: {what}", field=self.text(), found=found, allowed=allowed
        )

    def _check_lanes(self, stated: tuple[int, ...]) -> None:
        iterators = self.intrinsic.iterators
        if stated and len(stated) != len(iterators):
            raise self.malformed("wrong number of lanes", str(len(stated)), str(len(iterators)))
        for (name, extent), lanes in zip(iterators, stated, strict=False):
            allowed = Range(1 if name in self.intrinsic.partial else extent, extent)
            if lanes not in allowed:
                raise HwgenError(
                    "H714",
                    f"the lanes of {name} do not fit their field",
                    field=self.text(),
                    found=str(lanes),
                    allowed=str(allowed),
                )

    def _immediates(self, stated: Mapping[str, int | float]) -> dict[str, Value]:
        rules = {i.name: i for i in self.intrinsic.immediates}
        if set(stated) != set(rules):
            raise self.malformed("wrong immediates", ", ".join(stated), ", ".join(rules) or "none")
        values: dict[str, Value] = {}
        for name, number in stated.items():
            rule = rules[name]
            written = Value(np.asarray(number), "float64" if rule.is_float else "int64")
            value = cast(written, rule.dtype)
            kept = not rule.is_float or float(value.array.item()) == number
            if not (rule.admits(number) and kept):
                raise HwgenError(
                    "H716",
                    f"immediate {name} does not fit its field",
                    field=self.text(),
                    found=str(number),
                    allowed=rule.allowed,
                )
            values[name] = value
        return values

    def iterations(self) -> int:
        return sum(plan.calls * iterations(plan.dims) for plan in self._plans.values())

    def plan(self, event: CallEvent) -> Plan:
        """The plan of a call, made and checked when its numbers are new."""
        relative = self._relative(event.addresses)
        key = (event.extents, event.strides, relative)
        known = self._plans.get(key)
        if known is None:
            known = self._plans[key] = self._new_plan(event, relative)
        return known

    def _relative(self, addresses: tuple[int, ...]) -> tuple[int, ...]:
        """Where operands in a written one's memory are, from that one."""
        return tuple(addresses[i] - addresses[w] for w, i in self.sharing)

    def _beside(self, written: int, relative: tuple[int, ...]) -> list[tuple[int, int]]:
        """The other operands in one written operand's memory, and where."""
        pairs = zip(self.sharing, relative, strict=True)
        return [(i, at) for (w, i), at in pairs if w == written]

    def _new_plan(self, event: CallEvent, relative: tuple[int, ...]) -> Plan:
        loops = tuple(
            KernelLoop(extent, tuple(s[i] for s in event.strides))
            for i, extent in enumerate(event.extents)
        )
        self._check_loops(loops, event)
        sequence: Dims = self.kernel.sequence if self.kernel is not None else ()
        self._check_fields((*loops, *sequence), relative, event)
        if self.kernel is not None and normalised(loops) != normalised(self.kernel.loops):
            raise call_error(
                "H723",
                "a call does not restate the loops of its micro-kernel",
                event,
                found=_loops_text(loops),
                allowed=_loops_text(self.kernel.loops),
            )
        dims = normalised((*loops, *sequence))
        operands = range(len(self.operands))
        everything = (*loops, *sequence)
        latency = self.intrinsic.result_latency_iterations
        for written in self.semantics.written if latency > 1 else ():
            sharing = self._beside(written, relative)
            stale = stale_iteration(everything, written, self.spans, sharing, latency)
            if stale is not None:
                raise call_error(
                    "H721",
                    "an iteration touches a result that is not there yet",
                    event,
                    found=f"iteration {stale[0]} touches what {stale[0] - stale[1]} wrote",
                    allowed=f"at least {latency} iterations between them",
                    repair="order the loops so that consecutive iterations write other entries",
                )
        return Plan(
            dims,
            tuple(reach(sequence, i, 1) for i in operands),
            tuple(reach(dims, i, self.spans[i]) for i in operands),
            tuple(region(dims, i, self.spans[i]) for i in operands),
            self.independent(dims, event.addresses),
        )

    def _check_loops(self, loops: Dims, event: CallEvent) -> None:
        position = {loop.name: i for i, loop in enumerate(self.intrinsic.loops)}
        for number, (rule, loop) in enumerate(zip(self.intrinsic.loops, loops, strict=True)):
            if loop.extent not in rule.extent:
                raise call_error(
                    "H714",
                    f"the extent of loop {rule.name} does not fit its field",
                    event,
                    found=str(loop.extent),
                    allowed=str(rule.extent),
                )
            for i, operand in enumerate(self.operands):
                stride, steps = rule.stride(operand.rule.name), loops[number].strides[i]
                if stride.dense_after:
                    inner = loops[position[stride.dense_after]]
                    dense = inner.strides[i] * inner.extent
                    fits, allowed = steps == dense or loop.extent == 1, f"{dense}, densely"
                else:
                    fits, allowed = steps in stride.range, str(stride.range)
                if not fits:
                    raise call_error(
                        "H715",
                        f"operand {operand.rule.name} may not step so in loop {rule.name}",
                        event,
                        found=str(steps),
                        allowed=allowed,
                    )

    def _check_fields(self, loops: Dims, relative: tuple[int, ...], event: CallEvent) -> None:
        """Operands that must be the same lie in one place and move alike; and every address that a
        field holds on the way is one that it can."""
        software = self.intrinsic.software_loops
        around = (*loops[:software], *loops[len(self.intrinsic.loops) :])
        for i, operand in enumerate(self.operands):
            steps = [d.strides[i] for d in around if d.extent > 1]
            if any(s % operand.rule.address.step for s in steps):
                raise call_error(
                    "H713",
                    f"the address of operand {operand.rule.name} does not fit its field",
                    event,
                    found=f"steps of {', '.join(map(str, steps))} entries",
                    allowed=str(operand.rule.address),
                )
        names = [o.rule.name for o in self.operands]
        for (other, i), apart in zip(self.sharing, relative, strict=True):
            rule = self.operands[i].rule
            if rule.same_as != names[other]:
                continue
            steps = [(d.strides[i], d.strides[other]) for d in loops if d.extent > 1]
            if apart or any(mine != theirs for mine, theirs in steps):
                raise call_error(
                    "H750",
                    f"operand {rule.name} is elsewhere than {rule.same_as}, which it must repeat",
                    event,
                    found=f"{apart} entries apart, steps {', '.join(str(a) for a, _ in steps)}",
                    allowed=f"0 apart, steps {', '.join(str(b) for _, b in steps)}",
                    repair=f"give both operands the address and the strides of {rule.same_as}",
                )

    def check_variant(self, event: CallEvent) -> None:
        """Rules of a micro-kernel that depend on nothing but its definition and variant."""
        kernel, micro = self.kernel, self.intrinsic.micro_kernel
        assert kernel is not None
        if micro is None:
            raise self.malformed("a micro-kernel", kernel.name, "none for this intrinsic")
        if not 0 <= event.variant < len(kernel.bases):
            raise call_error(
                "H722",
                "a micro-kernel has no such variant",
                event,
                found=str(event.variant),
                allowed=f"0..{len(kernel.bases) - 1}",
            )
        if len(kernel.bases) > micro.max_variants:
            raise call_error(
                "H722",
                "a micro-kernel has too many variants",
                event,
                found=str(len(kernel.bases)),
                allowed=f"at most {micro.max_variants}",
            )
        for written in self.semantics.written:
            rewritten = rewritten_operation(kernel.sequence, written, micro.rewrite_distance)
            if rewritten is None:
                continue
            raise call_error(
                "H720",
                "a micro-operation writes where one shortly before it wrote",
                event,
                found=f"operation {rewritten[0]} writes where operation "
                f"{rewritten[0] - rewritten[1]} does",
                allowed=f"{micro.rewrite_distance} operations between equal addresses",
            )

    def check_addresses(self, plan: Plan, event: CallEvent) -> None:
        """Fields, buffers, slots and memories of one call's addresses."""
        for operand, address, fields, ends in zip(
            self.operands, event.addresses, plan.fields, plan.reaches, strict=True
        ):
            rule = operand.rule
            low, high = address + fields[0], address + fields[1]
            if low not in rule.address or high not in rule.address:
                raise call_error(
                    "H713",
                    f"the address of operand {rule.name} does not fit its field",
                    event,
                    found=f"{low}..{high}",
                    allowed=str(rule.address),
                )
            low, high = address + ends[0] - operand.base, address + ends[1] - operand.base
            if low < 0 or high >= operand.entries:
                inside = low + operand.base >= 0 and high + operand.base < operand.store.writer.size
                code, what = ("H712", "its buffer") if inside else ("H711", "its memory")
                raise call_error(
                    code,
                    f"operand {rule.name} lies outside {what}",
                    event,
                    found=f"{operand.store.name}[{low + operand.base}..{high + operand.base}]",
                    allowed=f"{operand.base}..{operand.base + operand.entries - 1}, "
                    f"that is {operand.buffer}",
                )
            stride = operand.slot_stride
            if low // stride != high // stride or high % stride >= operand.slot_entries:
                raise call_error(
                    "H712",
                    f"operand {rule.name} crosses the slots of its buffer",
                    event,
                    found=f"{operand.store.name}[{low + operand.base}..{high + operand.base}]",
                    allowed=f"one slot of {operand.slot_entries} entries ({operand.buffer})",
                )

    def regions(self, dims: Dims) -> tuple[Region, ...]:
        """What each operand touches; remembered."""
        known = self._regions.get(dims)
        if known is None:
            known = tuple(region(dims, i, span) for i, span in enumerate(self.spans))
            self._regions[dims] = known
        return known

    def independent(self, dims: Dims, addresses: tuple[int, ...]) -> bool:
        """Whether all iterations may be executed at once; remembered."""
        relative = self._relative(addresses)
        key = (dims, relative)
        known = self._independent.get(key)
        if known is None:
            known = all(
                independent(dims, w, self.spans, self._beside(w, relative))
                for w in self.semantics.written
            )
            if not known and self.semantics.reduces:
                (written,) = self.semantics.written
                sharing = self._beside(written, relative)
                moving = tuple(d for d in dims if d.strides[written])
                known = injective(moving, written, self.spans[written]) and not any(
                    overlap(dims, written, other, self.spans, at) for other, at in sharing
                )
            self._independent[key] = known
        return known

    def apart(self, dims: Dims, addresses: tuple[int, ...]) -> bool:
        """Whether every element goes on from its own last value, and nothing else is read of what
        is written: then only iterations that write the same entries depend on each other."""
        if not self.semantics.runs:
            return False
        (written,) = self.semantics.written
        moving = tuple(d for d in dims if d.strides[written])
        if not injective(moving, written, self.spans[written]):
            return False
        beside = self._beside(written, self._relative(addresses))
        return not any(overlap(dims, written, i, self.spans, at) for i, at in beside)


def _loops_text(loops: Dims) -> str:
    return ", ".join(f"{loop.extent} by {list(loop.strides)}" for loop in loops) or "none"
